// Owns the end of a login: the outcome, from which secrets that a server has echoed are removed.
#include "flow_state.h"

enum flow_state flow_end(struct login_flow *flow, enum login_end end, const struct err *err)
{
    const char *secrets[] = {flow->code,
                             flow->subject,
                             flow->spec.subject,
                             flow->device_code,
                             flow->spec.options->idp.client_secret,
                             flow->authorization.verifier,
                             flow->authorization.state,
                             flow->tokens.access,
                             flow->tokens.refresh,
                             flow->authorization.client.secret,
                             flow->authorization.client.management_token};
    flow->end = end;
    flow->outcome = err ? *err : (struct err){0};
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++)
        oauth_problem_scrub(&flow->outcome, secrets[i]);
    return FLOW_ENDED;
}
