// Owns routing: finds the server of a name, a URI, a reference or a task, as the caller sees it.
#include "base/scan.h"
#include "gate/session/permit.h"
#include "rows.h"

#define DOUBTED_PART 10  // the fraction of timeouts.list for a list in doubt

// ---- waiting for lists ----------------------------------------------------------------------

static void on_waited_enough(struct loop_timer *timer) { call_resume(timer->arg); }

// True if the call needs the lists of this server: for a list, or for an unlisted name that may be there.
static bool needs(const struct call *call, const struct link *link, enum catalog_kind kind, struct span name)
{
    return (!name.at || view_may_have(call->scope->view, kind, link->source, name)) &&
           visibility_allowed(call->session, link);
}

// Called once for each call. Retries servers that needed a login, because the user may have logged in since, and fetches lists
// again that an earlier call may have changed.
static void look_again(struct call *call, enum catalog_kind kind, struct span name)
{
    call->asked_ms = loop_now(call->gate->loop);
    scope_look_again(call->session);
    for (size_t i = 0; i < call->scope->link_count; i++) {
        if (!needs(call, call->scope->links[i], kind, name))
            continue;
        source_doubt(call->scope->links[i]->source, kind);
        if (name.at)
            source_confirm(call->scope->links[i]->source);
    }
}

// When the call stops waiting for pending lists; 0: it need not wait. A call of an unknown name waits for a server that starts for the
// first time as long as the start may take. A list request, and a call where a server only changed its lists, wait for
// `timeouts.list`, or for a fraction of it if the list may not have changed at all. The time counts from when the list became pending,
// so only the first callers wait for a slow server.
static int64_t wait_until(const struct call *call, enum catalog_kind kind, struct span name)
{
    int64_t until = 0, list_ms = call->gate->config->timeouts.list_ms;
    for (size_t i = 0; i < call->scope->link_count; i++) {
        const struct link *link = call->scope->links[i];
        bool starting = name.at && !source_settled(link->source);
        int64_t known_ms = starting ? upstream_server(link->upstream)->start_timeout_ms : list_ms;
        struct source_patience patience = {known_ms, name.at ? known_ms : list_ms / DOUBTED_PART};
        int64_t end = source_wait_until(link->source, kind, call->asked_ms, &patience);
        if (!end || !needs(call, link, kind, name))
            continue;
        source_hurry(link->source);
        until = end > until ? end : until;
    }
    return until;
}

// Called before a list is sent, and before an unlisted name is reported as unknown. PHASE_WAIT: call_resume() follows when a list has
// been fetched, or when the time is over. Each fetch wakes all calls that wait, so their number is bounded.
static enum phase_result wait_for_lists(struct call *call, enum catalog_kind kind, struct span name)
{
    scope_warm(call->session, true);
    if (!call->asked_ms)
        look_again(call, kind, name);
    int64_t left = wait_until(call, kind, name) - loop_now(call->gate->loop);
    if (left <= 0)
        return PHASE_NEXT;
    if (!call_within_session(call))
        return PHASE_FAIL;
    call->timer.on_due = on_waited_enough;
    call->timer.arg = call;
    call->timer.name = "list wait";
    loop_timer_set(call->gate->loop, &call->timer, left);
    list_append(&call->scope->waiters, &call->wait_node);
    return PHASE_WAIT;
}

enum phase_result route_lists(struct call *call)
{
    struct span cursor;
    if (params_find(&call->params, NULL, "cursor", &cursor))
        return PHASE_NEXT;  // a later page: a new list would invalidate its cursor
    return wait_for_lists(call, permit_listed_kind(call->method), (struct span){0});
}

// ---- names and URIs -------------------------------------------------------------------------

// Without a prefix an unknown name may belong to any server that the user has not connected. Returns the first of them that the
// caller may use, whose connection the error requests; the error names all of them. NULL: no such server.
static struct link *find_unconnected(struct call *call, enum catalog_kind kind, struct span name)
{
    enum policy_kind asked;
    struct link *first = NULL;
    struct buf names = {0};
    (void)permit_of(call, &asked);
    for (size_t i = 0; i < call->scope->link_count; i++) {
        struct link *link = call->scope->links[i];
        const char *server = upstream_server(link->upstream)->name;
        struct policy_question question = {call->identity, server, asked, name, NULL};
        const struct profile *profile = kind == CATALOG_TOOLS ? call->session->profile : NULL;
        if (view_prefix(call->scope->view, link->source).len || source_loaded(link->source) ||
            !upstream_needs_login(link->upstream) || !policy_visible(call->tenant->memo, &question) ||
            (profile && !profile_tools_allow(profile_tools_find(profile, server), name)))
            continue;
        first = first ? first : link;
        buf_printf(&names, "%s\"%s\"", names.len ? ", " : "", server);
    }
    call->unconnected = first ? arena_copy(&call->arena, buf_span(&names)) : NULL;
    buf_release(&names);
    return first;
}

