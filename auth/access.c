// Owns the token that is presented to one server: finding it, keeping it fresh, and telling when a login is needed.
//
//              get, nothing held                          found, and good
//   EMPTY ───────────────────────► FINDING ─────────────────────────────────────► HELD
//     ▲                               │ too old                                    │ due, renew
//     │                               ▼                                            ▼
//     │ none, or dead              LEASING ── changed by another process ──► HELD  LEASING
//     └──────────────────────────────┤
//                                    ▼ ours to do
//                          CLIENT ─► REFRESHING ─► SAVING ─► HELD
//                                        │ refused for good: saved as dead ─► EMPTY
//                                        └ no answer: what is held stays, and later again
//
// Modes that ask (client_credentials, workload, …) go EMPTY ─► ASKING (a flow) ─► HELD, and again when it is due. Where
// they ask with the caller's own token they can only while a call lends it: when it is due, the next call renews.
//
// Who waits is told once, from a task of its own, whatever happened. A token is replaced, never changed: the version
// tells a transport that it has to look again (tests/unit/auth_access_test.c).
#include "auth/access.h"
#include "auth/exchanged.h"
#include "auth/oauth_flow.h"
#include "base/log.h"
#include "base/mem.h"
#include "oauth_fetch.h"
#include "oauth_key.h"
#include <stdlib.h>
#include <time.h>

#define TOKEN_MS 30000
#define AHEAD_MIN_MS 2000
#define CHALLENGES_MAX 8
#define RETRY_FIRST_MS 1000
#define RETRY_MAX_MS 300000
#define LEASE_WAIT_MS 35000

enum access_state {
    STATE_EMPTY,
    STATE_FINDING,
    STATE_HELD,
    STATE_LEASING,
    STATE_CLIENT,
    STATE_REFRESHING,
    STATE_SAVING,
    STATE_ASKING,
};

struct access {
    struct access_spec spec;
    char *tenant, *user, *server_url, *server_name;
    enum access_state state;
    struct secret header;
    unsigned version;
    const struct grant *grant;
    struct token_request request;
    struct token_lease lease;
    bool leased;
    struct oauth_client client;
    struct oauth_fetch fetch;
    struct address_policy policy;
    struct oauth_flow *flow;
    struct arena arena;  // of one refresh
    int64_t sent;
    bool without_resource, resource_unwanted;  // F14: for this refresh; and it has helped before
    bool dying;
    bool refused;  // the server wants a token
    struct list waiting;
    struct err outcome;  // of what was last tried
    struct list told;    // those who will hear of it at the end of the turn
    struct err news;     // what they will hear
    struct loop_task tell;
    struct loop_timer due;
    int64_t retry_ms, retry_at;  // the pause after a failure, and when it is over (loop_now); 0: none
    struct err failure;          // told while it lasts
    struct arena heard;          // of the challenge
    struct oauth_challenge challenge;
    struct token_request check;  // is what is held still there?
    bool gone;                   // it was found not to be
    char *issuer;                // of the first token that was asked for
    struct secret lent;          // the caller's own token, while calls that came with it are under way
    int64_t lent_until;
    unsigned loans;
    unsigned char asked_with[SECRET_MAC_BYTES];  // digest of the one that was last exchanged, or failed to be
};

static void lease(struct access *access);

static void set_state(struct access *access, enum access_state state) { access->state = state; }

static int64_t now(void) { return (int64_t)time(NULL); }

static bool takes_caller(const struct access *access)
{
    return access_mode_asks(access->spec.mode) && access_takes_caller(access->spec.options);
}

// ---- telling --------------------------------------------------------------------------------

static void on_tell(struct loop_task *task)
{
    struct access *access = task->arg;
    struct err news = access->news;
    while (!list_empty(&access->told)) {
        struct access_wait *wait = list_entry(access->told.next, struct access_wait, node);
        list_remove(&wait->node);
        wait->on_ready(wait, news.code ? &news : NULL);
    }
}

