// Owns the token that is presented to one server: finding it, refreshing it, and reporting that a login is needed.
//
//              get, no token held                         found, and valid
//   EMPTY ───────────────────────► FINDING ─────────────────────────────────────► HELD
//     ▲                               │ expired                                    │ due, renew
//     │                               ▼                                            ▼
//     │ absent, or dead            LEASING ── changed by another process ──► HELD  LEASING
//     └──────────────────────────────┤
//                                    ▼ lease taken
//                          CLIENT ─► REFRESHING ─► SAVING ─► HELD
//                                        │ refused for good: saved as dead ─► EMPTY
//                                        └ no answer: the held token stays, and the refresh is retried later
//
// Modes without a user (client_credentials, workload, …) go EMPTY ─► ASKING (a flow) ─► HELD, and again when the token
// is due. Modes that exchange the caller's own token can do so only during a call, so the next call renews a due token.
//
// access_set_state() is the only function that changes the state, and checks the transition. access_forget() leads from
// every state to EMPTY.
//
// Each waiting request is called back once, from a task, after success and failure alike. A token is replaced, never
// changed: a new version makes a transport read it again (tests/unit/auth/access/access_test.c). refresh.c has the
// states from LEASING to SAVING.
#include "access_state.h"
#include "auth/login/flow.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "exchanged_tokens_use.h"
#include <stdlib.h>

#define CHALLENGES_MAX 8
#define RETRY_FIRST_MS 1000
#define RETRY_MAX_MS 300000

#define TO(state) (1U << STATE_##state)
#define OVER (TO(HELD) | TO(EMPTY))  // every operation ends with a held token or without one

// A state that leads to itself may be entered again: for another token, another lookup or another lease.
static const unsigned allowed[] = {
    [STATE_EMPTY] = OVER | TO(FINDING) | TO(ASKING),
    [STATE_FINDING] = OVER | TO(FINDING) | TO(LEASING),
    [STATE_HELD] = OVER | TO(FINDING) | TO(LEASING) | TO(ASKING),
    [STATE_LEASING] = OVER | TO(LEASING) | TO(CLIENT),
    [STATE_CLIENT] = OVER | TO(CLIENT) | TO(REFRESHING),
    [STATE_REFRESHING] = OVER | TO(CLIENT) | TO(SAVING),
    [STATE_SAVING] = OVER | TO(REFRESHING),
    [STATE_ASKING] = OVER,
};

void access_set_state(struct access *access, enum access_state state)
{
    CHECK(allowed[access->state] & (1U << state));
    access->state = state;
}

int64_t access_now(const struct access *access) { return access->spec.clock ? access->spec.clock() : clock_wall_s(); }

// Reports whether the mode uses a grant of the store.
static bool is_stored(const struct access *access)
{
    return access->spec.store && (access->spec.mode == ACCESS_SHARED || access->spec.mode == ACCESS_USER);
}

// Reports whether another process has changed the store since the last lookup.
static bool is_outdated(const struct access *access)
{
    return is_stored(access) && access->seen != grant_store_version(access->spec.store);
}

static bool takes_caller(const struct access *access)
{
    return access_options_mode_asks(access->spec.mode) && access_options_takes_caller(access->spec.options);
}

// ---- reporting ------------------------------------------------------------------------------

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

// Reports the outcome to the waiting requests, in a task. Requests that are made after this wait for the next outcome.
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

void access_end_lease(struct access *access)
{
    loop_timer_stop(access->spec.loop, &access->turn);
    if (access->leased)
        grant_lease_end(&access->lease);
    access->leased = false;
}

struct oauth_tokens access_tokens(const struct grant *grant)
{
    return (struct oauth_tokens){.access = grant->is.access_token.bytes,
                                 .refresh = grant->is.refresh_token.len ? grant->is.refresh_token.bytes : NULL,
                                 .scope = grant->is.scope,
                                 .obtained = grant->is.obtained_at,
                                 .expires = grant->is.expires_at};
}

