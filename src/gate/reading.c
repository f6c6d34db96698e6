// Owns the reading of messages: a small one on the loop, at once; a large one (MESSAGE_LARGE) by the background worker.
//
//   session ──► reading_wait ──► worker: parse, find the members, measure, hash and parse the arguments ──► session again
//
// The worker finds everything that a later phase would have to search a large message for. It uses only the reading and its body,
// never the call, which may end meanwhile; then the result is discarded.
//
// The messages of a session stay in order: a message behind a large one waits until that one has been read (session->unread). Before
// its message has been read, a call ends early only with its session or with the gateway, as do all calls behind it. While the
// gateway stops, waiting messages are still read (call->in_turn). Guarded by tests/e2e/protocol/large.test.mjs.
#include "reading.h"
#include "base/mem.h"
#include "base/scan.h"
#include <stdatomic.h>
#include <stdlib.h>

struct reading {
    struct offload_job job;
    struct offload *pool;
    struct call *call;  // NULL: the call is over
    struct blob *body;
    const struct audit *audit;  // or NULL
    size_t batch_max;
    bool running;      // in the pool
    atomic_bool over;  // the result is not needed any more: the worker stops after the current step
    bool done;
    // results
    struct err err;
    bool batch;
    struct read_message *messages;
    size_t room, read;
    size_t count;  // of all messages, including those beyond batch_max, which are not read
};

static bool is_batch(struct span body)
{
    while (body.len && memchr(" \t\r\n", body.at[0], 4))
        body = span_after(body, 1);
    return body.len && body.at[0] == '[';
}

// ---- results --------------------------------------------------------------------------------

struct read_message {
    struct message message;
    struct err err;  // of a part of a batch
    enum method method;
    struct params params;
    struct arguments arguments;
};

static bool read_one(struct span text, struct read_message *out, struct err *err)
{
    if (!message_parse(text, true, &out->message, err))
        return false;
    out->method = method_find(out->message.method);
    params_read(out->method, out->message.params, &out->params);
    return true;
}

static void read_for_audit(struct arguments *found, const struct audit *audit)
{
    secret_digest_hex(found->raw, found->digest);
    found->kept = mem_new(struct buf);
    if (audit_arguments(audit, found->raw, found->kept))
        return;
    free(found->kept);
    found->kept = NULL;
}

static void read_arguments(const struct reading *reading, struct read_message *read)
{
    struct arguments *found = &read->arguments;
    struct err err;
    if (reading->over || !params_find(&read->params, NULL, "arguments", &found->raw))
        return;
    found->depth = scan_depth(found->raw);
    if (reading->audit && !reading->over)
        read_for_audit(found, reading->audit);
    if (!reading->over && found->raw.len <= ARGUMENTS_MAX && found->depth <= ARGUMENTS_DEPTH_MAX)
        found->tree = json_parse_arguments(found->raw, "arguments", &err);
}

static void release_arguments(struct arguments *found)
{
    json_decref(found->tree);
    if (found->kept)
        buf_release(found->kept);
    free(found->kept);
}

static struct read_message *add_message(struct reading *reading)
{
    if (reading->read == reading->room) {
        reading->room = reading->room ? reading->room * 4 : 1;
        reading->messages = mem_resize(reading->messages, reading->room * sizeof *reading->messages);
    }
    struct read_message *read = &reading->messages[reading->read++];
    *read = (struct read_message){0};
    return read;
}

static void read_body(struct reading *reading)
{
    struct span text = blob_span(reading->body), part;
    bool large = text.len > MESSAGE_LARGE;
    if (!(reading->batch = is_batch(text))) {
        struct read_message *read = add_message(reading);
        if (read_one(text, read, &reading->err) && large)
            read_arguments(reading, read);
        reading->count = 1;
        return;
    }
    if (!scan_document(text, true, &text, &reading->err))
        return;
    for (struct scan_walk walk = scan_walk(text); scan_element(&walk, &part); reading->count++) {
        if (reading->count >= reading->batch_max || reading->over)
            continue;
        struct read_message *read = add_message(reading);
        if (read_one(part, read, &read->err) && large)
            read_arguments(reading, read);
    }
}

// ---- the worker -----------------------------------------------------------------------------

static void reading_free(struct reading *reading)
{
    for (size_t i = 0; i < reading->read; i++)
        release_arguments(&reading->messages[i].arguments);
    free(reading->messages);
    reading->messages = NULL;
    blob_unref(reading->body);
    reading->body = NULL;
}

static void run_free(struct offload_job *job) { reading_free(job->arg); }

static void on_freed(struct offload_job *job) { free(job->arg); }

