// Owns our registration at an authorization server: using the one that is stored, renewing it, making a new one.
//
//   FINDING ──► usable, renewed (RENEWING) ──────────────────────────► flow_authorize()
//     │  ▲ │                                                               ▲
//     │  │ └► to be replaced, and others use it too ─► BOUND ──────────────┤ (grants depend on it)
//     │  └───────── again soon ──┐                       │ none does       │
//     └──► none ─────────────► CLAIMING ◄────────────────┘                 │
//                                └► ours to do: REGISTERING ─► KEEPING ────┘
//
// A registration is a write at somebody else's server: one in a minute of all processes (G13), but for the one more that
// the same login may need (G10, G12). Whoever comes second looks for a while what became of the first.
#include "base/mem.h"
#include "loop/http_url.h"
#include "oauth_renew.h"
#include "oauth_state.h"
#include <time.h>

#define PATIENCE_MS 5000
#define AGAIN_MS 250

static int64_t now(void) { return (int64_t)time(NULL); }

static struct registration_key key_of(const struct oauth_flow *flow)
{
    return (struct registration_key){flow->spec.tenant, flow->attempt.server.issuer, flow->spec.redirect_uri};
}

void flow_find_client(struct oauth_flow *flow)
{
    struct registration_key key = key_of(flow);
    flow_set_state(flow, FLOW_FINDING);
    token_store_registration_find(flow->spec.store, &key, &flow->request);
}

// What is stored, as the client of this login. False: it is of no use any more.
static bool take(struct oauth_flow *flow, const struct registration *stored)
{
    struct oauth_client *client = &flow->attempt.client;
    *client = (struct oauth_client){.id = arena_copy(&flow->arena, span_of(stored->is.client_id)),
                                    .dynamic = true,
                                    .secret_expires = stored->is.secret_expires_at};
    if (stored->is.client_secret.len)
        client->secret = arena_copy(&flow->arena, secret_span(&stored->is.client_secret));
    return oauth_method_parse(stored->is.auth_method, &client->method) && !oauth_renewal_due(stored, now());
}

// ---- one that is new ------------------------------------------------------------------------

static void register_client(struct oauth_flow *flow)
{
    struct buf body = {0};
    flow_set_state(flow, FLOW_REGISTERING);
    flow->registration =
        (struct oauth_registration){.redirect_uri = flow->spec.redirect_uri,
                                    .scope = flow->attempt.scope,
                                    .method = oauth_registration_method(&flow->attempt.server),
                                    .native = flow->spec.device || http_url_is_loopback(flow->spec.redirect_uri),
                                    .device = flow->spec.device};
    oauth_registration_put(&flow->registration, &body);
    struct oauth_wish wish = {.url = flow->attempt.server.registration_endpoint,
                              .type = "application/json",
                              .body = buf_span(&body),
                              .timeout_ms = FLOW_TOKEN_MS,
                              .policy = &flow->policy,
                              .ca_file = flow->spec.options->ca_file};
    oauth_fetch_start(&flow->fetch, flow->spec.http, &wish);
    buf_release(&body);
}

static void claim(struct oauth_flow *flow)
{
    if (flow->claimed) {
        register_client(flow);
        return;
    }
    flow_set_state(flow, FLOW_CLAIMING);
    token_store_registration_claim(flow->spec.store, flow->spec.tenant, flow->attempt.server.issuer, &flow->request);
}

void flow_on_claimed(struct oauth_flow *flow)
{
    int64_t at = loop_now(flow->spec.loop);
    if (flow->request.answer == TOKEN_DONE) {
        flow->claimed = true;
        register_client(flow);
        return;
    }
    if (flow->request.answer == TOKEN_CONFLICT && flow->stored && !flow->anew && take(flow, flow->stored)) {
        flow_note(flow, "the client is suspect, and no other can be registered now", NULL, 0);
        flow_authorize(flow);
        return;
    }
    if (!flow->patience_ends)
        flow->patience_ends = at + PATIENCE_MS;
    if (flow->request.answer == TOKEN_CONFLICT && !flow->anew && at < flow->patience_ends) {
        flow_set_state(flow, FLOW_FINDING);
        loop_timer_set(flow->spec.loop, &flow->poll, AGAIN_MS);
    } else {
        flow_end(flow, flow->request.answer == TOKEN_CONFLICT ? OAUTH_END_REGISTRATION : OAUTH_END_STORE,
                 &flow->request.err);
    }
}

static void keep_client(struct oauth_flow *flow)
{
    const struct oauth_client *client = &flow->attempt.client;
    const struct registration *old = flow->stored;
    struct registration_key key = key_of(flow);
    struct registration_fields fields = {.client_id = mem_string(client->id),
                                         .secret_expires_at = client->secret_expires,
                                         .issued_at = client->issued ? client->issued : now(),
                                         .auth_method = mem_string(oauth_method_text(client->method)),
                                         .registration_uri = mem_string(client->management_uri),
                                         .redirect_uris = mem_string(flow->spec.redirect_uri),
                                         .scope = mem_string(client->scope),
                                         .learned = (int64_t)flow->policy.learned};
    if (client->secret)
        secret_set(&fields.client_secret, span_of(client->secret));
    if (client->management_token)
        secret_set(&fields.registration_token, span_of(client->management_token));
    if (old) {  // G9: what was granted to it is refreshed with it until the new login is through
        fields.previous_id = mem_string(old->is.client_id);
        if (old->is.client_secret.len)
            secret_set(&fields.previous_secret, secret_span(&old->is.client_secret));
    }
    struct registration *kept = registration_new(&key, &fields);
    flow_set_state(flow, FLOW_KEEPING);
    token_store_registration_save(flow->spec.store, kept, old ? old->generation : 0, &flow->request);
    registration_unref(kept);
}