// Schedules the refresh before the token expires (F1, F18), so that calls do not wait for it.
static void schedule(struct access *access)
{
    struct oauth_tokens tokens = access_tokens(access->grant);
    if (takes_caller(access))
        return;
    unsigned char random;
    secret_random(&random, 1);
    int64_t after_ms = oauth_tokens_refresh_in(&tokens, access_now(access), random);
    if (after_ms >= 0 && (tokens.refresh || access_options_mode_asks(access->spec.mode)))
        set_due(access, after_ms);
}

void access_hold(struct access *access, const struct grant *grant)
{
    struct buf header = {0};
    grant_ref(grant);
    grant_unref(access->grant);
    access->grant = grant;
    access->shown = grant->generation;
    buf_put_text(&header, "Bearer ");
    buf_put_span(&header, secret_span(&grant->is.access_token));
    secret_set(&access->header, buf_span(&header));
    buf_wipe(&header);
    access->version++;
    access->gone = access->renew_next = false;
    access->retry_ms = access->retry_at = 0;
    access->outcome = (struct err){0};
    access_set_state(access, STATE_HELD);
    schedule(access);
    tell(access);
}

// Takes over a stored grant that has the held token and differs in other members only. Returns false if its token is
// another one.
bool access_adopt(struct access *access, const struct grant *grant)
{
    if (grant->is.dead_at || grant->is.obtained_at != access->grant->is.obtained_at ||
        !span_equal(secret_span(&grant->is.access_token), secret_span(&access->grant->is.access_token)))
        return false;
    grant_ref(grant);
    grant_unref(access->grant);
    access->grant = grant;
    return true;
}

static void drop(struct access *access)
{
    grant_unref(access->grant);
    access->grant = NULL;
    secret_release(&access->header);
    access->version++;
    access->renew_next = false;
    access->retry_ms = access->retry_at = 0;
    access_set_state(access, STATE_EMPTY);
}

void access_note_refresh(const struct access *access, const struct err *err)
{
    if (access->spec.on_refreshed && access->grant)
        access->spec.on_refreshed(access->spec.arg, access->grant->issuer, err);
}

bool access_is_url(const struct access *access) { return strcmp(access->server_name, "url") == 0; }

// Reports that the user has to log in, because no grant can be used (F17). In ACCESS_OPTIONAL, requests are sent
// without a token until the server refuses one.
void access_need_login(struct access *access, const char *why)
{
    access->outcome = (struct err){0};
    if (access->spec.mode == ACCESS_OPTIONAL && !access->refused) {
        access_end_lease(access);
        drop(access);
        tell(access);
        return;
    }
    if (access->spec.mode == ACCESS_USER)
        (void)err_set(&access->outcome, ERR_LOGIN, "server \"%s\" needs the authorization of %s%s%s",
                      access->server_name, access->user, why ? ": " : "", why ? why : "");
    else
        (void)err_set(&access->outcome, ERR_LOGIN, "server \"%s\" needs authorization%s%s: run 'postern login %s%s'%s",
                      access->server_name, why ? ": " : "", why ? why : "", access_is_url(access) ? "--url " : "",
                      access_is_url(access) ? access->server_url : access->server_name,
                      access_is_url(access) ? ", or pass a token with --token-file or $POSTERN_TOKEN" : "");
    access_end_lease(access);
    drop(access);
    tell(access);
}

// Sets the pause: twice the previous one, at least the time that the server asked for, plus some jitter (F12).
static void back_off(struct access *access, int64_t asked)
{
    unsigned char random;
    access->retry_ms = access->retry_ms ? access->retry_ms * 2 : RETRY_FIRST_MS;
    if (access->retry_ms < asked)
        access->retry_ms = asked;
    if (access->retry_ms > RETRY_MAX_MS)
        access->retry_ms = RETRY_MAX_MS;
    secret_random(&random, 1);
    access->retry_at = loop_now(access->spec.loop) + access->retry_ms + access->retry_ms * random / 2560;
}

