// Owns messages from a server: finds the request that an answer belongs to, also for an invalid message.
#include "receive.h"
#include "base/log.h"
#include "base/scan.h"
#include "mcp/method.h"
#include "mcp/salvage.h"
#include "request.h"

#define REQUEST_MAX ((size_t)4 << 20)  // bytes of a request from a server
#define SALVAGE_MAX REQUEST_MAX        // bytes of a list with invalid items, which the loop reads again
#define DROPPED_HEAD 4096              // bytes of a dropped message that are searched for its id

static struct upstream_request *find_by_id(struct upstream *upstream, struct span raw)
{
    uint64_t id;
    return span_to_u64(raw, &id) ? map_find(&upstream->in_flight, map_key_u64(&id)) : NULL;
}

static void on_progress(struct upstream *upstream, const struct message *message)
{
    struct span token;
    if (!scan_find(message->params, "progressToken", &token))
        return;
    struct upstream_request *request = find_by_id(upstream, token);
    if (!request) {  // late, or of a task that continues after its call was answered
        upstream->spec.listener->on_notification(upstream->spec.arg, upstream, message, NULL);
        return;
    }
    upstream_request_touch(request);
    if (request->on_progress)
        request->on_progress(request, message->params);
}

// Finds the request with this id. Its answer also shows that the server has read the messages before it.
static struct upstream_request *find_answered(struct upstream *upstream, struct span id)
{
    struct upstream_request *request = find_by_id(upstream, id);
    if (request && request->id > upstream->told_after)
        upstream->told = 0;
    return request;
}

static struct span unquoted(struct span id) { return scan_is_string(id) ? span_make(id.at + 1, id.len - 2) : id; }

static struct upstream_request *only_request(const struct upstream *upstream)
{
    void *value;
    size_t at = 0;
    return upstream->in_flight.count == 1 && map_next(&upstream->in_flight, &at, NULL, &value) ? value : NULL;
}

// Uses up one of the unexpected answers that may still come.
static bool take_one(unsigned *count)
{
    bool any = *count > 0;
    *count -= any;
    return any;
}

// True if the id, maybe as a string, is that of a request that was answered or given up. Then the answer belongs to no request in
// flight.
static bool is_late(struct upstream *upstream, struct span id)
{
    uint64_t number;
    return id.at && span_to_u64(unquoted(id), &number) && number <= upstream->next_id &&
           !find_by_id(upstream, unquoted(id));
}

// Finds the request that an invalid answer belongs to: the request with its id, the request on whose own stream it came, or the
// only request in flight. NULL: unknown. It may also belong to a request that was given up or, without an id, to a notification.
static struct upstream_request *find_meant(struct upstream *upstream, const struct message *message,
                                           struct upstream_request *origin)
{
    struct span id = message->id;
    struct upstream_request *request = find_answered(upstream, unquoted(id));
    if (request || origin)
        return request ? request : origin;
    if (message->role != MESSAGE_ANSWERS || (!id.at && take_one(&upstream->told)))
        return NULL;
    return take_one(&upstream->given_up) || is_late(upstream, id) ? NULL : only_request(upstream);
}

// Finishes a request for a list with the items that are valid JSON. False: the answer cannot be used in this way.
static bool save_list(struct upstream *upstream, const struct message *broken, struct upstream_request *request)
{
    struct buf saved = {0};
    struct message message;
    bool ok = request->list && broken->text.len <= SALVAGE_MAX &&
              salvage_list(broken->text, broken->result, request->list, &saved) &&
              message_parse(buf_span(&saved), false, &message, &(struct err){0}) && message.kind == MESSAGE_RESULT &&
              find_by_id(upstream, message.id) == request;
    if (ok)
        upstream_request_finish(request, &(struct upstream_reply){.result = message.result, .held = upstream->taken});
    buf_release(&saved);
    return ok;
}

// Fails the request that an invalid answer belongs to, so that it need not time out. An invalid request of the server is refused.
static void settle_invalid(struct upstream *upstream, const struct message *message, struct upstream_request *origin,
                           const struct err *err)
{
    struct err failure;
    if (message->role == MESSAGE_ASKS) {
        if (message->id.at)
            upstream_message_refuse(upstream, message->id, -32600, err->detail);
        return;
    }
    struct upstream_request *request = find_meant(upstream, message, origin);
    if (!request || save_list(upstream, message, request))
        return;
    (void)err_set(&failure, err->code == ERR_TOO_MANY ? ERR_TOO_MANY : ERR_UPSTREAM_INVALID,
                  "server \"%s\" sent an invalid answer%s: %.300s", upstream->server->name,
                  request->initial ? " to initialize" : "", err->detail);
    upstream_request_fail(request, &failure);
}

// Handles a message that is not valid, or an answer without a request.
static void on_invalid(struct upstream *upstream, const struct message *message, struct upstream_request *origin,
                       const struct err *err)
{
    log_warn("server sent an invalid message", LOG_STR("server", upstream->server->name),
             LOG_STR("detail", err->detail), LOG_INT("outstanding", (int64_t)upstream->in_flight.count));
    settle_invalid(upstream, message, origin, err);
}

// The server works: what failed before does not count any more.
static void note_answer(struct upstream *upstream, const struct upstream_request *request)
{
    if (request->initial)
        return;
    upstream->answered = true;
    upstream->failures = 0;
    if (request->who)
        upstream->losses = 0;
}

