// Owns the stdio transport: a child process, its pipes, framing, and the tail of its stderr.
//
// Writing is batched: messages are queued in the outbox, which is written at the end of the turn. Messages that the server does not
// read stay there. A request of which nothing is written yet is removed if it may no longer be sent.
//
// Reading is done in slices, one each turn, so that a busy server does not delay the others. The rest waits in `frame`, and the
// next read follows when all of it was delivered. While the upstream is paused nothing is delivered.
#include "base/log.h"
#include "base/mem.h"
#include "base/secret.h"
#include "intake.h"
#include "loop/child.h"
#include "mcp/frame.h"
#include "outbox.h"
#include "receive.h"
#include "request.h"
#include "transport.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define READ_SIZE ((size_t)64 << 10)
#define READS_A_TURN 2  // so that a busy server does not delay the others
#define STDERR_READS_A_TURN 4
#define LAST_READS 32    // more than the capacity of any pipe
#define SLICE 1024       // units of work in one turn
#define SLICE_MESSAGE 8  // units for a message; any other line takes 1
#define HALF_CLOSED_MS 1500
#define STDERR_LINE_MAX 512
#define STDERR_LINES_LOGGED 50
#define STDERR_LAST_READS 50
#define OUT_SLACK ((size_t)1 << 20)

struct stdio_wire {
    struct upstream *upstream;
    struct child *child;
    struct loop_watch in, out, errors;
    struct loop_task flush, more;
    struct frame frame;
    struct outbox outbox;
    struct intake intake;
    struct buf error_line;
    struct parsing *parsing;  // the large message that is being parsed; reading waits for it. NULL: none
    bool counted;             // write with Content-Length
    bool stopping;
    char *exit;      // how the process ended, reported after its last messages were delivered; NULL: it runs
    int last_reads;  // reads still allowed after the exit, because a grandchild with the pipe could write for ever
};

static void wire_free(void *object)
{
    struct stdio_wire *wire = object;
    frame_release(&wire->frame);
    outbox_release(&wire->outbox);
    buf_release(&wire->error_line);
    free(wire->exit);
    child_free(wire->child);
    free(wire);
}

// Requests of which nothing was written to the server wait for its next start.
static void take_back_unsent(struct stdio_wire *wire)
{
    const struct map *in_flight = &wire->upstream->in_flight;
    for (size_t i = 0; i < wire->outbox.count; i++) {
        uint64_t id = outbox_unsent(&wire->outbox, i);
        struct upstream_request *request = id ? map_find(in_flight, map_key_u64(&id)) : NULL;
        if (request)
            (void)upstream_request_take_back(request, outbox_text(&wire->outbox, i));
    }
}

static void wire_detach(struct stdio_wire *wire)
{
    struct loop *loop = wire->upstream->spec.loop;
    take_back_unsent(wire);
    loop_unwatch(loop, &wire->in);
    loop_unwatch(loop, &wire->out);
    loop_unwatch(loop, &wire->errors);
    loop_task_drop(&wire->flush);
    loop_task_drop(&wire->more);
    parsing_drop(wire->parsing);
    wire->parsing = NULL;
    intake_close(&wire->intake);
    upstream_request_start_clock(wire->upstream, NULL);
}

static void stdio_release(struct upstream *upstream)
{
    struct stdio_wire *wire = upstream->wire;
    if (!wire)
        return;
    wire_detach(wire);
    upstream->wire = NULL;
    loop_reap(upstream->spec.loop, wire, wire_free);
}

// ---- stderr ---------------------------------------------------------------------------------

static void tail_add(struct stdio_wire *wire, struct span line)
{
    stderr_tail_add(&wire->upstream->tail, line);
    log_debug("server stderr", LOG_STR("server", wire->upstream->server->name), LOG_SPAN("line", line));
}

static void read_errors(struct stdio_wire *wire)
{
    char block[4096];
    ssize_t got = -1;
    for (int turn = 0; turn < STDERR_READS_A_TURN && (got = read(wire->errors.fd, block, sizeof block)) > 0; turn++) {
        transport_note_byte(wire->upstream);
        for (ssize_t i = 0; i < got; i++) {
            if (block[i] != '\n' && wire->error_line.len < STDERR_LINE_MAX)
                buf_put_char(&wire->error_line, block[i]);
            if (block[i] == '\n') {
                tail_add(wire, buf_span(&wire->error_line));
                buf_clear(&wire->error_line);
            }
        }
    }
    if (got == 0)
        loop_unwatch(wire->upstream->spec.loop, &wire->errors);
}

static void on_errors(struct loop_watch *watch, unsigned events)
{
    (void)events;
    read_errors(watch->arg);
}