// Whoever asks after this waits for something newer.
static void tell(struct access *access)
{
    while (!list_empty(&access->waiting)) {
        struct list *node = access->waiting.next;
        list_remove(node);
        list_append(&access->told, node);
    }
    access->news = access->outcome;
    loop_task_put(access->spec.loop, &access->tell);
}

static void set_due(struct access *access, int64_t after_ms)
{
    loop_timer_set(access->spec.loop, &access->due, after_ms > 0 ? after_ms : 0);
}

static void end_lease(struct access *access)
{
    if (access->leased)
        token_lease_end(&access->lease);
    access->leased = false;
}

static struct oauth_tokens tokens_of(const struct grant *grant)
{
    return (struct oauth_tokens){.access = grant->is.access_token.bytes,
                                 .refresh = grant->is.refresh_token.len ? grant->is.refresh_token.bytes : NULL,
                                 .scope = grant->is.scope,
                                 .obtained = grant->is.obtained_at,
                                 .expires = grant->is.expires_at};
}

// Before the token's end, with up to a tenth of jitter, so that many gateways do not come at once (F1, F18). One that
// ends at once is refreshed when it is needed, not all the time.
static void schedule(struct access *access)
{
    struct oauth_tokens tokens = tokens_of(access->grant);
    int64_t at = oauth_tokens_refresh_at(&tokens);
    if (!at || takes_caller(access) || (!tokens.refresh && !access_mode_asks(access->spec.mode)))
        return;
    unsigned char random;
    secret_random(&random, 1);
    int64_t left = (at - now()) * 1000;
    if (left >= AHEAD_MIN_MS)
        set_due(access, left - left * random / 2560);
}

static void hold(struct access *access, const struct grant *grant)
{
    struct buf header = {0};
    grant_ref(grant);
    grant_unref(access->grant);
    access->grant = grant;
    buf_put_text(&header, "Bearer ");
    buf_put_span(&header, secret_span(&grant->is.access_token));
    secret_set(&access->header, buf_span(&header));
    secret_wipe(header.at, header.room);
    buf_release(&header);
    access->version++;
    access->retry_ms = access->retry_at = 0;
    access->outcome = (struct err){0};
    set_state(access, STATE_HELD);
    schedule(access);
    tell(access);
}

static void drop(struct access *access)
{
    grant_unref(access->grant);
    access->grant = NULL;
    secret_release(&access->header);
    access->version++;
    access->retry_ms = access->retry_at = 0;
    set_state(access, STATE_EMPTY);
}

static void note_refresh(const struct access *access, const struct err *err)
{
    if (access->spec.on_refreshed && access->grant)
        access->spec.on_refreshed(access->spec.arg, access->grant->issuer, err);
}

// Named by --url rather than in the configuration.
static bool is_url(const struct access *access) { return strcmp(access->server_name, "url") == 0; }

// There is no grant that could be used: a person has to log in (F17), unless the server has not asked for one yet.
static void need_login(struct access *access, const char *why)
{
    access->outcome = (struct err){0};
    if (access->spec.mode == ACCESS_OPTIONAL && !access->refused) {
        end_lease(access);
        drop(access);
        tell(access);
        return;
    }
    if (access->spec.mode == ACCESS_USER)
        (void)err_set(&access->outcome, ERR_LOGIN, "server \"%s\" needs the authorization of %s%s%s",
                      access->server_name, access->user, why ? ": " : "", why ? why : "");
    else
        (void)err_set(&access->outcome, ERR_LOGIN, "server \"%s\" needs authorization%s%s: run 'postern login %s%s'",
                      access->server_name, why ? ": " : "", why ? why : "", is_url(access) ? "--url " : "",
                      is_url(access) ? access->server_url : access->server_name);
    end_lease(access);
    drop(access);
    tell(access);
}

// Twice as long as last time, at least as long as the server asked for, and a little at random (F12).
static void back_off(struct access *access)
{
    int64_t asked = access->state == STATE_REFRESHING ? access->fetch.retry_after_ms : 0;
    unsigned char random;
    access->retry_ms = access->retry_ms ? access->retry_ms * 2 : RETRY_FIRST_MS;
    if (access->retry_ms < asked)
        access->retry_ms = asked;
    if (access->retry_ms > RETRY_MAX_MS)
        access->retry_ms = RETRY_MAX_MS;
    secret_random(&random, 1);
    access->retry_at = loop_now(access->spec.loop) + access->retry_ms + access->retry_ms * random / 2560;
}

