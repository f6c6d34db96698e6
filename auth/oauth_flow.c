// Owns a login as a machine: its states, asking the user, the exchange, saving. oauth_discovery.c, oauth_identity.c and
// oauth_register.c do the first half.
//
//   start ─► PROBING ─► RESOURCE ─► SERVER ─► FINDING ─► REGISTERING ─► KEEPING ─┐   (oauth_register.c)
//                           │          ▲         │ (a client is known)           │
//                           └─ none ───┘         ▼                               │
//                              (legacy)     AUTHORIZING ◄────────────────────────┘
//                                              │ callback
//                                              ▼
//                                         EXCHANGING ─► LOOKING ─► SAVING ─► ENDED (granted)
//
//   RESOURCE ─► CHOOSING ─► PREFERRING ─► SERVER (there are several authorization servers)
//   SERVER ─► BINDING ─► … (a configured client: it is shown to no other authorization server than the first)
//   SERVER ─► EXCHANGING (client_credentials, workload, token_exchange: no browser, nothing stored)
//   … ─► DEVICE ─► WAITING ⇄ EXCHANGING (device: instead of AUTHORIZING)
//   SERVER ─► PROVIDER ─► ASSERTING ─► EXCHANGING (enterprise: the identity provider is found, and asked first)
//   EXCHANGING ─► REGISTERING  once, when the server does not know our client any more (G3, G10)
//   EXCHANGING ─► AUTHORIZING  once, when it does not know the code (T13)
//   any ─► ENDED (failed)
//
// What the callback is judged by is in `attempt`, and nothing is looked up again between the browser's leaving and its
// coming back (A4, D15). Every state has one exchange or one store request under way, or waits for the browser.
#include "auth/oauth_flow.h"
#include "base/log.h"
#include "base/mem.h"
#include "oauth_state.h"
#include "oauth_subject.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void flow_set_state(struct oauth_flow *flow, enum flow_state state) { flow->state = state; }

static int64_t now(void) { return (int64_t)time(NULL); }

void flow_note(struct oauth_flow *flow, const char *what, const char *text, int status)
{
    if (!flow->spec.on_note)
        return;
    struct buf line = {0};
    buf_put_text(&line, what);
    if (text)
        buf_printf(&line, " %s", text);
    if (status)
        buf_printf(&line, ": HTTP %d", status);
    flow->spec.on_note(flow->spec.arg, buf_text(&line));
    buf_release(&line);
}

void flow_end(struct oauth_flow *flow, enum oauth_end end, const struct err *err)
{
    struct err shown = err ? *err : (struct err){0};
    const char *secrets[] = {flow->code,
                             flow->subject,
                             flow->spec.subject,
                             flow->device_code,
                             flow->spec.options->idp.client_secret,
                             flow->attempt.verifier,
                             flow->attempt.state,
                             flow->tokens.access,
                             flow->tokens.refresh,
                             flow->attempt.client.secret,
                             flow->attempt.client.management_token};
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++)
        oauth_scrub(&shown, secrets[i]);
    flow_set_state(flow, FLOW_ENDED);
    flow->spec.on_end(flow->spec.arg, end, end == OAUTH_END_GRANTED ? flow->grant : NULL, err ? &shown : NULL);
}

// ---- asking the user ------------------------------------------------------------------------

void flow_add_extra(struct oauth_flow *flow)
{
    const struct option_pairs *extra = &flow->spec.options->authorize_params;
    flow->attempt.extra_count = 0;
    for (size_t i = 0; i < extra->count && i < sizeof flow->attempt.extra / sizeof *flow->attempt.extra; i++)
        flow->attempt.extra[flow->attempt.extra_count++] = (struct oauth_extra){extra->at[i].name, extra->at[i].value};
}

