// Owns connect links and the logins that begin with them: their states, their bounds, and who hears of the end.
//
//   call without a grant ─► OFFERED ──opened──► PREPARING ──found──► ASKING ──consent──► AWAY ──callback──► FINISHING
//                              ▲                    │ failed                                                   │
//                              └────────────────────┘                              stored, declined, failed ─► OVER
//
// A ticket and a state are random and kept as digests only; each is good once (tests/e2e/hosted.test.mjs). An attempt
// that is over is remembered until its time is up, so that a second use is told from a link that never was. Attempts live
// in this process: who is on the way when it ends begins again.
#include "hosted.h"
#include "auth/grant.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/scan.h"
#include "call.h"
#include <stdlib.h>

#define ATTEMPTS_MAX 2000
#define ATTEMPTS_PER_USER 5  // of one server (H9)
#define BUCKETS_MAX 16384
#define SWEEP_MS 500
#define SECRET_BYTES 32

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
    {.name = "authorization_servers",
     .type = OPTION_STRINGS,
     .offset = offsetof(struct hosted_config, authorization_servers),
     .help =
         "Domains like \"login.example.com\" or \"*.example.com\": the gateway gets tokens from authorization servers "
         "there and from no others. If absent: from any that servers name."},
    {0},
};

static bool check_domains(void *object, const struct option_place *place, struct err *err)
{
    const struct hosted_config *config = object;
    for (char *const *domain = config->authorization_servers; domain && *domain; domain++)
        if (!oauth_domain_valid(*domain))
            return err_set(err, ERR_CONFIG, "%s: %s/authorization_servers: \"%s\" is no domain", place->file,
                           place->path, *domain);
    return true;
}

const struct option_table hosted_options = {"Connecting users' accounts (hosted)", sizeof(struct hosted_config), rows,
                                            check_domains};

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

bool hosted_check(const struct config *config, const char *file, struct err *err)
{
    const struct server *server = needed_by(config);
    if (!server || !config->public_url || (oauth_url_secure(config->public_url) && !strchr(config->public_url, '?')))
        return true;
    return err_set(
        err, ERR_CONFIG,
        "%s: /public_url: users connect accounts there (server \"%s\" has auth mode per_user), so it must be an "
        "https:// URL, or http:// to this host alone",
        file, server->name);
}

// ---- attempts -------------------------------------------------------------------------------

struct attempt *attempt_find(const struct map *map, struct span secret)
{
    unsigned char digest[SECRET_MAC_BYTES];
    if (!secret.at || !secret.len)
        return NULL;
    secret_digest(secret, digest);
    return map_find(map, span_make((const char *)digest, sizeof digest));
}

static struct span key_of(const unsigned char *digest) { return span_make((const char *)digest, SECRET_MAC_BYTES); }

static void put_random(struct buf *out)
{
    unsigned char bytes[SECRET_BYTES];
    secret_random(bytes, sizeof bytes);
    secret_encode(out, span_make((const char *)bytes, sizeof bytes));
}

static void attempt_free(void *object)
{
    struct attempt *attempt = object;
    identity_unref(attempt->identity);
    arena_release(&attempt->arena);
    free(attempt);
}

static void forget_state(struct attempt *attempt)
{
    if (attempt->has_state)
        (void)map_remove(&attempt->hosted->by_state, key_of(attempt->oauth_state));
    attempt->has_state = false;
}

static void attempt_drop(struct attempt *attempt)
{
    struct hosted *hosted = attempt->hosted;
    if (attempt->state == ATTEMPT_AWAY)
        oauth_flow_abandon(attempt->flow);
    attempt->state = ATTEMPT_OVER;
    attempt_show(attempt, HOSTED_EXPIRED);
    oauth_flow_free(attempt->flow);
    attempt->flow = NULL;
    forget_state(attempt);
    (void)map_remove(&hosted->by_ticket, key_of(attempt->ticket));
    list_remove(&attempt->node);
    hosted->count--;
    loop_reap(hosted->gate->loop, attempt, attempt_free);
}

void attempt_end(struct attempt *attempt)
{
    attempt->state = ATTEMPT_OVER;
    oauth_flow_free(attempt->flow);
    attempt->flow = NULL;
}

