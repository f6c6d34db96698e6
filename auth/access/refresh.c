// Owns refreshing the token of one server: the lease, the client of the grant, the token request, and storing the
// result.
#include "access_state.h"
#include "auth/jose/signing_key.h"
#include "base/log.h"
#include "base/mem.h"
#include <stdlib.h>

#define TOKEN_MS 30000
#define LEASE_WAIT_MS 35000
#define TURN_MS 5000

// G10: the authorization server does not know the client of the grant any more. The grant is kept, in case the refusal
// was a mistake; the next login registers a new client.
static void fail_client(struct access *access, const struct err *err)
{
    const struct grant *grant = access->lease.grant;
    const char *redirect = grant->is.client_redirect;
    struct registration_key key = {access->tenant, grant->issuer, redirect};
    struct err advice;
    if (redirect && *redirect)
        grant_store_registration_suspect(access->spec.store, &key, grant->is.client_id, NULL);
    if (access->spec.mode == ACCESS_USER || !redirect || !*redirect)
        (void)err_set(&advice, ERR_LOGIN, "%.300s", err->detail);
    else
        (void)err_set(&advice, ERR_LOGIN, "%.300s: run 'postern login %s%s --reregister'", err->detail,
                      access_is_url(access) ? "--url " : "",
                      access_is_url(access) ? access->server_url : access->server_name);
    access_fail(access, &advice);
}

static const char *resource_of(const struct access *access)
{
    const char *configured = access->spec.options->resource;
    if (configured)
        return strcmp(configured, "omit") == 0 ? NULL : configured;
    return *access->lease.grant->resource ? access->lease.grant->resource : NULL;
}

static void ask_for_tokens(struct access *access)
{
    const struct grant *old = access->lease.grant;
    struct buf form = {0};
    struct err err;
    access_set_state(access, STATE_REFRESHING);
    access->sent = access_now(access);
    access->policy = login_fetch_policy(old->is.learned, access->server_url, access->spec.options->allow_addresses);
    struct login_form to = {.url = old->is.token_endpoint,
                            .client = &access->client,
                            .audience = old->issuer,
                            .now = access->sent,
                            .timeout_ms = TOKEN_MS,
                            .policy = &access->policy,
                            .ca_file = access->spec.options->ca_file};
    oauth_form_put(&form, "grant_type", "refresh_token");
    oauth_form_put(&form, "refresh_token", old->is.refresh_token.bytes);
    if (!access->without_resource)
        oauth_form_put(&form, "resource", resource_of(access));
    if (!login_fetch_post(&access->fetch, access->spec.http, &to, &form, &err))
        access_fail(access, &err);
}

// H18: many users' tokens may expire at once, so requests to one issuer are spread. After TURN_MS a request is sent in
// any case, so that no call fails because of the wait.
static void refresh(struct access *access)
{
    int64_t left = access->turn_ends - loop_now(access->spec.loop), wait = 0;
    if (access->spec.wait_for_issuer && left > 0)
        wait = access->spec.wait_for_issuer(access->spec.arg, access->lease.grant->issuer);
    access_set_state(access, STATE_CLIENT);
    if (wait > 0)
        loop_timer_set(access->spec.loop, &access->turn, wait < left ? wait : left);
    else
        ask_for_tokens(access);
}

void access_refresh_on_turn(struct loop_timer *timer) { refresh(timer->arg); }

// F15: uses the client that the grant was issued to, not the client that a new login would use.
static void use_registration(struct access *access, const struct registration *found)
{
    const struct secret *secret = found ? registration_secret(found, access->client.id) : NULL;
    if (!secret) {
        access_need_login(access,
                          "the registration of the client that the grant was issued to does not exist any more");
        return;
    }
    access->client.secret = arena_copy(&access->arena, secret_span(secret));
    refresh(access);
}

static void on_renewed(struct login_renewal *renewal)
{
    struct access *access = renewal->arg;
    bool good = access_now(access) < renewal->old->is.secret_expires_at;
    if (renewal->registration)
        use_registration(access, renewal->registration);
    else if (good || renewal->claimed)  // the old secret may still work; if not, the server refuses it (G10)
        use_registration(access, renewal->old);
    else  // another process is renewing the registration
        access_fail(access, &renewal->err);
}

