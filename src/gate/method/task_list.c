// Owns tasks/list over all servers: fetches every page of every server, and keeps the caller's own tasks.
//
// A server gets the params of the caller. A single page of a single server is passed on unchanged, without the tasks of others. The
// other members of several results are merged, and `_meta` member by member. The first of two members with the same name is used, in
// the order of the configuration.
#include "base/scan.h"
#include "mcp/rewrite.h"
#include "rows.h"
#include <inttypes.h>
#include <stdio.h>

#define TASK_PAGES_MAX 100
#define TASK_REST_MAX ((size_t)64 << 10)  // bytes of one server's other members; the rest is omitted

struct task_page {
    struct task_page *next;  // in the order of the configuration
    struct upstream_request request;
    struct call *call;
    struct link *link;
    unsigned pages;
    struct buf tasks;       // the caller's own
    struct buf rest, meta;  // the other members of the results, and those of their `_meta`
    struct buf only;        // the whole result, if there is one page
};

// ---- requests -------------------------------------------------------------------------------

// Puts the params of the caller, with the cursor (raw, or empty) as their first member. Without either, the request has no params.
static void put_params(struct task_page *page, struct span cursor, struct pieces *out)
{
    struct call *call = page->call;
    struct span params = call->message.params, key, value;
    struct outgoing_swap swaps[3] = {0};
    struct scan_walk walk = scan_walk(params.len ? params : span_of("{}"));
    struct buf first = {0};
    char token[24];
    bool given = params.len && outgoing_task(call, page->link, &swaps[0]);
    if (cursor.len) {
        buf_put_text(&first, "\"cursor\":");
        buf_put_span(&first, cursor);
        buf_put_text(&first, given && scan_member(&walk, &key, &value) ? "," : "");
    }
    if (given || cursor.len)
        buf_put_text(&out->tail, ",\"params\":");
    if (given) {
        swaps[1] = (struct outgoing_swap){span_make(params.at + 1, 0), buf_span(&first), false};
        if (params_find(&call->params, "_meta", "progressToken", &swaps[2].old))
            swaps[2].with = span_make(token, (size_t)snprintf(token, sizeof token, "%" PRIu64, page->request.id));
        outgoing_put(call, swaps, 3, out);
    } else if (cursor.len) {
        buf_put_char(&out->tail, '{');
        buf_put_span(&out->tail, buf_span(&first));
        buf_put_char(&out->tail, '}');
    }
    buf_release(&first);
}

static void ask_page(struct task_page *page, struct span cursor)
{
    struct pieces text = {0};
    upstream_request_reserve(page->link->upstream, &page->request);
    message_begin_request(&text.tail, page->request.id, method_text(METHOD_TASKS_LIST));
    put_params(page, cursor, &text);
    buf_put_char(&text.tail, '}');
    upstream_request_send_message(&page->request, pieces_take(&text));
}

// ---- results --------------------------------------------------------------------------------

static void gather_tasks(struct task_page *page, struct span tasks)
{
    const struct call *call = page->call;
    struct shape shape = shape_of(call->scope, page->link, call->identity, METHOD_TASKS_GET);
    struct scan_walk walk = scan_walk(tasks);
    struct span task, raw;
    while (scan_element(&walk, &task)) {
        struct buf id = {0};
        if (!scan_find(task, "taskId", &raw) || !scan_is_string(raw))
            continue;
        scan_decode(raw, &id);
        if (task_owned(page->link, call->session, buf_span(&id))) {
            buf_put_text(&page->tasks, page->tasks.len ? "," : "");
            (void)shape_from_server(&shape, task, &page->tasks);
        }
        buf_release(&id);
    }
}

// Appends all members of an object except those in `but`, up to TASK_REST_MAX.
static void gather_members(const struct task_page *page, struct span object, const char *const *but, struct buf *out)
{
    struct scan_walk walk = scan_walk(object);
    struct span key, value;
    while (scan_member(&walk, &key, &value)) {
        bool known = false;
        for (size_t i = 0; but[i]; i++)
            known = known || scan_key_is(key, but[i]);
        if (known || page->rest.len + page->meta.len + key.len + value.len > TASK_REST_MAX)
            continue;
        buf_put_text(out, out->len ? "," : "");
        buf_put_span(out, key);
        buf_put_char(out, ':');
        buf_put_span(out, value);
    }
}

static bool put_own(void *arg, int what, struct span tasks, struct buf *out)
{
    (void)what, (void)tasks;
    const struct task_page *page = arg;
    buf_put_char(out, '[');
    buf_put_span(out, buf_span(&page->tasks));
    buf_put_char(out, ']');
    return true;
}

