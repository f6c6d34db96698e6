// Owns the part of a flow that uses a token of another issuer: choosing the token, checking where it may be sent, and
// exchanging it at the identity provider.
#include "base/clock.h"
#include "flow_state.h"
#include "subject_token.h"

// ---- the subject's token --------------------------------------------------------------------

// H12: a caller's token is not passed through. The server that exchanges it must be its issuer or one of its audiences.
static bool take_callers(struct login_flow *flow, struct err *err)
{
    const struct access_options *options = flow->spec.options;
    const char *to = options->mode == ACCESS_ENTERPRISE ? options->idp.issuer : flow->authorization.server.issuer;
    flow->subject = flow->spec.subject;
    return login_subject_token_may_go(flow->subject, to) ||
           err_set(
               err, ERR_LOGIN,
               "the caller's token cannot be exchanged at \"%.200s\", which neither issued it nor is named in its aud",
               to);
}

static bool take_file(struct login_flow *flow, struct err *err)
{
    const struct access_options *options = flow->spec.options;
    const char *issuer = flow->authorization.server.issuer;
    if (!(flow->subject = login_subject_token_read(options->subject_token_file, &flow->arena, err)))
        return false;
    return options->mode != ACCESS_WORKLOAD || login_subject_token_meant_for(flow->subject, issuer) ||
           err_set(err, ERR_CONFIG, "the token in %s does not name the authorization server \"%.200s\" in aud",
                   options->subject_token_file, issuer);
}

enum flow_state login_subject_exchange_begin(struct login_flow *flow)
{
    const struct access_options *options = flow->spec.options;
    struct err err;
    flow->subject = NULL;
    bool ok = flow->spec.subject ? take_callers(flow, &err) : !options->subject_token_file || take_file(flow, &err);
    if (!ok)
        return flow_end(flow, LOGIN_END_TOKEN, &err);
    if (options->mode != ACCESS_ENTERPRISE)
        return FLOW_EXCHANGING;
    flow->idp_policy = (struct address_policy){.learning = true,  // it is configured, so it may have any address
                                               .allowed = options->allow_addresses};
    if ((flow->idp_endpoint = options->idp.token_endpoint))
        return FLOW_ASSERTION;
    flow->url_at = 0;
    flow->url_count = oauth_server_urls(options->idp.issuer, &flow->arena, flow->urls);
    return FLOW_PROVIDER;
}

// ---- the identity provider ------------------------------------------------------------------

enum flow_state login_subject_exchange_find_provider(struct login_flow *flow)
{
    struct err err;
    if (flow->url_at == flow->url_count) {
        (void)err_set(&err, ERR_UNAVAILABLE, "no metadata found for the identity provider \"%.200s\"",
                      flow->spec.options->idp.issuer);
        return flow_end(flow, LOGIN_END_TOKEN, &err);
    }
    struct login_fetch_request request = {
        .url = flow->urls[flow->url_at], .timeout_ms = FLOW_METADATA_MS, .policy = &flow->idp_policy};
    login_fetch_start(&flow->fetch, flow->spec.http, &request);
    return FLOW_WAIT;
}

enum flow_state login_subject_exchange_on_provider(struct login_flow *flow)
{
    const char *issuer = flow->spec.options->idp.issuer, *url = flow->urls[flow->url_at];
    struct oauth_server found;
    struct err err;
    int status = flow->fetch.status;
    if (flow->fetch.failed)
        return flow_end(flow, LOGIN_END_TOKEN, &flow->fetch.err);
    flow_note(flow, "GET", url, status);
    if (login_fetch_is_absent(&flow->fetch)) {
        flow->url_at++;
        return FLOW_PROVIDER;
    }
    if (status != 200) {
        (void)err_set(&err, ERR_UNAVAILABLE, "%.200s answered HTTP %d", url, status);
        return flow_end(flow, LOGIN_END_TOKEN, &err);
    }
    if (!oauth_server_parse(buf_span(&flow->fetch.body), issuer, &flow->arena, &found, &err))
        return flow_end(flow, LOGIN_END_TOKEN, &err);
    flow->idp_endpoint = found.token_endpoint;
    flow->idp_policy.learning = false;
    return FLOW_ASSERTION;
}

// Uses the client at the identity provider (auth.idp), which is not the one at the authorization server.
enum flow_state login_subject_exchange_ask(struct login_flow *flow)
{
    const struct access_idp *idp = &flow->spec.options->idp;
    struct oauth_client client = {.id = idp->client_id,
                                  .secret = idp->client_secret,
                                  .method = idp->client_secret ? OAUTH_METHOD_BASIC : OAUTH_METHOD_NONE};
    struct buf form = {0};
    struct err err;
    struct login_form to = {.url = flow->idp_endpoint,
                            .client = &client,
                            .audience = flow->idp_endpoint,
                            .now = clock_wall_s(),
                            .timeout_ms = FLOW_TOKEN_MS,
                            .policy = &flow->idp_policy,
                            .ca_file = flow->spec.options->ca_file};
    login_subject_token_put_jag(flow->spec.options, &flow->authorization, flow->subject, &form);
    return login_fetch_post(&flow->fetch, flow->spec.http, &to, &form, &err) ? FLOW_WAIT
                                                                             : flow_end(flow, LOGIN_END_TOKEN, &err);
}

enum flow_state login_subject_exchange_on_answer(struct login_flow *flow)
{
    struct oauth_answer answer = {flow->fetch.status, buf_span(&flow->fetch.type), buf_span(&flow->fetch.body)};
    struct err err = {0};
    if (flow->fetch.failed)
        return flow_end(flow, LOGIN_END_TOKEN, &flow->fetch.err);
    flow_note(flow, "POST", flow->idp_endpoint, answer.status);
    const char *jag = oauth_tokens_parse_jag(&answer, &flow->arena, &err);
    if (!jag)
        return flow_end(flow, LOGIN_END_TOKEN, &err);
    flow->subject = jag;
    return FLOW_EXCHANGING;
}