// Tells the failure, with what is held as it was.
static void tell_failure(struct access *access)
{
    access->outcome = access->failure;
    end_lease(access);
    set_state(access, access->grant ? STATE_HELD : STATE_EMPTY);
    if (access->grant && !takes_caller(access))
        set_due(access, access->retry_at - loop_now(access->spec.loop));
    tell(access);
}

static bool pausing(const struct access *access) { return loop_now(access->spec.loop) < access->retry_at; }

// Nothing is known about the grant: what is held stays, and it is tried again later (F12).
static void fail(struct access *access, const struct err *err)
{
    access->outcome = *err;
    if (access->outcome.code == ERR_DENIED)  // by the authorization server, not by the policy
        access->outcome.code = takes_caller(access) ? ERR_LOGIN : ERR_UNAVAILABLE;
    if (access->outcome.code == ERR_CONFIG)  // a caller can do nothing about it
        access->outcome.code = ERR_UNAVAILABLE;
    if (access->leased && access->lease.grant) {
        oauth_scrub(&access->outcome, access->lease.grant->is.refresh_token.bytes);
        oauth_scrub(&access->outcome, access->lease.grant->is.access_token.bytes);
    }
    oauth_scrub(&access->outcome, access->client.secret);
    log_warn("cannot get a token", LOG_STR("server", access->server_name), LOG_STR("user", access->user),
             LOG_STR("detail", access->outcome.detail));
    access->failure = access->outcome;
    if (access->state == STATE_REFRESHING)
        note_refresh(access, &access->outcome);
    back_off(access);
    tell_failure(access);
}

// G10: the grant belongs to a client that is not known there any more. It is kept, should that be a mistake.
static void fail_client(struct access *access, const struct err *err)
{
    const char *redirect = access->lease.grant->is.client_redirect;
    struct err told;
    if (access->spec.mode == ACCESS_USER || !redirect || !*redirect)
        (void)err_set(&told, ERR_LOGIN, "%.300s", err->detail);
    else
        (void)err_set(&told, ERR_LOGIN, "%.300s: run 'postern login %s%s --reregister'", err->detail,
                      is_url(access) ? "--url " : "", is_url(access) ? access->server_url : access->server_name);
    fail(access, &told);
}

// ---- refreshing -----------------------------------------------------------------------------

static const char *resource_of(const struct access *access)
{
    const char *configured = access->spec.options->resource;
    if (configured)
        return strcmp(configured, "omit") == 0 ? NULL : configured;
    return *access->lease.grant->resource ? access->lease.grant->resource : NULL;
}

static void refresh(struct access *access)
{
    const struct grant *old = access->lease.grant;
    struct buf form = {0}, authorization = {0};
    struct err err;
    set_state(access, STATE_REFRESHING);
    oauth_form_put(&form, "grant_type", "refresh_token");
    oauth_form_put(&form, "refresh_token", old->is.refresh_token.bytes);
    if (!access->without_resource)
        oauth_form_put(&form, "resource", resource_of(access));
    access->sent = now();
    access->policy = oauth_fetch_policy(old->is.token_endpoint, access->spec.options->allow_addresses);
    bool ok = oauth_client_apply(&access->client, old->issuer, access->sent, &form, &authorization, &err);
    struct oauth_wish wish = {.url = old->is.token_endpoint,
                              .type = "application/x-www-form-urlencoded",
                              .body = buf_span(&form),
                              .authorization = authorization.len ? buf_text(&authorization) : NULL,
                              .timeout_ms = TOKEN_MS,
                              .policy = &access->policy};
    if (ok)
        oauth_fetch_start(&access->fetch, access->spec.http, &wish);
    secret_wipe(form.at, form.room);
    if (authorization.at)
        secret_wipe(authorization.at, authorization.room);
    buf_release(&form);
    buf_release(&authorization);
    if (!ok)
        fail(access, &err);
}

