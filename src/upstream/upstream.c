// Owns the life of one connection to a server: state, handshake, requests in flight, back-off.
//
//            request or start                 handshake done
//   DOWN ───────────────────► STARTING ──────────────────────► READY
//    ▲                          │    ▲                           │
//    │                  failure │    │ timer, or a request       │ lost
//    │                          ▼    │ after the pause           ▼
//    │                        BACKOFF ◄──────────────────────────┘
//    │
//   any ── upstream_close ──► CLOSING ──► (on_closed)
//
// Invariants: a request is in `in_flight` from its send to its one on_reply or cancel; on_reply never
// runs inside upstream_send() (tests/unit/upstream_stdio_test.c).
#include "base/log.h"
#include "base/mem.h"
#include "base/scan.h"
#include "mcp/method.h"
#include "transport.h"
#include <stdlib.h>
#include <time.h>

#define BACKOFF_FIRST_MS 500
#define BACKOFF_MAX_MS 30000
#define ASKED_MAX_MS 300000  // a pause that a server may ask for
#define HEALTHY_AFTER_MS 10000
#define INSTRUCTIONS_MAX 8192
#define CAPABILITIES_MAX 16384  // that callers get

static void begin(struct upstream *upstream);

static void set_state(struct upstream *upstream, enum upstream_state state)
{
    if (upstream->state == state)
        return;
    upstream->state = state;
    if (state == UPSTREAM_READY) {
        upstream->problem[0] = '\0';
        upstream->refusal = ERR_NONE;
    }
    upstream->spec.listener->on_state(upstream->spec.arg, upstream);
}

// ---- requests -------------------------------------------------------------------------------

static void detach(struct upstream_request *request)
{
    struct upstream *upstream = request->upstream;
    map_remove(&upstream->in_flight, map_key_u64(&request->id));
    list_remove(&request->node);
    if (list_empty(&upstream->refused))  // no request needs another token any more
        access_cancel(&upstream->renewal);
    loop_timer_stop(upstream->spec.loop, &request->timeout);
    if (request->transfer)
        upstream->transport->forget(upstream, request);
    request->transfer = NULL;
    blob_unref(request->text);
    request->text = NULL;
    request->upstream = NULL;
}

void upstream_finish(struct upstream_request *request, const struct upstream_reply *reply)
{
    detach(request);
    request->on_reply(request, reply);
}

void upstream_fail(struct upstream_request *request, const struct err *err)
{
    upstream_finish(request, &(struct upstream_reply){.failure = err});
}

static void put_id(struct buf *out, uint64_t id) { buf_put_int(out, (int64_t)id); }

void upstream_tell_cancelled(struct upstream *upstream, uint64_t id, const char *reason)
{
    struct buf params = {0};
    buf_put_text(&params, "{\"requestId\":");
    put_id(&params, id);
    buf_put_text(&params, ",\"reason\":");
    scan_encode(span_of(reason), &params);
    buf_put_char(&params, '}');
    upstream_notify(upstream, method_text(METHOD_CANCELLED), buf_span(&params));
    buf_release(&params);
}

static void on_timeout(struct loop_timer *timer)
{
    struct upstream_request *request = timer->arg;
    struct upstream *upstream = request->upstream;
    struct err err;
    if (request->stopped_ms || upstream->stopped_ms) {
        loop_timer_set(upstream->spec.loop, timer, upstream->server->timeout_ms);
        return;
    }
    int64_t waited = loop_now(upstream->spec.loop) - request->started_ms;
    (void)err_set(&err, ERR_UPSTREAM_TIMEOUT, "server \"%s\": no answer after %lld ms", upstream->server->name,
                  (long long)waited);
    upstream->given_up++;
    if (!request->initial && upstream->state == UPSTREAM_READY)
        upstream_tell_cancelled(upstream, request->id, "timeout");
    upstream_fail(request, &err);
}

