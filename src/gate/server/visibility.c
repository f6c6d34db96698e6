// Owns which servers are visible to a session: the policy asked about what servers push, not only about what is called.
//
// A server that no rule gives a session anything of never learns of it: none of its own is started for it, and it hears neither its
// log level nor its roots. What a server says (instructions, logs, questions) reaches only who may use something of it.
// That is worked out once for each session and server, and again when the lists, the policy or the caller's roles change.
#include "base/mem.h"
#include "gate/session/permit.h"
#include "room.h"
#include <string.h>

enum { UNKNOWN, NO, YES };

// It has something allowed there that no list shows.
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

// What it was when lists, policy or roles were others is forgotten.
static unsigned char *known(struct session *session, size_t at)
{
    struct session_visibility *seen = &session->visibility;
    uint64_t generation = 0;  // grows with each list that changes
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
    if (!source_loaded(link->source))  // what it has is not known yet
        return visibility_allowed(session, link);
    unsigned char *answer = known(session, at);
    if (*answer == UNKNOWN)
        *answer = sees_item(session, link) ? YES : NO;
    return *answer == YES || is_used(session, link);
}