static void log_tail(struct stdio_wire *wire)
{
    if (wire->error_line.len)
        tail_add(wire, buf_span(&wire->error_line));
    struct span text = stderr_tail_last(&wire->upstream->tail, STDERR_LINES_LOGGED);
    if (text.len)
        log_warn("last lines of the server's stderr", LOG_STR("server", wire->upstream->server->name),
                 LOG_SPAN("stderr", text));
}

// ---- reading --------------------------------------------------------------------------------

static void on_junk(const struct stdio_wire *wire, enum frame_status status, struct span line)
{
    if (status == FRAME_JUNK)
        log_warn("server wrote a line that is not a message", LOG_STR("server", wire->upstream->server->name),
                 LOG_SPAN("line", span_make(line.at, line.len > 200 ? 200 : line.len)));
    else
        receive_dropped(wire->upstream, line, status == FRAME_NO_MEMORY, NULL);
}

static void on_parsed(void *arg, struct parsing *parsing);

// True while no message may be delivered.
static bool is_held(const struct stdio_wire *wire)
{
    return wire->upstream->paused || wire->parsing || (intake_waits(&wire->intake) && !wire->stopping);
}

static void take_message(struct stdio_wire *wire, struct span text)
{
    struct upstream *upstream = wire->upstream;
    if (wire->frame.content_length && upstream->server->framing == SERVER_FRAMING_AUTO)
        wire->counted = true;
    if (text.len <= MESSAGE_LARGE) {
        intake_deliver(&wire->intake, text, NULL, NULL);
        return;
    }
    struct blob *owner = frame_take(&wire->frame);
    intake_hand_over(&wire->intake, owner);
    loop_unwatch(upstream->spec.loop, &wire->in);
    wire->parsing = parsing_start(upstream, owner, text, on_parsed, wire);
}

// Delivers the messages that were read, within the rest of a slice (`left`). False: some have to wait, or the wire was freed.
static bool hand_on(struct stdio_wire *wire, int *left)
{
    struct upstream *upstream = wire->upstream;
    struct span text;
    while (upstream->wire == wire && !is_held(wire) && *left > 0) {
        enum frame_status status = frame_next(&wire->frame, &text);
        if (status == FRAME_MORE) {
            intake_keep(&wire->intake, wire->frame.in.len - wire->frame.start);  // skipped lines no longer count
            return true;
        }
        *left -= status == FRAME_MESSAGE ? SLICE_MESSAGE : 1;
        if (status != FRAME_MESSAGE) {
            on_junk(wire, status, text);
            continue;
        }
        take_message(wire, text);
        if (upstream->wire == wire)
            intake_keep(&wire->intake, wire->frame.in.len - wire->frame.start);
    }
    return false;
}

// The server closed one of its pipes, so it is terminated. Its exit is then reported as the loss of the server.
static void half_closed(struct stdio_wire *wire)
{
    if (!wire->stopping)
        child_end(wire->child, HALF_CLOSED_MS);
}

// While the budget is exhausted, nothing is read or delivered.
static bool find_room(struct stdio_wire *wire)
{
    if (intake_cover(&wire->intake, wire->frame.in.len - wire->frame.start))
        return true;
    loop_unwatch(wire->upstream->spec.loop, &wire->in);
    upstream_request_stop_clock(wire->upstream, NULL);
    return false;
}

// True when there may be more to read.
static bool read_once(struct stdio_wire *wire)
{
    size_t room;
    char *at = frame_room(&wire->frame, READ_SIZE, &room);
    ssize_t got = read(wire->in.fd, at, room);
    if (got <= 0) {
        if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
            loop_unwatch(wire->upstream->spec.loop, &wire->in);
            half_closed(wire);
        }
        return false;
    }
    transport_note_byte(wire->upstream);
    frame_fed(&wire->frame, (size_t)got);
    return find_room(wire) && (size_t)got == room;
}

static void on_gone(struct stdio_wire *wire);

// Reads and delivers a slice of the server's output.
static void read_slice(struct stdio_wire *wire)
{
    struct upstream *upstream = wire->upstream;
    int left = SLICE;
    bool more = true;
    for (int reads = READS_A_TURN; hand_on(wire, &left) && more && reads; reads--)
        more = wire->in.added && (!wire->exit || wire->last_reads-- > 0) && read_once(wire);
    if (upstream->wire != wire || is_held(wire))
        return;
    if (wire->exit && !more && left > 0)
        on_gone(wire);
    else if (wire->exit || left <= 0)
        loop_task_put_later(upstream->spec.loop, &wire->more);
}

static void on_more(struct loop_task *task) { read_slice(task->arg); }

static void on_readable(struct loop_watch *watch, unsigned events)
{
    (void)events;
    struct stdio_wire *wire = watch->arg;
    if (!is_held(wire) && !list_linked(&wire->more.node))
        read_slice(wire);
}

