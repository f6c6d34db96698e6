// Owns the handlers for events of servers: start, loss, changes of lists, notifications and questions.
#include "base/log.h"
#include "base/scan.h"
#include "gate/session/permit.h"
#include "gate/session/server_runtime.h"
#include "room.h"

// Resumes calls that wait for the lists of a scope with this link. A resumed call may end scopes and sessions.
static void wake_waiters(const struct link *link)
{
    struct list woken;
    list_init(&woken);
    list_each(node, &link->uses) {
        struct list *waiters = &list_entry(node, struct scope_use, node)->scope->waiters;
        while (!list_empty(waiters)) {
            struct list *waiter = waiters->next;
            list_remove(waiter);
            list_append(&woken, waiter);
        }
    }
    while (!list_empty(&woken))
        call_resume(list_entry(woken.next, struct call, wait_node));
}

// Warns about resources that no rule can make visible.
static void warn_hidden(const struct link *link, const struct source *source, unsigned kinds)
{
    struct span first = {0};
    size_t count = 0;
    for (int kind = CATALOG_RESOURCES; kind <= CATALOG_TEMPLATES; kind++) {
        const struct source_item *items = source_items(source, (enum catalog_kind)kind);
        size_t all = kinds >> kind & 1 ? source_count(source, (enum catalog_kind)kind) : 0;
        for (size_t i = 0; i < all; i++) {
            struct policy_question item = {.kind = permit_policy_kind((enum catalog_kind)kind), .name = items[i].name};
            if (!policy_is_canonical(&item))
                first = count++ ? first : item.name;
        }
    }
    if (count)
        log_warn("resources hidden: their URIs are not canonical and the policy denies them",
                 LOG_STR("server", upstream_server(link->upstream)->name), LOG_INT("count", count),
                 LOG_SPAN("first", span_make(first.at, scan_cut(first, 200))));
}

static void on_source_change(void *arg, struct source *source, unsigned kinds)
{
    struct link *link = arg;
    if (kinds) {
        if (!policy_is_open(link->tenant->policy))
            warn_hidden(link, source, kinds);
        list_each(node, &link->uses)
            view_dirty(list_entry(node, struct scope_use, node)->scope->view, kinds);
        relay_lists_changed(link,
                            kinds);  // before waiting calls get the lists, so that their sessions are not notified
    }
    known_note(link);
    kept_note(link, kinds);
    wake_waiters(link);
}

static void on_state(void *arg, struct upstream *upstream)
{
    struct link *link = arg;
    const char *problem = upstream_problem(upstream);
    switch (upstream_state(upstream)) {
    case UPSTREAM_READY:
        link->level = -1;
        link->usage.needed_ms = loop_now(link->gate->loop);
        known_note(link);
        source_refresh(link->source);
        subscription_renew(link);
        level_push(link);
        break;
    case UPSTREAM_RESTING: link->usage.resting = true; break;
    case UPSTREAM_DOWN:
    case UPSTREAM_BACKOFF:
        if (*problem)
            server_runtime_note_error(server_runtime_get(link->tenant, upstream_server(upstream)->name), problem);
        process_ended(link);
        ask_drop_link(link);
        roots_forget(link);
        if (link->usage.resting)
            source_rests(link->source);
        else
            source_went_down(link->source);
        link->usage.resting = false;
        break;
    default: break;
    }
}

static void on_notification(void *arg, struct upstream *upstream, const struct message *message,
                            struct upstream_request *origin)
{
    (void)upstream;
    relay_notification(arg, message, origin);
}

static void on_request(void *arg, struct upstream *upstream, const struct message *message,
                       struct upstream_request *origin)
{
    (void)upstream;
    ask_start(arg, message, origin);
}

static bool may_start(void *arg, struct err *err) { return process_may_start(arg, err); }

static void on_close(struct link *link)
{
    ask_drop_link(link);
    task_news_drop(link);
}

const struct link_events events_of_links = {
    .upstream = {on_state, on_notification, on_request, may_start}, .on_lists = on_source_change, .on_close = on_close};