// F15: the client the grant was given to, not whoever we would be today.
static void on_client(struct token_request *request)
{
    struct access *access = request->arg;
    const struct grant *old = access->lease.grant;
    if (request->answer == TOKEN_FAILED) {
        fail(access, &request->err);
        return;
    }
    const struct registration *found = request->answer == TOKEN_DONE ? request->registration : NULL;
    bool same = found && strcmp(found->is.client_id, old->is.client_id) == 0;
    if (same && found->is.client_secret.len)
        access->client.secret = arena_copy(&access->arena, secret_span(&found->is.client_secret));
    if (!access->client.secret && access->client.method != OAUTH_METHOD_NONE) {
        need_login(access, "the client it was given to is gone");
        return;
    }
    refresh(access);
}

static void find_client(struct access *access)
{
    const struct grant *old = access->lease.grant;
    const struct access_options *options = access->spec.options;
    struct err err;
    arena_release(&access->arena);
    access->client = (struct oauth_client){.id = arena_copy(&access->arena, span_of(old->is.client_id))};
    if (!oauth_method_parse(old->is.auth_method, &access->client.method))
        access->client.method = OAUTH_METHOD_NONE;
    if (access->client.method == OAUTH_METHOD_NONE) {
        refresh(access);
    } else if (old->is.client_redirect && *old->is.client_redirect) {
        struct registration_key key = {access->tenant, old->issuer, old->is.client_redirect};
        set_state(access, STATE_CLIENT);
        access->request.on_done = on_client;
        token_store_registration_find(access->spec.store, &key, &access->request);
    } else {
        access->client.secret = options->client_secret;
        access->client.key_alg = options->signing_algorithm;
        access->client.key_id = options->key_id;
        if (options->private_key_file &&
            !(access->client.key_pem = oauth_key_read(options->private_key_file, &access->arena, &err)))
            fail(access, &err);
        else
            refresh(access);
    }
}

static void save(struct access *access, struct grant_fields *fields)
{
    struct grant_key key = grant_key(access->lease.grant);
    struct grant *fresh = grant_new(&key, fields);
    set_state(access, STATE_SAVING);
    token_lease_save(&access->lease, fresh);
    grant_unref(fresh);
}

// F13: it is marked under the lease, so only what was really refused is; kept to tell why.
static void bury(struct access *access, const char *why)
{
    struct grant_fields fields = {0};
    grant_fields_copy(&access->lease.grant->is, &fields);
    fields.dead_at = now();
    free(fields.dead_reason);
    fields.dead_reason = mem_string(why);
    access->dying = true;
    save(access, &fields);
}

static void on_refreshed(struct oauth_fetch *fetch)
{
    struct access *access = fetch->arg;
    struct oauth_answer answer = {fetch->status, buf_span(&fetch->type), buf_span(&fetch->body)};
    struct oauth_tokens fresh, old = tokens_of(access->lease.grant);
    struct err err = {0};
    if (fetch->failed) {
        fail(access, &fetch->err);
        return;
    }
    switch (oauth_tokens_parse(&answer, access->sent, old.scope, &access->arena, &fresh, &err)) {
    case OAUTH_VERDICT_GRANTED: break;
    case OAUTH_VERDICT_DEAD: bury(access, "the authorization server refused the refresh token"); return;
    case OAUTH_VERDICT_RESOURCE:
        if (!access->without_resource && resource_of(access)) {
            access->without_resource = true;  // F14
            refresh(access);
            return;
        }
        fail(access, &err);
        return;
    case OAUTH_VERDICT_CLIENT: fail_client(access, &err); return;
    default: fail(access, &err); return;
    }
    access->resource_unwanted = access->without_resource;
    oauth_tokens_keep(&fresh, &old, &access->arena);
    struct grant_fields fields = {0};
    grant_fields_copy(&access->lease.grant->is, &fields);
    secret_set(&fields.access_token, span_of(fresh.access));
    if (fresh.refresh)
        secret_set(&fields.refresh_token, span_of(fresh.refresh));
    free(fields.scope);
    fields.scope = mem_string(fresh.scope);
    fields.expires_at = fresh.expires;
    fields.obtained_at = fresh.obtained;
    save(access, &fields);
}