static void stdio_resume(struct upstream *upstream)
{
    struct stdio_wire *wire = upstream->wire;
    loop_task_put(upstream->spec.loop, &wire->more);
}

static void go_on(struct stdio_wire *wire)
{
    struct upstream *upstream = wire->upstream;
    struct err err;
    if (!loop_watch(upstream->spec.loop, &wire->in, LOOP_READ, &err)) {
        log_error("cannot read from a server", LOG_STR("detail", err.detail));
        half_closed(wire);
    }
    loop_task_put(upstream->spec.loop, &wire->more);
}

// Continues with the messages behind a large one.
static void on_parsed(void *arg, struct parsing *parsing)
{
    struct stdio_wire *wire = arg;
    struct upstream *upstream = wire->upstream;
    wire->parsing = NULL;
    receive_parsed(upstream, parsing, NULL);
    if (upstream->wire == wire)
        go_on(wire);
}

static void on_room(void *arg)
{
    struct stdio_wire *wire = arg;
    upstream_request_start_clock(wire->upstream, NULL);
    go_on(wire);
}

// ---- writing --------------------------------------------------------------------------------

// Removes one request that was cancelled or may no longer be sent. False: nothing was removed.
static bool take_back_one(struct stdio_wire *wire)
{
    struct upstream *upstream = wire->upstream;
    for (size_t i = 0; i < wire->outbox.count; i++) {
        struct err err;
        uint64_t id = outbox_unsent(&wire->outbox, i);
        struct upstream_request *request = id ? map_find(&upstream->in_flight, map_key_u64(&id)) : NULL;
        if (!id || (request && upstream_request_may_send(request, &err)))
            continue;
        outbox_drop(&wire->outbox, i);
        if (request)
            upstream_request_fail(request, &err);
        return true;
    }
    return false;
}

static void flush(struct stdio_wire *wire)
{
    struct err err;
    int fd = child_stdin(wire->child);
    enum outbox_status status = fd >= 0 ? outbox_write(&wire->outbox, fd) : OUTBOX_EMPTY;
    if (status == OUTBOX_MORE) {
        if (!loop_watch(wire->upstream->spec.loop, &wire->out, LOOP_WRITE, &err))
            log_error("cannot watch a server's stdin", LOG_STR("detail", err.detail));
        return;
    }
    loop_unwatch(wire->upstream->spec.loop, &wire->out);
    if (status == OUTBOX_BROKEN)
        half_closed(wire);
    if (status == OUTBOX_BROKEN || fd < 0) {
        take_back_unsent(wire);
        outbox_release(&wire->outbox);
    }
}

static void flush_allowed(struct stdio_wire *wire)
{
    struct upstream *upstream = wire->upstream;
    while (upstream->wire == wire && take_back_one(wire))
        ;
    if (upstream->wire == wire)
        flush(wire);
}

static void on_flush(struct loop_task *task) { flush_allowed(task->arg); }

// The pipe was full, and has been read from.
static void on_writable(struct loop_watch *watch, unsigned events)
{
    (void)events;
    struct stdio_wire *wire = watch->arg;
    transport_note_byte(wire->upstream);
    flush_allowed(wire);
}

static void stdio_send(struct upstream *upstream, struct blob *message, struct upstream_request *request)
{
    struct stdio_wire *wire = upstream->wire;
    if (!wire || wire->stopping)
        return;
    if (wire->outbox.bytes > upstream->spec.max_message + OUT_SLACK) {
        log_warn("server does not read its input", LOG_STR("server", upstream->server->name));
        if (request)
            upstream_request_fail_later(request);
        return;
    }
    outbox_put(&wire->outbox, message, request ? request->id : 0, wire->counted);
    loop_task_put(upstream->spec.loop, &wire->flush);
}

// ---- life -----------------------------------------------------------------------------------

static void on_started(void *arg)
{
    const struct stdio_wire *wire = arg;
    const struct server *server = wire->upstream->server;
    log_info("server started", LOG_STR("server", server->name), LOG_INT("pid", child_pid(wire->child)),
             LOG_STR("command", server->command));
}

static void on_gone(struct stdio_wire *wire)
{
    struct upstream *upstream = wire->upstream;
    for (int i = 0; i < STDERR_LAST_READS && wire->errors.added; i++)
        read_errors(wire);
    if (wire->stopping) {
        log_info("server ended", LOG_STR("server", upstream->server->name), LOG_STR("how", wire->exit));
        stdio_release(upstream);
        upstream->events->on_stopped(upstream);
        return;
    }
    struct err err;
    if (child_started(wire->child))
        (void)err_set(&err, ERR_UPSTREAM_DIED, "server \"%s\" ended: %s", upstream->server->name, wire->exit);
    else
        (void)err_set(&err, ERR_UNAVAILABLE, "%s", wire->exit);
    log_tail(wire);
    upstream->events->on_lost(upstream, &err);
}

