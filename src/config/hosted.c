// Owns the option rows of `hosted`: how users connect their accounts.
#include "auth/oauth/oauth.h"
#include "tables.h"
#include <string.h>

static const struct option rows[] = {
    {.name = "allow_unbound_tickets",
     .type = OPTION_BOOL,
     .offset = offsetof(struct config_hosted, allow_unbound_tickets),
     .fallback = "false",
     .help =
         "Accept a connect link from a browser that no provider can authenticate. Then only the link binds the account "
         "to the user: a person who is tricked into opening another user's link connects their own account to that "
         "user. See docs/security.md."},
    {.name = "lifetime",
     .type = OPTION_DURATION,
     .offset = offsetof(struct config_hosted, lifetime_ms),
     .fallback = "600",
     .min = 1000,
     .max = 600000,
     .help = "How long a connect link, and the login that begins with it, stay valid."},
    {.name = "return_to",
     .type = OPTION_STRINGS,
     .offset = offsetof(struct config_hosted, return_to),
     .help =
         "Origins (scheme://host:port) that `/oauth/connect/SERVER?return_to=URL` may send a browser back to after the "
         "account is connected. If absent, the gateway shows a page that confirms it, and refuses `return_to`."},
    {.name = "authorization_servers",
     .type = OPTION_STRINGS,
     .offset = offsetof(struct config_hosted, authorization_servers),
     .help = "Domains like \"login.example.com\" or \"*.example.com\": the gateway gets tokens only from authorization "
             "servers in these domains. If absent: from any that servers name."},
    {0},
};

// An origin as browsers write it: nothing follows the host and port.
static bool check(void *object, const struct option_place *place, struct err *err)
{
    const struct config_hosted *config = object;
    for (char *const *origin = config->return_to; origin && *origin; origin++) {
        struct oauth_url url;
        if (!oauth_url_parse(*origin, &url) || url.origin.len != strlen(*origin) || !oauth_url_secure(*origin))
            return err_set(
                err, ERR_CONFIG,
                "%s: %s/return_to: \"%s\" is not an origin; write https://HOST or https://HOST:PORT (http:// for "
                "this host only), without a path",
                place->file, place->path, *origin);
    }
    for (char *const *domain = config->authorization_servers; domain && *domain; domain++)
        if (!oauth_issuer_domain_valid(*domain))
            return err_set(err, ERR_CONFIG,
                           "%s: %s/authorization_servers: \"%s\" is not a domain; write it like login.example.com",
                           place->file, place->path, *domain);
    return true;
}

const struct option_table config_hosted_options = {"Connecting users' accounts (hosted)", sizeof(struct config_hosted),
                                                   rows, check};

bool config_hosted_url_ok(const struct config *config)
{
    const char *url = config->public_url;
    return !url || (oauth_url_secure(url) && !strchr(url, '?'));
}
