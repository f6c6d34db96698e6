// Owns large answers of servers: passes them on to callers without a copy, and has a worker thread translate those that may contain
// names or ids to translate.
//
// The job contains everything that the worker needs, so that the call, its session and its server may end meanwhile.
//
// An answer without translated parts stays in place: the envelope for the caller overwrites that of the server, if it fits. Then the
// answer is contiguous, and the HTTP face sends it together with its head.
#include "base/mem.h"
#include "base/scan.h"
#include "rows.h"
#include <stdlib.h>

struct shaping {
    struct offload_job job;
    struct call *call;  // NULL: the call is over
    struct blob *owner;
    struct span message;  // of the server: `text` with its envelope
    struct span text;     // the result, or the error object
    bool error;
    struct shape shape;  // a deep copy in `arena`
    struct arena arena;
    struct identity *identity;
    struct pieces out;
    struct span task;  // raw id of the new task; at is NULL without a task
};

static void shaping_free(struct shaping *shaping)
{
    pieces_release(&shaping->out);
    blob_unref(shaping->owner);
    identity_unref(shaping->identity);
    arena_release(&shaping->arena);
    free(shaping);
}

static struct shaping *shaping_new(struct call *call, const struct upstream_reply *reply)
{
    struct shaping *shaping = mem_new(struct shaping);
    struct shape shape = shape_of(call->scope, call->link, call->identity, call->method);
    struct arena *arena = &shaping->arena;
    shaping->call = call;
    shaping->owner = blob_ref(reply->owner);
    shaping->message = reply->message;
    shaping->error = reply->error.at != NULL;
    shaping->text = shaping->error ? reply->error : reply->result;
    shaping->identity = identity_ref(call->identity);
    shaping->shape.method = shape.method;
    shaping->shape.prefix = arena_span(arena, shape.prefix);
    shaping->shape.tasks = shape.tasks;
    shaping->shape.seal.server = arena_span(arena, shape.seal.server);
    shaping->shape.seal.link_key = arena_span(arena, shape.seal.link_key);
    shaping->shape.seal.secret =
        (unsigned char *)arena_copy(arena, span_make((const char *)shape.seal.secret, GATE_KEY_BYTES));
    shaping->shape.seal.owner = shaping->identity;
    return shaping;
}

static bool is_unchanged(const struct shaping *shaping)
{
    const struct pieces *out = &shaping->out;
    return out->count == 1 && !out->tail.len && out->parts[0].text.at == shaping->text.at &&
           out->parts[0].text.len == shaping->text.len;
}

// Writes the envelope around the text, over the server's envelope. False: it does not fit.
static bool wrap_in_place(struct shaping *shaping, struct span before, struct span after)
{
    struct span message = shaping->message, text = shaping->text;
    size_t space_before = (size_t)(text.at - message.at), space_after = message.len - space_before - text.len;
    if (before.len > space_before || after.len > space_after)
        return false;
    char *at = (char *)(uintptr_t)text.at;
    memcpy(at - before.len, before.at, before.len);
    memcpy(at + text.len, after.at, after.len);
    pieces_release(&shaping->out);
    pieces_share(&shaping->out, shaping->owner, span_make(text.at - before.len, before.len + text.len + after.len));
    return true;
}

static void wrap_in_parts(struct pieces *out, struct span before, struct span after)
{
    struct blob *inner = pieces_take(out);
    buf_put_span(&out->tail, before);
    pieces_share_all(out, inner);
    buf_put_span(&out->tail, after);
    blob_unref(inner);
}

// The members have the order of all other answers (docs/fidelity.md, `envelope`), not that of the server.
static void wrap(struct shaping *shaping, struct span id)
{
    struct buf before = {0};
    struct span after = span_of("}");
    buf_printf(&before, "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"%s\":", SPAN_ARG(id), shaping->error ? "error" : "result");
    if (!is_unchanged(shaping) || !wrap_in_place(shaping, buf_span(&before), after))
        wrap_in_parts(&shaping->out, buf_span(&before), after);
    buf_release(&before);
}

static void finish(struct shaping *shaping)
{
    struct call *call = shaping->call;
    if (!call) {
        shaping_free(shaping);
        return;
    }
    call->shaping = NULL;
    wrap(shaping, call->message.id);
    call->answer = pieces_take(&shaping->out);
    if (shaping->task.at)
        task_note_made(call, shaping->task);
    shaping_free(shaping);
    call_resume(call);
}

static void run(struct offload_job *job)
{
    struct shaping *shaping = job->arg;
    struct span task, raw;
    shape_shared(&shaping->shape, shaping->error, shaping->owner, shaping->text, &shaping->out);
    if (shaping->shape.tasks && scan_find(shaping->text, "task", &task) && scan_find(task, "taskId", &raw) &&
        scan_is_string(raw))
        shaping->task = raw;
}

static void done(struct offload_job *job) { finish(job->arg); }

void shaping_start(struct call *call, const struct upstream_reply *reply)
{
    struct shaping *shaping = call->shaping = shaping_new(call, reply);
    call->kept = (struct upstream_reply){.result = reply->result, .error = reply->error};
    call->reply = &call->kept;
    shaping->job = (struct offload_job){.run = run, .done = done, .arg = shaping};
    bool look = shape_changes(&shaping->shape, shaping->error);
    if (look && shaping->text.len > MESSAGE_LARGE && call->gate->background &&
        offload_put(call->gate->background, &shaping->job))
        return;
    if (look)
        run(&shaping->job);
    else
        pieces_share(&shaping->out, shaping->owner, shaping->text);
    finish(shaping);
}

void shaping_drop(struct call *call)
{
    if (call->shaping)
        call->shaping->call = NULL;
    call->shaping = NULL;
}
