// Owns comparing issuers, and the check of their domains.
#include "auth/oauth/oauth.h"
#include <strings.h>

bool oauth_issuer_matches(const char *expected, const char *found)
{
    struct oauth_url a, b;
    if (!expected || !found || !oauth_url_parse(expected, &a) || !oauth_url_parse(found, &b))
        return false;
    if (strcmp(expected, found) == 0)
        return true;
    bool bare = a.path.len <= 1 && b.path.len <= 1 && !a.query.len && !b.query.len;
    return bare && a.path.len != b.path.len && span_equal(a.origin, b.origin);
}

static bool is_domain(struct span host, const char *domain)
{
    size_t len = strlen(domain);
    if (domain[0] != '*')
        return host.len == len && strncasecmp(host.at, domain, len) == 0;
    return host.len > --len && strncasecmp(host.at + host.len - len, domain + 1, len) == 0;
}

bool oauth_issuer_allowed(const char *issuer, char *const *domains)
{
    struct oauth_url url;
    if (!domains)
        return true;
    if (!oauth_url_parse(issuer, &url))
        return false;
    for (; *domains; domains++)
        if (is_domain(url.host, *domains))
            return true;
    return false;
}

bool oauth_issuer_domain_valid(const char *domain)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.";
    if (strncmp(domain, "*.", 2) == 0)
        domain += 2;
    return *domain && *domain != '.' && domain[strspn(domain, letters)] == '\0' && !strstr(domain, "..");
}
