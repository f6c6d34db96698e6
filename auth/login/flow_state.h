// The state of a login, shared by the files of the flow: the states, their table, and the data gathered so far.
//
// A function of a state starts an operation and returns FLOW_WAIT, or returns the next state; it never sets the state
// itself. flow.c calls these functions, and checks that the table allows the states that they return.
#ifndef AUTH_LOGIN_FLOW_STATE_H
#define AUTH_LOGIN_FLOW_STATE_H

#include "auth/login/fetch.h"
#include "auth/login/flow.h"
#include "auth/login/renewal.h"
#include "fetch_request.h"

#define FLOW_METADATA_MS 10000
#define FLOW_TOKEN_MS 30000

enum flow_state {
    FLOW_NEW,
    FLOW_PROBING,
    FLOW_RESOURCE,
    FLOW_CHOOSING,
    FLOW_PREFERRING,
    FLOW_SERVER,
    FLOW_BINDING,
    FLOW_NOTES,
    FLOW_FINDING,
    FLOW_YIELDING,
    FLOW_RENEWING,
    FLOW_BOUND,
    FLOW_CLAIMING,
    FLOW_REGISTERING,
    FLOW_KEEPING,
    FLOW_AUTHORIZING,
    FLOW_RETURNED,
    FLOW_DEVICE,
    FLOW_WAITING,
    FLOW_PROVIDER,
    FLOW_ASSERTION,
    FLOW_EXCHANGING,
    FLOW_LOOKING,
    FLOW_SAVING,
    FLOW_ENDED,
    FLOW_STATES,
    FLOW_WAIT = FLOW_STATES,  // of a function: a reply will come
};

struct flow_row {
    const char *name;
    enum flow_state (*start)(struct login_flow *flow);     // on entering the state
    enum flow_state (*on_reply)(struct login_flow *flow);  // when the operation has ended; NULL: no reply is expected
    uint32_t next;                                         // 1 << enum flow_state: the allowed next states
};

// Retries, each of which a login makes at most once.
enum flow_retry {
    FLOW_OTHER_METHOD = 1 << 0,  // T4: with the other authentication method of the client
    FLOW_NO_DOCUMENT = 1 << 1,   // G3: with a client other than the metadata document
    FLOW_NEW_CLIENT = 1 << 2,    // G10: with a new registration in place of the stored one
    FLOW_OTHER_HOST = 1 << 3,    // G12: with the host's other name in the redirect URI
    FLOW_NEW_CODE = 1 << 4,      // T13: the user is asked again
    FLOW_OTHER_GRANT = 1 << 5,   // storing the grant again after the stored one has changed
};

struct login_flow {
    struct login_flow_spec spec;
    struct arena arena;
    enum flow_state state;  // flow_set_state()
    unsigned retried;       // flow_retry()
    struct address_policy policy;
    // The pending operation: one of these.
    struct login_fetch fetch;
    struct grant_request request;
    struct login_renewal renewal;
    struct loop_timer timer;
    struct loop_task turn;  // for steps that must not run inside a function that the owner has called
    // Discovery.
    const char *urls[OAUTH_URLS_MAX + 1];  // candidate URLs of the document
    size_t url_count, url_at;
    struct oauth_resource resource;
    size_t server_at;
    bool legacy;  // D11: the server has no resource metadata
    // The client.
    struct oauth_registration registration;
    struct registration *stored;  // the stored registration, or NULL
    bool claimed;                 // G13: this login may register
    int64_t patience_ends;        // end of the wait for another process's registration (loop_now); 0: not waiting
    // The authorization: the data that the callback is checked against (A4, D15), and its result.
    struct oauth_authorization authorization;
    enum oauth_callback_kind returned;
    const char *code;
    const char *device_code;
    int64_t interval_s, device_ends;
    const char *subject;               // a token of another issuer, to be exchanged or presented
    const char *idp_endpoint;          // the token endpoint of the identity provider
    struct address_policy idp_policy;  // for its addresses
    // The token.
    int64_t sent;  // time before the token request was sent, in seconds
    struct oauth_tokens tokens;
    struct grant *grant;
    int64_t replaces;  // generation of the stored grant; 0: no grant is stored
    // The outcome.
    enum login_end end;
    struct err outcome;
    struct err last;  // the error of the last candidate that was skipped
};

// Returns true the first time that it is called for a retry.
static inline bool flow_retry(struct login_flow *flow, enum flow_retry what)
{
    bool first = !(flow->retried & what);
    flow->retried |= what;
    return first;
}

// The state that follows once the client is known: the user is asked.
static inline enum flow_state flow_ask_user(const struct login_flow *flow)
{
    return flow->spec.device ? FLOW_DEVICE : FLOW_AUTHORIZING;
}