static void arm(struct upstream_request *request)
{
    struct upstream *upstream = request->upstream;
    int64_t ms = upstream->server->timeout_ms, held = request->held_until_ms - loop_now(upstream->spec.loop);
    if (held > ms)
        ms = held;
    int64_t left = upstream->server->max_timeout_ms - (loop_now(upstream->spec.loop) - request->started_ms);
    if (request->initial)
        ms = upstream->server->start_timeout_ms;
    loop_timer_set(upstream->spec.loop, &request->timeout, ms < left ? ms : left);
}

void upstream_stop_clock(struct upstream *upstream, struct upstream_request *request)
{
    int64_t *stopped_ms = request ? &request->stopped_ms : &upstream->stopped_ms;
    *stopped_ms = loop_now(upstream->spec.loop);
}

static void start_clock(struct upstream_request *request, int64_t stopped_ms)
{
    request->started_ms += loop_now(request->upstream->spec.loop) - stopped_ms;
    if (request->timeout.slot)
        arm(request);
}

void upstream_start_clock(struct upstream *upstream, struct upstream_request *request)
{
    int64_t *since = request ? &request->stopped_ms : &upstream->stopped_ms, stopped_ms = *since;
    void *value;
    *since = 0;
    if (!stopped_ms)
        return;
    if (request)
        start_clock(request, stopped_ms);
    for (size_t at = 0; !request && map_next(&upstream->in_flight, &at, NULL, &value);)
        start_clock(value, stopped_ms);
}

void upstream_touch(struct upstream_request *request)
{
    if (request->upstream && request->timeout.slot)
        arm(request);
}

void upstream_hold(struct upstream_request *request, int64_t patience_ms)
{
    if (!request->upstream)
        return;
    request->held_until_ms = patience_ms ? loop_now(request->upstream->spec.loop) + patience_ms : 0;
    upstream_touch(request);
}

uint64_t upstream_reserve(struct upstream *upstream, struct upstream_request *request)
{
    request->upstream = upstream;
    request->id = ++upstream->next_id;
    request->patience_ms = 0;
    request->timeout = (struct loop_timer){.on_due = on_timeout, .arg = request, .name = "request timeout"};
    return request->id;
}

static void run_failing(struct loop_task *task)
{
    struct upstream *upstream = task->arg;
    struct err err;
    if (upstream->refusal)
        (void)err_set(&err, upstream->refusal, "%s", upstream->problem);
    else
        (void)err_set(&err, ERR_UNAVAILABLE, "server \"%s\" is not available: %s", upstream->server->name,
                      *upstream->problem ? upstream->problem : "it is being closed");
    err.retry_after_ms = upstream_pause_left(upstream);
    while (!list_empty(&upstream->failing))
        upstream_fail(list_entry(upstream->failing.next, struct upstream_request, node), &err);
}

// A token that has ended is not shown: the request waits for the next one.
static void await_token(struct upstream *upstream, struct upstream_request *request, struct blob *text)
{
    bool first = list_empty(&upstream->refused);
    request->text = blob_ref(text);
    list_append(&upstream->refused, &request->node);
    if (first)
        access_get(upstream->spec.access, &upstream->renewal);
}

void upstream_send_message(struct upstream_request *request, struct blob *message)
{
    struct upstream *upstream = request->upstream;
    request->started_ms = loop_now(upstream->spec.loop);
    upstream_start(upstream);
    if (upstream->state == UPSTREAM_READY && upstream->spec.access && access_stale(upstream->spec.access)) {
        await_token(upstream, request, message);
    } else if (upstream->state == UPSTREAM_READY || request->initial) {
        map_put(&upstream->in_flight, map_key_u64(&request->id), request);
        arm(request);
        upstream->transport->send(upstream, message, request);
    } else {
        bool refused = upstream->state != UPSTREAM_STARTING;
        request->text = blob_ref(message);
        list_append(refused ? &upstream->failing : &upstream->waiting, &request->node);
        if (refused)
            loop_task_put(upstream->spec.loop, &upstream->fail_later);
    }
    blob_unref(message);
}

