// Owns the list of pages where well-known services issue tokens, for servers without usable OAuth (L15).
#include "auth/oauth/oauth.h"
#include "state.h"
#include <stdio.h>
#include <strings.h>

// A host, including its subdomains.
// clang-format off
static const struct {
    const char *host, *what, *where;
} hints[] = {
    {"atlassian.com",     "an API token of Atlassian",          "https://id.atlassian.com/manage-profile/security/api-tokens"},
    {"cloudflare.com",    "an API token of Cloudflare",         "https://dash.cloudflare.com/profile/api-tokens"},
    {"github.com",        "a personal access token of GitHub",  "https://github.com/settings/personal-access-tokens"},
    {"githubcopilot.com", "a personal access token of GitHub",  "https://github.com/settings/personal-access-tokens"},
    {"gitlab.com",        "a personal access token of GitLab",  "https://gitlab.com/-/user_settings/personal_access_tokens"},
    {"huggingface.co",    "a user access token",                "https://huggingface.co/settings/tokens"},
    {"hf.co",             "a user access token",                "https://huggingface.co/settings/tokens"},
    {"linear.app",        "a personal API key of Linear",       "https://linear.app/settings/account/security"},
    {"neon.tech",         "an API key of Neon",                 "https://console.neon.tech/app/settings/api-keys"},
    {"notion.com",        "an integration token of Notion",     "https://www.notion.so/profile/integrations"},
    {"sentry.dev",        "a user auth token of Sentry",        "https://sentry.io/settings/account/api/auth-tokens/"},
    {"sentry.io",         "a user auth token of Sentry",        "https://sentry.io/settings/account/api/auth-tokens/"},
    {"slack.com",         "a token of a Slack app",             "https://api.slack.com/apps"},
    {"stripe.com",        "a restricted API key of Stripe",     "https://dashboard.stripe.com/apikeys"},
    {"supabase.com",      "a personal access token of Supabase", "https://supabase.com/dashboard/account/tokens"},
};
// clang-format on

static bool is_below(struct span host, const char *top)
{
    size_t len = strlen(top);
    return host.len >= len && strncasecmp(host.at + host.len - len, top, len) == 0 &&
           (host.len == len || host.at[host.len - len - 1] == '.');
}

bool login_hint(const char *server_url, const char **what, const char **where)
{
    struct oauth_url url;
    if (!oauth_url_parse(server_url, &url))
        return false;
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (is_below(url.host, hints[i].host)) {
            *what = hints[i].what;
            *where = hints[i].where;
            return true;
        }
    return false;
}

void login_hint_instead(const struct server *server, bool by_url)
{
    const char *what, *where;
    if (login_hint(server->url, &what, &where))
        fprintf(stderr, "postern: if the server accepts %s, issued at %s: postern login %s%s --token-stdin\n", what,
                where, by_url ? "--url " : "", by_url ? server->url : server->name);
}
