// Admission: from credentials to an identity of a tenant, for calls and pages alike.
#ifndef GATE_ADMISSION_H
#define GATE_ADMISSION_H

#include "auth/caller/provider.h"

struct arrival;
struct gate;
struct tenant;

// Zero refuses.
enum admission_verdict {
    ADMISSION_REFUSED,  // the reason is in `err`
    ADMISSION_WAIT,     // `wait` is resumed; then call admission_ask() again
    ADMISSION_GRANTED,
};

struct admission {
    const struct credentials *credentials;
    struct span session_id;      // may be empty; an open session is served even if its address is throttled
    struct provider_wait *wait;  // with its callback
    // the result
    struct identity *identity;
    struct tenant *tenant;
    struct err err;
    int64_t retry_ms;  // ERR_AUTH_LIMITED: how long to wait
};

// Authenticates, unless the address is throttled, and counts a failure against the address.
enum admission_verdict admission_ask(struct gate *gate, struct admission *admission) MUST_CHECK;
// False: too many authentications from this address failed; `err` is set. The first step of admission_ask(), before a body is read.
bool admission_open(struct gate *gate, struct admission *admission) MUST_CHECK;
// The same before a large body is read, which only an admitted caller may send. It does not wait for an issuer. Sets
// arrival->admission and returns the tenant of the caller; NULL: the caller was not admitted.
struct tenant *admission_before_body(struct gate *gate, struct arrival *arrival);
// The result of admission_before_body(), or of admission_ask() if that was not called. `arrival` may be NULL.
enum admission_verdict admission_of_arrival(struct gate *gate, const struct arrival *arrival,
                                            struct admission *admission) MUST_CHECK;
void admission_name_arrival(struct arrival *arrival, const struct identity *who);  // sets arrival->who
// True if the identity is still valid according to its provider.
bool admission_stands(const struct gate *gate, const struct identity *identity);

#endif
