// Owns the life of a session: the capabilities of its caller at its begin, and everything that ends with it.
#include "base/log.h"
#include "base/mem.h"
#include "base/scan.h"
#include "room.h"

static struct session_abilities read_abilities(struct span capabilities)
{
    struct session_abilities can = {0};
    struct span part, inner;
    if (scan_find(capabilities, "roots", &part)) {
        can.roots = true;
        can.roots_changed = scan_find(part, "listChanged", &inner) && span_is(inner, "true");
    }
    if (scan_find(capabilities, "sampling", &part)) {
        can.sampling = true;
        can.sampling_tools = scan_find(part, "tools", &inner);
    }
    if (scan_find(capabilities, "elicitation", &part)) {
        can.elicit_url = scan_find(part, "url", &inner);
        can.elicit_form = scan_find(part, "form", &inner) || !can.elicit_url;
    }
    if (scan_find(capabilities, "tasks", &part)) {
        can.tasks = true;
        can.tasks_list = scan_find(part, "list", &inner);
        can.tasks_cancel = scan_find(part, "cancel", &inner);
    }
    return can;
}

void session_life_begin(struct session *session, enum revision revision, struct span capabilities)
{
    session_set_state(session, SESSION_LIVE);  // only once, or it would be in its scope twice
    session->revision = revision;
    session->can = read_abilities(capabilities);
    session->capabilities = span_make(mem_span(capabilities), capabilities.len);
    budget_open(&session->declared, session->memory);
    budget_count(&session->declared, capabilities.len);
    session->scope = scope_get(session->gate, session);
    list_append(&session->scope->sessions, &session->scope_node);
    roots_recheck(session);
}

static struct call *open_call(const struct session *session)
{
    list_each(node, &session->calls) {
        struct call *call = list_entry(node, struct call, session_node);
        if (call_is_open(call))
            return call;
    }
    return NULL;
}

static void link_ends(struct link *link, struct session *session)
{
    level_session_ends(link, session);
    idle_session_ends(link, session);
}

void session_life_end(struct session *session)
{
    if (session->state == SESSION_ENDED)
        return;
    session_set_state(session, SESSION_ENDED);
    session->call_count++;  // keeps it until the end of this function
    map_remove(&session->gate->sessions, span_of(session->id));
    tally_drop(&session->gate->session_counts, session->identity);
    session->tenant->session_count--;
    for (struct call *call; (call = open_call(session));)
        call_break_off(call, ERR_UNKNOWN_SESSION, "The session has ended");
    ask_drop_session(session);
    if (session->scope) {
        subscription_drop_session(session);
        fan_out_session_ends(session);
        list_remove(&session->scope_node);
        for (size_t i = 0; i < session->scope->link_count; i++)
            link_ends(session->scope->links[i], session);
        scope_release(session->scope);
        session->scope = NULL;
    }
    session->call_count--;
    session_settle(session);
}

static bool has_link(const struct scope *scope, const struct link *link)
{
    for (size_t i = 0; i < scope->link_count; i++)
        if (scope->links[i] == link)
            return true;
    return false;
}

void session_life_move(struct session *session)
{
    struct scope *old = session->scope;
    fan_out_session_ends(session);
    list_remove(&session->scope_node);
    free(session->visibility.known);  // indexed by the links of the old scope
    session->visibility.known = NULL;
    session->scope = scope_get(session->gate, session);
    list_append(&session->scope->sessions, &session->scope_node);
    for (size_t i = 0; i < old->link_count; i++)
        if (!has_link(session->scope, old->links[i]))
            link_ends(old->links[i], session);
    for (size_t i = 0; i < session->scope->link_count; i++)
        if (session->level >= 0 && !has_link(old, session->scope->links[i]))
            level_set(session->scope->links[i], session);
    subscription_move(session);
    scope_release(old);
}

void session_life_sweep(struct session *session)
{
    struct gate *gate = session->gate;
    int64_t now = loop_now(gate->loop);
    session_sweep_streams(session);
    if (stream_attached(session->standalone) || !list_empty(&session->calls))
        session->used_ms = now;
    if (now - session->used_ms > gate->config->timeouts.session_idle_ms) {
        log_info("session ended: idle", LOG_STR("subject", session->identity->subject));
        session_life_end(session);
    }
}
