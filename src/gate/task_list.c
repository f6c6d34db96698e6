// Owns tasks/list over all servers: every page of every server, and of them the caller's own tasks.
#include "base/mem.h"
#include "base/scan.h"
#include "call.h"
#include "method.h"
#include <stdlib.h>

#define TASK_PAGES_MAX 100

struct task_page {
    struct task_page *next;
    struct upstream_request request;
    struct call *call;
    struct link *link;
    unsigned pages;
};

static void ask_page(struct task_page *page, struct span cursor)
{
    struct buf params = {0};
    if (cursor.len) {
        buf_put_text(&params, "{\"cursor\":");
        buf_put_span(&params, cursor);
        buf_put_char(&params, '}');
    }
    upstream_reserve(page->link->upstream, &page->request);
    upstream_send(&page->request, method_text(METHOD_TASKS_LIST), buf_span(&params));
    buf_release(&params);
}

static void gather_task(struct task_page *page, struct span task)
{
    struct call *call = page->call;
    struct shape shape = shape_of(call->scope, page->link, call->identity);
    struct span raw;
    struct buf id = {0};
    if (!scan_find(task, "taskId", &raw) || !scan_is_string(raw))
        return;
    scan_decode(raw, &id);
    if (task_owned(page->link, call->session, buf_span(&id))) {
        if (call->gathered.len)
            buf_put_char(&call->gathered, ',');
        (void)shape_from_server(&shape, task, &call->gathered);
    }
    buf_release(&id);
}

static void on_task_page(struct upstream_request *request, const struct upstream_reply *reply)
{
    struct task_page *page = request->arg;
    struct call *call = page->call;
    struct span tasks, task, cursor;
    bool allowed = reach_allowed(call->session, page->link);  // still
    if (allowed && !reply->failure && reply->result.at && scan_find(reply->result, "tasks", &tasks) &&
        scan_is_array(tasks)) {
        struct scan_walk walk = scan_walk(tasks);
        while (scan_element(&walk, &task))
            gather_task(page, task);
        if (scan_find(reply->result, "nextCursor", &cursor) && scan_is_string(cursor) &&
            ++page->pages < TASK_PAGES_MAX) {
            char *copy = mem_span(cursor);
            ask_page(page, span_make(copy, cursor.len));
            free(copy);
            return;
        }
    }
    if (--call->pages_out == 0)
        call_resume(call);
}

enum phase_result tasks_list(struct call *call)
{
    if (!call->dispatched) {
        call->dispatched = true;
        call->pages_out = 1;  // ours, until all are sent
        for (size_t i = 0; i < call->scope->link_count; i++) {
            struct link *link = call->scope->links[i];
            if (upstream_state(link->upstream) != UPSTREAM_READY || !upstream_abilities(link->upstream)->tasks_list ||
                !reach_allowed(call->session, link))
                continue;
            struct task_page *page = arena_alloc(&call->arena, sizeof *page);
            page->call = call;
            page->link = link;
            page->request.on_reply = on_task_page;
            page->request.arg = page;
            page->next = call->task_pages;
            call->task_pages = page;
            call->pages_out++;
            ask_page(page, (struct span){0});
        }
        if (--call->pages_out)
            return PHASE_WAIT;
    }
    struct buf *out = call_begin_result(call);
    buf_put_text(out, "{\"tasks\":[");
    buf_put_span(out, buf_span(&call->gathered));
    buf_put_text(out, "]}");
    return PHASE_REPLY;
}

void tasks_list_abandon(struct call *call)
{
    for (struct task_page *page = call->task_pages; page; page = page->next)
        upstream_cancel(&page->request, "cancelled");
}
