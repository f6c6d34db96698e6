// Owns the gateway's registration at an authorization server: using the stored one, renewing it, and making a new one.
//
// A registration writes to a server of another party, so all processes together make one in a minute (G13); the same
// login may need a second one (G10, G12). A second login waits a while for the result of the first (YIELDING). The
// states are drawn in flow.c.
#include "auth/login/renewal.h"
#include "base/clock.h"
#include "base/mem.h"
#include "flow_state.h"
#include "loop/http_url.h"

#define PATIENCE_MS 5000
#define AGAIN_MS 250

static struct registration_key key_of(const struct login_flow *flow)
{
    return (struct registration_key){flow->spec.tenant, flow->authorization.server.issuer, flow->spec.redirect_uri};
}

// Reports whether the stored registration must not be used.
static bool wants_new(const struct login_flow *flow)
{
    return flow->spec.register_anew || flow->retried & FLOW_NEW_CLIENT;
}

// Takes the stored registration as the client of this login. Returns false if it cannot be used any more.
static bool take(struct login_flow *flow, const struct registration *stored)
{
    struct oauth_client *client = &flow->authorization.client;
    *client = (struct oauth_client){.id = arena_copy(&flow->arena, span_of(stored->is.client_id)),
                                    .dynamic = true,
                                    .secret_expires = stored->is.secret_expires_at};
    if (stored->is.client_secret.len)
        client->secret = arena_copy(&flow->arena, secret_span(&stored->is.client_secret));
    return oauth_method_parse(stored->is.auth_method, &client->method) && !login_renewal_due(stored, clock_wall_s());
}

// Makes a new registration: at once if this login already has the claim.
static enum flow_state make_new(const struct login_flow *flow)
{
    return flow->claimed ? FLOW_REGISTERING : FLOW_CLAIMING;
}

// ---- the stored registration ----------------------------------------------------------------

enum flow_state login_registration_find(struct login_flow *flow)
{
    struct registration_key key = key_of(flow);
    grant_store_registration_find(flow->spec.store, &key, &flow->request);
    return FLOW_WAIT;
}

static enum flow_state use_stored(struct login_flow *flow)
{
    if (take(flow, flow->stored))
        return flow_ask_user(flow);
    return login_renewal_possible(flow->stored) ? FLOW_RENEWING : make_new(flow);
}

enum flow_state login_registration_on_found(struct login_flow *flow)
{
    if (flow->request.answer == GRANT_STORE_FAILED)
        return flow_end(flow, LOGIN_END_STORE, &flow->request.err);
    registration_unref(flow->stored);
    flow->stored = registration_ref(flow->request.registration);
    if (flow->stored && !wants_new(flow) && !flow->stored->is.suspect_at)
        return use_stored(flow);
    return flow->stored && flow->spec.shared_client ? FLOW_BOUND : make_new(flow);
}

enum flow_state login_registration_renew(struct login_flow *flow)
{
    login_renewal_start(&flow->renewal, flow->spec.store, flow->spec.http, &flow->policy, flow->spec.options->ca_file,
                        flow->stored);
    return FLOW_WAIT;
}

enum flow_state login_registration_on_renewed(struct login_flow *flow)
{
    const struct login_renewal *renewal = &flow->renewal;
    flow_note(flow, renewal->registration ? "the registration was renewed" : "the registration was not renewed:",
              renewal->registration ? NULL : renewal->err.detail, 0);
    flow->claimed |= renewal->claimed;
    return renewal->registration && take(flow, renewal->registration) ? flow_ask_user(flow) : make_new(flow);
}

enum flow_state login_registration_list_grants(struct login_flow *flow)
{
    struct grant_filter filter = {flow->spec.tenant, NULL, flow->authorization.server.issuer};
    grant_store_list(flow->spec.store, &filter, &flow->request);
    return FLOW_WAIT;
}

// G11: the login of one user must not invalidate the grants of the others.
enum flow_state login_registration_on_grants(struct login_flow *flow)
{
    size_t bound = 0;
    struct err err;
    for (size_t i = 0; i < flow->request.count; i++) {
        const struct grant_fields *is = &flow->request.grants[i]->is;
        bound += !is->dead_at && is->client_id && strcmp(is->client_id, flow->stored->is.client_id) == 0;
    }
    if (flow->request.answer == GRANT_STORE_FAILED)
        return flow_end(flow, LOGIN_END_STORE, &flow->request.err);
    if (!bound)
        return make_new(flow);
    if (!wants_new(flow))
        return use_stored(flow);
    (void)err_set(
        &err, ERR_UNAVAILABLE,
        "authorization server \"%.120s\" does not know the gateway's client any more, and the store has grants of that "
        "client (%zu): remove them with 'postern connections --purge --issuer %.120s'; the next login registers a new "
        "client",
        flow->authorization.server.issuer, bound, flow->authorization.server.issuer);
    return flow_end(flow, LOGIN_END_REGISTRATION, &err);
}

// ---- a new registration ---------------------------------------------------------------------

enum flow_state login_registration_claim(struct login_flow *flow)
{
    grant_store_registration_claim(flow->spec.store, flow->spec.tenant, flow->authorization.server.issuer,
                                   &flow->request);
    return FLOW_WAIT;
}

enum flow_state login_registration_on_claimed(struct login_flow *flow)
{
    int64_t at = loop_now(flow->spec.loop);
    bool conflict = flow->request.answer == GRANT_STORE_CONFLICT;
    if (flow->request.answer == GRANT_STORE_DONE) {
        flow->claimed = true;
        return FLOW_REGISTERING;
    }
    if (conflict && flow->stored && !wants_new(flow) && take(flow, flow->stored)) {
        flow_note(flow,
                  "using a client that the authorization server may have deleted, because no other client can be "
                  "registered now",
                  NULL, 0);
        return flow_ask_user(flow);
    }
    if (!flow->patience_ends)
        flow->patience_ends = at + PATIENCE_MS;
    if (conflict && !wants_new(flow) && at < flow->patience_ends)
        return FLOW_YIELDING;
    return flow_end(flow, conflict ? LOGIN_END_REGISTRATION : LOGIN_END_STORE, &flow->request.err);
}

