// Owns admission: asks the throttle, the providers and the tenant, in this order, and counts failed authentications.
//
// An identity has the name of its tenant. Only admission looks the name up; sessions, budgets and calls receive the tenant itself.
//
// An authentication fails if the credential is wrong (rejected or malformed). The following do not count: a request without a
// credential, a token that only lacks a scope, an issuer that cannot be reached, an identity of a tenant that does not exist, and a
// credential from a proxy for many callers. Guarded by tests/e2e/callers/admission.test.mjs.
#include "admission.h"
#include "gate/method/method.h"

// A session id is a secret of an authenticated caller. So wrong credentials from the same address do not lock out callers with a
// session id, and these get a 401 when their credential has expired.
bool admission_open(struct gate *gate, struct admission *admission)
{
    const struct credentials *credentials = admission->credentials;
    admission->retry_ms = throttle_wait(&gate->throttle, credentials->peer, loop_now(gate->loop));
    if (!admission->retry_ms || !credentials_shown(credentials) ||
        provider_chain_relays(credentials->chain, credentials) ||
        (admission->session_id.at && session_find(gate, admission->session_id)))
        return true;
    return err_set(&admission->err, ERR_AUTH_LIMITED,
                   "too many failed authentications from this address (limits.auth_failures = %lld)",
                   (long long)gate->config->limits.auth_failures);
}

static bool is_failed(enum provider_verdict verdict, const struct credentials *credentials)
{
    return (verdict == PROVIDER_REJECT || verdict == PROVIDER_MALFORMED) && credentials_shown(credentials) &&
           !provider_chain_relays(credentials->chain, credentials);
}

static enum admission_verdict find_tenant(const struct gate *gate, struct admission *admission)
{
    admission->tenant = tenant_find(gate, admission->identity->tenant);
    if (admission->tenant)
        return ADMISSION_GRANTED;
    (void)err_set(&admission->err, ERR_UNAUTHENTICATED, "tenant \"%s\" does not exist", admission->identity->tenant);
    return ADMISSION_REFUSED;
}

static bool is_in_force(const struct gate *gate, const struct provider_chain *chain)
{
    const struct provider_chain *other;
    for (size_t i = 0; (other = config_chains_at(gate->chains, i)); i++)
        if (other == chain)
            return true;
    return false;
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
    if (is_failed(verdict, credentials))
        throttle_failed(&gate->throttle, credentials->peer, loop_now(gate->loop));
    if (verdict != PROVIDER_ACCEPT)
        return ADMISSION_REFUSED;
    // The request may have begun before a reload, with providers that are no longer in force.
    if (!is_in_force(gate, credentials->chain) && !admission_stands(gate, admission->identity)) {
        (void)err_set(&admission->err, ERR_UNAUTHENTICATED, "the provider was removed while the request waited");
        return ADMISSION_REFUSED;
    }
    return find_tenant(gate, admission);
}

static void never_resume(void *arg) { (void)arg; }

struct tenant *admission_before_body(struct gate *gate, struct arrival *arrival)
{
    struct provider_wait wait = {.resume = never_resume};
    struct admission admission = {
        .credentials = &arrival->credentials, .session_id = arrival->session_id, .wait = &wait};
    enum admission_verdict verdict = admission_ask(gate, &admission);
    list_remove(&wait.node);
    arrival->admission = (struct arrival_admission){
        .outcome = verdict == ADMISSION_GRANTED ? ARRIVAL_ADMITTED
                   : verdict == ADMISSION_WAIT  ? ARRIVAL_UNDECIDED
                                                : ARRIVAL_REFUSED,
        .err = admission.err,
        .retry_ms = admission.retry_ms,
    };
    admission_name_arrival(arrival, admission.identity);
    identity_unref(admission.identity);
    return verdict == ADMISSION_GRANTED ? admission.tenant : NULL;
}

// A body may take minutes: a credential that was revoked or has expired meanwhile is refused.
static enum admission_verdict still_granted(const struct gate *gate, struct admission *admission)
{
    if (admission_stands(gate, admission->identity))
        return find_tenant(gate, admission);
    (void)err_set(&admission->err, ERR_UNAUTHENTICATED,
                  "the credential expired or was revoked while the body was read");
    return ADMISSION_REFUSED;
}

enum admission_verdict admission_of_arrival(struct gate *gate, const struct arrival *arrival,
                                            struct admission *admission)
{
    if (!arrival || arrival->admission.outcome == ARRIVAL_UNCHECKED)
        return admission_ask(gate, admission);
    admission->identity = identity_ref(arrival->who);
    admission->err = arrival->admission.err;
    admission->retry_ms = arrival->admission.retry_ms;
    switch (arrival->admission.outcome) {
    case ARRIVAL_ADMITTED: return still_granted(gate, admission);
    case ARRIVAL_UNDECIDED: return ADMISSION_WAIT;
    default: return ADMISSION_REFUSED;
    }
}

void admission_name_arrival(struct arrival *arrival, const struct identity *who)
{
    if (arrival->who == who)
        return;
    identity_unref(arrival->who);
    arrival->who = identity_ref(who);
}

// A provider's name means the same in every chain (provider_config_names_agree()), so the first chain that knows it decides.
bool admission_stands(const struct gate *gate, const struct identity *identity)
{
    struct provider_chain *chain;
    for (size_t i = 0; (chain = config_chains_at(gate->chains, i)); i++)
        if (provider_chain_knows(chain, identity))
            return provider_chain_stands(chain, identity);
    return false;
}
