// Owns a login as a state machine: the table of states with their transitions, and the events that drive it.
//
//   NEW ─► PROBING ─► RESOURCE ─► SERVER ─► (the client) ─► AUTHORIZING ─► RETURNED ─► EXCHANGING ─► LOOKING ─► SAVING ─► ENDED
//
//   discovery.c         PROBING ─► RESOURCE ⟲ ─┬───────────────────────────────► SERVER ⟲ ─┬─► (the client)
//                                              └► CHOOSING ─┬─► PREFERRING ⟲ ──► SERVER    └► BINDING ─┬─► (the client)
//                                                           └──────────────────► SERVER                └► SERVER
//       RESOURCE: each place of the resource metadata; CHOOSING, PREFERRING: there are several authorization servers;
//       SERVER: each place of the metadata of each of them; BINDING: a configured client is used at one of them only.
//
//   client.c            (the client) ─┬► a configured one, or a metadata document ────────────────► (the user)
//                                     ├► NOTES ─► the same, or FINDING
//                                     ├► FINDING
//                                     └► EXCHANGING, PROVIDER, ASSERTION (the client's own rights: no user is asked)
//
//   registration.c      FINDING ─┬► usable ─────────────────────────────────────────────────────────► (the user)
//                          ▲     ├► RENEWING ─► renewed ────────────────────────────────────────────► (the user)
//                          │     ├► BOUND ─► other grants depend on it ─► usable, RENEWING, ENDED
//                       YIELDING └► CLAIMING ─► REGISTERING ─► KEEPING ─────────────────────────────► (the user)
//                          ▲             │            └► FINDING (once, with the host's other name)
//                          └─────────────┘ another process registers
//       RENEWING and BOUND go on to CLAIMING when that fails; CLAIMING goes on to (the user) with the stored client if no other
//       one can be registered now. A login that has the claim already goes on to REGISTERING in place of CLAIMING.
//
//   authorization.c     (the user) ─┬► AUTHORIZING ─► RETURNED ─► EXCHANGING
//   device.c                        └► DEVICE ─► WAITING ⇄ EXCHANGING
//   subject_exchange.c  PROVIDER ⟲ ─► ASSERTION ─► EXCHANGING (the identity provider is found, and asked first)
//
//   exchange.c          EXCHANGING ─┬► LOOKING ─► SAVING ⟲ ─► ENDED
//                                   ├► EXCHANGING (once, with the other authentication method: T4)
//                                   ├► FINDING (once, when the server does not know the client any more: G3, G10)
//                                   └► (the user) (once, when the server rejects the code: T13)
//       RETURNED ─► FINDING likewise.
//
//   suspension.c        NEW ─► AUTHORIZING (a suspended login is resumed)
//   any ─► ENDED        the login has failed, or its owner has freed it
//
// Each state has exactly one pending operation (an exchange, a store request, a timer or a task), or waits for the
// browser. So one function handles every reply. tests/unit/auth/login/flow_test.c walks the table.
#include "base/check.h"
#include "base/mem.h"
#include "flow_state.h"
#include <stdlib.h>

static enum flow_state put_turn(struct login_flow *flow)
{
    loop_task_put(flow->spec.loop, &flow->turn);
    return FLOW_WAIT;
}

static enum flow_state begin(struct login_flow *flow)
{
    (void)flow;
    return FLOW_PROBING;
}

static enum flow_state report_end(struct login_flow *flow)
{
    bool ok = flow->end == LOGIN_END_GRANTED || flow->end == LOGIN_END_FOUND;
    flow->spec.on_end(flow->spec.arg, flow->end, flow->end == LOGIN_END_GRANTED ? flow->grant : NULL,
                      ok ? NULL : &flow->outcome);
    return FLOW_WAIT;
}

// ---- the table ------------------------------------------------------------------------------

#define TO(state) (1U << FLOW_##state)
#define USER (TO(AUTHORIZING) | TO(DEVICE))
#define CLIENT (USER | TO(NOTES) | TO(FINDING) | TO(PROVIDER) | TO(ASSERTION) | TO(EXCHANGING))
#define REGISTER (TO(CLAIMING) | TO(REGISTERING))