void upstream_send(struct upstream_request *request, const char *method, struct span params)
{
    struct buf text = {0};
    buf_reserve(&text, params.len + 128);
    message_begin_request(&text, request->id, method);
    if (params.len) {
        buf_put_text(&text, ",\"params\":");
        buf_put_span(&text, params);
    }
    buf_put_char(&text, '}');
    upstream_send_message(request, blob_take(&text));
}

bool upstream_forget(struct upstream_request *request)
{
    struct upstream *upstream = request->upstream;
    if (!upstream)
        return false;
    bool sent = map_find(&upstream->in_flight, map_key_u64(&request->id)) != NULL;
    upstream->given_up += sent;
    detach(request);
    return sent && upstream->state == UPSTREAM_READY;
}

void upstream_cancel(struct upstream_request *request, const char *reason)
{
    struct upstream *upstream = request->upstream;
    if (upstream_forget(request))
        upstream_tell_cancelled(upstream, request->id, reason);
}

void upstream_pass(struct upstream *upstream, struct blob *message)
{
    if (upstream->state == UPSTREAM_READY || upstream->state == UPSTREAM_STARTING)
        upstream->transport->send(upstream, message, NULL);
    blob_unref(message);
}

// Some servers answer notifications too, without an id: that is meant for no request.
static void note_told(struct upstream *upstream)
{
    upstream->told++;
    upstream->told_after = upstream->next_id;
}

void upstream_pass_notification(struct upstream *upstream, struct blob *message)
{
    note_told(upstream);
    upstream_pass(upstream, message);
}

void upstream_notify(struct upstream *upstream, const char *method, struct span params)
{
    struct buf text = {0};
    message_put_notification(&text, method, params);
    upstream_pass_notification(upstream, blob_take(&text));
}

void upstream_answer(struct upstream *upstream, struct span id, struct span result)
{
    struct buf text = {0};
    message_put_result(&text, id, result);
    upstream_pass(upstream, blob_take(&text));
}

void upstream_refuse(struct upstream *upstream, struct span id, int code, const char *reason)
{
    struct buf text = {0}, error = {0};
    buf_printf(&error, "{\"code\":%d,\"message\":", code);
    scan_encode(span_of(reason), &error);
    buf_put_char(&error, '}');
    message_put_raw_error(&text, id, buf_span(&error));
    buf_release(&error);
    upstream_pass(upstream, blob_take(&text));
}

// ---- starting, failing, retrying ------------------------------------------------------------

static void fail_all(struct list *requests, const struct err *err)
{
    while (!list_empty(requests))
        upstream_fail(list_entry(requests->next, struct upstream_request, node), err);
}

// Out of all lists: what their failure sets off may send new requests, which are not among the doomed.
static void take_in_flight(struct upstream *upstream, struct list *doomed)
{
    void *value;
    list_move_all(doomed, &upstream->refused);
    for (size_t at = 0; map_next(&upstream->in_flight, &at, NULL, &value);) {
        struct upstream_request *request = value;
        list_append(doomed, &request->node);
    }
    map_release(&upstream->in_flight);
}

static void forget_access(struct upstream *upstream)
{
    access_cancel(&upstream->ready);
    access_cancel(&upstream->renewal);
}

static void drop_wire(struct upstream *upstream)
{
    if (upstream->hello.upstream)
        detach(&upstream->hello);
    upstream->transport->release(upstream);
    upstream->wire = NULL;
    upstream->losing = false;
    loop_task_drop(&upstream->lose);
}

