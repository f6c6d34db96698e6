// Owns the device grant (RFC 8628) of a login: asking for a code, showing it, and polling until somebody has decided.
#include "oauth_state.h"
#include <time.h>

#define GRANT "urn:ietf:params:oauth:grant-type:device_code"
#define INTERVAL_S 5
#define INTERVAL_MAX_S 300
#define SLOWER_S 5
#define USER_CODE_MAX 64

static int64_t now(void) { return (int64_t)time(NULL); }

void flow_device_ask(struct oauth_flow *flow)
{
    struct buf form = {0}, authorization = {0};
    struct err err;
    flow_set_state(flow, FLOW_DEVICE);
    flow->device_code = NULL;
    oauth_form_put(&form, "scope", flow->attempt.scope);
    oauth_form_put(&form, "resource", flow->attempt.resource);
    if (oauth_client_apply(&flow->attempt.client, flow->attempt.server.issuer, now(), &form, &authorization, &err))
        flow_post_form(flow, flow->attempt.server.device_endpoint, &form, &authorization, &flow->policy);
    else
        flow_end(flow, OAUTH_END_AUTHORIZATION, &err);
    buf_release(&form);
    buf_release(&authorization);
}

// A person reads it: printable, and short.
static bool is_readable(const char *text, size_t max)
{
    size_t len = text ? strlen(text) : 0;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < ' ' || (unsigned char)text[i] >= 0x7f)
            return false;
    return len >= 1 && len <= max;
}

static const char *keep(const json_t *tree, const char *name, struct arena *arena)
{
    const char *text = oauth_member(tree, name);
    return text ? arena_copy(arena, span_of(text)) : NULL;
}

static int64_t seconds(const json_t *tree, const char *name, int64_t fallback, int64_t max)
{
    const json_t *value = json_object_get(tree, name);
    double said = json_is_number(value) ? json_number_value(value) : -1;
    return said < 1 ? fallback : said > (double)max ? max : (int64_t)said;
}

static bool read_device(const json_t *tree, struct arena *arena, struct oauth_device *out, struct err *err)
{
    const char *whole = keep(tree, "verification_uri_complete", arena);
    bool good = whole && is_readable(whole, OAUTH_VALUE_MAX) && oauth_url_secure(whole);
    *out = (struct oauth_device){.device_code = keep(tree, "device_code", arena),
                                 .user_code = keep(tree, "user_code", arena),
                                 .url = keep(tree, "verification_uri", arena),
                                 .whole_url = good ? whole : NULL,
                                 .interval_s = seconds(tree, "interval", INTERVAL_S, INTERVAL_MAX_S),
                                 .lifetime_s = seconds(tree, "expires_in", 600, 86400)};
    return (out->device_code && is_readable(out->user_code, USER_CODE_MAX) && is_readable(out->url, OAUTH_VALUE_MAX) &&
            oauth_url_secure(out->url)) ||
           err_set(err, ERR_UPSTREAM_INVALID, "the device authorization has no usable code or address");
}

bool oauth_device_parse(const struct oauth_answer *answer, struct arena *arena, struct oauth_device *out,
                        struct err *err)
{
    struct buf problem = {0};
    json_t *tree = oauth_document(answer->body, "device authorization", err);
    bool ok = false;
    *out = (struct oauth_device){0};
    if (tree && answer->status == 200) {
        ok = read_device(tree, arena, out, err);
    } else {
        oauth_put_problem(tree, &problem);
        (void)err_set(err, ERR_DENIED, "the device authorization endpoint answered HTTP %d: %s", answer->status,
                      buf_text(&problem));
    }
    buf_release(&problem);
    json_decref(tree);
    return ok;
}

static void wait_a_while(struct oauth_flow *flow)
{
    flow_set_state(flow, FLOW_WAITING);
    loop_timer_set(flow->spec.loop, &flow->poll, flow->interval_s * 1000);
}

void flow_on_device(struct oauth_flow *flow)
{
    struct oauth_answer answer = {flow->fetch.status, buf_span(&flow->fetch.type), buf_span(&flow->fetch.body)};
    struct oauth_device device;
    struct err err = {0};
    if (flow->fetch.failed) {
        flow_end(flow, OAUTH_END_AUTHORIZATION, &flow->fetch.err);
        return;
    }
    flow_note(flow, "POST", flow->attempt.server.device_endpoint, answer.status);
    if (!oauth_device_parse(&answer, &flow->arena, &device, &err)) {
        flow_end(flow, OAUTH_END_AUTHORIZATION, &err);
        return;
    }
    flow->device_code = device.device_code;
    flow->interval_s = device.interval_s;
    flow->device_ends = now() + device.lifetime_s;
    wait_a_while(flow);
    flow->spec.on_device(flow->spec.arg, device.url, device.user_code, device.whole_url);
}

void flow_device_put(const struct oauth_flow *flow, struct buf *form)
{
    oauth_form_put(form, "grant_type", GRANT);
    oauth_form_put(form, "device_code", flow->device_code);
    oauth_form_put(form, "resource", flow->attempt.resource);
}

static void expire(struct oauth_flow *flow)
{
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "nobody entered the code while it was good: log in again");
    flow_end(flow, OAUTH_END_EXPIRED, &err);
}

void flow_device_poll(struct oauth_flow *flow)
{
    if (now() >= flow->device_ends)
        expire(flow);
    else
        flow_exchange(flow);
}

bool flow_device_waits(struct oauth_flow *flow)
{
    struct err ignored, err;
    if (flow->fetch.failed) {  // RFC 8628 3.5: less often, when there is no answer
        flow->interval_s = flow->interval_s * 2 < INTERVAL_MAX_S ? flow->interval_s * 2 : INTERVAL_MAX_S;
        wait_a_while(flow);
        return true;
    }
    json_t *tree = oauth_document(buf_span(&flow->fetch.body), "token answer", &ignored);
    const char *error = oauth_member(tree, "error");
    bool slower = error && strcmp(error, "slow_down") == 0;
    bool pending = error && strcmp(error, "authorization_pending") == 0;
    bool denied = error && strcmp(error, "access_denied") == 0;
    bool expired = error && strcmp(error, "expired_token") == 0;
    json_decref(tree);
    if (slower)
        flow->interval_s += SLOWER_S;
    if (slower || pending) {
        wait_a_while(flow);
    } else if (denied) {
        (void)err_set(&err, ERR_DENIED, "the login was declined");
        flow_end(flow, OAUTH_END_DENIED, &err);
    } else if (expired) {
        expire(flow);
    }
    return slower || pending || denied || expired;
}
