// Owns a login: discovery, registration, authorization, exchange, saving.
//
//   start ─► PROBING ─► RESOURCE ─► SERVER ─► FINDING ─► REGISTERING ─► KEEPING ─┐
//                           │          ▲         │ (a client is known)           │
//                           └─ none ───┘         ▼                               │
//                              (legacy)     AUTHORIZING ◄────────────────────────┘
//                                              │ callback
//                                              ▼
//                                         EXCHANGING ─► LOOKING ─► SAVING ─► ENDED (granted)
//
//   SERVER ─► EXCHANGING (client_credentials: no browser, nothing stored)
//   EXCHANGING ─► REGISTERING  once, when the server does not know our client any more (G3, G10)
//   EXCHANGING ─► AUTHORIZING  once, when it does not know the code (T13)
//   any ─► ENDED (failed)
//
// What the callback is judged by is in `attempt`, and nothing is looked up again between the browser's leaving and its
// coming back (A4, D15). Every state has one exchange or one store request under way, or waits for the browser.
#include "auth/oauth_flow.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/scan.h"
#include "oauth_fetch.h"
#include "oauth_key.h"
#include <stdlib.h>
#include <time.h>

#define METADATA_MS 10000
#define TOKEN_MS 30000
#define REVISION "2025-11-25"

enum flow_state {
    FLOW_ENDED,
    FLOW_PROBING,
    FLOW_RESOURCE,
    FLOW_SERVER,
    FLOW_FINDING,
    FLOW_REGISTERING,
    FLOW_KEEPING,
    FLOW_AUTHORIZING,
    FLOW_EXCHANGING,
    FLOW_LOOKING,
    FLOW_SAVING,
};

struct oauth_flow {
    struct oauth_flow_spec spec;
    struct arena arena;
    enum flow_state state;
    struct address_policy policy;
    struct oauth_fetch fetch;
    struct token_request request;
    const char *urls[OAUTH_URLS_MAX + 1];  // candidates of the document looked for
    size_t url_count, url_at;
    bool given_url;  // the first candidate is the challenge's
    struct oauth_resource resource;
    size_t server_at;
    bool legacy;
    struct oauth_registration registration;
    struct oauth_attempt attempt;
    struct registration_fields kept;  // the stored registration, to mark it
    int64_t kept_generation;
    bool anew;  // no stored registration is to be used
    bool documents_failed, registered_twice, authorized_twice, other_method, saved_twice;
    const char *code;
    int64_t sent;  // seconds, before the token request
    struct oauth_tokens tokens;
    struct grant *grant;
    struct loop_task begin;
    struct err last;  // of a candidate that was passed over
};

static void look(struct oauth_flow *flow);
static void register_client(struct oauth_flow *flow);
static void authorize(struct oauth_flow *flow);
static void exchange(struct oauth_flow *flow);

static void set_state(struct oauth_flow *flow, enum flow_state state) { flow->state = state; }

static int64_t now(void) { return (int64_t)time(NULL); }

static void note(struct oauth_flow *flow, const char *format, const char *a, int status)
{
    if (!flow->spec.on_note)
        return;
    struct buf text = {0};
    buf_put_text(&text, format);
    if (a)
        buf_printf(&text, " %s", a);
    if (status)
        buf_printf(&text, ": HTTP %d", status);
    flow->spec.on_note(flow->spec.arg, buf_text(&text));
    buf_release(&text);
}

static void end(struct oauth_flow *flow, enum oauth_end end, const struct err *err)
{
    struct err shown = err ? *err : (struct err){0};
    const char *secrets[] = {flow->code,
                             flow->attempt.verifier,
                             flow->attempt.state,
                             flow->tokens.access,
                             flow->tokens.refresh,
                             flow->attempt.client.secret,
                             flow->attempt.client.management_token};
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++)
        oauth_scrub(&shown, secrets[i]);
    set_state(flow, FLOW_ENDED);
    flow->spec.on_end(flow->spec.arg, end, end == OAUTH_END_GRANTED ? flow->grant : NULL, err ? &shown : NULL);
}

