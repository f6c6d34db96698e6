// The gate: takes arrivals, walks each call through the phase table, and keeps sessions and servers.
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
    struct grant_store *tokens;      // or NULL
    struct policy *const *policies;  // of `default`, then of each tenant in order; the gate takes its own references
    struct catalogue *catalogue;     // or NULL; outlives the gate
    struct offload *background;      // reads large messages (MESSAGE_LARGE); outlives the gate
};

struct gate *gate_new(const struct gate_parts *parts);
// A configuration that a reload brings, whole and checked.
struct gate_change {
    const struct config *config;
    struct config_chains *chains;
    struct grant_store *tokens;      // if the gate has none yet; or NULL
    struct policy *const *policies;  // of each tenant, in the order of the configuration
};
// It is in force from now on. What it does not change goes on undisturbed.
void gate_apply(struct gate *gate, const struct gate_change *change);
// The policy of the tenant of this name from now on. Calls that wait and were not sent yet are judged by it again (phase.c).
void gate_set_policy(struct gate *gate, const char *name, struct policy *policy);
// For the health: the policy of a tenant changed and could not be taken over; whether that holds for the providers' files,
// and for the certificate of some listener.
void gate_health_policy_failed(struct gate *gate, const char *tenant);
void gate_health_credentials_failed(struct gate *gate, bool failed);
void gate_health_certificates_failed(struct gate *gate, bool failed);
void gate_health_configuration_failed(struct gate *gate, bool failed);  // its files cannot be taken over
// {"status":"ok"}, "degraded" or "stopping", with the details only for those at this host. False while stopping.
bool gate_health(const struct gate *gate, bool detailed, struct buf *out);
// Identities may have ended: sessions of those that did are over.
void gate_recheck_identities(struct gate *gate);
// Lets calls in flight finish up to the deadline, ends sessions, then servers; then on_done.
void gate_shutdown(struct gate *gate, void (*on_done)(void *arg), void *arg);
void gate_free(struct gate *gate);
const struct config *gate_config(const struct gate *gate);
struct connect *gate_connect(const struct gate *gate);  // NULL: there is no server that users connect to
bool gate_is_profile_name(struct span name);            // which of them there are is told after authentication only
struct span gate_keys(const struct gate *gate);         // the JWK set that tells who calls is checked with; empty: none
struct config_chains *gate_chains(const struct gate *gate);  // in force

// ---- arrivals

// Asked before a body is read: false if too many credentials from the caller's address were refused lately. Who shows
// none, is in an open session or comes through a proven proxy is always let on to the providers.
bool gate_admit(struct gate *gate, const struct arrival *arrival, int64_t *retry_ms, struct err *err) MUST_CHECK;
// The face refused a request whose framing could hide another: the audit is told.
void gate_refused(struct gate *gate, const struct peer *peer, enum err_code code);
// Asked before more of a body is read than anybody may send: false if the caller is refused, or it cannot be told at once.
// It arrives nevertheless, as ARRIVAL_UNREAD, and is answered before gate_arrive() returns.
bool gate_welcomes(struct gate *gate, struct arrival *arrival);
// Asked before so many more bytes of a body are kept: they count for its caller, or for all that are not authenticated yet.
// False: there is no room now. arrival->held must be closed if it does not arrive.
bool gate_hold(struct gate *gate, struct arrival *arrival, size_t more, int64_t *retry_ms, struct err *err) MUST_CHECK;
void gate_arrive(struct gate *gate, struct arrival *arrival);
// The caller is gone before the answer; the gate forgets the arrival.
void gate_gone(struct gate *gate, struct arrival *arrival);
// The connection of a pipe is gone, and its session with it.
void gate_pipe_closed(struct gate *gate, struct span session_id);
// No more comes in on a pipe: its session ends with the last call in flight.
void gate_pipe_drain(struct gate *gate, struct span session_id);

#endif