// Servers drop or replace a lone surrogate, so they would see another name than the policy.
static enum phase_result fail_half(struct call *call, struct span text)
{
    call->target = text;
    call->error_text = "Invalid params: the name or URI contains a lone surrogate; send whole characters";
    return call_fail(call, ERR_INVALID_PARAMS, "the name or URI contains a lone surrogate");
}

static enum phase_result find_named(struct call *call, enum catalog_kind kind, struct span exposed,
                                    enum err_code unknown)
{
    if (scan_has_half(exposed))
        return fail_half(call, exposed);
    const struct view_entry *entry = view_find(call->scope->view, kind, exposed);
    call->target = exposed;
    if (!entry) {
        enum phase_result waited = wait_for_lists(call, kind, exposed);
        if (waited != PHASE_NEXT)
            return waited;
        // A server whose lists were never loaded may own the name. Then the error is "unavailable", or why it was not started.
        struct span original;
        const struct source *owner = view_unlisted(call->scope->view, kind, exposed, &original);
        struct link *link = owner ? scope_link(call->scope, owner) : find_unconnected(call, kind, original = exposed);
        enum err_code refusal = link ? upstream_refusal(link->upstream) : ERR_NONE;
        enum err_code why = !link ? unknown : refusal ? refusal : ERR_UNAVAILABLE;
        call->link = link;
        enum phase_result result = call_missing(call, why);
        if (link) {
            const char *problem = upstream_problem(link->upstream);
            if (*problem)
                (void)err_set(&call->err, why, "%s", problem);
            call->target = original;
            call->err.retry_after_ms = upstream_pause_left(link->upstream);
        }
        return result;
    }
    call->link = scope_link(call->scope, entry->source);
    call->target = arena_span(&call->arena, entry->original);
    return PHASE_NEXT;
}

enum phase_result route_tool(struct call *call)
{
    struct span name;
    if (!call_text_param(call, NULL, "name", &name))
        return call_fail(call, ERR_INVALID_PARAMS, "params.name must be a string");
    return find_named(call, CATALOG_TOOLS, name, ERR_UNKNOWN_TOOL);
}

enum phase_result route_prompt(struct call *call)
{
    struct span name;
    if (!call_text_param(call, NULL, "name", &name))
        return call_fail(call, ERR_INVALID_PARAMS, "params.name must be a string");
    return find_named(call, CATALOG_PROMPTS, name, ERR_UNKNOWN_PROMPT);
}

static bool has_controls(struct span text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.at[i] < 0x20 || text.at[i] == 0x7f)
            return true;
    return false;
}

static enum phase_result find_uri(struct call *call, struct span uri)
{
    struct buf original = {0};
    if (has_controls(uri))
        return call_fail(call, ERR_INVALID_PARAMS, "a URI must not contain control characters");
    if (scan_has_half(uri))
        return fail_half(call, uri);
    struct source *source = view_route_uri(call->scope->view, uri, &original);
    call->target = uri;
    if (!source) {
        buf_release(&original);
        enum phase_result waited = wait_for_lists(call, CATALOG_RESOURCES, uri);
        if (waited != PHASE_NEXT)
            return waited;
        if ((call->link = find_unconnected(call, CATALOG_RESOURCES, uri)))
            return call_missing(call, ERR_LOGIN);
        buf_clear(&call->error_data);
        buf_put_text(&call->error_data, "\"uri\":");
        scan_encode(uri, &call->error_data);
        return call_missing(call, ERR_UNKNOWN_RESOURCE);
    }
    call->link = scope_link(call->scope, source);
    call->target = arena_span(&call->arena, buf_span(&original));
    buf_release(&original);
    return PHASE_NEXT;
}

enum phase_result route_resource(struct call *call)
{
    struct span uri;
    if (!call_text_param(call, NULL, "uri", &uri))
        return call_fail(call, ERR_INVALID_PARAMS, "params.uri must be a string");
    return find_uri(call, uri);
}

enum phase_result route_reference(struct call *call)
{
    struct span type, name;
    if (!call_text_param(call, "ref", "type", &type))
        return call_fail(call, ERR_INVALID_PARAMS, "params.ref.type must be a string");
    if (span_is(type, "ref/prompt") && call_text_param(call, "ref", "name", &name))
        return find_named(call, CATALOG_PROMPTS, name, ERR_INVALID_PARAMS);
    if (span_is(type, "ref/resource") && call_text_param(call, "ref", "uri", &name)) {
        call->by_uri = true;
        return find_uri(call, name);
    }
    return call_fail(call, ERR_INVALID_PARAMS, "params.ref must name a prompt or a resource");
}

enum phase_result route_task(struct call *call)
{
    struct span wrapped;
    struct buf id = {0};
    if (!call_text_param(call, NULL, "taskId", &wrapped))
        return call_fail(call, ERR_INVALID_PARAMS, "params.taskId must be a string");
    call->link = task_unwrap(call->scope, call->identity, wrapped, &id);
    call->target = call->link ? arena_span(&call->arena, buf_span(&id)) : wrapped;
    buf_release(&id);
    return call->link ? PHASE_NEXT : call_missing(call, ERR_UNKNOWN_TASK);
}