static void on_saved(struct token_lease *held)
{
    struct access *access = held->arg;
    struct grant *stored = held->grant;
    if (access->dying) {
        struct err ended;
        (void)err_set(&ended, ERR_LOGIN, "the grant has ended");
        access->dying = false;
        note_refresh(access, &ended);
        need_login(access, "the grant has ended");
        return;
    }
    if (!stored) {  // somebody logged out while it was refreshed
        need_login(access, NULL);
        return;
    }
    if (held->answer == TOKEN_FAILED)  // F10: it works, and will not outlive this process until it can be written
        log_error("a refreshed token could not be stored; trying again", LOG_STR("server", access->server_name),
                  LOG_STR("detail", held->err.detail));
    note_refresh(access, NULL);
    hold(access, stored);
    end_lease(access);
}

static bool usable(const struct grant *grant)
{
    return !grant->is.dead_at && grant->is.access_token.len && grant_fresh(grant, now(), 0);
}

static void on_leased(struct token_lease *held)
{
    struct access *access = held->arg;
    switch (held->state) {
    case LEASE_HELD:
        if (held->grant->is.dead_at || !held->grant->is.refresh_token.len || !held->grant->is.token_endpoint)
            need_login(access, held->grant->is.dead_at ? "the grant has ended" : "the token has ended");
        else if (pausing(access))
            tell_failure(access);
        else
            find_client(access);
        break;
    case LEASE_CHANGED:
        if (held->grant->is.dead_at)
            need_login(access, "the grant has ended");
        else
            hold(access, held->grant);
        end_lease(access);
        break;
    case LEASE_GONE: need_login(access, NULL); break;
    case LEASE_LATE:
        (void)err_set(&held->err, ERR_UNAVAILABLE,
                      "another process is refreshing the token of \"%s\" and does not finish", access->server_name);
        fail(access, &held->err);
        break;
    default: fail(access, &held->err);
    }
}

static void lease(struct access *access)
{
    struct grant_key key = grant_key(access->grant);
    set_state(access, STATE_LEASING);
    access->without_resource = access->resource_unwanted;
    access->leased = true;
    access->lease =
        (struct token_lease){.on_ready = on_leased, .on_saved = on_saved, .arg = access, .wait_ms = LEASE_WAIT_MS};
    token_lease_start(access->spec.store, &access->lease, &key, access->grant->generation);
}

// ---- finding --------------------------------------------------------------------------------

static bool is_newer(const struct grant *a, const struct grant *b)
{
    return a->is.obtained_at != b->is.obtained_at ? a->is.obtained_at > b->is.obtained_at
                                                  : a->generation > b->generation;
}

const struct grant *access_pick(struct grant *const *grants, size_t count, const char *server_url)
{
    const struct grant *best = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct grant *grant = grants[i];
        bool fits = *grant->resource ? oauth_resource_covers(grant->resource, server_url)
                                     : oauth_url_same_origin(grant->issuer, server_url);
        if (!fits)
            continue;
        bool alive = !grant->is.dead_at, best_alive = best && !best->is.dead_at;
        size_t length = strlen(grant->resource), best_length = best ? strlen(best->resource) : 0;
        if (!best || alive > best_alive ||
            (alive == best_alive && (length > best_length || (length == best_length && is_newer(grant, best)))))
            best = grant;
    }
    return best;
}

static void on_listed(struct token_request *request)
{
    struct access *access = request->arg;
    if (request->answer == TOKEN_FAILED) {
        fail(access, &request->err);
        return;
    }
    const struct grant *found = access_pick(request->grants, request->count, access->server_url);
    if (!found) {
        need_login(access, NULL);
    } else if (usable(found)) {
        hold(access, found);
    } else if (found->is.dead_at || !found->is.refresh_token.len) {
        need_login(access, "the token has ended");
    } else {
        grant_unref(access->grant);
        access->grant = grant_ref(found);
        lease(access);
    }
}

