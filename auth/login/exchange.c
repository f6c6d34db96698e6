// Owns the token request of a login, its retries after a refusal, and storing the grant.
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "flow_state.h"
#include "subject_token.h"

static void put_grant(struct login_flow *flow, struct buf *form)
{
    const struct oauth_authorization *authorization = &flow->authorization;
    if (flow->spec.device) {
        login_device_put(flow, form);
    } else if (flow->spec.redirect_uri) {
        oauth_authorization_put_exchange(authorization, flow->code, form);
    } else if (flow->subject) {
        login_subject_token_put(flow->spec.options, authorization, flow->subject, form);
    } else {
        oauth_form_put(form, "grant_type", "client_credentials");
        oauth_form_put(form, "scope", authorization->scope);
        oauth_form_put(form, "resource", authorization->resource);
    }
}

enum flow_state login_exchange_ask(struct login_flow *flow)
{
    struct buf form = {0};
    struct err err;
    flow->sent = clock_wall_s();
    struct login_form to = {.url = flow->authorization.server.token_endpoint,
                            .client = &flow->authorization.client,
                            .audience = flow->authorization.server.issuer,
                            .now = flow->sent,
                            .timeout_ms = FLOW_TOKEN_MS,
                            .policy = &flow->policy,
                            .ca_file = flow->spec.options->ca_file};
    put_grant(flow, &form);
    return login_fetch_post(&flow->fetch, flow->spec.http, &to, &form, &err) ? FLOW_WAIT
                                                                             : flow_end(flow, LOGIN_END_TOKEN, &err);
}

// T4: many servers accept only one of client_secret_basic and client_secret_post. The other method is tried once, if
// the server's metadata allow it.
static bool try_other_method(struct login_flow *flow)
{
    struct oauth_client *client = &flow->authorization.client;
    const struct oauth_server *server = &flow->authorization.server;
    enum oauth_method other = client->method == OAUTH_METHOD_BASIC ? OAUTH_METHOD_POST : OAUTH_METHOD_BASIC;
    bool secret = client->method == OAUTH_METHOD_BASIC || client->method == OAUTH_METHOD_POST;
    if (!secret || (server->methods_listed && !(server->methods & 1U << other)) || !flow_retry(flow, FLOW_OTHER_METHOD))
        return false;
    client->method = other;
    return true;
}

// Chooses the next state after the token endpoint has refused the request.
static enum flow_state on_refused(struct login_flow *flow, enum oauth_verdict verdict, const struct err *err)
{
    bool client = verdict == OAUTH_VERDICT_CLIENT, unproven = verdict == OAUTH_VERDICT_UNPROVEN;
    bool vague = unproven || verdict == OAUTH_VERDICT_VAGUE;
    if ((client || unproven) && try_other_method(flow))
        return FLOW_EXCHANGING;
    if ((client || (vague && login_client_is_document(flow))) && login_client_replace(flow))
        return FLOW_FINDING;
    if (verdict == OAUTH_VERDICT_DEAD && flow->spec.redirect_uri && flow_retry(flow, FLOW_NEW_CODE))
        return flow_ask_user(flow);
    return flow_end(flow, LOGIN_END_TOKEN, err);
}

// T4: stores the method that worked, so that the next login begins with it.
static void note_method(struct login_flow *flow)
{
    const struct oauth_client *client = &flow->authorization.client;
    struct registration_key key = {flow->spec.tenant, flow->authorization.server.issuer, flow->spec.redirect_uri};
    if (flow->retried & FLOW_OTHER_METHOD && client->dynamic)
        grant_store_registration_method(flow->spec.store, &key, client->id, oauth_method_text(client->method), NULL);
}