// Reports the failure. A held token stays.
void access_tell_failure(struct access *access)
{
    access->outcome = access->failure;
    if (access->failure.retry_after_ms)  // the rest of the pause
        access->outcome.retry_after_ms = access->retry_at - loop_now(access->spec.loop);
    access_end_lease(access);
    access_set_state(access, access->grant ? STATE_HELD : STATE_EMPTY);
    if (access->grant && !takes_caller(access))
        set_due(access, access->retry_at - loop_now(access->spec.loop));
    tell(access);
}

bool access_pausing(const struct access *access) { return loop_now(access->spec.loop) < access->retry_at; }

// A failure that says nothing about the grant: a held token stays, and the operation is retried later (F12).
void access_fail(struct access *access, const struct err *err)
{
    access->outcome = *err;
    if (access->outcome.code == ERR_DENIED)  // by the authorization server, not by the policy
        access->outcome.code = takes_caller(access) ? ERR_LOGIN : ERR_UNAVAILABLE;
    if (access->outcome.code == ERR_CONFIG || access->outcome.code == ERR_SYSTEM)  // a caller cannot fix either
        access->outcome.code = ERR_UNAVAILABLE;
    if (access->leased && access->lease.grant) {
        oauth_problem_scrub(&access->outcome, access->lease.grant->is.refresh_token.bytes);
        oauth_problem_scrub(&access->outcome, access->lease.grant->is.access_token.bytes);
    }
    oauth_problem_scrub(&access->outcome, access->client.secret);
    log_warn("cannot get a token", LOG_STR("server", access->server_name), LOG_STR("user", access->user),
             LOG_STR("detail", access->outcome.detail));
    access->failure = access->outcome;
    if (access->state == STATE_REFRESHING)
        access_note_refresh(access, &access->outcome);
    back_off(access, err->retry_after_ms);
    access_tell_failure(access);
}

static bool usable(const struct access *access, const struct grant *grant)
{
    return grant_fresh(grant, access_now(access), 0);
}

// ---- refused tokens -------------------------------------------------------------------------

void access_hold_back(struct access *access)
{
    access->held_back.generation = access->shown;
    access->held_back.version = access->version;
    access->held_back.until = loop_now(access->spec.loop) + RETRY_FIRST_MS;
}

static bool holding_back(const struct access *access) { return loop_now(access->spec.loop) < access->held_back.until; }

static void tell_refusal(struct access *access)
{
    access->renew_next = false;
    access_refused(access, false, &access->outcome);
    tell(access);
}

// ---- finding --------------------------------------------------------------------------------

static void renew(struct access *access);

// The lookup found the held token, or failed: the held token stays.
static void keep(struct access *access)
{
    access->outcome = (struct err){0};
    access_set_state(access, STATE_HELD);
    if (access->renew_next) {
        renew(access);
        return;
    }
    schedule(access);
    tell(access);
}

static void find(struct access *access);

static void on_listed(struct grant_request *request)
{
    struct access *access = request->arg;
    bool held = access->grant && usable(access, access->grant);
    if (request->answer == GRANT_STORE_FAILED) {
        if (held)
            keep(access);
        else
            access_fail(access, &request->err);
        return;
    }
    const struct grant *found = access_pick(request->grants, request->count, access->server_url);
    bool refused = found && found->generation == access->held_back.generation && holding_back(access);
    const struct grant *damaged = access_pick(request->damaged, request->damaged_count, access->server_url);
    if (!found && damaged) {  // S7: a grant that cannot be opened does not count as absent
        struct err err;
        grant_damaged(damaged, &request->err, &err);
        access_fail(access, &err);
    } else if (!found && is_outdated(access)) {
        find(access);  // a request that was made during the lookup must see everything that was written before it
    } else if (!found) {
        access->gone = access->gone || access->grant;
        access_need_login(access, NULL);
    } else if (usable(access, found) && refused) {
        access_set_state(access, access->grant ? STATE_HELD : STATE_EMPTY);
        tell_refusal(access);
    } else if (held && access_adopt(access, found)) {
        keep(access);
    } else if (usable(access, found)) {
        access_hold(access, found);
    } else if (found->is.dead_at || !found->is.refresh_token.len) {
        access_need_login(access, "the token is no longer valid");
    } else {
        grant_unref(access->grant);
        access->grant = grant_ref(found);
        access_refresh_start(access);
    }
}