static void go_down(struct upstream *upstream, const struct err *err)
{
    bool was_ready = upstream->state == UPSTREAM_READY;
    if (upstream->state == UPSTREAM_CLOSING)
        return;
    if (was_ready && loop_now(upstream->spec.loop) - upstream->ready_since_ms > HEALTHY_AFTER_MS)
        upstream->failures = 0;
    bool again = !was_ready && upstream->refusal == err->code && strcmp(upstream->problem, err->detail) == 0;
    memcpy(upstream->problem, err->detail, sizeof upstream->problem);
    upstream->refusal = err->code == ERR_LOGIN || err->code == ERR_PROCESSES ? err->code : ERR_NONE;
    forget_access(upstream);
    if (err->code == ERR_LOGIN && upstream->asked && upstream->spec.access)
        access_hold_back(upstream->spec.access);
    log_at(again ? LOG_DEBUG : LOG_WARN, was_ready ? "server lost" : "server did not start",
           LOG_STR("server", upstream->server->name), LOG_STR("detail", err->detail));
    drop_wire(upstream);
    int64_t pause = BACKOFF_FIRST_MS;
    for (unsigned i = 0; i < upstream->failures && pause < BACKOFF_MAX_MS; i++)
        pause *= 2;
    // One that ran may be started again by the next request at once; one that failed must wait.
    bool at_once = was_ready && upstream->failures == 0;
    upstream->failures++;
    pause = pause < BACKOFF_MAX_MS ? pause : BACKOFF_MAX_MS;
    upstream->put_off = err->retry_after_ms > 0;
    if (err->retry_after_ms > pause)
        pause = err->retry_after_ms < ASKED_MAX_MS ? err->retry_after_ms : ASKED_MAX_MS;
    loop_timer_set(upstream->spec.loop, &upstream->retry, pause);
    struct list sent, unsent;
    take_in_flight(upstream, &sent);
    list_move_all(&unsent, &upstream->waiting);
    struct err why = *err, unavailable = *err;
    why.retry_after_ms = unavailable.retry_after_ms = upstream->put_off ? pause : 0;
    if (!upstream->refusal)
        unavailable.code = ERR_UNAVAILABLE;
    set_state(upstream, at_once ? UPSTREAM_DOWN : UPSTREAM_BACKOFF);
    fail_all(&sent, &why);
    fail_all(&unsent, &unavailable);
}

void upstream_on_lost(struct upstream *upstream, const struct err *err) { go_down(upstream, err); }

void upstream_lose(struct upstream *upstream, const struct err *err)
{
    if (upstream->losing)
        return;
    upstream->losing = true;
    upstream->why = *err;
    loop_task_put(upstream->spec.loop, &upstream->lose);
}

void upstream_lose_deaf(struct upstream *upstream)
{
    struct err err;
    (void)err_set(&err, ERR_UPSTREAM_DIED, "server \"%s\" does not take what it is sent: %d messages are on their way",
                  upstream->server->name, TRANSPORT_UNASKED_MAX);
    upstream_lose(upstream, &err);
}

static void on_lose(struct loop_task *task)
{
    struct upstream *upstream = task->arg;
    struct err why = upstream->why;
    go_down(upstream, &why);
}

static void on_retry(struct loop_timer *timer)
{
    struct upstream *upstream = timer->arg;
    if (upstream->state == UPSTREAM_BACKOFF || upstream->state == UPSTREAM_DOWN)
        begin(upstream);
}

static bool is_set(struct span part, const char *name)
{
    struct span flag;
    return scan_find(part, name, &flag) && span_is(flag, "true");
}

static void read_abilities(struct upstream *upstream, struct span capabilities)
{
    struct span part, flag;
    struct upstream_abilities *can = &upstream->abilities;
    *can = (struct upstream_abilities){0};
    can->tools = scan_find(capabilities, "tools", &part);
    can->tools_changed = can->tools && is_set(part, "listChanged");
    can->prompts = scan_find(capabilities, "prompts", &part);
    can->prompts_changed = can->prompts && is_set(part, "listChanged");
    can->completions = scan_find(capabilities, "completions", &part);
    can->logging = scan_find(capabilities, "logging", &part);
    can->resources = scan_find(capabilities, "resources", &part);
    can->resources_changed = can->resources && is_set(part, "listChanged");
    can->tasks = scan_find(capabilities, "tasks", &part);
    can->tasks_list = can->tasks && scan_find(part, "list", &flag);
    if (capabilities.len > CAPABILITIES_MAX)
        log_warn("capabilities are too long: callers do not get them", LOG_STR("server", upstream->server->name),
                 LOG_INT("bytes", (int64_t)capabilities.len), LOG_INT("max", CAPABILITIES_MAX));
    else if (scan_is_object(capabilities))
        buf_put_span(&upstream->declared, capabilities);
    if (upstream->revision == REVISION_2024_11_05)
        can->completions = true;  // implied before the capability existed
}