static void fetch_get(struct oauth_flow *flow, const char *url)
{
    struct oauth_wish wish = {.url = url, .revision = REVISION, .timeout_ms = METADATA_MS, .policy = &flow->policy};
    oauth_fetch_start(&flow->fetch, flow->spec.http, &wish);
}

// ---- discovery ------------------------------------------------------------------------------

// The server itself, without a token: what it answers says where to go on, and where it is says which addresses may
// be talked to.
static void probe(struct oauth_flow *flow)
{
    static const char ping[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}";
    struct oauth_wish wish = {.url = flow->spec.server_url,
                              .type = "application/json",
                              .accept = "application/json, text/event-stream",
                              .body = span_of(ping),
                              .timeout_ms = METADATA_MS,
                              .policy = &flow->policy};
    set_state(flow, FLOW_PROBING);
    flow->policy.learning = true;
    oauth_fetch_start(&flow->fetch, flow->spec.http, &wish);
}

static void next_candidate(struct oauth_flow *flow);

static void on_probed(struct oauth_flow *flow)
{
    struct oauth_challenge *challenge = &flow->spec.challenge;
    const struct oauth_challenge *found = &flow->fetch.challenge;
    flow->policy.learning = false;
    if (flow->fetch.failed) {
        end(flow, OAUTH_END_DISCOVERY, &flow->fetch.err);
        return;
    }
    note(flow, "POST", flow->spec.server_url, flow->fetch.status);
    if (flow->fetch.status == 401 && !challenge->bearer && found->bearer) {
        challenge->bearer = true;
        challenge->scope = found->scope ? arena_copy(&flow->arena, span_of(found->scope)) : NULL;
        challenge->resource_metadata =
            found->resource_metadata ? arena_copy(&flow->arena, span_of(found->resource_metadata)) : NULL;
    }
    set_state(flow, FLOW_RESOURCE);
    flow->url_count = flow->url_at = 0;
    flow->given_url = challenge->resource_metadata != NULL;
    if (flow->given_url)
        flow->urls[flow->url_count++] = challenge->resource_metadata;
    flow->url_count += oauth_resource_urls(flow->spec.server_url, &flow->arena, flow->urls + flow->url_count);
    next_candidate(flow);
}

// D11: no resource metadata anywhere: the server's own origin is asked.
static void go_legacy(struct oauth_flow *flow)
{
    struct oauth_server guess;
    flow->legacy = true;
    oauth_server_default(flow->spec.server_url, &flow->arena, &guess);
    flow->resource = (struct oauth_resource){.servers = {guess.issuer}, .server_count = 1};
    note(flow, "no protected resource metadata: the server's origin is taken for its authorization server", NULL, 0);
}

static void look_for_server(struct oauth_flow *flow)
{
    set_state(flow, FLOW_SERVER);
    flow->url_at = 0;
    flow->url_count = oauth_server_urls(flow->resource.servers[flow->server_at], &flow->arena, flow->urls);
    next_candidate(flow);
}

static void discovered(struct oauth_flow *flow);

static void out_of_candidates(struct oauth_flow *flow)
{
    if (flow->state == FLOW_RESOURCE) {
        go_legacy(flow);
        look_for_server(flow);
        return;
    }
    if (++flow->server_at < flow->resource.server_count) {
        look_for_server(flow);
        return;
    }
    if (flow->legacy && !flow->last.code) {
        oauth_server_default(flow->spec.server_url, &flow->arena, &flow->attempt.server);
        note(flow, "no authorization server metadata: default endpoints at", flow->attempt.server.issuer, 0);
        discovered(flow);
        return;
    }
    if (!flow->last.code)
        (void)err_set(&flow->last, ERR_UNAVAILABLE, "no metadata of the authorization server \"%.200s\"",
                      flow->resource.servers[0]);
    end(flow, OAUTH_END_DISCOVERY, &flow->last);
}

static void next_candidate(struct oauth_flow *flow)
{
    struct err err;
    if (flow->url_at == flow->url_count) {
        out_of_candidates(flow);
        return;
    }
    const char *url = flow->urls[flow->url_at];
    if (!oauth_url_secure(url)) {
        (void)err_set(&err, ERR_UPSTREAM_INVALID, "no https URL: %.200s", url);
        end(flow, OAUTH_END_DISCOVERY, &err);
        return;
    }
    fetch_get(flow, url);
}

