// Owns the life cycle of one connection to a server: state, handshake, requests in flight, back-off.
//
//         request, timer or start             handshake done
//   DOWN ───────────────────► STARTING ──────────────────────► READY ── upstream_rest ──► RESTING ──► DOWN
//    ▲                          │    ▲                          │ │
//    │                  failure │    │ timer           lost (2) │ │ lost (1)
//    │                          ▼    │                          │ │
//    │                        BACKOFF ◄─────────────────────────┘ │
//    └────────────────────────────────────────────────────────────┘
//
//   any ── upstream_close ──► CLOSING ──► (on_closed)
//
//   (1) it has answered since it was started, or `failures` is 0: the next request starts it at once
//   (2) otherwise: requests wait for the timer, unless the start lacked only a login or a process slot
//
// `failures` counts failed starts, and lives that ended before a request was answered; the first answer clears it. While it is
// below CIRCUIT_AFTER, a request that finds the server in BACKOFF waits for the next start. From there on the circuit is open:
// requests fail at once, until a start that the timer makes succeeds. Guarded by tests/unit/upstream/recovery_test.c.
//
// READY also leads to STARTING when the server no longer knows the session. set_state() is the only function that changes the state,
// and checks the transition. Requests have states of their own: request.c.
#include "upstream.h"
#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/secret.h"
#include "handshake.h"
#include "liveness.h"
#include "renewal.h"
#include "request.h"
#include "transport.h"
#include <ctype.h>
#include <stdlib.h>

#define BACKOFF_FIRST_MS 500
#define BACKOFF_MAX_MS 30000
#define ASKED_MAX_MS 300000  // the longest pause that a server may ask for
#define LAST_LINES 5         // of stderr, in the error of a request
#define LAST_BYTES 300

static void begin(struct upstream *upstream);

#define TO(state) (1U << UPSTREAM_##state)

static const unsigned allowed[] = {
    [UPSTREAM_DOWN] = TO(STARTING) | TO(CLOSING),
    [UPSTREAM_STARTING] = TO(READY) | TO(BACKOFF) | TO(CLOSING),
    [UPSTREAM_READY] = TO(STARTING) | TO(DOWN) | TO(BACKOFF) | TO(RESTING) | TO(CLOSING),
    [UPSTREAM_RESTING] = TO(DOWN) | TO(CLOSING),
    [UPSTREAM_BACKOFF] = TO(STARTING) | TO(CLOSING),
    [UPSTREAM_CLOSING] = 0,
};

// A start has succeeded. If this life ends without an answer too, the circuit opens again.
static void close_circuit(struct upstream *upstream)
{
    if (upstream->failures < UPSTREAM_CIRCUIT_AFTER)
        return;
    upstream->failures = UPSTREAM_CIRCUIT_AFTER - 1;
    log_info("circuit closed", LOG_STR("server", upstream->server->name));
}

static void set_state(struct upstream *upstream, enum upstream_state state)
{
    CHECK(allowed[upstream->state] & (1U << state));
    upstream->state = state;
    if (state == UPSTREAM_READY) {
        upstream->ready_since_ms = loop_now(upstream->spec.loop);
        close_circuit(upstream);
        upstream->problem[0] = '\0';
        upstream->refusal = ERR_NONE;
    }
    if (state != UPSTREAM_CLOSING)
        upstream->spec.listener->on_state(upstream->spec.arg, upstream);
}

// ---- starting, failing, retrying ------------------------------------------------------------

static void forget_access(struct upstream *upstream)
{
    access_cancel(&upstream->ready);
    access_cancel(&upstream->renewal);
}

static void drop_wire(struct upstream *upstream)
{
    upstream_request_drop(&upstream->hello);
    upstream->transport->release(upstream);
    upstream->wire = NULL;
    upstream->losing = false;
    loop_task_drop(&upstream->lose);
}