// True: another page was requested.
static bool gather(struct task_page *page, struct span result)
{
    static const char *const ours[] = {"tasks", "nextCursor", "_meta", NULL}, *const related[] = {PARAMS_RELATED, NULL};
    static const struct rewrite_rule rule = {{"tasks"}, 0};
    struct span tasks, meta, cursor;
    if (!scan_find(result, "tasks", &tasks) || !scan_is_array(tasks))
        return false;
    gather_tasks(page, tasks);
    gather_members(page, result, ours, &page->rest);
    if (scan_find(result, "_meta", &meta) && scan_is_object(meta))
        gather_members(page, meta, related, &page->meta);
    bool more = scan_find(result, "nextCursor", &cursor);
    if (!more && !page->pages)
        (void)rewrite_json(result, &rule, 1, put_own, page, &page->only);
    if (!more || !scan_is_string(cursor) || ++page->pages >= TASK_PAGES_MAX)
        return false;
    ask_page(page, cursor);
    return true;
}

static void on_task_page(struct upstream_request *request, const struct upstream_reply *reply)
{
    struct task_page *page = request->arg;
    struct call *call = page->call;
    bool allowed = visibility_allowed(call->session, page->link);  // still
    if (allowed && !reply->failure && reply->result.at && gather(page, reply->result))
        return;
    if (--call->pages_out == 0)
        call_resume(call);
}

// ---- the answer -----------------------------------------------------------------------------

// Puts members without braces, each with a comma before it, and skips names that are already known.
static void put_members(struct map *known, struct span members, struct buf *out)
{
    struct buf object = {0};
    struct span key, value;
    buf_put_char(&object, '{');
    buf_put_span(&object, members);
    buf_put_char(&object, '}');
    for (struct scan_walk walk = scan_walk(buf_span(&object)); scan_member(&walk, &key, &value);) {
        struct buf name = {0};
        scan_decode(key, &name);
        if (!map_put(known, buf_span(&name), known)) {
            buf_put_char(out, ',');
            buf_put(out, key.at, (size_t)(value.at + value.len - key.at));
        }
        buf_release(&name);
    }
    buf_release(&object);
}

static void put_merged(const struct call *call, struct buf *out)
{
    struct map rest = {0}, meta = {0};
    struct buf merged = {0};
    bool any = false;
    buf_put_text(out, "{\"tasks\":[");
    for (struct task_page *page = call->task_pages; page; page = page->next) {
        buf_put_text(out, any && page->tasks.len ? "," : "");
        buf_put_span(out, buf_span(&page->tasks));
        any = any || page->tasks.len;
    }
    buf_put_char(out, ']');
    for (struct task_page *page = call->task_pages; page; page = page->next) {
        put_members(&rest, buf_span(&page->rest), out);
        put_members(&meta, buf_span(&page->meta), &merged);
    }
    if (merged.len) {
        buf_put_text(out, ",\"_meta\":{");
        buf_put_span(out, span_after(buf_span(&merged), 1));
        buf_put_char(out, '}');
    }
    buf_put_char(out, '}');
    buf_release(&merged);
    map_release(&rest);
    map_release(&meta);
}

static void ask_all(struct call *call)
{
    struct task_page **last = &call->task_pages;
    for (size_t i = 0; i < call->scope->link_count; i++) {
        struct link *link = call->scope->links[i];
        if (upstream_state(link->upstream) != UPSTREAM_READY || !upstream_abilities(link->upstream)->tasks_list ||
            !visibility_allowed(call->session, link))
            continue;
        struct task_page *page = *last = arena_alloc(&call->arena, sizeof *page);
        page->call = call;
        page->link = link;
        page->request.on_reply = on_task_page;
        page->request.list = "tasks";
        page->request.arg = page;
        last = &page->next;
        call->pages_out++;
        ask_page(page, (struct span){0});
    }
}

enum phase_result task_list_merged(struct call *call)
{
    struct span cursor;
    if (params_find(&call->params, NULL, "cursor",
                    &cursor))  // the result has one page, so the gateway never sent a cursor
        return call_fail(call, ERR_BAD_CURSOR, "cursor");
    if (call->state == CALL_OPEN) {
        call_set_state(call, CALL_DISPATCHED);
        call->pages_out = 1;  // keeps the call from being resumed until all requests are sent
        ask_all(call);
        if (--call->pages_out)
            return PHASE_WAIT;
    }
    const struct task_page *first = call->task_pages;
    if (first && !first->next && first->only.len)
        buf_put_span(call_begin_result(call), buf_span(&first->only));
    else
        put_merged(call, call_begin_result(call));
    return PHASE_REPLY;
}

void task_list_abandon(struct call *call, const char *reason)
{
    for (struct task_page *page = call->task_pages; page; page = page->next) {
        upstream_request_cancel(&page->request, reason);
        buf_release(&page->tasks);
        buf_release(&page->rest);
        buf_release(&page->meta);
        buf_release(&page->only);
    }
}