// G8: an expired client secret is renewed first, if possible, because no token can be refreshed with it.
static void on_client(struct grant_request *request)
{
    struct access *access = request->arg;
    const struct registration *found = request->registration;
    if (request->answer == GRANT_STORE_FAILED) {
        access_fail(access, &request->err);
    } else if (found && strcmp(found->is.client_id, access->client.id) == 0 &&
               login_renewal_due(found, access_now(access)) && login_renewal_possible(found)) {
        access->policy =
            login_fetch_policy(found->is.learned, access->server_url, access->spec.options->allow_addresses);
        access->renewal.on_done = on_renewed;
        access->renewal.arg = access;
        login_renewal_start(&access->renewal, access->spec.store, access->spec.http, &access->policy,
                            access->spec.options->ca_file, found);
    } else {
        use_registration(access, found);
    }
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
        access_set_state(access, STATE_CLIENT);
        access->request.on_done = on_client;
        grant_store_registration_find(access->spec.store, &key, &access->request);
    } else if (!access_options_is_client_of(options, old)) {
        access_need_login(access,
                          "the registration of the client that the grant was issued to does not exist any more");
    } else {
        access->client.secret = options->client_secret;
        access->client.key_alg = options->signing_algorithm;
        access->client.key_id = options->key_id;
        if (options->private_key_file &&
            !(access->client.key_pem = signing_key_read(options->private_key_file, &access->arena, &err)))
            access_fail(access, &err);
        else
            refresh(access);
    }
}

static void on_notes(struct grant_request *request)
{
    struct access *access = request->arg;
    int64_t age = access_now(access) - request->notes.resource_refused_at;
    if (request->answer == GRANT_STORE_FAILED) {
        access_fail(access, &request->err);
        return;
    }
    access->without_resource = access->resource_noted = request->answer == GRANT_STORE_DONE && age < ISSUER_NOTE_S;
    find_client(access);
}

// F14: looks up the notes that earlier refreshes have made about the authorization server.
static void find_notes(struct access *access)
{
    if (!resource_of(access)) {
        find_client(access);
        return;
    }
    access_set_state(access, STATE_CLIENT);
    access->request.on_done = on_notes;
    grant_store_issuer_find(access->spec.store, access->tenant, access->lease.grant->issuer, &access->request);
}

static void save(struct access *access, struct grant_fields *fields)
{
    struct grant_key key = grant_key(access->lease.grant);
    struct grant *fresh = grant_new(&key, fields);
    access_set_state(access, STATE_SAVING);
    grant_lease_save(&access->lease, fresh);
    grant_unref(fresh);
}

// F13: marks the grant as dead. This happens under the lease, so that exactly the refused grant is marked. The grant is
// kept so that errors can name the reason.
static void mark_dead(struct access *access, const char *why)
{
    struct grant_fields fields = {0};
    grant_fields_copy(&access->lease.grant->is, &fields);
    fields.dead_at = access_now(access);
    free(fields.dead_reason);
    fields.dead_reason = mem_string(why);
    access->saving = SAVING_END;
    save(access, &fields);
}

// F12: counts an ambiguous refusal in the store, for all processes. Enough of them count as a permanent refusal.
static void doubt(struct access *access, const struct err *err)
{
    struct grant_fields fields = {0};
    grant_fields_copy(&access->lease.grant->is, &fields);
    if (grant_doubt(&fields, access_now(access))) {
        mark_dead(access, "the authorization server refused the refresh token repeatedly");
    } else if (fields.doubts != access->lease.grant->is.doubts) {
        access->doubt = *err;
        access->saving = SAVING_DOUBT;
        save(access, &fields);
    } else {
        access_fail(access, err);
    }
    grant_fields_release(&fields);
}

// F14: tries once without the resource. Returns false if the request was already sent without it.
static bool try_without_resource(struct access *access)
{
    if (access->without_resource || !resource_of(access))
        return false;
    access->without_resource = true;
    refresh(access);
    return true;
}

// Notes for later refreshes, in all processes, that the request succeeded only without the resource.
static void note_resource(struct access *access)
{
    struct issuer_notes notes = {.resource_refused_at = access_now(access)};
    if (access->without_resource && !access->resource_noted)
        grant_store_issuer_note(access->spec.store, access->tenant, access->lease.grant->issuer, &notes, NULL);
}