// As far as the grammar goes: one with a key twice is no reason to look elsewhere, but to stop.
static bool is_object(struct span text)
{
    struct err ignored;
    struct span value;
    return scan_document(text, false, &value, &ignored) && scan_is_object(value);
}

// D5: what lets the search go on, and what ends it.
static bool passes_over(const struct oauth_fetch *fetch)
{
    int status = fetch->status;
    return (status >= 300 && status < 500) || status == 502 || (status == 200 && !is_object(buf_span(&fetch->body)));
}

static bool answered(struct oauth_flow *flow)
{
    struct err err;
    if (flow->fetch.failed) {
        note(flow, "GET", flow->urls[flow->url_at], 0);
        end(flow, OAUTH_END_DISCOVERY, &flow->fetch.err);
        return false;
    }
    note(flow, "GET", flow->urls[flow->url_at], flow->fetch.status);
    if (passes_over(&flow->fetch)) {
        flow->url_at++;
        next_candidate(flow);
        return false;
    }
    if (flow->fetch.status != 200) {
        (void)err_set(&err, ERR_UNAVAILABLE, "%.200s answered HTTP %d", flow->urls[flow->url_at], flow->fetch.status);
        end(flow, OAUTH_END_DISCOVERY, &err);
        return false;
    }
    return true;
}

static void on_resource(struct oauth_flow *flow)
{
    struct err err;
    if (!answered(flow))
        return;
    if (!oauth_resource_parse(buf_span(&flow->fetch.body), flow->spec.server_url, &flow->arena, &flow->resource,
                              &err)) {
        end(flow, OAUTH_END_DISCOVERY, &err);
        return;
    }
    const char *pin = flow->spec.options->issuer;
    for (size_t i = 0; pin && i < flow->resource.server_count; i++)
        if (strcmp(flow->resource.servers[i], pin) == 0) {
            flow->resource.servers[0] = flow->resource.servers[i];
            flow->resource.server_count = 1;
        }
    look_for_server(flow);
}

static void on_server(struct oauth_flow *flow)
{
    const char *pin = flow->spec.options->issuer;
    if (!answered(flow))
        return;
    const char *issuer = pin ? pin : flow->resource.servers[flow->server_at];
    if (!oauth_server_parse(buf_span(&flow->fetch.body), issuer, &flow->arena, &flow->attempt.server, &flow->last)) {
        flow->url_at = flow->url_count;  // its other documents are not to be trusted either
        next_candidate(flow);
        return;
    }
    note(flow, "authorization server:", flow->attempt.server.issuer, 0);
    discovered(flow);
}

// ---- who we are -----------------------------------------------------------------------------

static const char *resource_to_name(const struct oauth_flow *flow)
{
    const char *configured = flow->spec.options->resource;
    if (configured)
        return strcmp(configured, "omit") == 0 ? NULL : configured;
    return flow->resource.resource;
}

static void choose_scope(struct oauth_flow *flow)
{
    const struct access_options *options = flow->spec.options;
    struct oauth_scope_wish wish = {.configured = options->scope,
                                    .challenged = flow->spec.challenge.scope,
                                    .supported = flow->resource.scope,
                                    .held = flow->spec.held_scope,
                                    .offline = flow->attempt.server.offline_access && flow->spec.redirect_uri};
    flow->attempt.scope = oauth_scope_choose(&wish, &flow->arena);
    flow->attempt.consent = wish.offline && flow->attempt.scope;
}

// G1: the client that was configured, if one was. False: it cannot be used.
static bool take_configured(struct oauth_flow *flow, struct err *err)
{
    const struct access_options *options = flow->spec.options;
    struct oauth_client *client = &flow->attempt.client;
    *client = (struct oauth_client){.id = options->client_id,
                                    .secret = options->client_secret,
                                    .key_alg = options->signing_algorithm,
                                    .key_id = options->key_id};
    if (options->private_key_file && !(client->key_pem = oauth_key_read(options->private_key_file, &flow->arena, err)))
        return false;
    client->method = oauth_client_method(client, &flow->attempt.server);
    return true;
}

