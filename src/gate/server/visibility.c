// Owns the visibility of servers to sessions: the policy also decides the messages that servers send without a call.
//
// If no rule allows a session anything of a server, the server does not learn of the session: it is not started for it, and gets
// neither its log level nor its roots. Instructions, logs and questions of a server reach only sessions that may use something of it.
// The result is computed once for each session and server, and again when the lists, the policy or the caller's roles change.
#include "base/mem.h"
#include "gate/session/permit.h"
#include "room.h"
#include <string.h>

enum { UNKNOWN, NO, YES };

// True if the session uses something of the server that no list contains.
static bool is_used(const struct session *session, const struct link *link)
{
    void *value;
    list_each(node, &session->calls) {
        const struct call *call = list_entry(node, struct call, session_node);
        if (call->link == link && list_linked(&call->link_node))
            return true;
    }
    for (size_t at = 0; map_next(&session->subscribed, &at, NULL, &value);)
        if (((const struct subscription *)value)->link == link)
            return true;
    return false;
}

static bool sees_item(const struct session *session, const struct link *link)
{
    struct view *view = session->scope->view;
    for (int kind = 0; kind < CATALOG_KINDS; kind++)
        for (size_t i = 0; i < view_count(view, (enum catalog_kind)kind); i++) {
            const struct view_entry *entry = view_entry_at(view, (enum catalog_kind)kind, i);
            struct policy_question question = {session->identity, upstream_server(link->upstream)->name,
                                               permit_policy_kind((enum catalog_kind)kind), entry->original, NULL};
            if (entry->source == link->source && policy_visible(session->tenant->memo, &question))
                return true;
        }
    return false;
}

static bool find(const struct session *session, const struct link *link, size_t *at)
{
    for (*at = 0; session->scope && *at < session->scope->link_count; ++*at)
        if (session->scope->links[*at] == link)
            return true;
    return false;
}

bool visibility_allowed(const struct session *session, const struct link *link)
{
    size_t at;
    return find(session, link, &at) &&
           policy_visible_server(session->tenant->memo, session->identity, upstream_server(link->upstream)->name);
}

// The cached result, which is cleared after a change of lists, policy or roles.
static unsigned char *known(struct session *session, size_t at)
{
    struct session_visibility *seen = &session->visibility;
    uint64_t generation = 0;  // grows with each change of a list
    for (int kind = 0; kind < CATALOG_KINDS; kind++)
        generation += view_generation(session->scope->view, (enum catalog_kind)kind);
    if (!seen->known)
        seen->known = mem_alloc(session->scope->link_count);
    else if (seen->generation != generation || seen->epoch != session->gate->policy_epoch)
        memset(seen->known, UNKNOWN, session->scope->link_count);
    seen->generation = generation;
    seen->epoch = session->gate->policy_epoch;
    return &seen->known[at];
}

bool visibility_sees(struct session *session, const struct link *link)
{
    size_t at;
    if (!find(session, link, &at))
        return false;
    if (policy_is_open(session->tenant->policy))
        return true;
    if (!source_loaded(link->source))  // its items are not known yet
        return visibility_allowed(session, link);
    unsigned char *answer = known(session, at);
    if (*answer == UNKNOWN)
        *answer = sees_item(session, link) ? YES : NO;
    return *answer == YES || is_used(session, link);
}