static void on_answer(struct upstream *upstream, const struct message *message, struct blob *owner,
                      struct upstream_request *origin)
{
    struct upstream_request *request = message->id.at ? find_answered(upstream, message->id) : origin;
    struct err err;
    if (request) {
        note_answer(upstream, request);
        upstream_request_finish(request, &(struct upstream_reply){.result = message->result,
                                                                  .error = message->error,
                                                                  .retry_after_ms = request->patience_ms,
                                                                  .owner = owner,
                                                                  .message = message->text,
                                                                  .held = upstream->taken});
    } else if (!origin && is_late(upstream, message->id)) {
        (void)take_one(&upstream->given_up);
        log_debug("late answer ignored", LOG_STR("server", upstream->server->name), LOG_SPAN("id", message->id));
    } else {
        struct span id = span_make(message->id.at, message->id.len < 64 ? message->id.len : 64);
        (void)err_set(&err, ERR_UPSTREAM_INVALID,
                      id.at ? "the id %.*s does not match a request" : "an error without an id", SPAN_ARG(id));
        on_invalid(upstream, message, origin, &err);
    }
}

static const struct err in_batch = {.code = ERR_UPSTREAM_INVALID, .detail = "a part of a batch is not a message"};

static void hand_on(struct upstream *upstream, const struct message *message, struct blob *owner,
                    struct upstream_request *origin)
{
    switch (message->kind) {
    case MESSAGE_RESULT:
    case MESSAGE_ERROR: on_answer(upstream, message, owner, origin); break;
    case MESSAGE_NOTIFICATION:
        if (method_find(message->method) == METHOD_PROGRESS)
            on_progress(upstream, message);
        else
            upstream->spec.listener->on_notification(upstream->spec.arg, upstream, message, origin);
        break;
    case MESSAGE_REQUEST:
        if (span_is(message->method, "ping"))
            upstream_message_answer(upstream, message->id, span_of("{}"));
        else
            upstream->spec.listener->on_request(upstream->spec.arg, upstream, message, origin);
        break;
    case MESSAGE_INVALID: on_invalid(upstream, message, origin, &in_batch); break;
    }
}

static struct upstream_request *still(struct upstream_request *origin)
{
    return origin && origin->upstream ? origin : NULL;
}

// Servers of revision 2025-03-26 may send several messages as one array.
static void on_batch(struct upstream *upstream, struct span text, struct blob *owner, struct upstream_request *origin)
{
    struct span array, part;
    struct err err;
    struct message first;
    if (!scan_document(text, false, &array, &err)) {
        salvage_find(span_after(text, 1), &first);
        on_invalid(upstream, &first, origin, &err);
        return;
    }
    struct scan_walk walk = scan_walk(array);
    while (scan_element(&walk, &part))
        if (scan_is_object(part))
            receive_message(upstream, part, owner, still(origin));
}

void receive_message(struct upstream *upstream, struct span text, struct blob *owner, struct upstream_request *origin)
{
    struct message message;
    struct err err;
    loop_note(upstream->spec.loop, "server message", upstream->server->name);
    text = span_without_bom(text);
    if (text.len && text.at[0] == '[')
        on_batch(upstream, text, owner, origin);
    else if (salvage_parse(text, &message, &err)) {
        if (owner && message.lines)  // the text is passed on without a copy, and faces rely on there being no line ends
            message_flatten((char *)(uintptr_t)text.at, text.len);
        hand_on(upstream, &message, owner, origin);
    } else
        on_invalid(upstream, &message, origin, &err);
}

// Requests and notifications may go to many callers, and the loop would process a large one for each of them.
static bool is_excessive(struct upstream *upstream, const struct message *message)
{
    bool excessive = message->kind == MESSAGE_NOTIFICATION
                         ? message->text.len > MESSAGE_LARGE
                         : message->kind == MESSAGE_REQUEST && message->text.len > REQUEST_MAX;
    if (!excessive)
        return false;
    log_warn("server sent a request or notification that is too large", LOG_STR("server", upstream->server->name),
             LOG_INT("bytes", (int64_t)message->text.len));
    if (message->kind == MESSAGE_REQUEST)
        upstream_message_refuse(upstream, message->id, -32603, "the request is too large");
    return true;
}

void receive_parsed(struct upstream *upstream, const struct parsing *parsing, struct upstream_request *origin)
{
    loop_note(upstream->spec.loop, "large server message", upstream->server->name);
    if (!parsing->valid) {
        on_invalid(upstream, parsing->messages, origin, &parsing->err);
        return;
    }
    for (size_t i = 0; i < parsing->count; i++)
        if (!is_excessive(upstream, &parsing->messages[i]))
            hand_on(upstream, &parsing->messages[i], parsing->owner, still(origin));
}

void receive_dropped(struct upstream *upstream, struct span head, bool no_memory, struct upstream_request *origin)
{
    const char *server = upstream->server->name;
    struct message message;
    struct err err;
    int64_t max = (int64_t)upstream->spec.max_message;
    salvage_find(span_make(head.at, head.len < DROPPED_HEAD ? head.len : DROPPED_HEAD), &message);
    if (no_memory) {
        (void)err_set(&err, ERR_TOO_MANY, "out of memory for a message");
        log_error("server message dropped: out of memory", LOG_STR("server", server));
    } else {
        (void)err_set(&err, ERR_UPSTREAM_INVALID, "a message is larger than %lld bytes (limits.max_message)",
                      (long long)max);
        log_warn("server sent a message that is too large", LOG_STR("server", server), LOG_INT("max", max),
                 LOG_STR("option", "limits.max_message"));
    }
    settle_invalid(upstream, &message, origin, &err);
}