static void on_flow_end(void *arg, enum login_end end, const struct grant *grant, const struct err *err)
{
    struct access *access = arg;
    login_flow_free(access->flow);
    access->flow = NULL;
    if (end != LOGIN_END_GRANTED)
        access->challenge.scope = NULL;  // it may be the reason, so the next request goes without it
    if (end == LOGIN_END_GRANTED && !access->issuer)
        access->issuer = mem_string(grant->issuer);
    if (end == LOGIN_END_GRANTED && access->spec.exchanged)
        exchanged_tokens_put(access->spec.exchanged, grant);
    if (end == LOGIN_END_GRANTED)
        access_hold(access, grant);
    else
        access_fail(access, err);
}

// Reports that no token can be exchanged: no call is in progress, or only calls without a token.
static void no_caller_token(struct access *access)
{
    access->outcome = (struct err){0};
    (void)err_set(&access->outcome, ERR_LOGIN,
                  "server \"%s\" needs the caller's own token: authenticate to the gateway with a JWT",
                  access->server_name);
    if (access->grant && usable(access, access->grant))
        access_set_state(access, STATE_HELD);
    else
        drop(access);
    tell(access);
}

// Finds a token that an earlier session of the same user obtained, unless the server has just refused it.
static bool find_exchanged(struct access *access)
{
    struct grant_key owner = {.tenant = access->tenant, .user = access->user};
    if (!access->spec.exchanged)
        return false;
    if (access->grant)
        exchanged_tokens_drop(access->spec.exchanged, access->grant);
    const struct grant *found = exchanged_tokens_find(access->spec.exchanged, &owner, access->server_url,
                                                      access->spec.options, access_now(access));
    if (found)
        access_hold(access, found);
    return found;
}

static void ask(struct access *access)
{
    bool caller = takes_caller(access);
    if (caller && find_exchanged(access))
        return;
    if (caller && !access->caller_token.len) {
        no_caller_token(access);
        return;
    }
    struct login_flow_spec spec = {.loop = access->spec.loop,
                                   .http = access->spec.http,
                                   .store = access->spec.store,
                                   .options = access->spec.options,
                                   .tenant = access->tenant,
                                   .user = access->user,
                                   .server_url = access->server_url,
                                   .probe = access->spec.probe,
                                   .issuers = access->spec.issuers,
                                   .challenge = access->challenge,
                                   .held_scope = access->spec.options->scope ? NULL : access_scope(access),
                                   .known_issuer = access->issuer,
                                   .subject = caller ? access->caller_token.bytes : NULL,
                                   .subject_until = caller ? access->caller_token_until : 0,
                                   .on_end = on_flow_end,
                                   .arg = access};
    if (caller)
        secret_digest(secret_span(&access->caller_token), access->asked_with);
    access_set_state(access, STATE_ASKING);
    access->flow = login_flow_start(&spec);
}

static void find(struct access *access)
{
    struct grant_filter filter = {access->tenant, access->user, NULL};
    if (!access->spec.store) {
        access_need_login(access, NULL);
        return;
    }
    access_set_state(access, STATE_FINDING);
    access->seen = grant_store_version(access->spec.store);
    access->request.on_done = on_listed;
    grant_store_list(access->spec.store, &filter, &access->request);
}

// ---- the interface --------------------------------------------------------------------------

static void begin(struct access *access)
{
    loop_timer_stop(access->spec.loop, &access->due);
    if (access_options_mode_asks(access->spec.mode) && access_pausing(access))
        access_tell_failure(access);
    else if (access_options_mode_asks(access->spec.mode))
        ask(access);
    else if (access->grant)
        access_refresh_start(access);
    else
        find(access);
}

static bool idle(const struct access *access) { return access->state == STATE_EMPTY || access->state == STATE_HELD; }

// The server refuses the held token.
static void renew(struct access *access)
{
    access->renew_next = false;
    if (access->state == STATE_HELD && !access_options_mode_asks(access->spec.mode) &&
        !access->grant->is.refresh_token.len) {
        access_hold_back(access);
        find(access);
    } else {
        begin(access);
    }
}