bool upstream_may_send(struct upstream_request *request, struct err *err)
{
    return !request->may_send || request->may_send(request, err);
}

static void flush_waiting(struct upstream *upstream)
{
    while (upstream->state == UPSTREAM_READY && !list_empty(&upstream->waiting)) {
        struct upstream_request *request = list_entry(upstream->waiting.next, struct upstream_request, node);
        struct err err;
        if (!upstream_may_send(request, &err)) {
            upstream_fail(request, &err);
            continue;
        }
        struct blob *text = blob_ref(request->text);
        list_remove(&request->node);
        map_put(&upstream->in_flight, map_key_u64(&request->id), request);
        arm(request);
        upstream->transport->send(upstream, text, request);
        blob_unref(text);
    }
}

static void on_hello(struct upstream_request *request, const struct upstream_reply *reply)
{
    struct upstream *upstream = request->arg;
    struct span version, value;
    struct err err = {0};
    if (reply->failure)
        err = *reply->failure;
    else if (reply->error.at)
        (void)err_set(&err, ERR_UNAVAILABLE, "server \"%s\" refused initialize: %.*s", upstream->server->name,
                      reply->error.len > 200 ? 200 : (int)reply->error.len, reply->error.at);
    else if (!scan_find(reply->result, "protocolVersion", &version) || !scan_is_string(version) ||
             !(upstream->revision = revision_parse(span_make(version.at + 1, version.len - 2))))
        (void)err_set(&err, ERR_UPSTREAM_INVALID, "server \"%s\" speaks no protocol version of ours",
                      upstream->server->name);
    if (err.code) {
        if (upstream->state == UPSTREAM_STARTING)
            go_down(upstream, &err);
        return;
    }
    buf_clear(&upstream->info);
    buf_clear(&upstream->instructions);
    buf_clear(&upstream->declared);
    if (scan_find(reply->result, "capabilities", &value))
        read_abilities(upstream, value);
    if (scan_find(reply->result, "serverInfo", &value))
        buf_put_span(&upstream->info, value);
    if (scan_find(reply->result, "instructions", &value) && scan_is_string(value) && value.len < INSTRUCTIONS_MAX)
        scan_decode(value, &upstream->instructions);
    struct buf initialized = {0};
    message_put_notification(&initialized, method_text(METHOD_INITIALIZED), (struct span){0});
    struct blob *message = blob_take(&initialized);
    note_told(upstream);
    upstream->transport->greet(upstream, message);
    blob_unref(message);
}

void upstream_on_ready(struct upstream *upstream)
{
    if (upstream->state != UPSTREAM_STARTING)
        return;
    upstream->ready_since_ms = loop_now(upstream->spec.loop);
    log_info("server ready", LOG_STR("server", upstream->server->name), LOG_STR("transport", upstream->transport->name),
             LOG_STR("revision", revision_text(upstream->revision)));
    set_state(upstream, UPSTREAM_READY);
    flush_waiting(upstream);
}

void upstream_on_unheard(struct upstream *upstream)
{
    struct upstream_abilities *can = &upstream->abilities;
    can->tools_changed = can->prompts_changed = can->resources_changed = false;
}

static void say_hello(struct upstream *upstream)
{
    struct buf params = {0};
    buf_printf(&params,
               "{\"protocolVersion\":\"%s\",\"capabilities\":%s,\"clientInfo\":{\"name\":\"postern\","
               "\"title\":\"Postern gateway\",\"version\":\"%s\"}}",
               revision_text(REVISION_LATEST), upstream->spec.capabilities, POSTERN_VERSION);
    upstream->hello = (struct upstream_request){.on_reply = on_hello, .arg = upstream, .initial = true};
    upstream_reserve(upstream, &upstream->hello);
    upstream_send(&upstream->hello, method_text(METHOD_INITIALIZE), buf_span(&params));
    buf_release(&params);
}

