// Owns the step of a flow that needs a token that somebody else made: whose it is, where it may go, and the identity
// provider's part.
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
    bool ok = oauth_client_apply(&client, flow->idp_endpoint, (int64_t)time(NULL), &form, &authorization, &err);
    if (ok) {
        flow_post_form(flow, flow->idp_endpoint, &form, &authorization, &flow->idp_policy);
        return;
    }
    secret_wipe(form.at, form.room);
    buf_release(&form);
    buf_release(&authorization);
    flow_end(flow, OAUTH_END_TOKEN, &err);
}

// ---- where the identity provider exchanges tokens -------------------------------------------

static void fetch_provider(struct oauth_flow *flow)
{
    struct err err;
    if (flow->url_at == flow->url_count) {
        (void)err_set(&err, ERR_UNAVAILABLE, "no metadata of the identity provider \"%.200s\"",
                      flow->spec.options->idp.issuer);
        flow_end(flow, OAUTH_END_TOKEN, &err);
        return;
    }
    struct oauth_wish wish = {
        .url = flow->urls[flow->url_at], .timeout_ms = FLOW_METADATA_MS, .policy = &flow->idp_policy};
    oauth_fetch_start(&flow->fetch, flow->spec.http, &wish);
}

static void find_provider(struct oauth_flow *flow)
{
    const struct access_idp *idp = &flow->spec.options->idp;
    flow->idp_policy = (struct address_policy){.learning = true,  // a person named it, wherever it is
                                               .allowed = flow->spec.options->allow_addresses};
    if ((flow->idp_endpoint = idp->token_endpoint)) {
        ask_provider(flow);
        return;
    }
    flow_set_state(flow, FLOW_PROVIDER);
    flow->url_at = 0;
    flow->url_count = oauth_server_urls(idp->issuer, &flow->arena, flow->urls);
    fetch_provider(flow);
}

void flow_on_provider(struct oauth_flow *flow)
{
    const char *issuer = flow->spec.options->idp.issuer;
    struct oauth_server found;
    struct err err;
    int status = flow->fetch.status;
    if (flow->fetch.failed) {
        flow_end(flow, OAUTH_END_TOKEN, &flow->fetch.err);
        return;
    }
    flow_note(flow, "GET", flow->urls[flow->url_at], status);
    if (flow_passes_over(&flow->fetch)) {
        flow->url_at++;
        fetch_provider(flow);
    } else if (status != 200) {
        (void)err_set(&err, ERR_UNAVAILABLE, "%.200s answered HTTP %d", flow->urls[flow->url_at], status);
        flow_end(flow, OAUTH_END_TOKEN, &err);
    } else if (!oauth_server_parse(buf_span(&flow->fetch.body), issuer, &flow->arena, &found, &err)) {
        flow_end(flow, OAUTH_END_TOKEN, &err);
    } else {
        flow->idp_endpoint = found.token_endpoint;
        flow->idp_policy.learning = false;
        ask_provider(flow);
    }
}

// ---- whose token ----------------------------------------------------------------------------

// H12: not to be passed on. Who exchanges it must be who issued it, or somebody it was issued for.
static bool take_callers(struct oauth_flow *flow, struct err *err)
{
    const struct access_options *options = flow->spec.options;
    const char *to = options->mode == ACCESS_ENTERPRISE ? options->idp.issuer : flow->attempt.server.issuer;
    flow->subject = flow->spec.subject;
    return oauth_subject_may_go(flow->subject, to) ||
           err_set(err, ERR_LOGIN,
                   "the caller's token is neither from nor meant for \"%.200s\", which would exchange it", to);
}

static bool take_file(struct oauth_flow *flow, struct err *err)
{
    const struct access_options *options = flow->spec.options;
    const char *issuer = flow->attempt.server.issuer;
    if (!(flow->subject = oauth_subject_read(options->subject_token_file, &flow->arena, err)))
        return false;
    return options->mode != ACCESS_WORKLOAD || oauth_subject_meant_for(flow->subject, issuer) ||
           err_set(err, ERR_CONFIG, "the token in %s is not meant for the authorization server \"%.200s\"",
                   options->subject_token_file, issuer);
}

void flow_assert(struct oauth_flow *flow)
{
    const struct access_options *options = flow->spec.options;
    struct err err;
    flow->subject = NULL;
    bool ok = flow->spec.subject ? take_callers(flow, &err) : !options->subject_token_file || take_file(flow, &err);
    if (!ok)
        flow_end(flow, OAUTH_END_TOKEN, &err);
    else if (options->mode == ACCESS_ENTERPRISE)
        find_provider(flow);
    else
        flow_exchange(flow);
}

void flow_on_asserted(struct oauth_flow *flow)
{
    struct oauth_answer answer = {flow->fetch.status, buf_span(&flow->fetch.type), buf_span(&flow->fetch.body)};
    struct err err = {0};
    if (flow->fetch.failed) {
        flow_end(flow, OAUTH_END_TOKEN, &flow->fetch.err);
        return;
    }
    flow_note(flow, "POST", flow->idp_endpoint, answer.status);
    const char *jag = oauth_jag_parse(&answer, &flow->arena, &err);
    if (!jag) {
        flow_end(flow, OAUTH_END_TOKEN, &err);
        return;
    }
    flow->subject = jag;
    flow_exchange(flow);
}
