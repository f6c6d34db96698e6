// The gate: takes arrivals, walks each call through the phase table, and keeps sessions and servers.
#ifndef GATE_GATE_H
#define GATE_GATE_H

#include "auth/policy.h"
#include "auth/provider.h"
#include "auth/token_store.h"
#include "base/err.h"
#include "gate/arrival.h"
#include "gate/config.h"
#include "loop/http_client.h"
#include "loop/loop.h"
#include "loop/offload.h"
#include "store/audit.h"

struct gate_parts {
    struct loop *loop;
    struct http_client *http;
    const struct config *config;
    // The chain at the top, then that of each listener of the configuration in order; NULL: it has the one at the top.
    struct provider_chain *const *chains;
    struct audit *audit;             // or NULL
    struct token_store *tokens;      // or NULL
    struct policy *const *policies;  // of `default`, then of each tenant in order; the gate takes its own references
    struct offload *background;      // reads large messages (MESSAGE_LARGE); outlives the gate
};

struct gate *gate_new(const struct gate_parts *parts);
// The policy in force from now on. Calls that wait and were not sent yet are judged by it again (call_still_allowed()).
void gate_set_policy(struct gate *gate, size_t tenant, struct policy *policy);  // numbered as in gate_parts
// For the health: the policy of a tenant changed and could not be taken over; whether that holds for the providers' files,
// and for the certificate of some listener.
void gate_policy_failed(struct gate *gate, size_t tenant);
void gate_credentials_failed(struct gate *gate, bool failed);
void gate_certificates_failed(struct gate *gate, bool failed);
// {"status":"ok"}, "degraded" or "stopping", with the details only for those at this host. False while stopping.
bool gate_health(const struct gate *gate, bool detailed, struct buf *out);
// Identities may have ended: sessions of those that did are over.
void gate_recheck_identities(struct gate *gate);
// Lets calls in flight finish up to the deadline, ends sessions, then servers; then on_done.
void gate_shutdown(struct gate *gate, void (*on_done)(void *arg), void *arg);
void gate_free(struct gate *gate);
const struct config *gate_config(const struct gate *gate);
bool gate_is_profile_name(struct span name);     // which of them there are is told after authentication only
struct span gate_keys(const struct gate *gate);  // the JWK set that tells who calls is checked with; empty: none
// Who may come in at a listener of the configuration; NULL: anywhere else.
struct provider_chain *gate_chain(const struct gate *gate, const struct config_listener *listener);

#endif