void flow_authorize(struct oauth_flow *flow)
{
    struct buf url = {0};
    if (flow->spec.device) {
        flow_device_ask(flow);
        return;
    }
    flow_set_state(flow, FLOW_AUTHORIZING);
    oauth_attempt_seed(&flow->attempt);
    if (flow->spec.state)
        snprintf(flow->attempt.state, sizeof flow->attempt.state, "%s", flow->spec.state);
    flow_add_extra(flow);
    oauth_attempt_url(&flow->attempt, &url);
    flow->spec.on_browse(flow->spec.arg, arena_copy(&flow->arena, buf_span(&url)));
    buf_release(&url);
}

const struct oauth_attempt *oauth_flow_attempt(const struct oauth_flow *flow) { return &flow->attempt; }

enum oauth_callback_kind oauth_flow_callback(struct oauth_flow *flow, struct span query, struct err *err)
{
    if (flow->state != FLOW_AUTHORIZING) {
        (void)err_set(err, ERR_INVALID_REQUEST, "ignored a callback: no login waits for one");
        return OAUTH_CALLBACK_STRANGE;
    }
    enum oauth_callback_kind kind = oauth_callback(&flow->attempt, query, &flow->arena, &flow->code, err);
    if (kind != OAUTH_CALLBACK_STRANGE) {
        flow->last = *err;
        flow_set_state(flow, FLOW_EXCHANGING);
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

static void wipe(struct buf *buf)
{
    if (buf->at)
        secret_wipe(buf->at, buf->room);
    buf_release(buf);
}

void flow_post_form(struct oauth_flow *flow, const char *url, struct buf *form, struct buf *authorization,
                    struct address_policy *policy)
{
    struct oauth_wish wish = {.url = url,
                              .type = "application/x-www-form-urlencoded",
                              .body = buf_span(form),
                              .authorization = authorization->len ? buf_text(authorization) : NULL,
                              .timeout_ms = FLOW_TOKEN_MS,
                              .policy = policy,
                              .ca_file = flow->spec.options->ca_file};
    oauth_fetch_start(&flow->fetch, flow->spec.http, &wish);
    wipe(form);
    wipe(authorization);
}

void flow_exchange(struct oauth_flow *flow)
{
    struct buf form = {0}, authorization = {0};
    struct err err;
    flow_set_state(flow, FLOW_EXCHANGING);
    if (flow->spec.device) {
        flow_device_put(flow, &form);
    } else if (flow->spec.redirect_uri) {
        oauth_exchange_put(&flow->attempt, flow->code, &form);
    } else if (flow->subject) {
        oauth_subject_put(flow->spec.options, &flow->attempt, flow->subject, &form);
    } else {
        oauth_form_put(&form, "grant_type", "client_credentials");
        oauth_form_put(&form, "scope", flow->attempt.scope);
        oauth_form_put(&form, "resource", flow->attempt.resource);
    }
    flow->sent = now();
    if (oauth_client_apply(&flow->attempt.client, flow->attempt.server.issuer, flow->sent, &form, &authorization,
                           &err)) {
        flow_post_form(flow, flow->attempt.server.token_endpoint, &form, &authorization, &flow->policy);
        return;
    }
    wipe(&form);
    wipe(&authorization);
    flow_end(flow, OAUTH_END_TOKEN, &err);
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
    flow_exchange(flow);
    return true;
}

// G3: for the logins that follow, in whatever process. Nobody waits for it.
static void note_documents(struct oauth_flow *flow, struct token_request *request)
{
    struct issuer_notes notes = {.documents_refused_at = now()};
    token_store_issuer_note(flow->spec.store, flow->spec.tenant, flow->attempt.server.issuer, &notes, request);
}

// Our client is not known there (any more). G10, G3: once, and only if it was not given to us by a person.
static bool try_new_client(struct oauth_flow *flow)
{
    bool document = flow_is_document(flow);
    if ((document ? flow->documents_failed : flow->registered_twice) || !flow->spec.redirect_uri ||
        flow->spec.options->client_id || !flow->attempt.server.registration_endpoint)
        return false;
    if (document) {  // what is registered there may be good
        flow->documents_failed = true;
        note_documents(flow, NULL);
    } else {
        flow->registered_twice = flow->anew = true;
    }
    flow->other_method = false;
    flow_find_client(flow);
    return true;
}

// The answer of the token endpoint says no: true, if something else is tried.
static bool try_again(struct oauth_flow *flow, enum oauth_verdict verdict)
{
    bool client = verdict == OAUTH_VERDICT_CLIENT, unproven = verdict == OAUTH_VERDICT_UNPROVEN;
    bool vague = unproven || verdict == OAUTH_VERDICT_VAGUE;
    if ((client || unproven) && try_other_method(flow))
        return true;
    if ((client || (vague && flow_is_document(flow))) && try_new_client(flow))
        return true;
    if (verdict != OAUTH_VERDICT_DEAD || !flow->spec.redirect_uri || flow->authorized_twice)
        return false;
    flow->authorized_twice = true;
    flow_authorize(flow);
    return true;
}

// T4: the way that worked is the one to begin with, next time.
static void note_method(struct oauth_flow *flow)
{
    const struct oauth_client *client = &flow->attempt.client;
    struct registration_key key = {flow->spec.tenant, flow->attempt.server.issuer, flow->spec.redirect_uri};
    if (flow->other_method && client->dynamic)
        token_store_registration_method(flow->spec.store, &key, client->id, oauth_method_text(client->method), NULL);
}

static void look(struct oauth_flow *flow)
{
    struct grant_key key = grant_key(flow->grant);
    flow_set_state(flow, FLOW_LOOKING);
    token_store_find(flow->spec.store, &key, &flow->request);
}

static void make_grant(struct oauth_flow *flow)
{
    const struct oauth_attempt *attempt = &flow->attempt;
    int64_t until = flow->spec.subject_until;
    if (until && (!flow->tokens.expires || flow->tokens.expires > until))
        flow->tokens.expires = until;
    struct grant_key key = {flow->spec.tenant, flow->spec.user, attempt->server.issuer,
                            flow->legacy ? "" : flow->resource.resource};
    struct grant_fields fields = {.token_type = mem_string("Bearer"),
                                  .scope = mem_string(flow->tokens.scope),
                                  .scope_asked = mem_string(attempt->scope),
                                  .account = mem_string(flow->tokens.account),
                                  .expires_at = flow->tokens.expires,
                                  .obtained_at = flow->tokens.obtained,
                                  .token_endpoint = mem_string(attempt->server.token_endpoint),
                                  .revocation_endpoint = mem_string(attempt->server.revocation_endpoint),
                                  .client_id = mem_string(attempt->client.id),
                                  .client_redirect = mem_string(attempt->client.dynamic ? attempt->redirect_uri : NULL),
                                  .auth_method = mem_string(oauth_method_text(attempt->client.method)),
                                  .learned = (int64_t)flow->policy.learned,
                                  .login = grant_login_new()};
    secret_set(&fields.access_token, span_of(flow->tokens.access));
    if (flow->tokens.refresh)
        secret_set(&fields.refresh_token, span_of(flow->tokens.refresh));
    flow->grant = grant_new(&key, &fields);
}

static void on_token(struct oauth_flow *flow)
{
    struct oauth_answer answer = {flow->fetch.status, buf_span(&flow->fetch.type), buf_span(&flow->fetch.body)};
    struct err err = {0};
    if (flow->spec.device && flow_device_waits(flow))
        return;
    if (flow->fetch.failed) {
        flow_end(flow, OAUTH_END_TOKEN, &flow->fetch.err);
        return;
    }
    flow_note(flow, "POST", flow->attempt.server.token_endpoint, answer.status);
    enum oauth_verdict verdict =
        oauth_tokens_parse(&answer, flow->sent, flow->attempt.scope, &flow->arena, &flow->tokens, &err);
    if (verdict != OAUTH_VERDICT_GRANTED) {
        err.retry_after_ms = flow->fetch.retry_after_ms;
        if (!try_again(flow, verdict))
            flow_end(flow, OAUTH_END_TOKEN, &err);
        return;
    }
    note_method(flow);
    if (flow->tokens.odd_lifetime) {
        flow_note(flow, "expires_in is no time: taken for absent", NULL, 0);
        log_warn("the expires_in of a token is no time; taken for absent",
                 LOG_STR("issuer", flow->attempt.server.issuer));
    }
    make_grant(flow);
    if (flow->spec.redirect_uri)
        look(flow);
    else
        flow_end(flow, OAUTH_END_GRANTED, NULL);
}

static void save(struct oauth_flow *flow, int64_t generation)
{
    flow_set_state(flow, FLOW_SAVING);
    token_store_save(flow->spec.store, flow->grant, generation, &flow->request);
}

static void on_saved(struct oauth_flow *flow)
{
    struct err err;
    if (flow->request.answer == TOKEN_DONE) {
        flow_end(flow, OAUTH_END_GRANTED, NULL);
    } else if (flow->request.answer == TOKEN_CONFLICT && !flow->saved_twice) {
        flow->saved_twice = true;  // a refresh of the old grant came between: the login is newer
        save(flow, flow->request.grant ? flow->request.grant->generation : 0);
    } else {
        (void)err_set(&err, ERR_SYSTEM, "the grant could not be stored: %s",
                      flow->request.answer == TOKEN_CONFLICT ? "somebody else changes it" : flow->request.err.detail);
        flow_end(flow, OAUTH_END_STORE, &err);
    }
}

// ---- the machine ----------------------------------------------------------------------------

static void on_fetched(struct oauth_fetch *fetch)
{
    struct oauth_flow *flow = fetch->arg;
    switch (flow->state) {
    case FLOW_PROBING: flow_on_probed(flow); break;
    case FLOW_RESOURCE: flow_on_resource(flow); break;
    case FLOW_SERVER: flow_on_server(flow); break;
    case FLOW_REGISTERING: flow_on_registered(flow); break;
    case FLOW_DEVICE: flow_on_device(flow); break;
    case FLOW_PROVIDER: flow_on_provider(flow); break;
    case FLOW_ASSERTING: flow_on_asserted(flow); break;
    case FLOW_EXCHANGING: on_token(flow); break;
    default: break;
    }
}

static void on_stored(struct token_request *request)
{
    struct oauth_flow *flow = request->arg;
    switch (flow->state) {
    case FLOW_CHOOSING: flow_on_chosen(flow); break;
    case FLOW_PREFERRING: flow_on_preferred(flow); break;
    case FLOW_BINDING: flow_on_client_bound(flow); break;
    case FLOW_NOTES: flow_on_notes(flow); break;
    case FLOW_FINDING: flow_on_client_found(flow); break;
    case FLOW_BOUND: flow_on_bound(flow); break;
    case FLOW_CLAIMING: flow_on_claimed(flow); break;
    case FLOW_KEEPING: flow_on_client_kept(flow); break;
    case FLOW_LOOKING:
        if (request->answer == TOKEN_FAILED)
            flow_end(flow, OAUTH_END_STORE, &request->err);
        else
            save(flow, request->answer == TOKEN_DONE ? request->grant->generation : 0);
        break;
    case FLOW_SAVING: on_saved(flow); break;
    default: break;
    }
}

static void on_poll(struct loop_timer *timer)
{
    struct oauth_flow *flow = timer->arg;
    if (flow->state == FLOW_FINDING)
        flow_find_client(flow);
    else if (flow->state == FLOW_WAITING)
        flow_device_poll(flow);
}

// The start, and what follows a callback.
static void on_begin(struct loop_task *task)
{
    struct oauth_flow *flow = task->arg;
    if (flow->state == FLOW_PROBING)
        flow_probe(flow);
    else if (flow->state == FLOW_EXCHANGING && flow->attempt.client_refused && flow_is_document(flow) &&
             try_new_client(flow))
        ;  // G3
    else if (flow->state == FLOW_EXCHANGING && flow->last.code)
        flow_end(flow, flow->last.code == ERR_DENIED ? OAUTH_END_DENIED : OAUTH_END_AUTHORIZATION, &flow->last);
    else if (flow->state == FLOW_EXCHANGING)
        flow_exchange(flow);
}

static const char *own(struct oauth_flow *flow, const char *text)
{
    return text ? arena_copy(&flow->arena, span_of(text)) : NULL;
}

struct oauth_flow *flow_new(const struct oauth_flow_spec *spec)
{
    struct oauth_flow *flow = mem_new(struct oauth_flow);
    flow->spec = *spec;
    flow->spec.tenant = own(flow, spec->tenant);
    flow->spec.user = own(flow, spec->user);
    flow->spec.server_url = own(flow, spec->server_url);
    flow->spec.redirect_uri = own(flow, spec->redirect_uri);
    flow->spec.document_url = own(flow, spec->document_url);
    flow->spec.held_scope = own(flow, spec->held_scope);
    flow->spec.state = own(flow, spec->state);
    flow->spec.known_issuer = own(flow, spec->known_issuer);
    flow->spec.subject = own(flow, spec->subject);
    flow->spec.challenge = (struct oauth_challenge){.bearer = spec->challenge.bearer,
                                                    .resource_metadata = own(flow, spec->challenge.resource_metadata),
                                                    .scope = own(flow, spec->challenge.scope)};
    flow->anew = spec->register_anew;
    flow->policy.allowed = spec->options->allow_addresses;
    flow->fetch = (struct oauth_fetch){.on_done = on_fetched, .arg = flow};
    flow->request = (struct token_request){.on_done = on_stored, .arg = flow};
    flow->poll = (struct loop_timer){.on_due = on_poll, .arg = flow, .name = "login"};
    flow->begin = (struct loop_task){.run = on_begin, .arg = flow, .name = "login"};
    return flow;
}

struct oauth_flow *oauth_flow_start(const struct oauth_flow_spec *spec)
{
    struct oauth_flow *flow = flow_new(spec);
    flow_set_state(flow, FLOW_PROBING);
    loop_task_put(spec->loop, &flow->begin);
    return flow;
}

struct address_policy *oauth_flow_policy(struct oauth_flow *flow) { return &flow->policy; }

void oauth_flow_abandon(struct oauth_flow *flow)
{
    if (!flow || flow->state != FLOW_AUTHORIZING)
        return;
    struct registration_key key = {flow->spec.tenant, flow->attempt.server.issuer, flow->spec.redirect_uri};
    flow_set_state(flow, FLOW_ENDED);
    if (flow->attempt.client.dynamic)
        token_store_registration_suspect(flow->spec.store, &key, flow->attempt.client.id, &flow->request);
    else if (flow_is_document(flow))
        note_documents(flow, &flow->request);
}

static void release(void *object)
{
    struct oauth_flow *flow = object;
    oauth_fetch_release(&flow->fetch);
    registration_unref(flow->stored);
    grant_unref(flow->grant);
    arena_release(&flow->arena);
    secret_wipe(&flow->attempt, sizeof flow->attempt);
    free(flow);
}

void oauth_flow_free(struct oauth_flow *flow)
{
    if (!flow)
        return;
    flow_set_state(flow, FLOW_ENDED);
    oauth_fetch_cancel(&flow->fetch);
    token_request_release(&flow->request);
    oauth_renewal_release(&flow->renewal);
    loop_task_drop(&flow->begin);
    loop_timer_stop(flow->spec.loop, &flow->poll);
    loop_reap(flow->spec.loop, flow, release);
}