static void on_flow_end(void *arg, enum oauth_end end, const struct grant *grant, const struct err *err)
{
    struct access *access = arg;
    oauth_flow_free(access->flow);
    access->flow = NULL;
    if (end != OAUTH_END_GRANTED)
        access->challenge.scope = NULL;  // perhaps it was that; what is held is renewed without it
    if (end == OAUTH_END_GRANTED && !access->issuer)
        access->issuer = mem_string(grant->issuer);
    if (end == OAUTH_END_GRANTED && access->spec.exchanged)
        exchanged_put(access->spec.exchanged, grant);
    if (end == OAUTH_END_GRANTED)
        hold(access, grant);
    else
        fail(access, err);
}

// Nobody's call is under way, or only calls without a token: there is nothing to exchange.
static void nothing_lent(struct access *access)
{
    access->outcome = (struct err){0};
    (void)err_set(&access->outcome, ERR_LOGIN,
                  "server \"%s\" works with the caller's own token, and there is none: callers come in with a JWT",
                  access->server_name);
    if (access->grant && usable(access->grant))
        set_state(access, STATE_HELD);
    else
        drop(access);
    tell(access);
}

// What an earlier session of the same user got, unless the server has just refused it.
static bool find_exchanged(struct access *access)
{
    struct grant_key owner = {.tenant = access->tenant, .user = access->user};
    if (!access->spec.exchanged)
        return false;
    if (access->grant)
        exchanged_drop(access->spec.exchanged, access->grant);
    const struct grant *found =
        exchanged_find(access->spec.exchanged, &owner, access->server_url, access->spec.options, now());
    if (found)
        hold(access, found);
    return found;
}

static void ask(struct access *access)
{
    bool caller = takes_caller(access);
    if (caller && find_exchanged(access))
        return;
    if (caller && !access->lent.len) {
        nothing_lent(access);
        return;
    }
    struct oauth_flow_spec spec = {.loop = access->spec.loop,
                                   .http = access->spec.http,
                                   .options = access->spec.options,
                                   .tenant = access->tenant,
                                   .user = access->user,
                                   .server_url = access->server_url,
                                   .challenge = access->challenge,
                                   .held_scope = access->spec.options->scope ? NULL : access_scope(access),
                                   .known_issuer = access->issuer,
                                   .subject = caller ? access->lent.bytes : NULL,
                                   .subject_until = caller ? access->lent_until : 0,
                                   .on_end = on_flow_end,
                                   .arg = access};
    if (caller)
        secret_digest(secret_span(&access->lent), access->asked_with);
    set_state(access, STATE_ASKING);
    access->flow = oauth_flow_start(&spec);
}

static void find(struct access *access)
{
    struct grant_filter filter = {access->tenant, access->user, NULL};
    if (!access->spec.store) {
        need_login(access, NULL);
        return;
    }
    set_state(access, STATE_FINDING);
    access->request.on_done = on_listed;
    token_store_list(access->spec.store, &filter, &access->request);
}

// ---- outside --------------------------------------------------------------------------------

static void begin(struct access *access)
{
    loop_timer_stop(access->spec.loop, &access->due);
    if (access_mode_asks(access->spec.mode) && pausing(access))
        tell_failure(access);
    else if (access_mode_asks(access->spec.mode))
        ask(access);
    else if (access->grant)
        lease(access);
    else
        find(access);
}

static bool idle(const struct access *access) { return access->state == STATE_EMPTY || access->state == STATE_HELD; }

static void on_due(struct loop_timer *timer)
{
    struct access *access = timer->arg;
    if (idle(access))
        begin(access);
}

void access_get(struct access *access, struct access_wait *wait)
{
    list_append(&access->waiting, &wait->node);
    access->refused = false;
    bool fixed = access->spec.mode == ACCESS_STATIC || access->spec.mode == ACCESS_NONE;
    if (fixed || (access->state == STATE_HELD && usable(access->grant))) {
        access->outcome = (struct err){0};
        tell(access);
    } else if (idle(access)) {
        begin(access);
    }
}