static void find_client(struct oauth_flow *flow)
{
    struct registration_key key = {flow->spec.tenant, flow->attempt.server.issuer, flow->spec.redirect_uri};
    set_state(flow, FLOW_FINDING);
    token_store_registration_find(flow->spec.store, &key, &flow->request);
}

static void choose_client(struct oauth_flow *flow)
{
    const struct access_options *options = flow->spec.options;
    struct err err;
    if (options->client_id) {
        if (take_configured(flow, &err))
            authorize(flow);
        else
            end(flow, OAUTH_END_REGISTRATION, &err);
    } else if (flow->attempt.server.takes_documents && options->client_metadata_url && !flow->documents_failed) {
        flow->attempt.client = (struct oauth_client){.id = options->client_metadata_url};
        note(flow, "client id is the document", options->client_metadata_url, 0);
        authorize(flow);
    } else if (flow->attempt.server.registration_endpoint) {
        find_client(flow);
    } else {
        (void)err_set(
            &err, ERR_CONFIG,
            "authorization server \"%.150s\" registers no clients: set client_id (and client_secret) of one that "
            "is registered there, or a client_metadata_url if it takes documents, in the server's auth",
            flow->attempt.server.issuer);
        end(flow, OAUTH_END_REGISTRATION, &err);
    }
}

// D17: what a login would do.
static void tell_decisions(struct oauth_flow *flow)
{
    const struct access_options *options = flow->spec.options;
    const struct oauth_server *server = &flow->attempt.server;
    const char *client = options->client_id                                        ? "that of the configuration"
                         : server->takes_documents && options->client_metadata_url ? "a metadata document"
                         : server->registration_endpoint                           ? "registered when needed"
                                                                                   : "none: set client_id";
    note(flow, "client:", client, 0);
    note(flow, "resource:", flow->attempt.resource ? flow->attempt.resource : "(not sent)", 0);
    note(flow, "scope:", flow->attempt.scope ? flow->attempt.scope : "(not sent)", 0);
    note(flow, "authorization endpoint:", server->authorization_endpoint, 0);
    note(flow, "token endpoint:", server->token_endpoint, 0);
}

static void discovered(struct oauth_flow *flow)
{
    struct err err;
    const struct oauth_server *server = &flow->attempt.server;
    flow->attempt.resource = resource_to_name(flow);
    flow->attempt.redirect_uri = flow->spec.redirect_uri;
    choose_scope(flow);
    if (!flow->spec.redirect_uri) {
        if (!flow->spec.options->client_id)
            (void)err_set(&err, ERR_CONFIG, "mode client_credentials needs a client_id");
        else if (take_configured(flow, &err)) {
            exchange(flow);
            return;
        }
        end(flow, OAUTH_END_REGISTRATION, &err);
        return;
    }
    if (!oauth_pkce_check(server, flow->spec.options->pkce == ACCESS_PKCE_ASSUME, &err)) {
        end(flow, OAUTH_END_DISCOVERY, &err);
    } else if (!server->code || !server->authorization_endpoint) {
        (void)err_set(&err, ERR_UPSTREAM_INVALID, "authorization server \"%.200s\" gives no authorization codes",
                      server->issuer);
        end(flow, OAUTH_END_DISCOVERY, &err);
    } else if (flow->spec.only_discover) {
        tell_decisions(flow);
        end(flow, OAUTH_END_FOUND, NULL);
    } else {
        choose_client(flow);
    }
}

static void on_client_found(struct oauth_flow *flow)
{
    const struct registration *found = flow->request.registration;
    struct oauth_client *client = &flow->attempt.client;
    if (flow->request.answer == TOKEN_FAILED) {
        end(flow, OAUTH_END_STORE, &flow->request.err);
        return;
    }
    flow->kept_generation = flow->request.answer == TOKEN_DONE ? found->generation : 0;
    if (flow->request.answer == TOKEN_DONE && !flow->anew && !found->is.suspect_at) {
        *client = (struct oauth_client){.id = arena_copy(&flow->arena, span_of(found->is.client_id)),
                                        .dynamic = true,
                                        .secret_expires = found->is.secret_expires_at};
        if (found->is.client_secret.len)
            client->secret = arena_copy(&flow->arena, secret_span(&found->is.client_secret));
        if (oauth_method_parse(found->is.auth_method, &client->method) && oauth_client_usable(client, NULL, now())) {
            registration_fields_copy(&found->is, &flow->kept);
            authorize(flow);
            return;
        }
    }
    register_client(flow);
}

