// Owns the roots of shared servers: a shared server may have the roots of one identity, while no other identity uses it.
//
// Roots are paths of one user, and a server keeps them for all callers that it serves. So roots are passed on only if every session
// that may use the server belongs to the same identity. When another identity arrives, the server gets `roots/list_changed` before a
// call of that identity. It asks again, and is answered with an empty list.
//
// Some servers use roots as the paths that they may access, in place of the paths that their operator configured. So authenticated
// callers are asked only while one of their calls is in flight. A gateway without authentication serves one user: its only session is
// asked at any time, and the server is notified of changes, as without a gateway.
#include "room.h"

#define SESSIONS_MAX 1000  // of a server: with more sessions, it counts as used by several identities

static bool is_shared(const struct link *link) { return !link->owner; }

static void tell_changed(const struct link *link, struct span params)
{
    if (upstream_state(link->upstream) == UPSTREAM_READY)  // a server that is starting will ask by itself
        upstream_message_notify(link->upstream, method_text(METHOD_ROOTS_CHANGED), params);
}

static void set_holder(struct link *link, const struct identity *identity)
{
    struct identity *old = link->roots_of;
    link->roots_of = identity ? identity_ref(identity) : NULL;
    identity_unref(old);
}

// The sessions that use a server.
struct users {
    struct session *first;  // NULL: no session uses it
    bool several, others;   // more sessions, of the same identity or of other identities
};

static struct users find_users(const struct link *link)
{
    struct users users = {0};
    size_t count = 0;
    list_each(use, &link->uses)
        list_each(node, &list_entry(use, struct scope_use, node)->scope->sessions) {
            struct session *session = list_entry(node, struct session, scope_node);
            bool same = users.first && identity_same(users.first->identity, session->identity);
            bool user = same || visibility_allowed(session, link);
            users.several |= user && same;
            users.others = ++count > SESSIONS_MAX || (user && users.first && !same);
            if (users.others)
                return users;
            if (user && !users.first)
                users.first = session;
        }
    return users;
}

bool roots_may_pass(const struct link *link, const struct session *session)
{
    if (!is_shared(link))
        return true;
    struct users users = find_users(link);
    return users.first && !users.others && identity_same(users.first->identity, session->identity);
}

// True if the gateway serves one user, without authentication.
static bool is_personal(const struct session *session) { return session->identity->proof == IDENTITY_ANONYMOUS; }

struct session *roots_only_session(const struct link *link)
{
    struct users users = find_users(link);
    return users.first && is_personal(users.first) && !users.several && !users.others ? users.first : NULL;
}

void roots_given(struct link *link, const struct session *session)
{
    if (is_shared(link))
        set_holder(link, session->identity);
}

void roots_forget(struct link *link)
{
    set_holder(link, NULL);
    link->roots_asked = false;
}

void roots_recheck(const struct session *session)
{
    for (size_t i = 0; session->scope && i < session->scope->link_count; i++) {
        struct link *link = session->scope->links[i];
        if (!link->roots_of || identity_same(link->roots_of, session->identity) || !visibility_allowed(session, link))
            continue;
        set_holder(link, NULL);
        tell_changed(link, (struct span){0});
    }
}

// Notifies a shared server that has asked for roots and may have them.
static void tell_shared(const struct session *session, const struct link *link, struct span params)
{
    if (is_shared(link) && link->roots_asked && visibility_allowed(session, link) && roots_may_pass(link, session))
        tell_changed(link, params);
}

void roots_session_ready(const struct session *session)
{
    for (size_t i = 0; is_personal(session) && session->can.roots && i < session->scope->link_count; i++)
        tell_shared(session, session->scope->links[i], (struct span){0});
}

void roots_changed(const struct session *session, struct span params)
{
    for (size_t i = 0; session->can.roots_changed && i < session->scope->link_count; i++) {
        const struct link *link = session->scope->links[i];
        if (link->owner == session && visibility_allowed(session, link))
            tell_changed(link, params);
        else if (is_personal(session))
            tell_shared(session, link, params);
    }
}
