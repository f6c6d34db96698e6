// Owns notifications about tasks (2025-11-25) that arrive before the answer that names the task.
//
// A server may send a notification about a task before it answers the call that creates the task, and over HTTP the answer may be
// overtaken. So a notification about a task without an owner is kept while earlier calls that asked for a task are open. It is
// delivered right after the answer that names the task, because the owner learns the id from that answer. If no answer names the
// task, the notification is dropped.
#include "base/mem.h"
#include "room.h"
#include <stdlib.h>

// Bounds for each server; above them the oldest notification is dropped.
#define EARLY_MAX 100
#define EARLY_BYTES ((size_t)256 << 10)

struct early {
    struct list node;  // in link->early
    struct fan_out news;
    struct buf params;
    uint64_t newest;  // id of the last request that may have made the task
};

static struct early *early_at(const struct list *node) { return list_entry(node, struct early, node); }

static size_t size_of(const struct early *early) { return early->params.len + early->news.key.len; }

static void early_free(void *object)
{
    struct early *early = object;
    buf_release(&early->params);
    buf_release(&early->news.key);
    free(early);
}

static void take_out(struct early *early)
{
    struct link *link = early->news.link;
    list_remove(&early->node);
    link->early_count--;
    link->early_bytes -= size_of(early);
}

static void drop(struct early *early)
{
    take_out(early);
    early_free(early);
}

// The call that created the task, while it is not answered to its caller; otherwise NULL.
static struct call *maker(const struct link *link, struct span id)
{
    list_each(node, &link->task_calls) {
        struct call *call = list_entry(node, struct call, task.node);
        if (call->task.id.at && span_equal(call->task.id, id))
            return call;
    }
    return NULL;
}

static bool is_over(const struct link *link)
{
    return link->early_count > EARLY_MAX || link->early_bytes > EARLY_BYTES;
}

static void keep(const struct fan_out *news)
{
    struct link *link = news->link;
    struct early *early = mem_new(struct early);
    early->news = *news;
    buf_put_span(&early->params, news->params);
    early->news.params = buf_span(&early->params);
    early->newest = list_entry(link->task_calls.prev, struct call, task.node)->request.id;
    list_append(&link->early, &early->node);
    link->early_count++;
    link->early_bytes += size_of(early);
    for (struct list *node = link->early.next, *next; is_over(link); node = next) {
        next = node->next;
        drop(early_at(node));
    }
}

void task_news_put(const struct fan_out *news)
{
    const struct link *link = news->link;
    struct span id = buf_span(&news->key);
    bool waiting = !list_empty(&link->task_calls);
    if (waiting && (maker(link, id) || !task_known(link, id)))
        keep(news);
    else
        fan_out_start(news);
}

void task_news_expect(struct call *call)
{
    call->task.link = call->link;
    list_append(&call->link->task_calls, &call->task.node);
}

static void tell(struct link *link, struct span id)
{
    for (struct list *node = link->early.next, *next; node != &link->early; node = next) {
        struct early *early = early_at(node);
        next = node->next;
        if (!span_equal(buf_span(&early->news.key), id))
            continue;
        take_out(early);
        struct fan_out news = early->news;
        early->news.key = (struct buf){0};
        fan_out_start(&news);
        early_free(early);
    }
}

// Drops notifications that arrived before the oldest open call was sent. Later ones may be about the task of that call.
static void drop_unclaimed(struct link *link)
{
    uint64_t oldest = list_empty(&link->task_calls)
                          ? UINT64_MAX
                          : list_entry(link->task_calls.next, struct call, task.node)->request.id;
    for (struct list *node = link->early.next, *next; node != &link->early; node = next) {
        next = node->next;
        if (early_at(node)->newest < oldest)
            drop(early_at(node));
    }
}

void task_news_over(struct call *call)
{
    struct link *link = call->task.link;
    if (!link)
        return;
    call->task.link = NULL;
    list_remove(&call->task.node);
    if (call->task.id.at)
        tell(link, call->task.id);
    drop_unclaimed(link);
}

void task_news_drop(struct link *link)
{
    while (!list_empty(&link->task_calls)) {
        struct call *call = list_entry(link->task_calls.next, struct call, task.node);
        list_remove(&call->task.node);
        call->task.link = NULL;
    }
    drop_unclaimed(link);
}