// The upper half is random, so that servers that were lost together are not started together.
static int64_t spread(int64_t pause_ms)
{
    uint32_t draw;
    secret_random(&draw, sizeof draw);
    return pause_ms / 2 + draw % (pause_ms / 2 + 1);
}

// How long to wait after so many failures in a row, or as long as the server has asked for, before it is started again.
static int64_t find_pause(unsigned failures, int64_t asked_ms)
{
    int64_t pause = BACKOFF_FIRST_MS;
    for (unsigned i = 1; i < failures && pause < BACKOFF_MAX_MS; i++)
        pause *= 2;
    pause = spread(pause < BACKOFF_MAX_MS ? pause : BACKOFF_MAX_MS);
    if (asked_ms > pause)
        pause = asked_ms < ASKED_MAX_MS ? asked_ms : ASKED_MAX_MS;
    return pause;
}

// Keeps the reason for upstream_problem(). A repeated failure is logged at level debug only.
static void note_problem(struct upstream *upstream, const struct err *err)
{
    bool was_ready = upstream->state == UPSTREAM_READY;
    bool again = !was_ready && upstream->refusal == err->code && strcmp(upstream->problem, err->detail) == 0;
    memcpy(upstream->problem, err->detail, sizeof upstream->problem);
    upstream->refusal = err->code == ERR_LOGIN || err->code == ERR_PROCESSES ? err->code : ERR_NONE;
    log_at(again ? LOG_DEBUG : LOG_WARN, was_ready ? "server lost" : "server did not start",
           LOG_STR("server", upstream->server->name), LOG_STR("detail", err->detail));
}

// `keep_waiting`: those that wait were taken back from the lost connection, and are sent to the next one.
static void fail_requests(struct upstream *upstream, enum upstream_state state, const struct err *err,
                          bool keep_waiting)
{
    struct list sent, unsent;
    struct err unavailable = *err;
    if (!upstream->refusal)
        unavailable.code = ERR_UNAVAILABLE;
    list_init(&unsent);
    upstream_request_doom_sent(upstream, &sent);
    if (!keep_waiting)
        upstream_request_doom_waiting(upstream, &unsent);
    set_state(upstream, state);
    upstream_request_fail_all(&sent, err);
    upstream_request_fail_all(&unsent, &unavailable);
}

static void count_loss(struct upstream *upstream)
{
    upstream->losses++;
    if (upstream->answered || upstream->refusal)
        return;
    upstream->failures++;
    if (upstream->failures == UPSTREAM_CIRCUIT_AFTER)
        log_warn("circuit opened", LOG_STR("server", upstream->server->name), LOG_INT("failures", upstream->failures));
}

static void go_down(struct upstream *upstream, const struct err *err)
{
    bool was_ready = upstream->state == UPSTREAM_READY;
    if (upstream->state == UPSTREAM_CLOSING || upstream->state == UPSTREAM_RESTING)
        return;
    note_problem(upstream, err);
    forget_access(upstream);
    if (err->code == ERR_LOGIN && upstream->asked && upstream->spec.access)
        access_hold_back(upstream->spec.access);
    drop_wire(upstream);
    // A server that has answered is started again by the next request; a server that failed has to wait.
    bool at_once = was_ready && (upstream->answered || !upstream->failures);
    count_loss(upstream);
    int64_t pause =
        find_pause(at_once || upstream->refusal ? upstream->losses : upstream->failures, err->retry_after_ms);
    upstream->put_off = err->retry_after_ms > 0;
    loop_timer_set(upstream->spec.loop, &upstream->retry, pause);
    bool soon = !upstream->refusal && !upstream->put_off && !upstream_circuit_open(upstream);
    struct err why = *err;
    why.retry_after_ms = upstream->put_off || upstream_circuit_open(upstream) ? pause : 0;
    fail_requests(upstream, at_once ? UPSTREAM_DOWN : UPSTREAM_BACKOFF, &why, was_ready && soon);
    if (!list_empty(&upstream->waiting))
        upstream_start(upstream);
}