// The oldest that has not been agreed to, of this user and server or of all; else the oldest at all.
static struct attempt *dispensable(const struct hosted *hosted, const struct identity *identity,
                                   const struct server *server, size_t *count)
{
    struct attempt *best = NULL;
    *count = 0;
    list_each(node, &hosted->attempts) {
        struct attempt *attempt = list_entry(node, struct attempt, node);
        if (identity && (attempt->state == ATTEMPT_OVER || attempt->server != server ||
                         !identity_same(attempt->identity, identity)))
            continue;
        ++*count;
        if (!best || (best->state >= ATTEMPT_AWAY && attempt->state < ATTEMPT_AWAY))
            best = attempt;
    }
    return best;
}

// H9: few for each user and server, and not too many at all.
static void make_room(struct hosted *hosted, const struct identity *identity, const struct server *server)
{
    size_t count;
    struct attempt *oldest = dispensable(hosted, identity, server, &count);
    if (count >= ATTEMPTS_PER_USER)
        attempt_drop(oldest);
    if (hosted->count >= ATTEMPTS_MAX)
        attempt_drop(dispensable(hosted, NULL, NULL, &count));
}

struct attempt *attempt_new(struct hosted *hosted, const struct identity *identity, const struct server *server,
                            struct buf *ticket)
{
    make_room(hosted, identity, server);
    struct attempt *attempt = mem_new(struct attempt);
    attempt->hosted = hosted;
    attempt->state = ATTEMPT_OFFERED;
    attempt->identity = identity_ref(identity);
    attempt->server = server;
    attempt->expires_ms = loop_now(hosted->gate->loop) + hosted->gate->config->hosted.lifetime_ms;
    list_init(&attempt->waiting);
    put_random(ticket);
    secret_digest(buf_span(ticket), attempt->ticket);
    (void)map_put(&hosted->by_ticket, key_of(attempt->ticket), attempt);
    list_append(&hosted->attempts, &attempt->node);
    hosted->count++;
    return attempt;
}

static void on_sweep(struct loop_timer *timer)
{
    struct hosted *hosted = timer->arg;
    int64_t now = loop_now(hosted->gate->loop);
    list_each(node, &hosted->attempts) {
        struct attempt *attempt = list_entry(node, struct attempt, node);
        if (attempt->expires_ms > now)
            break;
        if (attempt->state != ATTEMPT_FINISHING)  // the token endpoint has its own deadline
            attempt_drop(attempt);
    }
    loop_timer_set(hosted->gate->loop, timer, SWEEP_MS);
}

void attempt_show(struct attempt *attempt, enum hosted_kind kind)
{
    while (!list_empty(&attempt->waiting)) {
        struct hosted_visit *visit = list_entry(attempt->waiting.next, struct hosted_visit, node);
        list_remove(&visit->node);
        visit_show_attempt(visit, attempt, kind);
    }
}

// ---- the login ------------------------------------------------------------------------------

static void record(const struct attempt *attempt, enum hosted_event event, const char *reason)
{
    const struct peer *peer = NULL;
    if (!list_empty(&attempt->waiting))
        peer = list_entry(attempt->waiting.next, struct hosted_visit, node)->credentials.peer;
    const char *issuer = attempt->flow ? oauth_flow_attempt(attempt->flow)->server.issuer : NULL;
    hosted_audit(attempt->hosted->gate, &(struct hosted_record){.event = event,
                                                                .identity = attempt->identity,
                                                                .server = attempt->server,
                                                                .issuer = issuer,
                                                                .reason = reason,
                                                                .peer = peer});
}

static void on_browse(void *arg, const char *url)
{
    struct attempt *attempt = arg;
    if (attempt->state != ATTEMPT_PREPARING) {  // it wants to ask the user again (T13, G10): with a new link, then
        record(attempt, HOSTED_EVENT_REJECTED, "ask_again");
        attempt_show(attempt, HOSTED_FAILED);
        attempt_end(attempt);
        return;
    }
    attempt->state = ATTEMPT_ASKING;
    attempt->url = arena_copy(&attempt->arena, span_of(url));
    secret_digest(span_of(oauth_flow_attempt(attempt->flow)->state), attempt->oauth_state);
    attempt->has_state = true;
    (void)map_put(&attempt->hosted->by_state, key_of(attempt->oauth_state), attempt);
    attempt_show(attempt, HOSTED_ASKS);
}