static const struct transport *transport_of(const struct server *server)
{
    return server->type == SERVER_STDIO ? &transport_stdio
           : server->type == SERVER_SSE ? &transport_sse
                                        : &transport_http;
}

static void open_wire(struct upstream *upstream)
{
    struct err err = {0};
    upstream->asked = true;
    upstream->login = upstream->spec.access ? access_connect(upstream->spec.access) : 0;
    if (upstream->transport->start(upstream, &err))
        say_hello(upstream);
    else
        go_down(upstream, &err);
}

static void on_access(struct access_wait *wait, const struct err *err)
{
    struct upstream *upstream = wait->arg;
    if (upstream->state != UPSTREAM_STARTING)
        return;
    if (err)
        go_down(upstream, err);
    else
        open_wire(upstream);
}

static const char *find_assertion(struct upstream *upstream, const struct identity *who)
{
    struct err err;
    const char *text = assertion_text(upstream->spec.assertion, who, (int64_t)time(NULL), &err);
    if (!text)
        log_error("cannot tell a server who calls", LOG_STR("server", upstream->server->name),
                  LOG_STR("detail", err.detail));
    return text;
}

static bool may_start(const struct upstream *upstream, struct err *err)
{
    const struct upstream_listener *listener = upstream->spec.listener;
    return !listener->may_start || listener->may_start(upstream->spec.arg, err);
}

static void begin(struct upstream *upstream)
{
    loop_timer_stop(upstream->spec.loop, &upstream->retry);
    upstream->transport = transport_of(upstream->server);  // what was found out last time may have been a passing fault
    upstream->greeted_late = upstream->asked = false;
    upstream->given_up = 0;
    set_state(upstream, UPSTREAM_STARTING);
    struct err err;
    if (!may_start(upstream, &err)) {
        upstream_lose(upstream, &err);  // not from inside upstream_start(): what follows may start others
    } else if (upstream->spec.assertion && !find_assertion(upstream, NULL)) {
        (void)err_set(&err, ERR_UNAVAILABLE, "server \"%s\" cannot be told who calls", upstream->server->name);
        go_down(upstream, &err);
    } else if (upstream->spec.access) {
        access_cancel(&upstream->ready);
        access_get(upstream->spec.access, &upstream->ready);
    } else {
        open_wire(upstream);
    }
}

void upstream_start(struct upstream *upstream)
{
    // Somebody may have logged in or made room meanwhile, and to look costs little: no back-off for that.
    if (upstream->state == UPSTREAM_DOWN || (upstream->state == UPSTREAM_BACKOFF && upstream->refusal))
        begin(upstream);
}

void upstream_restart(struct upstream *upstream)
{
    struct err err;
    if (upstream->state != UPSTREAM_READY && upstream->state != UPSTREAM_STARTING)
        return;
    (void)err_set(&err, ERR_LOGIN, "server \"%s\": what was granted there has changed", upstream->server->name);
    upstream->failures = 0;
    upstream->asked = false;  // it has not refused anything
    go_down(upstream, &err);
}

// Nothing rather than something old: the server will refuse it.
void upstream_assert(struct upstream *upstream, struct http_target *target, const struct upstream_request *request)
{
    if (upstream->spec.assertion)
        http_target_header(target, assertion_header(upstream->spec.assertion),
                           find_assertion(upstream, request ? request->who : NULL));
}

void upstream_switch(struct upstream *upstream, const struct transport *transport)
{
    struct err err = {0};
    drop_wire(upstream);
    upstream->transport = transport;
    if (!transport->start(upstream, &err))
        go_down(upstream, &err);
    else
        say_hello(upstream);
}

