// Owns the device grant (RFC 8628) of a login: asking for a code, showing it, and polling until the user has decided.
#include "base/clock.h"
#include "flow_state.h"

#define GRANT "urn:ietf:params:oauth:grant-type:device_code"
#define INTERVAL_MAX_S 300
#define SLOWER_S 5

enum flow_state login_device_ask(struct login_flow *flow)
{
    const struct oauth_authorization *authorization = &flow->authorization;
    struct buf form = {0};
    struct err err;
    struct login_form to = {.url = authorization->server.device_endpoint,
                            .client = &authorization->client,
                            .audience = authorization->server.issuer,
                            .now = clock_wall_s(),
                            .timeout_ms = FLOW_TOKEN_MS,
                            .policy = &flow->policy,
                            .ca_file = flow->spec.options->ca_file};
    flow->device_code = NULL;
    oauth_form_put(&form, "scope", authorization->scope);
    oauth_form_put(&form, "resource", authorization->resource);
    return login_fetch_post(&flow->fetch, flow->spec.http, &to, &form, &err)
               ? FLOW_WAIT
               : flow_end(flow, LOGIN_END_AUTHORIZATION, &err);
}

enum flow_state login_device_on_code(struct login_flow *flow)
{
    struct oauth_answer answer = {flow->fetch.status, buf_span(&flow->fetch.type), buf_span(&flow->fetch.body)};
    struct oauth_device device;
    struct err err = {0};
    if (flow->fetch.failed)
        return flow_end(flow, LOGIN_END_AUTHORIZATION, &flow->fetch.err);
    flow_note(flow, "POST", flow->authorization.server.device_endpoint, answer.status);
    if (!oauth_device_parse(&answer, &flow->arena, &device, &err))
        return flow_end(flow, LOGIN_END_AUTHORIZATION, &err);
    flow->device_code = device.device_code;
    flow->interval_s = device.interval_s;
    flow->device_ends = clock_wall_s() + device.lifetime_s;
    flow->spec.on_device(flow->spec.arg, device.url, device.user_code, device.whole_url);
    return FLOW_WAITING;
}

enum flow_state login_device_wait(struct login_flow *flow)
{
    loop_timer_set(flow->spec.loop, &flow->timer, flow->interval_s * 1000);
    return FLOW_WAIT;
}

static enum flow_state expire(struct login_flow *flow)
{
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "the code expired before it was entered: log in again");
    return flow_end(flow, LOGIN_END_EXPIRED, &err);
}

enum flow_state login_device_on_due(struct login_flow *flow)
{
    return clock_wall_s() >= flow->device_ends ? expire(flow) : FLOW_EXCHANGING;
}

void login_device_put(const struct login_flow *flow, struct buf *form)
{
    oauth_form_put(form, "grant_type", GRANT);
    oauth_form_put(form, "device_code", flow->device_code);
    oauth_form_put(form, "resource", flow->authorization.resource);
}

static enum flow_state decline(struct login_flow *flow)
{
    struct err err;
    (void)err_set(&err, ERR_DENIED, "the login was declined");
    return flow_end(flow, LOGIN_END_DENIED, &err);
}

bool login_device_on_poll(struct login_flow *flow, enum flow_state *next)
{
    struct err ignored;
    if (flow->fetch.failed) {  // RFC 8628 3.5: poll less often after a failed request
        flow->interval_s = flow->interval_s * 2 < INTERVAL_MAX_S ? flow->interval_s * 2 : INTERVAL_MAX_S;
        *next = FLOW_WAITING;
        return true;
    }
    json_t *tree = oauth_document_parse(buf_span(&flow->fetch.body), "token response", &ignored);
    const char *error = oauth_document_string(tree, "error");
    bool slower = error && strcmp(error, "slow_down") == 0;
    bool pending = error && strcmp(error, "authorization_pending") == 0;
    bool denied = error && strcmp(error, "access_denied") == 0;
    bool expired = error && strcmp(error, "expired_token") == 0;
    json_decref(tree);
    if (slower)
        flow->interval_s += SLOWER_S;
    if (slower || pending)
        *next = FLOW_WAITING;
    else if (denied)
        *next = decline(flow);
    else if (expired)
        *next = expire(flow);
    return slower || pending || denied || expired;
}