static void run_failing(struct loop_task *task)
{
    struct upstream *upstream = task->arg;
    struct err err;
    if (upstream->refusal)
        (void)err_set(&err, upstream->refusal, "%s", upstream->problem);
    else if (upstream_circuit_open(upstream))
        (void)err_set(&err, ERR_UNAVAILABLE,
                      "server \"%s\": circuit open after %u failures in a row, the next start is in %lld ms: %s",
                      upstream->server->name, upstream->failures, (long long)upstream_pause_left(upstream),
                      upstream->problem);
    else
        (void)err_set(&err, ERR_UNAVAILABLE, "server \"%s\" is not available: %s", upstream->server->name,
                      *upstream->problem ? upstream->problem : "it is being closed");
    err.retry_after_ms = upstream_pause_left(upstream);
    upstream_request_fail_all(&upstream->failing, &err);
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

static void on_ready(struct upstream *upstream)
{
    if (upstream->state != UPSTREAM_STARTING)
        return;
    log_info("server ready", LOG_STR("server", upstream->server->name), LOG_STR("transport", upstream->transport->name),
             LOG_STR("revision", revision_text(upstream->revision)));
    set_state(upstream, UPSTREAM_READY);
    upstream_request_flush(upstream);
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
        handshake_start(upstream);
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

static bool may_start(const struct upstream *upstream, struct err *err)
{
    const struct upstream_listener *listener = upstream->spec.listener;
    return !listener->may_start || listener->may_start(upstream->spec.arg, err);
}

static void begin(struct upstream *upstream)
{
    loop_timer_stop(upstream->spec.loop, &upstream->retry);
    upstream->transport =
        transport_of(upstream->server);  // the last fallback to HTTP+SSE may be due to a temporary fault
    upstream->greeted_late = upstream->asked = upstream->answered = false;
    upstream->given_up = 0;
    upstream->timed_out_ms = 0;
    set_state(upstream, UPSTREAM_STARTING);
    struct err err;
    if (!may_start(upstream, &err)) {
        transport_lose(upstream, &err);  // at the end of the turn, because a failed request may start other servers
    } else if (upstream->spec.assertion && !transport_assertion(upstream, NULL)) {
        (void)err_set(&err, ERR_UNAVAILABLE, "server \"%s\": cannot sign the identity assertion",
                      upstream->server->name);
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
    // A missing login or process slot has no back-off: either may be available now, and checking is cheap.
    if (upstream->state == UPSTREAM_DOWN || (upstream->state == UPSTREAM_BACKOFF && upstream->refusal))
        begin(upstream);
    upstream->wake |= upstream->state == UPSTREAM_RESTING;
}

void upstream_rest(struct upstream *upstream, int64_t within_ms)
{
    if (upstream->state != UPSTREAM_READY || upstream->losing || upstream_in_use(upstream))
        return;
    forget_access(upstream);
    upstream_request_drop(&upstream->ping);
    upstream->failures = 0;
    upstream->wake = false;
    set_state(upstream, UPSTREAM_RESTING);
    upstream->transport->stop(upstream, within_ms);
}

void upstream_restart(struct upstream *upstream)
{
    struct err err;
    if (upstream->state != UPSTREAM_READY && upstream->state != UPSTREAM_STARTING)
        return;
    (void)err_set(&err, ERR_LOGIN, "server \"%s\": the grant has changed", upstream->server->name);
    upstream->failures = upstream->losses = 0;
    upstream->asked = false;  // the server did not refuse a token, so access is not held back
    go_down(upstream, &err);
}

static void on_not_streamable(struct upstream *upstream)
{
    struct err err = {0};
    drop_wire(upstream);
    upstream->transport = &transport_sse;
    if (transport_sse.start(upstream, &err))
        handshake_start(upstream);
    else
        go_down(upstream, &err);
}

// After another login the state of this session at the server may belong to another account.
static void on_other_login(struct upstream *upstream)
{
    struct list kept;
    list_move_all(&kept, &upstream->refused);
    upstream_restart(upstream);
    while (!list_empty(&kept))
        upstream_request_await_ready(list_entry(kept.next, struct upstream_request, node));
    upstream_start(upstream);
}

static void on_greeted_late(struct upstream *upstream, unsigned version)
{
    upstream->greeted_late = true;
    drop_wire(upstream);
    access_renew(upstream->spec.access, version, &upstream->ready);
}

static void on_session_lost(struct upstream *upstream)
{
    if (upstream->state != UPSTREAM_READY)
        return;
    log_info("session no longer valid at the server, initializing again", LOG_STR("server", upstream->server->name));
    upstream->answered = false;
    set_state(upstream, UPSTREAM_STARTING);
    handshake_start(upstream);
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

static void on_stopped(struct upstream *upstream)
{
    if (upstream->state == UPSTREAM_RESTING) {
        drop_wire(upstream);
        set_state(upstream, UPSTREAM_DOWN);
        if (upstream->wake && upstream->state == UPSTREAM_DOWN)
            begin(upstream);
    } else if (upstream->state == UPSTREAM_CLOSING && upstream->on_closed) {
        upstream->on_closed(upstream->closed_arg, upstream);
    }
}

static const struct upstream_events events = {
    .on_needed = upstream_start,
    .on_ready = on_ready,
    .on_lost = go_down,
    .on_stopped = on_stopped,
    .on_session_lost = on_session_lost,
    .on_not_streamable = on_not_streamable,
    .on_greeted_late = on_greeted_late,
    .on_idle = liveness_on_idle,
    .on_timeout = liveness_on_timeout,
    .on_other_login = on_other_login,
};

// ---- life -----------------------------------------------------------------------------------

struct upstream *upstream_new(const struct upstream_spec *spec)
{
    struct upstream *upstream = mem_new(struct upstream);
    upstream->spec = *spec;
    upstream->server = spec->server;
    upstream->events = &events;
    upstream->transport = transport_of(spec->server);
    upstream->retry = (struct loop_timer){.on_due = on_retry, .arg = upstream, .name = "server retry"};
    upstream->fail_later = (struct loop_task){.run = run_failing, .arg = upstream, .name = "failed requests"};
    upstream->lose = (struct loop_task){.run = on_lose, .arg = upstream, .name = "lost server"};
    upstream->spec.capabilities = mem_string(spec->capabilities);
    list_init(&upstream->waiting);
    list_init(&upstream->failing);
    list_init(&upstream->refused);
    upstream->ready = (struct access_wait){.on_ready = on_access, .arg = upstream};
    upstream->renewal = (struct access_wait){.on_ready = renewal_on_token, .arg = upstream};
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
    bool ending = upstream->state == UPSTREAM_RESTING;
    loop_timer_stop(upstream->spec.loop, &upstream->retry);
    (void)err_set(&err, ERR_UNAVAILABLE, "server \"%s\" is being closed", upstream->server->name);
    set_state(upstream, UPSTREAM_CLOSING);
    forget_access(upstream);
    upstream_request_drop(&upstream->hello);
    struct list doomed;
    upstream_request_doom_sent(upstream, &doomed);
    upstream_request_fail_all(&doomed, &err);
    upstream_request_fail_all(&upstream->waiting, &err);
    upstream_request_fail_all(&upstream->failing, &err);
    if (running && upstream->wire)
        upstream->transport->stop(upstream, within_ms);
    else if (!ending)
        on_stopped(upstream);
}

void upstream_free(struct upstream *upstream)
{
    if (!upstream)
        return;
    upstream_request_drop(&upstream->hello);
    upstream_request_drop(&upstream->ping);
    loop_timer_stop(upstream->spec.loop, &upstream->retry);
    loop_task_drop(&upstream->fail_later);
    loop_task_drop(&upstream->lose);
    if (upstream->wire)
        upstream->transport->release(upstream);
    map_release(&upstream->in_flight);
    buf_release(&upstream->instructions);
    buf_release(&upstream->declared);
    buf_release(&upstream->greeting);
    stderr_tail_release(&upstream->tail);
    free((char *)(uintptr_t)upstream->spec.capabilities);
    free(upstream);
}

bool upstream_in_use(const struct upstream *upstream)
{
    bool ping = upstream->ping.state == UPSTREAM_REQUEST_SENT;
    return upstream->in_flight.count > ping || !list_empty(&upstream->waiting) || !list_empty(&upstream->refused) ||
           !list_empty(&upstream->failing);
}

enum upstream_state upstream_state(const struct upstream *upstream) { return upstream->state; }
const struct server *upstream_server(const struct upstream *upstream) { return upstream->server; }
const struct upstream_abilities *upstream_abilities(const struct upstream *upstream) { return &upstream->abilities; }
struct span upstream_instructions(const struct upstream *upstream) { return buf_span(&upstream->instructions); }
struct span upstream_declared(const struct upstream *upstream) { return buf_span(&upstream->declared); }
struct span upstream_greeting(const struct upstream *upstream) { return buf_span(&upstream->greeting); }
bool upstream_restore(struct upstream *upstream, struct span greeting) { return handshake_restore(upstream, greeting); }
enum revision upstream_revision(const struct upstream *upstream) { return upstream->revision; }
const char *upstream_problem(const struct upstream *upstream) { return upstream->problem; }
int64_t upstream_login(const struct upstream *upstream) { return upstream->login; }
bool upstream_needs_login(const struct upstream *upstream) { return upstream->refusal == ERR_LOGIN; }
enum err_code upstream_refusal(const struct upstream *upstream) { return upstream->refusal; }
int64_t upstream_pause_left(const struct upstream *upstream)
{
    int64_t left = upstream->retry.due_ms - loop_now(upstream->spec.loop);
    bool told = upstream->put_off || upstream_circuit_open(upstream);
    return upstream->state == UPSTREAM_BACKOFF && told && left > 0 ? left : 0;
}
bool upstream_circuit_open(const struct upstream *upstream) { return upstream->failures >= UPSTREAM_CIRCUIT_AFTER; }

void upstream_add_stderr(const struct upstream *upstream, struct err *err)
{
    struct buf lines = {0}, detail = {0};
    struct err whole;
    struct span last = stderr_tail_last(&upstream->tail, LAST_LINES);
    for (size_t i = 0; i < last.len; i++)
        if (last.at[i] == '\n')
            buf_put_text(&lines, " | ");
        else
            buf_put_char(&lines, (char)(iscntrl((unsigned char)last.at[i]) ? ' ' : last.at[i]));
    size_t cut = lines.len > LAST_BYTES ? lines.len - LAST_BYTES : 0;
    buf_printf(&detail, "%s%s%.*s", err->detail, lines.len ? "; its last lines on stderr: " : "",
               SPAN_ARG(span_after(buf_span(&lines), cut)));
    (void)err_set(&whole, err->code, "%s", buf_text(&detail));
    memcpy(err->detail, whole.detail, sizeof err->detail);
    buf_release(&lines);
    buf_release(&detail);
}

void upstream_put_stderr(const struct upstream *upstream, size_t max, struct buf *out)
{
    buf_put_span(out, stderr_tail_last(&upstream->tail, max));
}

struct span upstream_stderr(const struct upstream *upstream) { return stderr_tail_all(&upstream->tail); }

long upstream_pid(const struct upstream *upstream) { return transport_stdio_pid(upstream); }

int64_t upstream_ready_ms(const struct upstream *upstream)
{
    return upstream->state == UPSTREAM_READY ? loop_now(upstream->spec.loop) - upstream->ready_since_ms : 0;
}