static void register_client(struct oauth_flow *flow)
{
    struct buf body = {0};
    set_state(flow, FLOW_REGISTERING);
    flow->registration = (struct oauth_registration){.redirect_uri = flow->spec.redirect_uri,
                                                     .scope = flow->attempt.scope,
                                                     .method = oauth_registration_method(&flow->attempt.server),
                                                     .native = true};
    oauth_registration_put(&flow->registration, &body);
    struct oauth_wish wish = {.url = flow->attempt.server.registration_endpoint,
                              .type = "application/json",
                              .body = buf_span(&body),
                              .timeout_ms = TOKEN_MS,
                              .policy = &flow->policy};
    oauth_fetch_start(&flow->fetch, flow->spec.http, &wish);
    buf_release(&body);
}

static char *copy_text(const char *text) { return text ? mem_string(text) : NULL; }

static void keep_client(struct oauth_flow *flow)
{
    const struct oauth_client *client = &flow->attempt.client;
    struct registration_key key = {flow->spec.tenant, flow->attempt.server.issuer, flow->spec.redirect_uri};
    struct registration_fields fields = {.client_id = mem_string(client->id),
                                         .secret_expires_at = client->secret_expires,
                                         .issued_at = now(),
                                         .auth_method = mem_string(oauth_method_text(client->method)),
                                         .registration_uri = copy_text(client->management_uri),
                                         .redirect_uris = mem_string(flow->spec.redirect_uri),
                                         .scope = copy_text(client->scope)};
    if (client->secret)
        secret_set(&fields.client_secret, span_of(client->secret));
    if (client->management_token)
        secret_set(&fields.registration_token, span_of(client->management_token));
    registration_fields_release(&flow->kept);
    registration_fields_copy(&fields, &flow->kept);
    struct registration *kept = registration_new(&key, &fields);
    set_state(flow, FLOW_KEEPING);
    token_store_registration_save(flow->spec.store, kept, flow->kept_generation, &flow->request);
    registration_unref(kept);
}

static void on_registered(struct oauth_flow *flow)
{
    struct err err = {0};
    int status = flow->fetch.status;
    if (flow->fetch.failed) {
        end(flow, OAUTH_END_REGISTRATION, &flow->fetch.err);
        return;
    }
    note(flow, "POST", flow->attempt.server.registration_endpoint, status);
    if (status != 200 && status != 201) {
        struct buf problem = {0};
        struct err ignored;
        json_t *tree = oauth_document(buf_span(&flow->fetch.body), "registration", &ignored);
        oauth_put_problem(tree, &problem);
        json_decref(tree);
        (void)err_set(&err, ERR_DENIED,
                      "registration was refused with HTTP %d: %s (redirect_uri %s, application_type native)", status,
                      buf_text(&problem), flow->spec.redirect_uri);
        buf_release(&problem);
        end(flow, OAUTH_END_REGISTRATION, &err);
    } else if (!oauth_registration_parse(buf_span(&flow->fetch.body), &flow->registration, &flow->arena,
                                         &flow->attempt.client, &err)) {
        end(flow, OAUTH_END_REGISTRATION, &err);
    } else {
        keep_client(flow);
    }
}

static void on_client_kept(struct oauth_flow *flow)
{
    if (flow->request.answer == TOKEN_FAILED) {
        end(flow, OAUTH_END_STORE, &flow->request.err);
        return;
    }
    // TOKEN_CONFLICT: somebody registered at the same time; both registrations are good, and the login uses its own.
    flow->kept_generation = flow->request.registration ? flow->request.registration->generation : 0;
    authorize(flow);
}

// ---- asking the user ------------------------------------------------------------------------