static void tell_session(const struct attempt *attempt)
{
    struct session *session = session_find(attempt->hosted->gate, span_of(attempt->session));
    if (!session || !*attempt->elicitation || !identity_same(session->identity, attempt->identity))
        return;
    struct buf params = {0}, text = {0};
    buf_printf(&params, "{\"elicitationId\":\"%s\"}", attempt->elicitation);
    message_put_notification(&text, method_text(METHOD_ELICIT_COMPLETE), buf_span(&params));
    session_tell(session, blob_take(&text));
    buf_release(&params);
}

static void on_end(void *arg, enum oauth_end end, const struct grant *grant, const struct err *err)
{
    struct attempt *attempt = arg;
    (void)grant;
    bool preparing = attempt->state == ATTEMPT_PREPARING;
    if (end != OAUTH_END_GRANTED)
        log_warn("an account was not connected", LOG_STR("server", attempt->server->name),
                 LOG_STR("subject", attempt->identity->subject), LOG_STR("detail", err ? err->detail : ""));
    if (end == OAUTH_END_GRANTED) {
        log_info("an account was connected", LOG_STR("server", attempt->server->name),
                 LOG_STR("tenant", attempt->identity->tenant), LOG_STR("subject", attempt->identity->subject));
        record(attempt, HOSTED_EVENT_OK, NULL);
        hosted_grant_changed(attempt->hosted, attempt->identity, attempt->server);
        tell_session(attempt);
    } else {
        record(attempt, HOSTED_EVENT_REJECTED,
               end == OAUTH_END_DENIED ? "declined"
               : preparing             ? "not_prepared"
                                       : "not_granted");
    }
    attempt_show(attempt, end == OAUTH_END_GRANTED  ? HOSTED_CONNECTED
                          : end == OAUTH_END_DENIED ? HOSTED_DECLINED
                                                    : HOSTED_FAILED);
    attempt_end(attempt);
    if (preparing)
        attempt->state = ATTEMPT_OFFERED;  // nobody has been asked yet: the link may be opened again
}