void access_renew(struct access *access, unsigned version, struct access_wait *wait)
{
    list_append(&access->waiting, &wait->node);
    access->refused = true;
    if (access->spec.mode == ACCESS_STATIC) {
        (void)err_set(&access->outcome, ERR_UNAVAILABLE, "server \"%s\" refuses the token of the configuration",
                      access->server_name);
        tell(access);
    } else if (version != access->version && access->state == STATE_HELD) {  // another one came meanwhile
        access->outcome = (struct err){0};
        tell(access);
    } else if (access->state == STATE_HELD && !access_mode_asks(access->spec.mode) &&
               !access->grant->is.refresh_token.len) {
        need_login(access, "the token is refused");
    } else if (idle(access)) {
        begin(access);
    }
}

void access_cancel(struct access_wait *wait) { list_remove(&wait->node); }

bool access_stale(const struct access *access)
{
    return access_mode_asks(access->spec.mode) && !(access->grant && usable(access->grant));
}

void access_lend(struct access *access, struct span token, int64_t expires)
{
    unsigned char digest[SECRET_MAC_BYTES];
    access->loans++;
    if (!span_equal(secret_span(&access->lent), token))
        secret_set(&access->lent, token);
    access->lent_until = expires;
    if (access->retry_at) {  // another token, another chance
        secret_digest(token, digest);
        if (!secret_equal(digest, access->asked_with, sizeof digest))
            access->retry_ms = access->retry_at = 0;
    }
    if (access->state != STATE_HELD || pausing(access))
        return;
    struct oauth_tokens held = tokens_of(access->grant);
    int64_t at = oauth_tokens_refresh_at(&held);
    if (at && now() >= at && expires > access->grant->is.expires_at)
        begin(access);
}

void access_return(struct access *access)
{
    if (--access->loans == 0)
        secret_release(&access->lent);
}

void access_forget(struct access *access)
{
    if (access->spec.mode == ACCESS_STATIC || access->spec.mode == ACCESS_NONE)
        return;
    end_lease(access);
    token_request_cancel(&access->request);
    token_request_cancel(&access->check);
    oauth_fetch_cancel(&access->fetch);
    oauth_flow_free(access->flow);
    access->flow = NULL;
    access->dying = false;
    loop_timer_stop(access->spec.loop, &access->due);
    drop(access);
    if (!list_empty(&access->waiting))
        begin(access);
}

static void on_checked(struct token_request *request)
{
    struct access *access = request->arg;
    if (access->state != STATE_HELD)
        return;
    if (request->answer == TOKEN_ABSENT) {
        loop_timer_stop(access->spec.loop, &access->due);
        drop(access);
        access->gone = true;
    } else if (request->answer == TOKEN_DONE && request->grant->generation > access->grant->generation &&
               usable(request->grant)) {
        hold(access, request->grant);
    }
}

bool access_recheck(struct access *access)
{
    bool gone = access->gone;
    access->gone = false;
    if (access->state != STATE_HELD || !access->spec.store || access_mode_asks(access->spec.mode) || access->check.work)
        return gone;
    struct grant_key key = grant_key(access->grant);
    const struct grant *seen = token_store_cached(access->spec.store, &key);
    if (!seen || seen->generation != access->grant->generation)
        token_store_find(access->spec.store, &key, &access->check);
    return gone;
}

void access_hear(struct access *access, struct http_transfer *transfer)
{
    const char *header;
    arena_release(&access->heard);
    access->challenge = (struct oauth_challenge){0};
    for (size_t i = 0; i < CHALLENGES_MAX && (header = http_transfer_header_at(transfer, "www-authenticate", i)); i++)
        oauth_challenge_parse(span_of(header), &access->heard, &access->challenge);
}

const struct oauth_challenge *access_challenge(const struct access *access) { return &access->challenge; }