void flow_on_client_kept(struct oauth_flow *flow)
{
    // TOKEN_CONFLICT: somebody registered at the same time; both registrations are good, and the login uses its own.
    if (flow->request.answer == TOKEN_FAILED)
        flow_end(flow, OAUTH_END_STORE, &flow->request.err);
    else
        flow_authorize(flow);
}

// G12: some know this host only by the one of its names, some only by the other.
static bool try_other_host(struct oauth_flow *flow, const struct err *err)
{
    const char *other = NULL;
    if (!flow->rehosted && flow->spec.on_rehost && flow->fetch.status == 400)
        other = flow->spec.on_rehost(flow->spec.arg);
    flow->rehosted = true;
    if (!other)
        return false;
    flow->last = *err;
    flow->spec.redirect_uri = flow->attempt.redirect_uri = arena_copy(&flow->arena, span_of(other));
    flow_note(flow, "registration was refused; trying with", flow->spec.redirect_uri, 0);
    flow_find_client(flow);
    return true;
}

static void refused(struct oauth_flow *flow)
{
    struct buf problem = {0}, submitted = {0};
    struct err err, ignored;
    json_t *tree = oauth_document(buf_span(&flow->fetch.body), "registration", &ignored);
    if (tree)
        oauth_put_problem(tree, &problem);
    else
        oauth_put_excerpt(buf_span(&flow->fetch.body), &problem);
    json_decref(tree);
    oauth_registration_put(&flow->registration, &submitted);
    (void)err_set(&err, ERR_DENIED, "registration was refused with HTTP %d: %.170s; submitted was %s",
                  flow->fetch.status, buf_text(&problem), buf_text(&submitted));
    buf_release(&problem);
    buf_release(&submitted);
    if (!try_other_host(flow, &err))
        flow_end(flow, OAUTH_END_REGISTRATION, flow->last.code ? &flow->last : &err);
}

void flow_on_registered(struct oauth_flow *flow)
{
    struct err err = {0};
    int status = flow->fetch.status;
    if (flow->fetch.failed) {
        flow_end(flow, OAUTH_END_REGISTRATION, &flow->fetch.err);
        return;
    }
    flow_note(flow, "POST", flow->attempt.server.registration_endpoint, status);
    if (status != 200 && status != 201)
        refused(flow);
    else if (!oauth_registration_parse(buf_span(&flow->fetch.body), &flow->registration, &flow->arena,
                                       &flow->attempt.client, &err))
        flow_end(flow, OAUTH_END_REGISTRATION, &err);
    else
        keep_client(flow);
}

// ---- the one that is stored -----------------------------------------------------------------

static void on_renewed(struct oauth_renewal *renewal)
{
    struct oauth_flow *flow = renewal->arg;
    flow_note(flow, renewal->registration ? "the registration was renewed" : "the registration was not renewed:",
              renewal->registration ? NULL : renewal->err.detail, 0);
    flow->claimed |= renewal->claimed;
    if (renewal->registration && take(flow, renewal->registration))
        flow_authorize(flow);
    else
        claim(flow);
}

static void use(struct oauth_flow *flow)
{
    if (take(flow, flow->stored)) {
        flow_authorize(flow);
    } else if (oauth_renewal_possible(flow->stored)) {
        flow_set_state(flow, FLOW_RENEWING);
        flow->renewal.on_done = on_renewed;
        flow->renewal.arg = flow;
        oauth_renewal_start(&flow->renewal, flow->spec.store, flow->spec.http, &flow->policy,
                            flow->spec.options->ca_file, flow->stored);
    } else {
        claim(flow);
    }
}

void flow_on_client_found(struct oauth_flow *flow)
{
    if (flow->request.answer == TOKEN_FAILED) {
        flow_end(flow, OAUTH_END_STORE, &flow->request.err);
        return;
    }
    registration_unref(flow->stored);
    flow->stored = registration_ref(flow->request.registration);
    if (!flow->stored) {
        claim(flow);
    } else if (!flow->anew && !flow->stored->is.suspect_at) {
        use(flow);
    } else if (flow->spec.shared_client) {
        struct grant_filter filter = {flow->spec.tenant, NULL, flow->attempt.server.issuer};
        flow_set_state(flow, FLOW_BOUND);
        token_store_list(flow->spec.store, &filter, &flow->request);
    } else {
        claim(flow);
    }
}

// G11: whatever one user's login looks like, it takes nothing from the others.
void flow_on_bound(struct oauth_flow *flow)
{
    size_t bound = 0;
    struct err err;
    for (size_t i = 0; i < flow->request.count; i++) {
        const struct grant_fields *is = &flow->request.grants[i]->is;
        bound += !is->dead_at && is->client_id && strcmp(is->client_id, flow->stored->is.client_id) == 0;
    }
    if (flow->request.answer == TOKEN_FAILED) {
        flow_end(flow, OAUTH_END_STORE, &flow->request.err);
    } else if (!bound) {
        claim(flow);
    } else if (!flow->anew) {
        use(flow);
    } else {
        (void)err_set(&err, ERR_UNAVAILABLE,
                      "authorization server \"%.150s\" does not know our client any more, and %zu grants were given to "
                      "it: 'postern connections --purge --issuer' gives them up, and then a new one is registered",
                      flow->attempt.server.issuer, bound);
        flow_end(flow, OAUTH_END_REGISTRATION, &err);
    }
}