static void on_due(struct loop_timer *timer)
{
    struct access *access = timer->arg;
    if (idle(access))
        begin(access);
}

void access_get(struct access *access, struct access_wait *wait)
{
    access_cancel(wait);  // it may be in the list already
    list_append(&access->waiting, &wait->node);
    access->refused = false;
    bool fixed = access->spec.mode == ACCESS_STATIC || access->spec.mode == ACCESS_NONE;
    bool refused = access->state == STATE_HELD && access->version == access->held_back.version && holding_back(access);
    if (refused && access_options_mode_asks(access->spec.mode)) {
        tell_refusal(access);
    } else if (refused || (access->state == STATE_HELD && is_outdated(access))) {  // the store may have another one
        find(access);
    } else if (fixed || (access->state == STATE_HELD && usable(access, access->grant))) {
        access->outcome = (struct err){0};
        tell(access);
    } else if (idle(access)) {
        begin(access);
    }
}

void access_renew(struct access *access, unsigned version, struct access_wait *wait)
{
    access_cancel(wait);
    list_append(&access->waiting, &wait->node);
    access->refused = true;
    if (access->spec.mode == ACCESS_STATIC) {
        (void)err_set(&access->outcome, ERR_UNAVAILABLE, "server \"%s\" refuses the configured token; replace it",
                      access->server_name);
        tell(access);
    } else if (version != access->version && access->state == STATE_HELD) {  // the token was already replaced
        access->outcome = (struct err){0};
        tell(access);
    } else if (version == access->version && access->state == STATE_FINDING && access->grant) {
        access->renew_next = true;
    } else if (idle(access)) {
        renew(access);
    }
}

void access_cancel(struct access_wait *wait) { list_remove(&wait->node); }

bool access_stale(const struct access *access)
{
    if (is_stored(access))
        return access->state == STATE_EMPTY || access->state == STATE_FINDING ||
               (access->state == STATE_HELD && is_outdated(access));
    return access_options_mode_asks(access->spec.mode) && !(access->grant && usable(access, access->grant));
}

void access_take_caller_token(struct access *access, struct span token, int64_t expires)
{
    unsigned char digest[SECRET_MAC_BYTES];
    access->caller_token_uses++;
    if (!span_equal(secret_span(&access->caller_token), token))
        secret_set(&access->caller_token, token);
    access->caller_token_until = expires;
    if (access->retry_at) {  // a new token ends the pause
        secret_digest(token, digest);
        if (!secret_equal(digest, access->asked_with, sizeof digest))
            access->retry_ms = access->retry_at = 0;
    }
    if (access->state != STATE_HELD || access_pausing(access))
        return;
    struct oauth_tokens held = access_tokens(access->grant);
    int64_t at = oauth_tokens_refresh_at(&held);
    if (at && access_now(access) >= at && expires > access->grant->is.expires_at)
        begin(access);
}

void access_drop_caller_token(struct access *access)
{
    if (--access->caller_token_uses == 0)
        secret_release(&access->caller_token);
}

void access_forget(struct access *access)
{
    if (access->spec.mode == ACCESS_STATIC || access->spec.mode == ACCESS_NONE)
        return;
    access_end_lease(access);
    grant_request_cancel(&access->request);
    grant_request_cancel(&access->check);
    login_fetch_cancel(&access->fetch);
    login_renewal_release(&access->renewal);
    login_flow_free(access->flow);
    access->flow = NULL;
    loop_timer_stop(access->spec.loop, &access->due);
    drop(access);
    if (!list_empty(&access->waiting))
        begin(access);
}

int64_t access_login(const struct access *access)
{
    return is_stored(access) && access->grant ? access->grant->is.login : 0;
}

int64_t access_connect(struct access *access)
{
    access->gone = false;
    return access_login(access);
}

