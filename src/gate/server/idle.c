// Owns ending servers that are not used: how often each is used, what still needs it, and how long it may be idle.
//
// A server that was ended is started again by the next call, and its lists stay. How long a server may be idle depends on the average
// interval between its requests, in which recent intervals count more. The catalogue cache keeps the average across restarts.
//
// A server has state (a browser, a memory), so a session that has called it keeps it as long as the session lasts. So do calls,
// subscriptions, open questions and tasks. Guarded by tests/e2e/servers/idle.test.mjs and tests/unit/gate/server/idle_test.c.
#include "base/log.h"
#include "base/scan.h"
#include "room.h"
#include <inttypes.h>

#define MINUTE_MS 60000
#define HOUR_MS ((int64_t)60 * MINUTE_MS)
#define TASK_MAX_MS (24 * HOUR_MS)  // of a task whose server does not limit it
#define INTERVAL_MAX_MS (24 * HOUR_MS)
#define RECENT_PART 4  // the last interval counts for a quarter of the new average
#define RESTING_MAX 8

// ---- how long -------------------------------------------------------------------------------

static int64_t find_adaptive(const struct server *server, int64_t interval_ms, bool used)
{
    if (!interval_ms && !used)  // since its start: the call that it was started for may be on its way
        return server->max_idle_timeout_ms;
    if (!interval_ms || interval_ms > HOUR_MS / 5)
        return MINUTE_MS;
    return interval_ms < HOUR_MS / 20 ? 5 * MINUTE_MS : 3 * MINUTE_MS;
}

int64_t idle_limit(const struct server *server, int64_t interval_ms, bool used)
{
    if (server->eager || server->idle_timeout_ms == SERVER_IDLE_NEVER)
        return INT64_MAX;
    if (server->idle_timeout_ms != SERVER_IDLE_ADAPTIVE)
        return server->idle_timeout_ms;
    int64_t limit = find_adaptive(server, interval_ms, used);
    if (limit < server->min_idle_timeout_ms)
        return server->min_idle_timeout_ms;
    return limit < server->max_idle_timeout_ms ? limit : server->max_idle_timeout_ms;
}

// ---- use ------------------------------------------------------------------------------------

int64_t idle_average(int64_t interval_ms, int64_t since_ms)
{
    int64_t last = since_ms < INTERVAL_MAX_MS ? since_ms : INTERVAL_MAX_MS;
    return interval_ms ? interval_ms + (last - interval_ms) / RECENT_PART : last;
}

void idle_note_call(struct call *call)
{
    struct link_usage *usage = &call->link->usage;
    int64_t now = loop_now(call->gate->loop);
    if (usage->asked_ms)
        usage->interval_ms = idle_average(usage->interval_ms, now - usage->asked_ms);
    usage->asked_ms = now;
    usage->unsaved = true;
    // A reload may have given the session another scope: only the links of its own scope notice its end.
    if (call->scope == call->session->scope || scope_link(call->session->scope, call->link->source))
        (void)map_put(&usage->callers, span_of(call->session->id), call->link);
}

void idle_note_task(struct link *link, struct span task)
{
    struct span raw;
    uint64_t ttl;
    bool limited = scan_find(task, "ttl", &raw) && span_to_u64(raw, &ttl) && ttl > 0 && ttl < TASK_MAX_MS;
    int64_t until = loop_now(link->gate->loop) + (limited ? (int64_t)ttl : TASK_MAX_MS);
    if (until > link->usage.tasks_until_ms)
        link->usage.tasks_until_ms = until;
}

void idle_session_ends(struct link *link, const struct session *session)
{
    (void)map_remove(&link->usage.callers, span_of(session->id));
}

static bool is_needed(const struct link *link)
{
    const struct link_usage *usage = &link->usage;
    return usage->callers.count || link->asks.count || link->watched.count || link->caller_tasks.count ||
           !list_empty(&link->calls) || !list_empty(&link->task_calls) || !list_empty(&link->fan_outs) ||
           loop_now(link->gate->loop) < usage->tasks_until_ms || source_is_busy(link->source) ||
           upstream_in_use(link->upstream);  // also requests of no call in link->calls, such as those of tasks/list
}

// ---- resting --------------------------------------------------------------------------------

static void rest(struct link *link, int64_t idle_ms)
{
    log_info("server stopping: not used", LOG_STR("server", upstream_server(link->upstream)->name),
             LOG_INT("idle_s", idle_ms / 1000));
    kept_save(link);
    upstream_rest(link->upstream, link->gate->config->timeouts.shutdown_ms);
}

static size_t count_resting(const struct gate *gate)
{
    size_t count = 0;
    void *value;
    for (size_t at = 0; map_next(&gate->links, &at, NULL, &value);)
        count += upstream_state(((const struct link *)value)->upstream) == UPSTREAM_RESTING;
    return count;
}

void idle_sweep(struct gate *gate)
{
    int64_t now = loop_now(gate->loop);
    size_t resting = count_resting(gate);
    void *value;
    for (size_t at = 0; resting < RESTING_MAX && map_next(&gate->links, &at, NULL, &value);) {
        struct link *link = value;
        const struct server *server = upstream_server(link->upstream);
        if (upstream_state(link->upstream) != UPSTREAM_READY)
            continue;
        if (is_needed(link))
            link->usage.needed_ms = now;
        int64_t idle_ms = now - link->usage.needed_ms;
        if (idle_ms < idle_limit(server, link->usage.interval_ms, link->usage.asked_ms != 0))
            continue;
        resting++;
        rest(link, idle_ms);
    }
}