static void on_exit_told(void *arg, const char *how)
{
    struct stdio_wire *wire = arg;
    wire->exit = mem_string(how);
    wire->last_reads = LAST_READS;
    loop_task_drop(&wire->more);
    if (!is_held(wire))
        read_slice(wire);
}

// Values are secrets: growing the buffer would leave copies.
static char *make_variable(const char *name, const char *value)
{
    struct buf pair = {0};
    buf_reserve(&pair, strlen(name) + strlen(value) + 2);
    buf_put_text(&pair, name);
    buf_put_char(&pair, '=');
    buf_put_text(&pair, value);
    return buf_take(&pair, NULL);
}

static bool is_given(const struct server *server, const char *name)
{
    for (size_t i = 0; i < server->env.count; i++)
        if (strcmp(server->env.at[i].name, name) == 0)
            return true;
    return false;
}

static const char **make_env(const struct server *server)
{
    size_t count = server->env.count;
    for (char *const *name = server->inherit_env; name && *name; name++)
        count++;
    const char **env = mem_alloc((count + 1) * sizeof *env);
    for (count = 0; count < server->env.count; count++)
        env[count] = make_variable(server->env.at[count].name, server->env.at[count].value);
    for (char *const *name = server->inherit_env; name && *name; name++) {
        const char *value = getenv(*name);
        if (value && !is_given(server, *name))
            env[count++] = make_variable(*name, value);
    }
    return env;
}

static void free_env(const char **env)
{
    for (size_t i = 0; env[i]; i++) {
        char *pair = (char *)(uintptr_t)env[i];
        secret_wipe(pair, strlen(pair));
        free(pair);
    }
    free(env);
}

static bool stdio_start(struct upstream *upstream, struct err *err)
{
    const struct server *server = upstream->server;
    struct stdio_wire *wire = mem_new(struct stdio_wire);
    const char **env = make_env(server);
    struct child_spec spec = {server->command, server->args, env, server->cwd, on_started};
    wire->upstream = upstream;
    wire->child = child_start(upstream->spec.loop, &spec, on_exit_told, wire, err);
    free_env(env);
    if (!wire->child) {
        free(wire);
        return false;
    }
    upstream->wire = wire;
    stderr_tail_begin(&upstream->tail);
    wire->counted = server->framing == SERVER_FRAMING_CONTENT_LENGTH;
    wire->flush = (struct loop_task){.run = on_flush, .arg = wire, .name = "server stdin"};
    wire->more = (struct loop_task){.run = on_more, .arg = wire, .name = "server stdout"};
    frame_init(&wire->frame, upstream->spec.max_message);
    intake_open(&wire->intake, upstream, upstream->spec.memory, on_room, wire);
    wire->in = (struct loop_watch){
        .fd = child_stdout(wire->child), .on_ready = on_readable, .arg = wire, .name = "server stdout"};
    wire->out = (struct loop_watch){
        .fd = child_stdin(wire->child), .on_ready = on_writable, .arg = wire, .name = "server stdin"};
    wire->errors = (struct loop_watch){
        .fd = child_stderr(wire->child), .on_ready = on_errors, .arg = wire, .name = "server stderr"};
    return loop_watch(upstream->spec.loop, &wire->in, LOOP_READ, err) &&
           loop_watch(upstream->spec.loop, &wire->errors, LOOP_READ, err);
}

static void stdio_stop(struct upstream *upstream, int64_t within_ms)
{
    struct stdio_wire *wire = upstream->wire;
    wire->stopping = true;
    flush(wire);
    loop_unwatch(upstream->spec.loop, &wire->out);
    child_end(wire->child, within_ms);
}

static void stdio_greet(struct upstream *upstream, struct blob *initialized)
{
    stdio_send(upstream, initialized, NULL);
    upstream->events->on_ready(upstream);
}

static void stdio_forget(struct upstream *upstream, struct upstream_request *request)
{
    (void)upstream;
    (void)request;
}

long transport_stdio_pid(const struct upstream *upstream)
{
    const struct stdio_wire *wire = upstream->transport == &transport_stdio ? upstream->wire : NULL;
    return wire ? (long)child_pid(wire->child) : 0;
}

const struct transport transport_stdio = {
    .name = "stdio",
    .start = stdio_start,
    .send = stdio_send,
    .greet = stdio_greet,
    .forget = stdio_forget,
    .stop = stdio_stop,
    .release = stdio_release,
    .resume = stdio_resume,
};
