// Owns the authorization request: sending the browser to the authorization server, and the next state after its return.
#include "flow_state.h"
#include <stdio.h>

void login_authorization_add_extra(struct login_flow *flow)
{
    const struct option_pairs *extra = &flow->spec.options->authorize_params;
    struct oauth_authorization *authorization = &flow->authorization;
    authorization->extra_count = 0;
    for (size_t i = 0; i < extra->count && i < sizeof authorization->extra / sizeof *authorization->extra; i++)
        authorization->extra[authorization->extra_count++] =
            (struct oauth_extra){extra->at[i].name, extra->at[i].value};
}

enum flow_state login_authorization_start(struct login_flow *flow)
{
    struct buf url = {0};
    oauth_authorization_seed(&flow->authorization);
    if (flow->spec.state)
        snprintf(flow->authorization.state, sizeof flow->authorization.state, "%s", flow->spec.state);
    login_authorization_add_extra(flow);
    oauth_authorization_url(&flow->authorization, &url);
    flow->spec.on_browse(flow->spec.arg, arena_copy(&flow->arena, buf_span(&url)));
    buf_release(&url);
    return FLOW_WAIT;
}

enum flow_state login_authorization_on_return(struct login_flow *flow)
{
    if (flow->authorization.client_refused && login_client_is_document(flow) && login_client_replace(flow))
        return FLOW_FINDING;  // G3
    switch (flow->returned) {
    case OAUTH_CALLBACK_CODE: return FLOW_EXCHANGING;
    case OAUTH_CALLBACK_DENIED: return flow_end(flow, LOGIN_END_DENIED, &flow->last);
    default: return flow_end(flow, LOGIN_END_AUTHORIZATION, &flow->last);
    }
}
