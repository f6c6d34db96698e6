// Owns large answers of servers: they become answers to callers without being copied, and a worker thread looks through those
// that may have something to translate.
//
// The worker gets all it needs with the job, so that the call, its session and its server may end meanwhile.
#include "base/mem.h"
#include "base/scan.h"
#include "rows.h"
#include <stdlib.h>

struct shaping {
    struct offload_job job;
    struct call *call;  // NULL: it is over
    struct blob *owner;
    struct span text;  // the result, or the error object
    bool error;
    struct shape shape;  // of `arena`
    struct arena arena;
    struct identity *identity;
    struct pieces out;
    struct span task;  // raw id of the task that was made; at is NULL without
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

static void finish(struct shaping *shaping)
{
    struct call *call = shaping->call;
    if (!call) {
        shaping_free(shaping);
        return;
    }
    call->shaping = NULL;
    buf_put_char(&shaping->out.tail, '}');
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
    buf_put_text(&shaping->out.tail, "{\"jsonrpc\":\"2.0\",\"id\":");
    buf_put_span(&shaping->out.tail, call->message.id);
    buf_put_text(&shaping->out.tail, shaping->error ? ",\"error\":" : ",\"result\":");
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