// Wiping and freeing a large message takes milliseconds, so the worker does it.
static void dispose(struct reading *reading)
{
    bool large = reading->body->len > MESSAGE_LARGE;
    reading->job.run = run_free;
    reading->job.done = on_freed;
    if (!blob_let_go(reading->body)) {  // a request to a server still refers to it
        blob_unref(reading->body);
        reading->body = NULL;
    }
    if (large && offload_put(reading->pool, &reading->job))
        return;
    reading_free(reading);
    free(reading);
}

static void run_read(struct offload_job *job) { read_body(job->arg); }

// Moves the results for one message to its call.
static void take_over(struct call *call, const struct read_message *read)
{
    message_copy(&call->message, &read->message);
    call->method = read->method;
    call->params = read->params;
    call->found = read->arguments.raw.at ? &read->arguments : NULL;
}

static void settle(struct call *call)
{
    struct reading *reading = call->reading;
    reading->done = true;
    call->err = reading->err;
    if (reading->batch)
        call_set_batch(call, BATCH_WHOLE);
    if (!reading->batch)
        take_over(call, &reading->messages[0]);
    if (!call->pipe && !list_linked(&call->quick_node))
        list_append(&call->gate->quick, &call->quick_node);
}

static bool is_read(const struct call *call) { return !call->reading || call->reading->done; }

static void on_read(struct offload_job *job)
{
    struct reading *reading = job->arg;
    struct call *call = reading->call;
    reading->running = false;
    if (!call) {
        dispose(reading);
        return;
    }
    settle(call);
    if (!call->session) {
        call_resume(call);
        return;
    }
    // The session stays in memory until the end of this turn. If a call ends it, its queue is empty.
    for (struct list *unread = &call->session->unread; !list_empty(unread);) {
        struct call *next = list_entry(unread->next, struct call, unread_node);
        if (!is_read(next))
            return;
        list_remove(&next->unread_node);
        next->in_turn = true;
        call_resume(next);
    }
}

// ---- for the phases -------------------------------------------------------------------------

static struct reading *reading_new(struct call *call)
{
    struct reading *reading = mem_new(struct reading);
    reading->job = (struct offload_job){.run = run_read, .done = on_read, .arg = reading};
    reading->pool = call->gate->background;
    reading->call = call;
    reading->body = blob_ref(call->body);
    reading->audit = call->gate->audit;
    reading->batch_max = (size_t)call->gate->config->limits.batch;
    return reading;
}

bool reading_begin(struct call *call)
{
    struct span text = blob_span(call->body);
    bool large = text.len > MESSAGE_LARGE;
    if (!large && !is_batch(text)) {
        if (!message_parse(text, true, &call->message, &call->err))
            return call->message.role != MESSAGE_ASKS && call->message.id.at;
        call->method = method_find(call->message.method);
        params_read(call->method, call->message.params, &call->params);
        return true;
    }
    call->reading = reading_new(call);
    if (large)
        return true;
    read_body(call->reading);
    settle(call);
    return !call->err.code;
}

enum phase_result reading_wait(struct call *call)
{
    struct session *session = call->session;
    struct reading *reading = call->reading;
    if (reading && !reading->done && !reading->running) {
        if (call->gate->state != GATE_OPEN)
            return call_fail(call, ERR_SHUTTING_DOWN, "large messages are not accepted during the shutdown");
        if (!(reading->running = offload_put(reading->pool, &reading->job)))
            return call_fail(call, ERR_TOO_MANY, "too many large messages are waiting to be parsed");
    } else if (call->op != ARRIVAL_MESSAGE || call->in_turn || !session || list_empty(&session->unread)) {
        return call->err.code ? PHASE_FAIL : PHASE_NEXT;
    }
    if (session)
        list_append(&session->unread, &call->unread_node);
    return PHASE_WAIT;
}

size_t reading_count(const struct call *call) { return call->reading->count; }

bool reading_has(const struct call *call, enum method method)
{
    for (size_t i = 0; i < call->reading->read; i++)
        if (call->reading->messages[i].method == method)
            return true;
    return false;
}

void reading_take_part(const struct call *batch, size_t at, struct call *part)
{
    const struct read_message *read = &batch->reading->messages[at];
    part->body = blob_ref(batch->body);
    part->err = read->err;
    take_over(part, read);
}

void reading_end(struct call *call)
{
    struct reading *reading = call->reading;
    list_remove(&call->unread_node);
    call->reading = NULL;
    call->found = NULL;
    blob_unref(call->body);
    call->body = NULL;
    if (!reading)
        return;
    reading->call = NULL;
    reading->over = true;
    if (!reading->running || offload_take_back(reading->pool, &reading->job))
        dispose(reading);
}