// flow.c: the machine.
extern const struct flow_row flow_rows[FLOW_STATES];
struct login_flow *flow_new(const struct login_flow_spec *spec);  // FLOW_NEW
void flow_set_state(struct login_flow *flow, enum flow_state state);

// flow_end.c, flow_note.c
enum flow_state flow_end(struct login_flow *flow, enum login_end end, const struct err *err);  // FLOW_ENDED
void flow_note(struct login_flow *flow, const char *what, const char *text, int status);

// discovery.c: finds the authorization server. Continues with login_client_choose().
enum flow_state login_discovery_probe(struct login_flow *flow);
enum flow_state login_discovery_on_probed(struct login_flow *flow);
enum flow_state login_discovery_fetch_resource(struct login_flow *flow);
enum flow_state login_discovery_on_resource(struct login_flow *flow);
enum flow_state login_discovery_list_grants(struct login_flow *flow);
enum flow_state login_discovery_on_grants(struct login_flow *flow);
enum flow_state login_discovery_find_client(struct login_flow *flow);
enum flow_state login_discovery_on_client(struct login_flow *flow);
enum flow_state login_discovery_fetch_server(struct login_flow *flow);
enum flow_state login_discovery_on_server(struct login_flow *flow);
enum flow_state login_discovery_bind(struct login_flow *flow);
enum flow_state login_discovery_on_bound(struct login_flow *flow);

// client.c: chooses the gateway's client at the authorization server.
enum flow_state login_client_choose(struct login_flow *flow);
enum flow_state login_client_find_notes(struct login_flow *flow);
enum flow_state login_client_on_notes(struct login_flow *flow);
bool login_client_is_document(const struct login_flow *flow);  // the client id is the URL of a metadata document
bool login_client_take_configured(struct login_flow *flow, struct err *err) MUST_CHECK;
// The authorization server does not know the client (any more). True: another client may be found (FLOW_FINDING).
bool login_client_replace(struct login_flow *flow);
// G3: notes the refused document for later logins of all processes. The request may be NULL if the result is not
// needed.
void login_client_note_refused(struct login_flow *flow, struct grant_request *request);

// registration.c: uses, renews or makes a registration.
enum flow_state login_registration_find(struct login_flow *flow);
enum flow_state login_registration_on_found(struct login_flow *flow);
enum flow_state login_registration_yield(struct login_flow *flow);
enum flow_state login_registration_on_yielded(struct login_flow *flow);
enum flow_state login_registration_renew(struct login_flow *flow);
enum flow_state login_registration_on_renewed(struct login_flow *flow);
enum flow_state login_registration_list_grants(struct login_flow *flow);
enum flow_state login_registration_on_grants(struct login_flow *flow);
enum flow_state login_registration_claim(struct login_flow *flow);
enum flow_state login_registration_on_claimed(struct login_flow *flow);
enum flow_state login_registration_send(struct login_flow *flow);
enum flow_state login_registration_on_answer(struct login_flow *flow);
enum flow_state login_registration_keep(struct login_flow *flow);
enum flow_state login_registration_on_kept(struct login_flow *flow);

// authorization.c: sends the browser to the authorization server.
enum flow_state login_authorization_start(struct login_flow *flow);
enum flow_state login_authorization_on_return(struct login_flow *flow);
void login_authorization_add_extra(struct login_flow *flow);  // the configured authorize_params

// device.c: a code that the user enters on another device.
enum flow_state login_device_ask(struct login_flow *flow);
enum flow_state login_device_on_code(struct login_flow *flow);
enum flow_state login_device_wait(struct login_flow *flow);
enum flow_state login_device_on_due(struct login_flow *flow);
void login_device_put(const struct login_flow *flow, struct buf *form);
// Handles the answer to a poll. True: *next is the next state. False: handle it like any answer of a token endpoint.
bool login_device_on_poll(struct login_flow *flow, enum flow_state *next);

// subject_exchange.c: uses a token of another issuer.
enum flow_state login_subject_exchange_begin(struct login_flow *flow);
enum flow_state login_subject_exchange_find_provider(struct login_flow *flow);
enum flow_state login_subject_exchange_on_provider(struct login_flow *flow);
enum flow_state login_subject_exchange_ask(struct login_flow *flow);
enum flow_state login_subject_exchange_on_answer(struct login_flow *flow);

// exchange.c: the token request, and storing the grant.
enum flow_state login_exchange_ask(struct login_flow *flow);
enum flow_state login_exchange_on_answer(struct login_flow *flow);
enum flow_state login_exchange_look(struct login_flow *flow);
enum flow_state login_exchange_on_look(struct login_flow *flow);
enum flow_state login_exchange_save(struct login_flow *flow);
enum flow_state login_exchange_on_saved(struct login_flow *flow);

#endif