const char *access_scope(const struct access *access)
{
    const struct grant *grant = access->grant;
    const char *asked = grant ? grant->is.scope_asked : NULL, *given = grant ? grant->is.scope : NULL;
    return asked && *asked ? asked : given && *given ? given : NULL;
}

bool access_can_widen(const struct access *access)
{
    const char *wanted = access->challenge.scope, *asked = access_scope(access);
    return access_mode_asks(access->spec.mode) && !access->spec.options->scope && wanted &&
           !oauth_scope_covers(asked, wanted);
}

void access_refused(const struct access *access, bool scope, struct err *err)
{
    const char *name = access->server_name, *wanted = access->challenge.scope ? access->challenge.scope : "";
    if (access->spec.mode == ACCESS_STATIC)
        (void)err_set(err, ERR_LOGIN, "server \"%s\" %s", name,
                      scope ? "wants a token with more scope than that of the configuration"
                            : "refuses the token of the configuration");
    else if (access_mode_asks(access->spec.mode) && scope)
        (void)err_set(err, ERR_LOGIN,
                      "server \"%s\" wants the scope \"%.200s\", which the token does not have: let the authorization "
                      "server give it to client \"%.64s\", and name it in \"scope\" if that is set",
                      name, wanted, access->spec.options->client_id);
    else if (access_mode_asks(access->spec.mode))
        (void)err_set(err, ERR_LOGIN, "server \"%s\" does not take the token that \"%.200s\" has just given", name,
                      access->grant ? access->grant->issuer : "");
    else if (access->spec.mode == ACCESS_USER)
        (void)err_set(err, ERR_LOGIN, "server \"%s\" %s %s", name,
                      scope ? "needs more scope from" : "does not take the token of", access->user);
    else
        (void)err_set(err, ERR_LOGIN, "server \"%s\" %s: run 'postern login %s%s'", name,
                      scope ? "needs more scope" : "does not take the token", is_url(access) ? "--url " : "",
                      is_url(access) ? access->server_url : name);
}

const char *access_header(const struct access *access) { return access->header.bytes; }
unsigned access_version(const struct access *access) { return access->version; }

struct access *access_new(const struct access_spec *spec)
{
    struct access *access = mem_new(struct access);
    access->spec = *spec;
    access->tenant = mem_string(spec->tenant);
    access->user = mem_string(spec->user);
    access->server_url = mem_string(spec->server_url);
    access->server_name = mem_string(spec->server_name);
    access->request.arg = access;
    access->check = (struct token_request){.on_done = on_checked, .arg = access};
    access->fetch = (struct oauth_fetch){.on_done = on_refreshed, .arg = access};
    access->tell = (struct loop_task){.run = on_tell, .arg = access};
    access->due = (struct loop_timer){.on_due = on_due, .arg = access};
    list_init(&access->waiting);
    list_init(&access->told);
    if (spec->mode == ACCESS_STATIC) {
        struct buf header = {0};
        buf_printf(&header, "Bearer %s", spec->options->token);
        secret_set(&access->header, buf_span(&header));
        secret_wipe(header.at, header.room);
        buf_release(&header);
        access->version++;
    }
    return access;
}

static void release(void *object)
{
    struct access *access = object;
    oauth_fetch_release(&access->fetch);
    grant_unref(access->grant);
    secret_release(&access->header);
    secret_release(&access->lent);
    arena_release(&access->arena);
    arena_release(&access->heard);
    free(access->issuer);
    free(access->tenant);
    free(access->user);
    free(access->server_url);
    free(access->server_name);
    free(access);
}

void access_free(struct access *access)
{
    if (!access)
        return;
    end_lease(access);
    token_request_release(&access->request);
    token_request_release(&access->check);
    oauth_fetch_cancel(&access->fetch);
    oauth_flow_free(access->flow);
    loop_task_drop(&access->tell);
    loop_timer_stop(access->spec.loop, &access->due);
    while (!list_empty(&access->waiting))
        list_remove(access->waiting.next);
    while (!list_empty(&access->told))
        list_remove(access->told.next);
    loop_reap(access->spec.loop, access, release);
}
