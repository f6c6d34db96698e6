// Owns the connect pages as a whole: their options, what they need at the start, their sweep and their end.
#include "hosted.h"
#include "base/mem.h"
#include <stdlib.h>

#define BUCKETS_MAX 16384
#define SWEEP_MS 500
#define EXPIRE_SWEEPS 120

static const struct option rows[] = {
    {.name = "allow_unbound_tickets",
     .type = OPTION_BOOL,
     .offset = offsetof(struct hosted_config, allow_unbound_tickets),
     .fallback = "false",
     .help = "Let a connect link be used by a browser of which no provider can tell whose it is. The link is then all "
             "that binds the account to the user: who is talked into opening another's link connects their own account "
             "to that user. See docs/security.md."},
    {.name = "lifetime",
     .type = OPTION_DURATION,
     .offset = offsetof(struct hosted_config, lifetime_ms),
     .fallback = "600",
     .min = 1000,
     .max = 600000,
     .help = "How long a connect link, and the login that begins with it, may take."},
    {.name = "return_to",
     .type = OPTION_STRINGS,
     .offset = offsetof(struct hosted_config, return_to),
     .help =
         "Origins (scheme://host:port) that `/oauth/connect/SERVER?return_to=URL` may send a browser back to when the "
         "account is connected. Without it there is a page that says so, and no `return_to` is taken."},
    {.name = "authorization_servers",
     .type = OPTION_STRINGS,
     .offset = offsetof(struct hosted_config, authorization_servers),
     .help =
         "Domains like \"login.example.com\" or \"*.example.com\": the gateway gets tokens from authorization servers "
         "there and from no others. If absent: from any that servers name."},
    {0},
};

// An origin as browsers write it: nothing behind the host and port.
static bool check(void *object, const struct option_place *place, struct err *err)
{
    const struct hosted_config *config = object;
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
        if (!oauth_domain_valid(*domain))
            return err_set(err, ERR_CONFIG, "%s: %s/authorization_servers: \"%s\" is no domain", place->file,
                           place->path, *domain);
    return true;
}

const struct option_table hosted_options = {"Connecting users' accounts (hosted)", sizeof(struct hosted_config), rows,
                                            check};

static const struct server *first_per_user(const struct option_items *items)
{
    const struct server *servers = items->at;
    for (size_t i = 0; i < items->count; i++)
        if (servers[i].auth.mode == ACCESS_USER && !servers[i].disabled)
            return &servers[i];
    return NULL;
}

static const struct server *needed_by(const struct config *config)
{
    const struct config_tenant *tenants = config->tenants.at;
    const struct server *found = first_per_user(&config->servers);
    for (size_t i = 0; !found && i < config->tenants.count; i++)
        found = first_per_user(&tenants[i].servers);
    return found;
}

bool hosted_url_ok(const struct config *config)
{
    const char *url = config->public_url;
    return !url || (oauth_url_secure(url) && !strchr(url, '?'));
}

void hosted_grant_changed(struct hosted *hosted, const struct identity *identity, const struct server *server)
{
    void *value;
    for (size_t at = 0; map_next(&hosted->gate->links, &at, NULL, &value);) {
        struct link *link = value;
        if (!link->user || upstream_server(link->upstream) != server || !identity_same(link->user, identity))
            continue;
        access_forget(link->access);
        upstream_restart(link->upstream);
        source_look_again(link->source);
        source_load(link->source);
    }
}

// ---- beginning and end ----------------------------------------------------------------------

static void on_sweep(struct loop_timer *timer)
{
    struct hosted *hosted = timer->arg;
    hosted_offers_watch(hosted);
    if (hosted->sweeps++ % EXPIRE_SWEEPS == 0)
        token_store_attempts_expire(hosted->gate->tokens);
    loop_timer_set(hosted->gate->loop, timer, SWEEP_MS);
}

struct hosted *hosted_new(struct gate *gate)
{
    const struct config *config = gate->config;
    if (!config->public_url || !gate->tokens || !needed_by(config))
        return NULL;
    struct hosted *hosted = mem_new(struct hosted);
    struct buf text = {0};
    size_t len = strlen(config->public_url);
    hosted->gate = gate;
    hosted->secure = strncmp(config->public_url, "https://", 8) == 0;
    hosted->base = mem_copy(config->public_url, len && config->public_url[len - 1] == '/' ? len - 1 : len);
    buf_printf(&text, "%s/oauth/callback", hosted->base);
    hosted->redirect_uri = buf_take(&text, NULL);
    buf_printf(&text, "%s" HOSTED_DOCUMENT_PATH, hosted->base);
    hosted->document_url = buf_take(&text, NULL);
    list_init(&hosted->offers);
    list_init(&hosted->steps);
    list_init(&hosted->errands);
    bucket_table_init(&hosted->opened, BUCKETS_MAX);
    bucket_table_init(&hosted->returned, BUCKETS_MAX);
    bucket_table_init(&hosted->issuers, BUCKETS_MAX);
    bucket_table_init(&hosted->widened, BUCKETS_MAX);
    hosted->sweep = (struct loop_timer){.on_due = on_sweep, .arg = hosted, .name = "login sweep"};
    loop_timer_set(gate->loop, &hosted->sweep, SWEEP_MS);
    return hosted;
}

void hosted_free(struct hosted *hosted)
{
    if (!hosted)
        return;
    hosted_offers_drop(hosted);
    hosted_steps_drop(hosted);
    hosted_errands_drop(hosted);
    loop_timer_stop(hosted->gate->loop, &hosted->sweep);
    bucket_table_release(&hosted->opened);
    bucket_table_release(&hosted->returned);
    bucket_table_release(&hosted->issuers);
    bucket_table_release(&hosted->widened);
    free(hosted->base);
    free(hosted->redirect_uri);
    free(hosted->document_url);
    free(hosted);
}

bool gate_hosts(const struct gate *gate) { return gate->hosted != NULL; }

bool hosted_document(struct gate *gate, struct span path, struct buf *out)
{
    // Without a port: it is another one at each login, and any has to be taken (RFC 8252, 7.3).
    static const char *const loopback[] = {"http://127.0.0.1/callback", "http://localhost/callback", NULL};
    const struct hosted *hosted = gate->hosted;
    struct buf url = {0};
    bool native = span_is(path, HOSTED_NATIVE_DOCUMENT_PATH);
    if (!hosted || !hosted->secure || (!native && !span_is(path, HOSTED_DOCUMENT_PATH)))
        return false;
    buf_printf(&url, "%s%.*s", hosted->base, SPAN_ARG(path));
    oauth_client_document(buf_text(&url), native ? loopback : (const char *const[]){hosted->redirect_uri, NULL}, native,
                          out);
    buf_release(&url);
    return true;
}