void upstream_on_resend(struct upstream *upstream, struct upstream_request *request)
{
    map_remove(&upstream->in_flight, map_key_u64(&request->id));
    loop_timer_stop(upstream->spec.loop, &request->timeout);
    request->transfer = NULL;
    request->resent = true;
    list_append(&upstream->waiting, &request->node);
    flush_waiting(upstream);
}

// After another login, what the server knows of this connection may be about another account.
static void begin_anew(struct upstream *upstream)
{
    struct list kept;
    list_move_all(&kept, &upstream->refused);
    upstream_restart(upstream);
    while (!list_empty(&kept)) {
        struct list *node = kept.next;
        list_remove(node);
        list_append(&upstream->waiting, node);
    }
    upstream_start(upstream);
}

// Those the server refused go out again with the new token, the handshake first.
static void on_renewed(struct access_wait *wait, const struct err *err)
{
    struct upstream *upstream = wait->arg;
    if (err) {
        struct err why = *err;
        while (!list_empty(&upstream->refused)) {
            struct upstream_request *request = list_entry(upstream->refused.next, struct upstream_request, node);
            why.code = request->widened ? ERR_LOGIN : err->code;  // the server is there, but not for this
            upstream_fail(request, &why);
        }
        return;
    }
    int64_t login = access_login(upstream->spec.access);
    if (upstream->state == UPSTREAM_READY && login != upstream->login) {
        begin_anew(upstream);
        return;
    }
    while (!list_empty(&upstream->refused)) {
        struct upstream_request *request = list_entry(upstream->refused.next, struct upstream_request, node);
        list_remove(&request->node);
        if (request->initial) {
            upstream->login = login;
            struct blob *text = blob_ref(request->text);
            map_put(&upstream->in_flight, map_key_u64(&request->id), request);
            arm(request);
            upstream->transport->send(upstream, text, request);
            blob_unref(text);
        } else {
            list_append(&upstream->waiting, &request->node);
        }
    }
    flush_waiting(upstream);
}

void upstream_on_greeted_late(struct upstream *upstream, unsigned version)
{
    upstream->greeted_late = true;
    drop_wire(upstream);
    access_renew(upstream->spec.access, version, &upstream->ready);
}

static void send_again(struct upstream *upstream, struct upstream_request *request, unsigned version)
{
    map_remove(&upstream->in_flight, map_key_u64(&request->id));
    loop_timer_stop(upstream->spec.loop, &request->timeout);
    request->transfer = NULL;
    list_append(&upstream->refused, &request->node);
    access_renew(upstream->spec.access, version, &upstream->renewal);  // also if others wait for a look at the store
}

void upstream_on_refused(struct upstream *upstream, struct upstream_request *request, unsigned version)
{
    request->renewed = true;
    send_again(upstream, request, version);
}

void upstream_on_narrow(struct upstream *upstream, struct upstream_request *request, unsigned version)
{
    request->widened = true;
    send_again(upstream, request, version);
}

void upstream_on_session_lost(struct upstream *upstream)
{
    if (upstream->state != UPSTREAM_READY)
        return;
    log_info("server forgot the session, initializing again", LOG_STR("server", upstream->server->name));
    set_state(upstream, UPSTREAM_STARTING);
    say_hello(upstream);
}

void upstream_on_request_failed(struct upstream *upstream, struct upstream_request *request, const struct err *err)
{
    (void)upstream;
    request->transfer = NULL;
    upstream_fail(request, err);
}

void upstream_pause(struct upstream *upstream) { upstream->paused = true; }

void upstream_resume(struct upstream *upstream)
{
    if (!upstream->paused)
        return;
    upstream->paused = false;
    if (upstream->wire && upstream->transport->resume)
        upstream->transport->resume(upstream);
}

// ---- life -----------------------------------------------------------------------------------

