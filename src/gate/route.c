// Owns whom a method concerns: the server behind a name, a URI, a reference or a task, as the caller sees it.
#include "base/scan.h"
#include "call.h"
#include "method.h"

enum phase_result call_fail(struct call *call, enum err_code code, const char *detail)
{
    return (enum phase_result)err_set(&call->err, code, "%s", detail);
}

enum phase_result call_missing(struct call *call, enum err_code code)
{
    (void)err_set(&call->err, code, "\"%.*s\"", call->target.len > 200 ? 200 : (int)call->target.len, call->target.at);
    return PHASE_NEXT;
}

bool call_text_param(struct call *call, const char *in, const char *name, struct span *out)
{
    struct span raw;
    if (!params_find(&call->params, in, name, &raw) || !scan_is_string(raw))
        return false;
    if (!memchr(raw.at, '\\', raw.len)) {  // it stands there as it is
        *out = arena_span(&call->arena, span_make(raw.at + 1, raw.len - 2));
        return true;
    }
    struct buf text = {0};
    scan_decode(raw, &text);
    *out = arena_span(&call->arena, buf_span(&text));
    buf_release(&text);
    return true;
}

static void on_waited_enough(struct loop_timer *timer)
{
    struct call *call = timer->arg;
    call->waited_enough = true;
    call_resume(call);
}

static bool must_wait(const struct call *call) { return !call->waited_enough && !scope_settled(call->session); }

static enum phase_result wait_for_lists(struct call *call)
{
    if (!call->timer.slot) {
        call->timer = (struct loop_timer){.on_due = on_waited_enough, .arg = call, .name = "list wait"};
        loop_timer_set(call->gate->loop, &call->timer, call->gate->config->timeouts.list_ms);
    }
    list_append(&call->scope->waiters, &call->wait_node);
    return PHASE_WAIT;
}

enum phase_result route_lists(struct call *call)
{
    scope_warm(call->session, true);
    return must_wait(call) ? wait_for_lists(call) : PHASE_NEXT;
}

// Without a prefix anything may be a server's own that the caller has not connected. Nobody can tell which one's: the
// first that the caller may ask is to be connected, and the error names them all. NULL: there is none.
static struct link *find_unconnected(struct call *call, enum catalog_kind kind, struct span name)
{
    enum policy_kind asked;
    struct link *first = NULL;
    struct buf names = {0};
    (void)call_permit(call, &asked);
    for (size_t i = 0; i < call->scope->link_count; i++) {
        struct link *link = call->scope->links[i];
        const char *server = upstream_server(link->upstream)->name;
        struct policy_question question = {call->identity, server, asked, name, NULL};
        const struct profile *profile = kind == CATALOG_TOOLS ? call->session->profile : NULL;
        if (view_prefix(call->scope->view, link->source).len || source_loaded(link->source) ||
            !upstream_needs_login(link->upstream) || !policy_visible(call->tenant->policy, &question) ||
            (profile && !profile_tools_allow(profile_tools_find(profile, server), name)))
            continue;
        first = first ? first : link;
        buf_printf(&names, "%s\"%s\"", names.len ? ", " : "", server);
    }
    call->unconnected = first ? arena_copy(&call->arena, buf_span(&names)) : NULL;
    buf_release(&names);
    return first;
}

static enum phase_result find_named(struct call *call, enum catalog_kind kind, struct span exposed,
                                    enum err_code unknown)
{
    const struct view_entry *entry = view_find(call->scope->view, kind, exposed);
    call->target = exposed;
    if (!entry) {
        scope_warm(call->session, true);
        if (!call->looked_again)
            scope_look_again(call->session);
        call->looked_again = true;
        if (must_wait(call))
            return wait_for_lists(call);
        // A server whose lists never came may still own the name: then "unavailable" is the truth, or why it was not started.
        struct span original;
        const struct source *owner = view_unlisted(call->scope->view, kind, exposed, &original);
        struct link *link = owner ? scope_link(call->scope, owner) : find_unconnected(call, kind, original = exposed);
        enum err_code refusal = link ? upstream_refusal(link->upstream) : ERR_NONE;
        enum err_code why = !link ? unknown : refusal ? refusal : ERR_UNAVAILABLE;
        call->link = link;
        enum phase_result result = call_missing(call, why);
        if (link)
            call->target = original;
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
        return call_fail(call, ERR_INVALID_PARAMS, "a URI has no control characters");
    struct source *source = view_route_uri(call->scope->view, uri, &original);
    call->target = uri;
    if (!source) {
        buf_release(&original);
        scope_warm(call->session, true);
        if (!call->looked_again)
            scope_look_again(call->session);
        call->looked_again = true;
        if (must_wait(call))
            return wait_for_lists(call);
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
