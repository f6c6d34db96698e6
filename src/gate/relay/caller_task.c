// Owns tasks that callers run for servers (2025-11-25): sampling and elicitation requests that they answered with a task.
//
// A caller has one set of task ids for all servers behind the gateway. So each link remembers the tasks of its own questions, and
// its server can only ask about these. Only a server with isolation `session` gets the capability `tasks` of its caller.
#include "base/scan.h"
#include "room.h"

#define CALLER_TASKS_MAX 1000

static bool find_id(struct span object, struct buf *id)
{
    struct span raw;
    if (!scan_is_object(object) || !scan_find(object, "taskId", &raw) || !scan_is_string(raw) ||
        raw.len > PARAMS_TOKEN_MAX)
        return false;
    scan_decode(raw, id);
    return true;
}

static bool is_own(const struct link *link, struct span object)
{
    struct buf id = {0};
    bool own = find_id(object, &id) && map_find(&link->caller_tasks, buf_span(&id));
    buf_release(&id);
    return own;
}

bool caller_task_asks(enum method method)
{
    return method == METHOD_TASKS_GET || method == METHOD_TASKS_RESULT || method == METHOD_TASKS_CANCEL ||
           method == METHOD_TASKS_LIST;
}

const char *caller_task_problem(const struct link *link, const struct session *session, const struct message *message,
                                int *code)
{
    const struct session_abilities *can = &session->can;
    enum method method = method_find(message->method);
    *code = -32601;
    if (link->owner != session || !can->tasks)
        return "the caller does not support tasks for this server";
    if ((method == METHOD_TASKS_LIST && !can->tasks_list) || (method == METHOD_TASKS_CANCEL && !can->tasks_cancel))
        return "the caller does not support this for its tasks";
    *code = -32602;
    return method == METHOD_TASKS_LIST || is_own(link, message->params)
               ? NULL
               : "the task was not created by a question of this server";
}

// Makes new params, so that the caller reads the id that was checked, even if the server's params are ambiguous.
void caller_task_put_params(enum method method, struct span params, struct buf *out)
{
    const char *const members[] = {method == METHOD_TASKS_LIST ? "cursor" : "taskId", "_meta"};
    struct span value;
    buf_put_char(out, '{');
    for (size_t i = 0; i < 2; i++) {
        if (!scan_is_object(params) || !scan_find(params, members[i], &value))
            continue;
        buf_printf(out, "%s\"%s\":", out->at[out->len - 1] == '{' ? "" : ",", members[i]);
        buf_put_span(out, value);
    }
    buf_put_char(out, '}');
}

void caller_task_note(struct link *link, struct span result)
{
    struct span task;
    struct buf id = {0};
    if (scan_is_object(result) && scan_find(result, "task", &task) && scan_is_object(task) && find_id(task, &id)) {
        if (link->caller_tasks.count >= CALLER_TASKS_MAX)
            (void)map_take_one(&link->caller_tasks);
        (void)map_put(&link->caller_tasks, buf_span(&id), link);
    }
    buf_release(&id);
}

static void put_own(const struct link *link, struct span tasks, struct buf *out)
{
    struct scan_walk walk = scan_walk(tasks);
    struct span task;
    size_t count = 0;
    buf_put_char(out, '[');
    while (scan_element(&walk, &task)) {
        if (!is_own(link, task))
            continue;
        buf_put_text(out, count++ ? "," : "");
        buf_put_span(out, task);
    }
    buf_put_char(out, ']');
}

void caller_task_put_list(const struct link *link, struct span result, struct buf *out)
{
    struct scan_walk walk = scan_walk(result);
    struct span key, value;
    size_t count = 0;
    buf_put_char(out, '{');
    while (scan_is_object(result) && scan_member(&walk, &key, &value)) {
        buf_put_text(out, count++ ? "," : "");
        buf_put_span(out, key);
        buf_put_char(out, ':');
        if (scan_key_is(key, "tasks") && scan_is_array(value))
            put_own(link, value, out);
        else
            buf_put_span(out, value);
    }
    buf_put_char(out, '}');
}

void caller_task_on_status(struct session *session, struct span params)
{
    for (size_t i = 0; i < session->scope->link_count; i++) {
        struct link *link = session->scope->links[i];
        if (link->owner == session && is_own(link, params) && visibility_allowed(session, link))
            upstream_message_notify(link->upstream, method_text(METHOD_TASK_STATUS), params);
    }
}
