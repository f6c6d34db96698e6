// Owns the option rows of `hosted`: how users connect their accounts.
#include "auth/oauth/oauth.h"
#include "tables.h"
#include <string.h>

static const struct option rows[] = {
    {.name = "allow_unbound_tickets",
     .type = OPTION_BOOL,
     .offset = offsetof(struct config_hosted, allow_unbound_tickets),
     .fallback = "false",
     .help = "Let a connect link be used by a browser of which no provider can tell whose it is. The link is then all "
             "that binds the account to the user: who is talked into opening another's link connects their own account "
             "to that user. See docs/security.md."},
    {.name = "lifetime",
     .type = OPTION_DURATION,
     .offset = offsetof(struct config_hosted, lifetime_ms),
     .fallback = "600",
     .min = 1000,
     .max = 600000,
     .help = "How long a connect link, and the login that begins with it, may take."},
    {.name = "return_to",
     .type = OPTION_STRINGS,
     .offset = offsetof(struct config_hosted, return_to),
     .help =
         "Origins (scheme://host:port) that `/oauth/connect/SERVER?return_to=URL` may send a browser back to when the "
         "account is connected. Without it there is a page that says so, and no `return_to` is taken."},
    {.name = "authorization_servers",
     .type = OPTION_STRINGS,
     .offset = offsetof(struct config_hosted, authorization_servers),
     .help =
         "Domains like \"login.example.com\" or \"*.example.com\": the gateway gets tokens from authorization servers "
         "there and from no others. If absent: from any that servers name."},
    {0},
};

// An origin as browsers write it: nothing behind the host and port.
static bool check(void *object, const struct option_place *place, struct err *err)
{
    const struct config_hosted *config = object;
    for (char *const *origin = config->return_to; origin && *origin; origin++) {
        struct oauth_url url;
        if (!oauth_url_parse(*origin, &url) || url.origin.len != strlen(*origin) || !oauth_url_secure(*origin))
            return err_set(
                err, ERR_CONFIG,
                "%s: %s/return_to: \"%s\" is no origin: write https://HOST or https://HOST:PORT (http:// for "
                "this host alone), without a path",
                place->file, place->path, *origin);
    }
    for (char *const *domain = config->authorization_servers; domain && *domain; domain++)
        if (!oauth_issuer_domain_valid(*domain))
            return err_set(err, ERR_CONFIG, "%s: %s/authorization_servers: \"%s\" is no domain", place->file,
                           place->path, *domain);
    return true;
}

const struct option_table config_hosted_options = {"Connecting users' accounts (hosted)", sizeof(struct config_hosted),
                                                   rows, check};

bool config_hosted_url_ok(const struct config *config)
{
    const char *url = config->public_url;
    return !url || (oauth_url_secure(url) && !strchr(url, '?'));
}
