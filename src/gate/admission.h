// Admission: from credentials to an identity of a tenant, for calls and pages alike.
#ifndef GATE_ADMISSION_H
#define GATE_ADMISSION_H

#include "auth/provider.h"

struct gate;
struct tenant;

// Zero refuses.
enum admission_verdict {
    ADMISSION_REFUSED,  // `err` says why
    ADMISSION_WAIT,     // `wait` is resumed, and asks again
    ADMISSION_GRANTED,
};

struct admission {
    const struct credentials *credentials;
    struct span session_id;      // of an open session, which is served even if its address is throttled; may be empty
    struct provider_wait *wait;  // with its callback
    // the result
    struct identity *identity;
    struct tenant *tenant;
    struct err err;
    int64_t retry_ms;  // ERR_AUTH_LIMITED: how long to wait
};

// Authenticates, unless the address is throttled, and counts a failed attempt against the address.
enum admission_verdict admission_ask(struct gate *gate, struct admission *admission) MUST_CHECK;
// False: too many authentications from this address failed; `err` is set. The first step of admission_ask(), before a body is read.
bool admission_open(struct gate *gate, struct admission *admission) MUST_CHECK;
// Who it would be if the credentials are accepted at once, with a reference; else NULL. Nothing is counted: the request will
// be judged by admission_ask().
struct identity *admission_likely(const struct credentials *credentials);

#endif