void access_refresh_on_answer(struct login_fetch *fetch)
{
    struct access *access = fetch->arg;
    struct oauth_answer answer = {fetch->status, buf_span(&fetch->type), buf_span(&fetch->body)};
    struct oauth_tokens fresh, old = access_tokens(access->lease.grant);
    struct err err = {0};
    if (fetch->failed) {
        access_fail(access, &fetch->err);
        return;
    }
    enum oauth_verdict verdict = oauth_tokens_parse(&answer, access->sent, old.scope, &access->arena, &fresh, &err);
    err.retry_after_ms = fetch->retry_after_ms;
    switch (verdict) {
    case OAUTH_VERDICT_GRANTED: break;
    case OAUTH_VERDICT_DEAD: mark_dead(access, "the authorization server refused the refresh token"); return;
    case OAUTH_VERDICT_RESOURCE:
        if (!try_without_resource(access))
            access_fail(access, &err);
        return;
    case OAUTH_VERDICT_VAGUE:
    case OAUTH_VERDICT_UNPROVEN:
        if (!try_without_resource(access))
            doubt(access, &err);
        return;
    case OAUTH_VERDICT_CLIENT: fail_client(access, &err); return;
    default: access_fail(access, &err); return;
    }
    if (fresh.odd_lifetime)
        log_warn("ignoring invalid expires_in of a token", LOG_STR("issuer", access->lease.grant->issuer));
    note_resource(access);
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
    fields.doubts = fields.doubted_at = 0;
    access->saving = SAVING_TOKENS;
    save(access, &fields);
}

static void on_saved(struct grant_lease *held)
{
    struct access *access = held->arg;
    struct grant *stored = held->grant;
    if (access->saving == SAVING_END && (!stored || stored->is.dead_at)) {
        struct err ended;
        (void)err_set(&ended, ERR_LOGIN, "the grant has ended");
        access_note_refresh(access, &ended);
        access_need_login(access, "the grant has ended");
        return;
    }
    if (!stored) {  // the user logged out during the refresh
        access_need_login(access, NULL);
        return;
    }
    if (stored->is.dead_at) {
        access_need_login(access, "the grant has ended");
        return;
    }
    if (access->saving == SAVING_DOUBT && access_adopt(access, stored)) {
        access_set_state(access, STATE_REFRESHING);
        access_fail(access, &access->doubt);
        return;
    }
    if (held->answer == GRANT_STORE_FAILED)  // F10: the token is used, but a restart loses it until it is written
        log_error("cannot store a refreshed token; retrying", LOG_STR("server", access->server_name),
                  LOG_STR("detail", held->err.detail));
    if (access->saving != SAVING_END)  // otherwise the user has logged in while the old grant was refused
        access_note_refresh(access, NULL);
    access_hold(access, stored);
    access_end_lease(access);
}

static void on_leased(struct grant_lease *held)
{
    struct access *access = held->arg;
    switch (held->state) {
    case LEASE_HELD:
        if (held->grant->is.dead_at || !held->grant->is.refresh_token.len || !held->grant->is.token_endpoint)
            access_need_login(access, held->grant->is.dead_at ? "the grant has ended" : "the token has expired");
        else if (!oauth_issuer_allowed(held->grant->issuer, access->spec.issuers))
            access_need_login(access, "its authorization server is not in hosted.authorization_servers");
        else if (access_pausing(access))
            access_tell_failure(access);
        else
            find_notes(access);
        break;
    case LEASE_CHANGED:
        if (held->grant->is.dead_at) {
            access_need_login(access, "the grant has ended");
        } else if (access_adopt(access, held->grant)) {  // F5: the grant changed, but its token is still the old one
            access_end_lease(access);
            access_refresh_start(access);
        } else {
            access_hold(access, held->grant);
            access_end_lease(access);
        }
        break;
    case LEASE_GONE: access_need_login(access, NULL); break;
    case LEASE_LATE:
        (void)err_set(&held->err, ERR_UNAVAILABLE,
                      "another process is refreshing the token of \"%s\" and did not finish in time",
                      access->server_name);
        access_fail(access, &held->err);
        break;
    default: access_fail(access, &held->err);
    }
}

void access_refresh_start(struct access *access)
{
    struct grant_key key = grant_key(access->grant);
    access_set_state(access, STATE_LEASING);
    access->seen = grant_store_version(access->spec.store);
    access->without_resource = access->resource_noted = false;
    access->leased = true;
    access->turn_ends = loop_now(access->spec.loop) + TURN_MS;
    access->lease =
        (struct grant_lease){.on_ready = on_leased, .on_saved = on_saved, .arg = access, .wait_ms = LEASE_WAIT_MS};
    grant_lease_start(access->spec.store, &access->lease, &key, access->grant->generation);
}