struct upstream *upstream_new(const struct upstream_spec *spec)
{
    struct upstream *upstream = mem_new(struct upstream);
    upstream->spec = *spec;
    upstream->server = spec->server;
    upstream->transport = transport_of(spec->server);
    upstream->retry = (struct loop_timer){.on_due = on_retry, .arg = upstream, .name = "server retry"};
    upstream->fail_later = (struct loop_task){.run = run_failing, .arg = upstream, .name = "failed requests"};
    upstream->lose = (struct loop_task){.run = on_lose, .arg = upstream, .name = "lost server"};
    upstream->spec.capabilities = mem_string(spec->capabilities);
    list_init(&upstream->waiting);
    list_init(&upstream->failing);
    list_init(&upstream->refused);
    upstream->ready = (struct access_wait){.on_ready = on_access, .arg = upstream};
    upstream->renewal = (struct access_wait){.on_ready = on_renewed, .arg = upstream};
    return upstream;
}

void upstream_close(struct upstream *upstream, int64_t within_ms,
                    void (*on_closed)(void *arg, struct upstream *upstream), void *arg)
{
    struct err err;
    upstream->on_closed = on_closed;
    upstream->closed_arg = arg;
    if (upstream->state == UPSTREAM_CLOSING)
        return;
    bool running = upstream->state == UPSTREAM_STARTING || upstream->state == UPSTREAM_READY;
    loop_timer_stop(upstream->spec.loop, &upstream->retry);
    (void)err_set(&err, ERR_UNAVAILABLE, "server \"%s\" is being closed", upstream->server->name);
    upstream->state = UPSTREAM_CLOSING;
    forget_access(upstream);
    if (upstream->hello.upstream)
        detach(&upstream->hello);
    struct list doomed;
    take_in_flight(upstream, &doomed);
    fail_all(&doomed, &err);
    fail_all(&upstream->waiting, &err);
    fail_all(&upstream->failing, &err);
    if (running && upstream->wire)
        upstream->transport->stop(upstream, within_ms);
    else
        upstream_on_stopped(upstream);
}

void upstream_on_stopped(struct upstream *upstream)
{
    if (upstream->state == UPSTREAM_CLOSING && upstream->on_closed)
        upstream->on_closed(upstream->closed_arg, upstream);
}

void upstream_free(struct upstream *upstream)
{
    if (!upstream)
        return;
    if (upstream->hello.upstream)
        detach(&upstream->hello);
    loop_timer_stop(upstream->spec.loop, &upstream->retry);
    loop_task_drop(&upstream->fail_later);
    loop_task_drop(&upstream->lose);
    if (upstream->wire)
        upstream->transport->release(upstream);
    map_release(&upstream->in_flight);
    buf_release(&upstream->instructions);
    buf_release(&upstream->info);
    buf_release(&upstream->declared);
    for (size_t i = 0; i < STDERR_LINES; i++)
        free(upstream->tail[i]);
    free((char *)(uintptr_t)upstream->spec.capabilities);
    free(upstream);
}

enum upstream_state upstream_state(const struct upstream *upstream) { return upstream->state; }
const struct server *upstream_server(const struct upstream *upstream) { return upstream->server; }
const struct upstream_abilities *upstream_abilities(const struct upstream *upstream) { return &upstream->abilities; }
struct span upstream_instructions(const struct upstream *upstream) { return buf_span(&upstream->instructions); }
struct span upstream_declared(const struct upstream *upstream) { return buf_span(&upstream->declared); }
struct span upstream_info(const struct upstream *upstream) { return buf_span(&upstream->info); }
enum revision upstream_revision(const struct upstream *upstream) { return upstream->revision; }
const char *upstream_problem(const struct upstream *upstream) { return upstream->problem; }
bool upstream_needs_login(const struct upstream *upstream) { return upstream->refusal == ERR_LOGIN; }
enum err_code upstream_refusal(const struct upstream *upstream) { return upstream->refusal; }
int64_t upstream_pause_left(const struct upstream *upstream)
{
    int64_t left = upstream->retry.due_ms - loop_now(upstream->spec.loop);
    return upstream->state == UPSTREAM_BACKOFF && upstream->put_off && left > 0 ? left : 0;
}
void *upstream_arg(const struct upstream *upstream) { return upstream->spec.arg; }