enum flow_state login_registration_yield(struct login_flow *flow)
{
    loop_timer_set(flow->spec.loop, &flow->timer, AGAIN_MS);
    return FLOW_WAIT;
}

enum flow_state login_registration_on_yielded(struct login_flow *flow)
{
    (void)flow;
    return FLOW_FINDING;
}

enum flow_state login_registration_send(struct login_flow *flow)
{
    struct buf body = {0};
    flow->registration =
        (struct oauth_registration){.redirect_uri = flow->spec.redirect_uri,
                                    .scope = flow->authorization.scope,
                                    .method = oauth_registration_method(&flow->authorization.server),
                                    .native = flow->spec.device || http_url_is_loopback(flow->spec.redirect_uri),
                                    .device = flow->spec.device};
    oauth_registration_put(&flow->registration, &body);
    struct login_fetch_request request = {.url = flow->authorization.server.registration_endpoint,
                                          .type = "application/json",
                                          .body = buf_span(&body),
                                          .timeout_ms = FLOW_TOKEN_MS,
                                          .policy = &flow->policy,
                                          .ca_file = flow->spec.options->ca_file};
    login_fetch_start(&flow->fetch, flow->spec.http, &request);
    buf_release(&body);
    return FLOW_WAIT;
}

// G12: some servers accept only 127.0.0.1 in a redirect URI, and some only localhost.
static bool try_other_host(struct login_flow *flow, const struct err *err)
{
    const char *other = NULL;
    if (flow_retry(flow, FLOW_OTHER_HOST) && flow->spec.on_rehost && flow->fetch.status == 400)
        other = flow->spec.on_rehost(flow->spec.arg);
    if (!other)
        return false;
    flow->last = *err;
    flow->spec.redirect_uri = flow->authorization.redirect_uri = arena_copy(&flow->arena, span_of(other));
    flow_note(flow, "registration was refused; trying with", flow->spec.redirect_uri, 0);
    return true;
}

static enum flow_state refused(struct login_flow *flow)
{
    struct buf problem = {0}, submitted = {0};
    struct err err, ignored;
    json_t *tree = oauth_document_parse(buf_span(&flow->fetch.body), "registration", &ignored);
    if (tree)
        oauth_problem_put(tree, &problem);
    else
        oauth_problem_put_excerpt(buf_span(&flow->fetch.body), &problem);
    json_decref(tree);
    oauth_registration_put(&flow->registration, &submitted);
    (void)err_set(&err, ERR_DENIED, "registration was refused with HTTP %d: %.170s; the request was %s",
                  flow->fetch.status, buf_text(&problem), buf_text(&submitted));
    buf_release(&problem);
    buf_release(&submitted);
    if (try_other_host(flow, &err))
        return FLOW_FINDING;
    return flow_end(flow, LOGIN_END_REGISTRATION, flow->last.code ? &flow->last : &err);
}

enum flow_state login_registration_on_answer(struct login_flow *flow)
{
    struct err err = {0};
    int status = flow->fetch.status;
    if (flow->fetch.failed)
        return flow_end(flow, LOGIN_END_REGISTRATION, &flow->fetch.err);
    flow_note(flow, "POST", flow->authorization.server.registration_endpoint, status);
    if (status != 200 && status != 201)
        return refused(flow);
    return oauth_registration_parse(buf_span(&flow->fetch.body), &flow->registration, &flow->arena,
                                    &flow->authorization.client, &err)
               ? FLOW_KEEPING
               : flow_end(flow, LOGIN_END_REGISTRATION, &err);
}

enum flow_state login_registration_keep(struct login_flow *flow)
{
    const struct oauth_client *client = &flow->authorization.client;
    const struct registration *old = flow->stored;
    struct registration_key key = key_of(flow);
    struct registration_fields fields = {.client_id = mem_string(client->id),
                                         .secret_expires_at = client->secret_expires,
                                         .issued_at = client->issued ? client->issued : clock_wall_s(),
                                         .auth_method = mem_string(oauth_method_text(client->method)),
                                         .registration_uri = mem_string(client->management_uri),
                                         .redirect_uris = mem_string(flow->spec.redirect_uri),
                                         .scope = mem_string(client->scope),
                                         .learned = (int64_t)flow->policy.learned};
    if (client->secret)
        secret_set(&fields.client_secret, span_of(client->secret));
    if (client->management_token)
        secret_set(&fields.registration_token, span_of(client->management_token));
    if (old) {  // G9: grants of the old client are refreshed with it until their users log in again
        fields.previous_id = mem_string(old->is.client_id);
        if (old->is.client_secret.len)
            secret_set(&fields.previous_secret, secret_span(&old->is.client_secret));
    }
    struct registration *kept = registration_new(&key, &fields);
    grant_store_registration_save(flow->spec.store, kept, old ? old->generation : 0, &flow->request);
    registration_unref(kept);
    return FLOW_WAIT;
}

enum flow_state login_registration_on_kept(struct login_flow *flow)
{
    // GRANT_STORE_CONFLICT: another process registered at the same time. Both clients are valid, and the login uses its
    // own.
    if (flow->request.answer == GRANT_STORE_FAILED)
        return flow_end(flow, LOGIN_END_STORE, &flow->request.err);
    return flow_ask_user(flow);
}