void attempt_prepare(struct attempt *attempt)
{
    struct hosted *hosted = attempt->hosted;
    char *user = grant_user(attempt->identity);
    struct oauth_flow_spec spec = {.loop = hosted->gate->loop,
                                   .http = hosted->gate->http,
                                   .store = hosted->gate->tokens,
                                   .options = &attempt->server->auth,
                                   .tenant = attempt->identity->tenant,
                                   .user = user,
                                   .server_url = attempt->server->url,
                                   .issuers = hosted->gate->config->hosted.authorization_servers,
                                   .redirect_uri = hosted->redirect_uri,
                                   .document_url = hosted->secure ? hosted->document_url : NULL,
                                   .challenge = attempt->challenge,
                                   .held_scope = attempt->held_scope,
                                   .shared_client = true,
                                   .on_browse = on_browse,
                                   .on_end = on_end,
                                   .arg = attempt};
    attempt->state = ATTEMPT_PREPARING;
    attempt->flow = oauth_flow_start(&spec);
    record(attempt, HOSTED_EVENT_STARTED, NULL);
    free(user);
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

// ---- telling callers ------------------------------------------------------------------------

static const char *keep(struct attempt *attempt, const char *text)
{
    return text ? arena_copy(&attempt->arena, span_of(text)) : NULL;
}

// What the server said when it refused, for the scopes to ask for.
static void keep_cause(struct attempt *attempt, const struct access *access)
{
    const struct oauth_challenge *said = access_challenge(access);
    attempt->challenge = (struct oauth_challenge){.bearer = said->bearer,
                                                  .scope = keep(attempt, said->scope),
                                                  .resource_metadata = keep(attempt, said->resource_metadata)};
    attempt->held_scope = keep(attempt, access_scope(access));
}

static void put_member(struct buf *out, const char *name, const char *value)
{
    buf_printf(out, "%s\"%s\":", out->len && out->at[out->len - 1] != '{' ? "," : "", name);
    scan_encode_lossy(span_of(value), out);
}

void hosted_tell(struct call *call)
{
    struct hosted *hosted = call->gate->hosted;
    const struct server *server = call->link ? upstream_server(call->link->upstream) : NULL;
    if (!hosted || !server || server->auth.mode != ACCESS_USER || !call->authorized || !call->session)
        return;
    struct buf ticket = {0}, url = {0}, text = {0}, *data = &call->error_data;
    struct attempt *attempt = attempt_new(hosted, call->identity, server, &ticket);
    keep_cause(attempt, call->link->access);
    memcpy(attempt->session, call->session->id, sizeof attempt->session);
    buf_printf(&url, "%s/oauth/connect?t=%s", hosted->base, buf_text(&ticket));
    buf_printf(&text, "Connect your account at \"%s\" to go on, then try again: %s", server->name, buf_text(&url));
    buf_clear(data);
    if (call->session->can.elicit_url && call->session->revision >= REVISION_2025_11_25) {
        struct buf id = {0};
        put_random(&id);
        memcpy(attempt->elicitation, buf_text(&id), sizeof attempt->elicitation);
        call->err.code = ERR_LOGIN_URL;
        buf_put_text(data, "\"elicitations\":[{\"mode\":\"url\"");
        put_member(data, "elicitationId", attempt->elicitation);
        put_member(data, "url", buf_text(&url));
        buf_clear(&text);
        buf_printf(&text, "Connect your account at \"%s\" to go on.", server->name);
        put_member(data, "message", buf_text(&text));
        buf_put_text(data, "}]");
        buf_release(&id);
    } else {
        put_member(data, "server", server->name);
        put_member(data, "authorizationUrl", buf_text(&url));
        call->error_text = arena_copy(&call->arena, buf_span(&text));
    }
    secret_wipe(ticket.at, ticket.room);
    secret_wipe(url.at, url.room);
    secret_wipe(text.at, text.room);
    buf_release(&ticket);
    buf_release(&url);
    buf_release(&text);
}

void hosted_put_hint(const struct link *link, struct buf *out)
{
    const struct hosted *hosted = link->gate->hosted;
    const struct server *server = upstream_server(link->upstream);
    if (!hosted || server->auth.mode != ACCESS_USER || source_loaded(link->source))
        return;
    buf_printf(out,
               "%sServer \"%s\" works with the user's own account there. If it shows no tools, the user connects it at "
               "%s/oauth/connect/%s",
               out->len ? "\n\n" : "", server->name, hosted->base, server->name);
}

// ---- beginning and end ----------------------------------------------------------------------

struct hosted *hosted_new(struct gate *gate)
{
    const struct config *config = gate->config;
    if (!config->public_url || !needed_by(config))
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
    list_init(&hosted->attempts);
    list_init(&hosted->errands);
    bucket_table_init(&hosted->opened, BUCKETS_MAX);
    bucket_table_init(&hosted->returned, BUCKETS_MAX);
    bucket_table_init(&hosted->issuers, BUCKETS_MAX);
    hosted->sweep = (struct loop_timer){.on_due = on_sweep, .arg = hosted};
    loop_timer_set(gate->loop, &hosted->sweep, SWEEP_MS);
    return hosted;
}

void hosted_free(struct hosted *hosted)
{
    if (!hosted)
        return;
    while (!list_empty(&hosted->attempts))
        attempt_drop(list_entry(hosted->attempts.next, struct attempt, node));
    hosted_errands_drop(hosted);
    loop_timer_stop(hosted->gate->loop, &hosted->sweep);
    bucket_table_release(&hosted->opened);
    bucket_table_release(&hosted->returned);
    bucket_table_release(&hosted->issuers);
    map_release(&hosted->by_ticket);
    map_release(&hosted->by_state);
    free(hosted->base);
    free(hosted->redirect_uri);
    free(hosted->document_url);
    free(hosted);
}

bool gate_hosts(const struct gate *gate) { return gate->hosted != NULL; }

bool hosted_document(struct gate *gate, struct buf *out)
{
    const struct hosted *hosted = gate->hosted;
    if (!hosted || !hosted->secure)
        return false;
    oauth_client_document(hosted->document_url, (const char *const[]){hosted->redirect_uri, NULL}, false, out);
    return true;
}