static void make_grant(struct login_flow *flow)
{
    const struct oauth_authorization *authorization = &flow->authorization;
    const struct oauth_client *client = &authorization->client;
    int64_t until = flow->spec.subject_until;
    if (until && (!flow->tokens.expires || flow->tokens.expires > until))
        flow->tokens.expires = until;
    struct grant_key key = {flow->spec.tenant, flow->spec.user, authorization->server.issuer,
                            flow->legacy ? "" : flow->resource.resource};
    struct grant_fields fields = {.token_type = mem_string("Bearer"),
                                  .scope = mem_string(flow->tokens.scope),
                                  .scope_asked = mem_string(authorization->scope),
                                  .account = mem_string(flow->tokens.account),
                                  .expires_at = flow->tokens.expires,
                                  .obtained_at = flow->tokens.obtained,
                                  .token_endpoint = mem_string(authorization->server.token_endpoint),
                                  .revocation_endpoint = mem_string(authorization->server.revocation_endpoint),
                                  .client_id = mem_string(client->id),
                                  .client_redirect = mem_string(client->dynamic ? authorization->redirect_uri : NULL),
                                  .auth_method = mem_string(oauth_method_text(client->method)),
                                  .learned = (int64_t)flow->policy.learned,
                                  .login = grant_login_new()};
    secret_set(&fields.access_token, span_of(flow->tokens.access));
    if (flow->tokens.refresh)
        secret_set(&fields.refresh_token, span_of(flow->tokens.refresh));
    flow->grant = grant_new(&key, &fields);
}

enum flow_state login_exchange_on_answer(struct login_flow *flow)
{
    struct oauth_answer answer = {flow->fetch.status, buf_span(&flow->fetch.type), buf_span(&flow->fetch.body)};
    enum flow_state next;
    struct err err = {0};
    if (flow->spec.device && login_device_on_poll(flow, &next))
        return next;
    if (flow->fetch.failed)
        return flow_end(flow, LOGIN_END_TOKEN, &flow->fetch.err);
    flow_note(flow, "POST", flow->authorization.server.token_endpoint, answer.status);
    enum oauth_verdict verdict =
        oauth_tokens_parse(&answer, flow->sent, flow->authorization.scope, &flow->arena, &flow->tokens, &err);
    if (verdict != OAUTH_VERDICT_GRANTED) {
        err.retry_after_ms = flow->fetch.retry_after_ms;
        return on_refused(flow, verdict, &err);
    }
    note_method(flow);
    if (flow->tokens.odd_lifetime) {
        flow_note(flow, "ignoring invalid expires_in", NULL, 0);
        log_warn("ignoring invalid expires_in of a token", LOG_STR("issuer", flow->authorization.server.issuer));
    }
    make_grant(flow);
    return flow->spec.redirect_uri ? FLOW_LOOKING : flow_end(flow, LOGIN_END_GRANTED, NULL);
}

// ---- storing --------------------------------------------------------------------------------

enum flow_state login_exchange_look(struct login_flow *flow)
{
    struct grant_key key = grant_key(flow->grant);
    grant_store_find(flow->spec.store, &key, &flow->request);
    return FLOW_WAIT;
}

enum flow_state login_exchange_on_look(struct login_flow *flow)
{
    if (flow->request.answer == GRANT_STORE_FAILED)
        return flow_end(flow, LOGIN_END_STORE, &flow->request.err);
    flow->replaces = flow->request.answer == GRANT_STORE_DONE ? flow->request.grant->generation : 0;
    return FLOW_SAVING;
}

enum flow_state login_exchange_save(struct login_flow *flow)
{
    grant_store_save(flow->spec.store, flow->grant, flow->replaces, &flow->request);
    return FLOW_WAIT;
}

enum flow_state login_exchange_on_saved(struct login_flow *flow)
{
    bool conflict = flow->request.answer == GRANT_STORE_CONFLICT;
    struct err err;
    if (flow->request.answer == GRANT_STORE_DONE)
        return flow_end(flow, LOGIN_END_GRANTED, NULL);
    if (conflict && flow_retry(flow, FLOW_OTHER_GRANT)) {  // the old grant was refreshed meanwhile: the login is newer
        flow->replaces = flow->request.grant ? flow->request.grant->generation : 0;
        return FLOW_SAVING;
    }
    (void)err_set(&err, ERR_SYSTEM, "the grant could not be stored: %s",
                  conflict ? "another process keeps changing it; log in again" : flow->request.err.detail);
    return flow_end(flow, LOGIN_END_STORE, &err);
}