static void authorize(struct oauth_flow *flow)
{
    const struct option_pairs *extra = &flow->spec.options->authorize_params;
    struct buf url = {0};
    set_state(flow, FLOW_AUTHORIZING);
    oauth_attempt_seed(&flow->attempt);
    flow->attempt.extra_count = 0;
    for (size_t i = 0; i < extra->count && i < sizeof flow->attempt.extra / sizeof *flow->attempt.extra; i++)
        flow->attempt.extra[flow->attempt.extra_count++] = (struct oauth_extra){extra->at[i].name, extra->at[i].value};
    oauth_attempt_url(&flow->attempt, &url);
    flow->spec.on_browse(flow->spec.arg, arena_copy(&flow->arena, buf_span(&url)));
    buf_release(&url);
}

enum oauth_callback_kind oauth_flow_callback(struct oauth_flow *flow, struct span query, struct err *err)
{
    if (flow->state != FLOW_AUTHORIZING) {
        (void)err_set(err, ERR_INVALID_REQUEST, "ignored a callback: no login waits for one");
        return OAUTH_CALLBACK_STRANGE;
    }
    enum oauth_callback_kind kind = oauth_callback(&flow->attempt, query, &flow->arena, &flow->code, err);
    if (kind != OAUTH_CALLBACK_STRANGE) {
        flow->last = *err;
        set_state(flow, FLOW_EXCHANGING);
        loop_task_put(flow->spec.loop, &flow->begin);  // what follows may end the flow: not inside the caller
        if (kind != OAUTH_CALLBACK_CODE)
            flow->code = NULL;
        flow->last.code = kind == OAUTH_CALLBACK_CODE     ? ERR_NONE
                          : kind == OAUTH_CALLBACK_DENIED ? ERR_DENIED
                                                          : ERR_UPSTREAM_INVALID;
    }
    return kind;
}

// ---- the token ------------------------------------------------------------------------------

static void exchange(struct oauth_flow *flow)
{
    struct buf form = {0}, authorization = {0};
    struct err err;
    set_state(flow, FLOW_EXCHANGING);
    if (flow->spec.redirect_uri) {
        oauth_exchange_put(&flow->attempt, flow->code, &form);
    } else {
        oauth_form_put(&form, "grant_type", "client_credentials");
        oauth_form_put(&form, "scope", flow->attempt.scope);
        oauth_form_put(&form, "resource", flow->attempt.resource);
    }
    flow->sent = now();
    bool ok =
        oauth_client_apply(&flow->attempt.client, flow->attempt.server.issuer, flow->sent, &form, &authorization, &err);
    if (ok) {
        struct oauth_wish wish = {.url = flow->attempt.server.token_endpoint,
                                  .type = "application/x-www-form-urlencoded",
                                  .body = buf_span(&form),
                                  .authorization = authorization.len ? buf_text(&authorization) : NULL,
                                  .timeout_ms = TOKEN_MS,
                                  .policy = &flow->policy};
        oauth_fetch_start(&flow->fetch, flow->spec.http, &wish);
    }
    if (form.at)
        secret_wipe(form.at, form.room);
    if (authorization.at)
        secret_wipe(authorization.at, authorization.room);
    buf_release(&form);
    buf_release(&authorization);
    if (!ok)
        end(flow, OAUTH_END_TOKEN, &err);
}

// T4: basic and post are told apart badly in the wild; the other one is tried once, where the server allows it.
static bool try_other_method(struct oauth_flow *flow)
{
    struct oauth_client *client = &flow->attempt.client;
    enum oauth_method other = client->method == OAUTH_METHOD_BASIC ? OAUTH_METHOD_POST : OAUTH_METHOD_BASIC;
    bool secret = client->method == OAUTH_METHOD_BASIC || client->method == OAUTH_METHOD_POST;
    if (flow->other_method || !secret ||
        (flow->attempt.server.methods_listed && !(flow->attempt.server.methods & 1U << other)))
        return false;
    flow->other_method = true;
    client->method = other;
    exchange(flow);
    return true;
}

