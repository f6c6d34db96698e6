// A login's own state, shared by the files of the flow: the machine, discovery, and who we are.
#ifndef AUTH_OAUTH_STATE_H
#define AUTH_OAUTH_STATE_H

#include "auth/oauth_flow.h"
#include "oauth_fetch.h"
#include "oauth_renew.h"

#define FLOW_METADATA_MS 10000
#define FLOW_TOKEN_MS 30000

enum flow_state {
    FLOW_ENDED,
    FLOW_PROBING,
    FLOW_RESOURCE,
    FLOW_CHOOSING,
    FLOW_PREFERRING,
    FLOW_SERVER,
    FLOW_BINDING,
    FLOW_NOTES,
    FLOW_FINDING,
    FLOW_RENEWING,
    FLOW_BOUND,
    FLOW_CLAIMING,
    FLOW_REGISTERING,
    FLOW_KEEPING,
    FLOW_AUTHORIZING,
    FLOW_PROVIDER,
    FLOW_ASSERTING,
    FLOW_DEVICE,
    FLOW_WAITING,
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
    struct oauth_resource resource;
    size_t server_at;
    bool legacy;
    struct oauth_registration registration;
    struct oauth_attempt attempt;
    struct registration *stored;  // the registration that was found, or NULL
    struct oauth_renewal renewal;
    int64_t patience_ends;  // for somebody else's registration (loop_now); 0: it has not begun
    bool anew;              // no stored registration is to be used
    bool claimed, rehosted;
    bool documents_failed, registered_twice, authorized_twice, other_method, saved_twice;
    const char *code;
    const char *subject;      // a token that somebody else made: to be exchanged, or to be shown
    const char *device_code;  // what is polled with
    int64_t interval_s, device_ends;
    struct loop_timer poll;
    const char *idp_endpoint;          // of the identity provider
    struct address_policy idp_policy;  // its addresses
    int64_t sent;                      // seconds, before the token request
    struct oauth_tokens tokens;
    struct grant *grant;
    struct loop_task begin;
    struct err last;  // of a candidate that was passed over
};

// oauth_flow.c: the machine.
struct oauth_flow *flow_new(const struct oauth_flow_spec *spec);  // in no state yet
void flow_add_extra(struct oauth_flow *flow);                     // authorize_params of the configuration
void flow_set_state(struct oauth_flow *flow, enum flow_state state);
void flow_note(struct oauth_flow *flow, const char *what, const char *text, int status);
void flow_end(struct oauth_flow *flow, enum oauth_end end, const struct err *err);
void flow_authorize(struct oauth_flow *flow);
void flow_exchange(struct oauth_flow *flow);
void flow_post_form(struct oauth_flow *flow, const char *url, struct buf *form, struct buf *authorization,
                    struct address_policy *policy);  // wipes both

// oauth_device.c: a code that a person enters elsewhere. Goes on with flow_exchange(), again and again.
void flow_device_ask(struct oauth_flow *flow);
void flow_on_device(struct oauth_flow *flow);
void flow_device_put(const struct oauth_flow *flow, struct buf *form);
void flow_device_poll(struct oauth_flow *flow);
bool flow_device_waits(struct oauth_flow *flow);  // the answer to a poll: it goes on waiting, or has ended

// oauth_assert.c: with a token that somebody else made. Goes on with flow_exchange().
void flow_assert(struct oauth_flow *flow);
void flow_on_provider(struct oauth_flow *flow);
void flow_on_asserted(struct oauth_flow *flow);

// oauth_discovery.c: where to log in. Goes on with flow_identify().
void flow_probe(struct oauth_flow *flow);
void flow_on_probed(struct oauth_flow *flow);
void flow_on_resource(struct oauth_flow *flow);
void flow_on_chosen(struct oauth_flow *flow);
void flow_on_preferred(struct oauth_flow *flow);
void flow_on_server(struct oauth_flow *flow);
void flow_on_client_bound(struct oauth_flow *flow);
bool flow_passes_over(const struct oauth_fetch *fetch);  // D5: what lets a search for metadata go on; all else ends it

// oauth_identity.c: who we are there. Goes on with flow_authorize() or flow_exchange().
void flow_identify(struct oauth_flow *flow);
void flow_on_notes(struct oauth_flow *flow);
bool flow_is_document(const struct oauth_flow *flow);                            // our client id is a metadata document
bool flow_take_configured(struct oauth_flow *flow, struct err *err) MUST_CHECK;  // the client of the configuration

// oauth_register.c: the client that is registered. Goes on with flow_authorize().
void flow_on_client_found(struct oauth_flow *flow);
void flow_on_bound(struct oauth_flow *flow);
void flow_on_claimed(struct oauth_flow *flow);
void flow_find_client(struct oauth_flow *flow);
void flow_on_registered(struct oauth_flow *flow);
void flow_on_client_kept(struct oauth_flow *flow);

#endif