// clang-format off
const struct flow_row flow_rows[FLOW_STATES] = {
    [FLOW_NEW]         = {"new", put_turn, begin, TO(PROBING) | TO(AUTHORIZING) | TO(ENDED)},
    [FLOW_PROBING]     = {"probing", login_discovery_probe, login_discovery_on_probed, TO(RESOURCE) | TO(ENDED)},
    [FLOW_RESOURCE]    = {"resource", login_discovery_fetch_resource, login_discovery_on_resource,
                          TO(RESOURCE) | TO(CHOOSING) | TO(SERVER) | TO(ENDED)},
    [FLOW_CHOOSING]    = {"choosing", login_discovery_list_grants, login_discovery_on_grants,
                          TO(PREFERRING) | TO(SERVER) | TO(ENDED)},
    [FLOW_PREFERRING]  = {"preferring", login_discovery_find_client, login_discovery_on_client,
                          TO(PREFERRING) | TO(SERVER) | TO(ENDED)},
    [FLOW_SERVER]      = {"server", login_discovery_fetch_server, login_discovery_on_server,
                          TO(SERVER) | TO(BINDING) | CLIENT | TO(ENDED)},
    [FLOW_BINDING]     = {"binding", login_discovery_bind, login_discovery_on_bound, TO(SERVER) | CLIENT | TO(ENDED)},
    [FLOW_NOTES]       = {"notes", login_client_find_notes, login_client_on_notes, TO(FINDING) | USER | TO(ENDED)},
    [FLOW_FINDING]     = {"finding", login_registration_find, login_registration_on_found,
                          TO(RENEWING) | TO(BOUND) | REGISTER | USER | TO(ENDED)},
    [FLOW_YIELDING]    = {"yielding", login_registration_yield, login_registration_on_yielded,
                          TO(FINDING) | TO(ENDED)},
    [FLOW_RENEWING]    = {"renewing", login_registration_renew, login_registration_on_renewed,
                          REGISTER | USER | TO(ENDED)},
    [FLOW_BOUND]       = {"bound", login_registration_list_grants, login_registration_on_grants,
                          TO(RENEWING) | REGISTER | USER | TO(ENDED)},
    [FLOW_CLAIMING]    = {"claiming", login_registration_claim, login_registration_on_claimed,
                          TO(REGISTERING) | TO(YIELDING) | USER | TO(ENDED)},
    [FLOW_REGISTERING] = {"registering", login_registration_send, login_registration_on_answer,
                          TO(FINDING) | TO(KEEPING) | TO(ENDED)},
    [FLOW_KEEPING]     = {"keeping", login_registration_keep, login_registration_on_kept, USER | TO(ENDED)},
    [FLOW_AUTHORIZING] = {"authorizing", login_authorization_start, NULL, TO(RETURNED) | TO(ENDED)},
    [FLOW_RETURNED]    = {"returned", put_turn, login_authorization_on_return,
                          TO(FINDING) | TO(EXCHANGING) | TO(ENDED)},
    [FLOW_DEVICE]      = {"device", login_device_ask, login_device_on_code, TO(WAITING) | TO(ENDED)},
    [FLOW_WAITING]     = {"waiting", login_device_wait, login_device_on_due, TO(EXCHANGING) | TO(ENDED)},
    [FLOW_PROVIDER]    = {"provider", login_subject_exchange_find_provider, login_subject_exchange_on_provider,
                          TO(PROVIDER) | TO(ASSERTION) | TO(ENDED)},
    [FLOW_ASSERTION]   = {"assertion", login_subject_exchange_ask, login_subject_exchange_on_answer,
                          TO(EXCHANGING) | TO(ENDED)},
    [FLOW_EXCHANGING]  = {"exchanging", login_exchange_ask, login_exchange_on_answer,
                          TO(EXCHANGING) | TO(WAITING) | TO(FINDING) | TO(LOOKING) | USER | TO(ENDED)},
    [FLOW_LOOKING]     = {"looking", login_exchange_look, login_exchange_on_look, TO(SAVING) | TO(ENDED)},
    [FLOW_SAVING]      = {"saving", login_exchange_save, login_exchange_on_saved, TO(SAVING) | TO(ENDED)},
    [FLOW_ENDED]       = {"ended", report_end, NULL, 0},
};
// clang-format on

// ---- the machine ----------------------------------------------------------------------------

void flow_set_state(struct login_flow *flow, enum flow_state state)
{
    CHECK(flow->state < FLOW_STATES && state < FLOW_STATES && flow_rows[flow->state].next & 1U << state);
    flow->state = state;
}

// Runs states until an operation is pending. A callback may free the flow, which sets FLOW_ENDED; its memory is still
// valid.
static void run(struct login_flow *flow, enum flow_state next)
{
    while (next != FLOW_WAIT && flow->state != FLOW_ENDED) {
        flow_set_state(flow, next);
        next = flow_rows[next].start(flow);
    }
}

static void on_reply(struct login_flow *flow)
{
    if (flow->state == FLOW_ENDED)  // the request was started by login_flow_abandon()
        return;
    CHECK(flow_rows[flow->state].on_reply);
    run(flow, flow_rows[flow->state].on_reply(flow));
}

static void on_fetched(struct login_fetch *fetch) { on_reply(fetch->arg); }
static void on_stored(struct grant_request *request) { on_reply(request->arg); }
static void on_renewed(struct login_renewal *renewal) { on_reply(renewal->arg); }
static void on_due(struct loop_timer *timer) { on_reply(timer->arg); }
static void on_turn(struct loop_task *task) { on_reply(task->arg); }