// Our client is not known there (any more). G10, G3: once, and only if it was not given to us by a person.
static bool try_new_client(struct oauth_flow *flow)
{
    bool document = !flow->attempt.client.dynamic && !flow->spec.options->client_id;
    if (flow->registered_twice || !flow->spec.redirect_uri || flow->spec.options->client_id ||
        !flow->attempt.server.registration_endpoint)
        return false;
    flow->registered_twice = true;
    flow->anew = true;
    flow->documents_failed |= document;
    flow->other_method = false;
    find_client(flow);
    return true;
}

static void look(struct oauth_flow *flow)
{
    struct grant_key key = grant_key(flow->grant);
    set_state(flow, FLOW_LOOKING);
    token_store_find(flow->spec.store, &key, &flow->request);
}

static void make_grant(struct oauth_flow *flow)
{
    const struct oauth_attempt *attempt = &flow->attempt;
    struct grant_key key = {flow->spec.tenant, flow->spec.user, attempt->server.issuer,
                            flow->legacy ? "" : flow->resource.resource};
    struct grant_fields fields = {.token_type = mem_string("Bearer"),
                                  .scope = copy_text(flow->tokens.scope),
                                  .scope_asked = copy_text(attempt->scope),
                                  .expires_at = flow->tokens.expires,
                                  .obtained_at = flow->tokens.obtained,
                                  .token_endpoint = mem_string(attempt->server.token_endpoint),
                                  .revocation_endpoint = copy_text(attempt->server.revocation_endpoint),
                                  .client_id = mem_string(attempt->client.id),
                                  .client_redirect = copy_text(attempt->client.dynamic ? attempt->redirect_uri : NULL),
                                  .auth_method = mem_string(oauth_method_text(attempt->client.method))};
    secret_set(&fields.access_token, span_of(flow->tokens.access));
    if (flow->tokens.refresh)
        secret_set(&fields.refresh_token, span_of(flow->tokens.refresh));
    flow->grant = grant_new(&key, &fields);
}

static void on_token(struct oauth_flow *flow)
{
    struct oauth_answer answer = {flow->fetch.status, buf_span(&flow->fetch.type), buf_span(&flow->fetch.body)};
    struct err err = {0};
    if (flow->fetch.failed) {
        end(flow, OAUTH_END_TOKEN, &flow->fetch.err);
        return;
    }
    note(flow, "POST", flow->attempt.server.token_endpoint, answer.status);
    enum oauth_verdict verdict =
        oauth_tokens_parse(&answer, flow->sent, flow->attempt.scope, &flow->arena, &flow->tokens, &err);
    if (verdict == OAUTH_VERDICT_CLIENT && (try_other_method(flow) || try_new_client(flow)))
        return;
    if (verdict == OAUTH_VERDICT_DEAD && flow->spec.redirect_uri && !flow->authorized_twice) {
        flow->authorized_twice = true;
        authorize(flow);
        return;
    }
    if (verdict != OAUTH_VERDICT_GRANTED) {
        end(flow, OAUTH_END_TOKEN, &err);
        return;
    }
    make_grant(flow);
    if (flow->spec.redirect_uri)
        look(flow);
    else
        end(flow, OAUTH_END_GRANTED, NULL);
}

static void save(struct oauth_flow *flow, int64_t generation)
{
    set_state(flow, FLOW_SAVING);
    token_store_save(flow->spec.store, flow->grant, generation, &flow->request);
}

static void on_saved(struct oauth_flow *flow)
{
    struct err err;
    if (flow->request.answer == TOKEN_DONE) {
        end(flow, OAUTH_END_GRANTED, NULL);
    } else if (flow->request.answer == TOKEN_CONFLICT && !flow->saved_twice) {
        flow->saved_twice = true;  // a refresh of the old grant came between: the login is newer
        save(flow, flow->request.grant ? flow->request.grant->generation : 0);
    } else {
        (void)err_set(&err, ERR_SYSTEM, "the grant could not be stored: %s",
                      flow->request.answer == TOKEN_CONFLICT ? "somebody else changes it" : flow->request.err.detail);
        end(flow, OAUTH_END_STORE, &err);
    }
}

// ---- the machine ----------------------------------------------------------------------------