static void on_checked(struct grant_request *request)
{
    struct access *access = request->arg;
    if (access->state != STATE_HELD)
        return;
    if (request->answer == GRANT_STORE_ABSENT) {
        loop_timer_stop(access->spec.loop, &access->due);
        drop(access);
        access->gone = true;
    } else if (request->answer == GRANT_STORE_DONE && request->grant->generation > access->grant->generation &&
               !access_adopt(access, request->grant) && usable(access, request->grant)) {
        int64_t login = access_login(access);
        access_hold(access, request->grant);
        access->gone = access_login(access) != login;
    }
}

bool access_recheck(struct access *access)
{
    if (!idle(access))  // the pending lookup or refresh decides
        return false;
    bool gone = access->gone;
    access->gone = false;
    if (access->state != STATE_HELD || !access->spec.store || access_options_mode_asks(access->spec.mode) ||
        access->check.work)
        return gone;
    struct grant_key key = grant_key(access->grant);
    const struct grant *seen = grant_store_cached(access->spec.store, &key);
    if (!seen || seen->generation != access->grant->generation)
        grant_store_find(access->spec.store, &key, &access->check);
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
    return access_options_mode_asks(access->spec.mode) && !access->spec.options->scope && wanted &&
           !oauth_scope_covers(asked, wanted);
}

void access_refused(const struct access *access, bool scope, struct err *err)
{
    const char *name = access->server_name, *wanted = access->challenge.scope ? access->challenge.scope : "";
    if (access->spec.mode == ACCESS_STATIC)
        (void)err_set(err, ERR_LOGIN, "server \"%s\" %s", name,
                      scope ? "requires a token with more scope than the configured one"
                            : "refuses the configured token; replace it");
    else if (access_options_mode_asks(access->spec.mode) && scope)
        (void)err_set(
            err, ERR_LOGIN,
            "server \"%s\" requires the scope \"%.200s\", which the token does not have: permit it for client "
            "\"%.64s\" at the authorization server, and add it to \"scope\" if that is set",
            name, wanted, access->spec.options->client_id);
    else if (access_options_mode_asks(access->spec.mode))
        (void)err_set(err, ERR_LOGIN, "server \"%s\" does not accept the token that \"%.200s\" has just issued", name,
                      access->grant ? access->grant->issuer : "");
    else if (access->spec.mode == ACCESS_USER)
        (void)err_set(err, ERR_LOGIN, "server \"%s\" %s %s", name,
                      scope ? "needs more scope from" : "does not accept the token of", access->user);
    else
        (void)err_set(err, ERR_LOGIN, "server \"%s\" %s: run 'postern login %s%s'", name,
                      scope ? "needs more scope" : "does not accept the token", access_is_url(access) ? "--url " : "",
                      access_is_url(access) ? access->server_url : name);
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
    access->check = (struct grant_request){.on_done = on_checked, .arg = access};
    access->fetch = (struct login_fetch){.on_done = access_refresh_on_answer, .arg = access};
    access->tell = (struct loop_task){.run = on_tell, .arg = access, .name = "access"};
    access->due = (struct loop_timer){.on_due = on_due, .arg = access, .name = "access"};
    access->turn = (struct loop_timer){.on_due = access_refresh_on_turn, .arg = access, .name = "access"};
    list_init(&access->waiting);
    list_init(&access->told);
    if (spec->mode == ACCESS_STATIC) {
        struct buf header = {0};
        buf_printf(&header, "Bearer %s", spec->options->token);
        secret_set(&access->header, buf_span(&header));
        buf_wipe(&header);
        access->version++;
    }
    return access;
}

static void release(void *object)
{
    struct access *access = object;
    login_fetch_release(&access->fetch);
    grant_unref(access->grant);
    secret_release(&access->header);
    secret_release(&access->caller_token);
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
    access_end_lease(access);
    grant_request_release(&access->request);
    grant_request_release(&access->check);
    login_fetch_cancel(&access->fetch);
    login_renewal_release(&access->renewal);
    login_flow_free(access->flow);
    loop_task_drop(&access->tell);
    loop_timer_stop(access->spec.loop, &access->due);
    while (!list_empty(&access->waiting))
        list_remove(access->waiting.next);
    while (!list_empty(&access->told))
        list_remove(access->told.next);
    loop_reap(access->spec.loop, access, release);
}
