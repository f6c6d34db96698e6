// Owns the option rows of `hosted`: how users connect their accounts.
#include "auth/oauth/oauth.h"
#include "tables.h"
#include <string.h>

static const struct option rows[] = {
    {.name = "allow_unbound_tickets",
     .type = OPTION_BOOL,
     .offset = offsetof(struct config_hosted, allow_unbound_tickets),
     .fallback = "false",
     .help = "Accept a connect link from a browser that no provider can authenticate. Then only the link binds the "
             "account to the user: a user who is tricked into opening another user's link connects their own account "
             "to that other user. See docs/security.md."},
    {.name = "lifetime",
     .type = OPTION_DURATION,
     .offset = offsetof(struct config_hosted, lifetime_ms),
     .fallback = "600",
     .min = 1000,
     .max = 600000,
     .help = "How long a connect link, and the login that starts from it, are valid."},
    {.name = "return_to",
     .type = OPTION_STRINGS,
     .offset = offsetof(struct config_hosted, return_to),
     .help = "Origins (scheme://host:port) to which `/oauth/connect/SERVER?return_to=URL` may redirect a browser after "
             "the account is connected. If absent, `return_to` is refused, and the gateway shows a confirmation page."},
    {.name = "authorization_servers",
     .type = OPTION_STRINGS,
     .offset = offsetof(struct config_hosted, authorization_servers),
     .help = "Domains such as \"login.example.com\" or \"*.example.com\". The gateway gets tokens only from "
             "authorization servers in these domains; if absent, from every authorization server that a server names."},
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