static void on_fetched(struct oauth_fetch *fetch)
{
    struct oauth_flow *flow = fetch->arg;
    switch (flow->state) {
    case FLOW_PROBING: on_probed(flow); break;
    case FLOW_RESOURCE: on_resource(flow); break;
    case FLOW_SERVER: on_server(flow); break;
    case FLOW_REGISTERING: on_registered(flow); break;
    case FLOW_EXCHANGING: on_token(flow); break;
    default: break;
    }
}

static void on_stored(struct token_request *request)
{
    struct oauth_flow *flow = request->arg;
    switch (flow->state) {
    case FLOW_FINDING: on_client_found(flow); break;
    case FLOW_KEEPING: on_client_kept(flow); break;
    case FLOW_LOOKING:
        if (request->answer == TOKEN_FAILED)
            end(flow, OAUTH_END_STORE, &request->err);
        else
            save(flow, request->answer == TOKEN_DONE ? request->grant->generation : 0);
        break;
    case FLOW_SAVING: on_saved(flow); break;
    default: break;
    }
}

// The start, and what follows a callback.
static void on_begin(struct loop_task *task)
{
    struct oauth_flow *flow = task->arg;
    if (flow->state == FLOW_PROBING)
        probe(flow);
    else if (flow->state == FLOW_EXCHANGING && flow->last.code)
        end(flow, flow->last.code == ERR_DENIED ? OAUTH_END_DENIED : OAUTH_END_AUTHORIZATION, &flow->last);
    else if (flow->state == FLOW_EXCHANGING)
        exchange(flow);
}

static const char *own(struct oauth_flow *flow, const char *text)
{
    return text ? arena_copy(&flow->arena, span_of(text)) : NULL;
}

struct oauth_flow *oauth_flow_start(const struct oauth_flow_spec *spec)
{
    struct oauth_flow *flow = mem_new(struct oauth_flow);
    flow->spec = *spec;
    flow->spec.tenant = own(flow, spec->tenant);
    flow->spec.user = own(flow, spec->user);
    flow->spec.server_url = own(flow, spec->server_url);
    flow->spec.redirect_uri = own(flow, spec->redirect_uri);
    flow->spec.held_scope = own(flow, spec->held_scope);
    flow->spec.challenge = (struct oauth_challenge){.bearer = spec->challenge.bearer,
                                                    .resource_metadata = own(flow, spec->challenge.resource_metadata),
                                                    .scope = own(flow, spec->challenge.scope)};
    flow->anew = spec->register_anew;
    flow->fetch = (struct oauth_fetch){.on_done = on_fetched, .arg = flow};
    flow->request = (struct token_request){.on_done = on_stored, .arg = flow};
    flow->begin = (struct loop_task){.run = on_begin, .arg = flow};
    set_state(flow, FLOW_PROBING);
    loop_task_put(spec->loop, &flow->begin);
    return flow;
}

struct address_policy *oauth_flow_policy(struct oauth_flow *flow) { return &flow->policy; }

void oauth_flow_abandon(struct oauth_flow *flow)
{
    if (flow->state != FLOW_AUTHORIZING || !flow->kept.client_id)
        return;
    struct registration_key key = {flow->spec.tenant, flow->attempt.server.issuer, flow->spec.redirect_uri};
    struct registration_fields fields = {0};
    registration_fields_copy(&flow->kept, &fields);
    fields.suspect_at = now();
    struct registration *suspect = registration_new(&key, &fields);
    set_state(flow, FLOW_ENDED);
    token_store_registration_save(flow->spec.store, suspect, flow->kept_generation, &flow->request);
    registration_unref(suspect);
}

static void release(void *object)
{
    struct oauth_flow *flow = object;
    oauth_fetch_release(&flow->fetch);
    registration_fields_release(&flow->kept);
    grant_unref(flow->grant);
    arena_release(&flow->arena);
    secret_wipe(&flow->attempt, sizeof flow->attempt);
    free(flow);
}

void oauth_flow_free(struct oauth_flow *flow)
{
    if (!flow)
        return;
    set_state(flow, FLOW_ENDED);
    oauth_fetch_cancel(&flow->fetch);
    token_request_release(&flow->request);
    loop_task_drop(&flow->begin);
    loop_reap(flow->spec.loop, flow, release);
}
