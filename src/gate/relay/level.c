// Owns MCP's log levels: their names, and the level of each server.
//
// A lower level is set at once. Raising a level requires a walk over all sessions of the server, so it is left for the next sweep:
// thousands of sessions may end in a short time.
#include "base/scan.h"
#include "room.h"

#define LEVEL_UNSET 1  // info: the level of a session that never set one

static const char *const names[] = {"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"};

int level_parse(struct span raw_string)
{
    for (int i = 0; i < 8 && scan_is_string(raw_string); i++)
        if (scan_key_is(raw_string, names[i]))
            return i;
    return -1;
}

static int wanted_by(const struct session *session) { return session->level >= 0 ? session->level : LEVEL_UNSET; }

static bool can_ask(const struct link *link)
{
    return upstream_state(link->upstream) == UPSTREAM_READY && upstream_abilities(link->upstream)->logging;
}

static void ask_for(struct link *link, int level)
{
    struct buf params = {0};
    link->level = level;
    buf_printf(&params, "{\"level\":\"%s\"}", names[level]);
    outgoing_unheard(link, METHOD_SET_LEVEL, buf_span(&params));
    buf_release(&params);
}

void level_push(struct link *link)
{
    int level = -1;
    bool any = false;
    list_remove(&link->level_node);
    if (!can_ask(link))
        return;
    list_each(use, &link->uses)
        list_each(node, &list_entry(use, struct scope_use, node)->scope->sessions) {
            const struct session *session = list_entry(node, struct session, scope_node);
            if (!visibility_allowed(session, link))
                continue;
            any = any || session->level >= 0;
            if (level < 0 || wanted_by(session) < level)
                level = wanted_by(session);
        }
    if (any && level != link->level)
        ask_for(link, level);
}

static void look_later(struct link *link)
{
    if (!list_linked(&link->level_node))
        list_append(&link->gate->levels, &link->level_node);
}

void level_set(struct link *link, const struct session *session)
{
    if (link->level < 0)
        level_push(link);
    else if (session->level > link->level)
        look_later(link);
    else if (session->level < link->level && can_ask(link) && visibility_allowed(session, link))
        ask_for(link, session->level);
}

void level_session_ends(struct link *link, const struct session *session)
{
    if (wanted_by(session) == link->level)
        look_later(link);
}

void level_sweep(struct gate *gate)
{
    while (!list_empty(&gate->levels))
        level_push(list_entry(gate->levels.next, struct link, level_node));
}
