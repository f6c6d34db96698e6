// The gate: takes arrivals, runs each call through the phase table, and owns sessions and links to servers.
#ifndef GATE_GATE_H
#define GATE_GATE_H

#include "auth/caller/provider.h"
#include "base/err.h"
#include "gate/session/arrival.h"
#include "loop/loop.h"

struct audit;
struct catalogue;
struct config;
struct config_chains;
struct grant_store;
struct http_client;
struct offload;
struct policy;

struct gate_parts {
    struct loop *loop;
    struct http_client *http;
    const struct config *config;
    struct config_chains *chains;
    struct audit *audit;             // or NULL
    struct grant_store *grants;      // or NULL
    struct policy *const *policies;  // of `default`, then of each tenant in order; the gate takes its own references
    struct catalogue *catalogue;     // or NULL; outlives the gate
    struct offload *background;      // parses large messages (MESSAGE_LARGE); outlives the gate
};

struct gate *gate_new(const struct gate_parts *parts);
// The new configuration of a reload, complete and checked.
struct gate_change {
    const struct config *config;
    struct config_chains *chains;
    struct grant_store *grants;      // used if the gate has no store yet; may be NULL
    struct policy *const *policies;  // of each tenant, in the order of the configuration
};
// Puts the configuration in force. Links, sessions and calls that it does not change continue.
void gate_apply(struct gate *gate, const struct gate_change *change);
// Replaces the policy of the tenant with this name. Calls that wait and were not sent yet are authorized again (phase.c).
void gate_set_policy(struct gate *gate, const char *name, struct policy *policy);
// Failed reloads, for the health report: of the policy of a tenant, of the files of the providers, of the certificate of any
// listener, and of the configuration.
void gate_health_policy_failed(struct gate *gate, const char *tenant);
void gate_health_credentials_failed(struct gate *gate, bool failed);
void gate_health_certificates_failed(struct gate *gate, bool failed);
void gate_health_configuration_failed(struct gate *gate, bool failed);
// Appends {"status":"ok"}, "degraded" or "stopping"; with details only for callers on this host. False while stopping.
bool gate_health(const struct gate *gate, bool detailed, struct buf *out);
// Ends the sessions of identities that are no longer valid.
void gate_recheck_identities(struct gate *gate);
// Another process serves new callers from now on, over the same stores. gate_shutdown() follows soon.
void gate_replaced(struct gate *gate);
// Waits for calls in flight up to the deadline, ends sessions and then servers, and calls on_done.
void gate_shutdown(struct gate *gate, void (*on_done)(void *arg), void *arg);
void gate_free(struct gate *gate);
const struct config *gate_config(const struct gate *gate);
struct connect *gate_connect(const struct gate *gate);  // NULL: no server has connections of users
bool gate_is_profile_name(struct span name);     // is well formed; whether it exists is known after authentication
struct span gate_keys(const struct gate *gate);  // the JWK set that verifies identity assertions, or empty
struct config_chains *gate_chains(const struct gate *gate);  // the chains in force

// ---- arrivals

// To be called before a body is read. False: the address is throttled. A caller without a credential, in an open session or behind
// a trusted proxy is never throttled.
bool gate_admit(struct gate *gate, const struct arrival *arrival, int64_t *retry_ms, struct err *err) MUST_CHECK;
// Records in the audit log that the face refused a request whose framing could hide another request.
void gate_refused(struct gate *gate, const struct peer *peer, enum err_code code);
// To be called before more of a body is read than an unauthenticated caller may send. False: the caller is refused, or cannot be
// authenticated at once. The face then passes the arrival as ARRIVAL_UNREAD, which is answered before gate_arrive() returns.
bool gate_welcomes(struct gate *gate, struct arrival *arrival);
// To be called before so many more bytes of a body are kept. They count for the budget of the caller, or for the budget of all
// unauthenticated callers. False: the budget is exhausted. The face closes arrival->held if it does not pass the arrival.
bool gate_hold(struct gate *gate, struct arrival *arrival, size_t more, int64_t *retry_ms, struct err *err) MUST_CHECK;
void gate_arrive(struct gate *gate, struct arrival *arrival);
// The caller disconnected before the answer; the gate forgets the arrival.
void gate_gone(struct gate *gate, struct arrival *arrival);
// The connection of a pipe was closed, which ends its session.
void gate_pipe_closed(struct gate *gate, struct span session_id);
// The input of a pipe ended: its session ends with the last call in flight.
void gate_pipe_drain(struct gate *gate, struct span session_id);

#endif
