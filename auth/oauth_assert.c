// Owns the step of a flow that needs a token that somebody else made: reading it, and the identity provider's part.
#include "oauth_state.h"
#include "oauth_subject.h"
#include <time.h>

// The identity provider's own client, which is not the one at the authorization server.
static void ask_provider(struct oauth_flow *flow)
{
    const struct access_idp *idp = &flow->spec.options->idp;
    struct oauth_client client = {.id = idp->client_id,
                                  .secret = idp->client_secret,
                                  .method = idp->client_secret ? OAUTH_METHOD_BASIC : OAUTH_METHOD_NONE};
    struct buf form = {0}, authorization = {0};
    struct err err;
    flow_set_state(flow, FLOW_ASSERTING);
    oauth_jag_put(flow->spec.options, &flow->attempt, flow->subject, &form);
    bool ok = oauth_client_apply(&client, idp->token_endpoint, (int64_t)time(NULL), &form, &authorization, &err);
    flow->idp_policy = oauth_fetch_policy(idp->token_endpoint, flow->spec.options->allow_addresses);
    if (ok) {
        flow_post_form(flow, idp->token_endpoint, &form, &authorization, &flow->idp_policy);
        return;
    }
    secret_wipe(form.at, form.room);
    buf_release(&form);
    buf_release(&authorization);
    flow_end(flow, OAUTH_END_TOKEN, &err);
}

void flow_assert(struct oauth_flow *flow)
{
    const struct access_options *options = flow->spec.options;
    const char *issuer = flow->attempt.server.issuer;
    struct err err;
    flow->subject = NULL;
    if (!options->subject_token_file) {
        flow_exchange(flow);
    } else if (!(flow->subject = oauth_subject_read(options->subject_token_file, &flow->arena, &err))) {
        flow_end(flow, OAUTH_END_TOKEN, &err);
    } else if (options->mode == ACCESS_ENTERPRISE) {
        ask_provider(flow);
    } else if (options->mode == ACCESS_WORKLOAD && !oauth_subject_meant_for(flow->subject, issuer)) {
        (void)err_set(&err, ERR_CONFIG, "the token in %s is not meant for the authorization server \"%.200s\"",
                      options->subject_token_file, issuer);
        flow_end(flow, OAUTH_END_TOKEN, &err);
    } else {
        flow_exchange(flow);
    }
}

void flow_on_asserted(struct oauth_flow *flow)
{
    struct oauth_answer answer = {flow->fetch.status, buf_span(&flow->fetch.type), buf_span(&flow->fetch.body)};
    struct err err = {0};
    if (flow->fetch.failed) {
        flow_end(flow, OAUTH_END_TOKEN, &flow->fetch.err);
        return;
    }
    flow_note(flow, "POST", flow->spec.options->idp.token_endpoint, answer.status);
    const char *jag = oauth_jag_parse(&answer, &flow->arena, &err);
    if (!jag) {
        flow_end(flow, OAUTH_END_TOKEN, &err);
        return;
    }
    flow->subject = jag;
    flow_exchange(flow);
}