// ---- its owner ------------------------------------------------------------------------------

static const char *own(struct login_flow *flow, const char *text)
{
    return text ? arena_copy(&flow->arena, span_of(text)) : NULL;
}

struct login_flow *flow_new(const struct login_flow_spec *spec)
{
    struct login_flow *flow = mem_new(struct login_flow);
    flow->spec = *spec;
    flow->spec.tenant = own(flow, spec->tenant);
    flow->spec.user = own(flow, spec->user);
    flow->spec.server_url = own(flow, spec->server_url);
    flow->spec.probe = own(flow, spec->probe);
    flow->spec.redirect_uri = own(flow, spec->redirect_uri);
    flow->spec.document_url = own(flow, spec->document_url);
    flow->spec.held_scope = own(flow, spec->held_scope);
    flow->spec.state = own(flow, spec->state);
    flow->spec.known_issuer = own(flow, spec->known_issuer);
    flow->spec.subject = own(flow, spec->subject);
    flow->spec.challenge = (struct oauth_challenge){.bearer = spec->challenge.bearer,
                                                    .resource_metadata = own(flow, spec->challenge.resource_metadata),
                                                    .scope = own(flow, spec->challenge.scope)};
    flow->policy.allowed = spec->options->allow_addresses;
    flow->fetch = (struct login_fetch){.on_done = on_fetched, .arg = flow};
    flow->request = (struct grant_request){.on_done = on_stored, .arg = flow};
    flow->renewal = (struct login_renewal){.on_done = on_renewed, .arg = flow};
    flow->timer = (struct loop_timer){.on_due = on_due, .arg = flow, .name = "login"};
    flow->turn = (struct loop_task){.run = on_turn, .arg = flow, .name = "login"};
    return flow;
}

struct login_flow *login_flow_start(const struct login_flow_spec *spec)
{
    struct login_flow *flow = flow_new(spec);
    (void)flow_rows[FLOW_NEW].start(flow);
    return flow;
}

const struct oauth_authorization *login_flow_authorization(const struct login_flow *flow)
{
    return &flow->authorization;
}

// The next steps may end the flow, so they run in a task (FLOW_RETURNED) and not inside the caller.
enum oauth_callback_kind login_flow_callback(struct login_flow *flow, const struct oauth_callback *callback,
                                             struct err *err)
{
    if (flow->state != FLOW_AUTHORIZING) {
        (void)err_set(err, ERR_INVALID_REQUEST, "ignored a callback: no login is in progress");
        return OAUTH_CALLBACK_STRANGE;
    }
    enum oauth_callback_kind kind = oauth_authorization_callback(&flow->authorization, callback, err);
    if (kind == OAUTH_CALLBACK_STRANGE)
        return kind;
    flow->returned = kind;
    flow->last = *err;
    flow->last.code = kind == OAUTH_CALLBACK_CODE     ? ERR_NONE
                      : kind == OAUTH_CALLBACK_DENIED ? ERR_DENIED
                                                      : ERR_UPSTREAM_INVALID;
    flow->code = kind == OAUTH_CALLBACK_CODE ? arena_copy(&flow->arena, span_of(callback->code)) : NULL;
    run(flow, FLOW_RETURNED);
    return kind;
}

struct address_policy *login_flow_policy(struct login_flow *flow) { return &flow->policy; }

void login_flow_abandon(struct login_flow *flow)
{
    if (!flow || flow->state != FLOW_AUTHORIZING)
        return;
    const struct oauth_authorization *authorization = &flow->authorization;
    struct registration_key key = {flow->spec.tenant, authorization->server.issuer, flow->spec.redirect_uri};
    flow_set_state(flow, FLOW_ENDED);
    if (authorization->client.dynamic)
        grant_store_registration_suspect(flow->spec.store, &key, authorization->client.id, &flow->request);
    else if (login_client_is_document(flow))
        login_client_note_refused(flow, &flow->request);
}

static void release(void *object)
{
    struct login_flow *flow = object;
    login_fetch_release(&flow->fetch);
    registration_unref(flow->stored);
    grant_unref(flow->grant);
    arena_release(&flow->arena);
    secret_wipe(&flow->authorization, sizeof flow->authorization);
    free(flow);
}

void login_flow_free(struct login_flow *flow)
{
    if (!flow)
        return;
    if (flow->state != FLOW_ENDED)
        flow_set_state(flow, FLOW_ENDED);
    login_fetch_cancel(&flow->fetch);
    grant_request_release(&flow->request);
    login_renewal_release(&flow->renewal);
    loop_task_drop(&flow->turn);
    loop_timer_stop(flow->spec.loop, &flow->timer);
    loop_reap(flow->spec.loop, flow, release);
}
