// Owns who gets in: the throttle, the providers and the tenant, asked in this order, and what counts as a failed attempt.
//
// A failed attempt is a credential that was wrong (rejected or malformed). These are not: a request without a credential, a token
// that only lacks a scope, an issuer that cannot be reached, an identity of a tenant that does not exist, and whatever a
// proxy for many callers passes on. Guarded by tests/e2e/admission.test.mjs.
#include "admission.h"
#include "state.h"

// A session id is a secret of a caller that was authenticated: bad credentials from the same address do not lock out callers that
// have one, and those learn (401) that their credential has ended.
bool admission_open(struct gate *gate, struct admission *admission)
{
    const struct credentials *credentials = admission->credentials;
    admission->retry_ms = throttle_wait(&gate->throttle, credentials->peer, loop_now(gate->loop));
    if (!admission->retry_ms || !credentials_shown(credentials) ||
        provider_chain_relays(credentials->chain, credentials) ||
        (admission->session_id.at && session_find(gate, admission->session_id)))
        return true;
    return err_set(&admission->err, ERR_AUTH_LIMITED, "too many failed authentications from its address");
}

static bool is_failed_attempt(enum provider_verdict verdict, const struct credentials *credentials)
{
    return (verdict == PROVIDER_REJECT || verdict == PROVIDER_MALFORMED) && credentials_shown(credentials) &&
           !provider_chain_relays(credentials->chain, credentials);
}

enum admission_verdict admission_ask(struct gate *gate, struct admission *admission)
{
    const struct credentials *credentials = admission->credentials;
    if (!admission_open(gate, admission))
        return ADMISSION_REFUSED;
    list_remove(&admission->wait->node);
    enum provider_verdict verdict = provider_chain_authenticate(credentials->chain, credentials, admission->wait,
                                                                &admission->identity, &admission->err);
    if (verdict == PROVIDER_WAIT)
        return ADMISSION_WAIT;
    if (is_failed_attempt(verdict, credentials))
        throttle_failed(&gate->throttle, credentials->peer, loop_now(gate->loop));
    if (verdict != PROVIDER_ACCEPT)
        return ADMISSION_REFUSED;
    admission->tenant = gate_tenant(gate, admission->identity->tenant);
    if (admission->tenant)
        return ADMISSION_GRANTED;
    return (enum admission_verdict)err_set(&admission->err, ERR_UNAUTHENTICATED, "no tenant \"%s\"",
                                           admission->identity->tenant);
}

static void never_resume(void *arg) { (void)arg; }

struct identity *admission_likely(const struct credentials *credentials)
{
    struct provider_wait wait = {.resume = never_resume};
    struct identity *identity = NULL;
    struct err err;
    enum provider_verdict verdict =
        provider_chain_authenticate(credentials->chain, credentials, &wait, &identity, &err);
    list_remove(&wait.node);
    if (verdict == PROVIDER_ACCEPT)
        return identity;
    identity_unref(identity);
    return NULL;
}
