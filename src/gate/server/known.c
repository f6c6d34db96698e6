// Owns the instructions and capabilities of servers of one user or session, until the next one for that user is up.
//
// `initialize` is answered without waiting for servers. The link of a shared server stays, and with it the server's declarations. The
// link of a server of a user or session ends with its sessions, so the declarations are kept here until the next server is up. They may
// be confidential, so they are kept for the identity that the server sent them to, in the same profile, and only if the server is
// visible to that identity there.
#include "base/mem.h"
#include "room.h"
#include <stdlib.h>

#define KNOWN_MAX 1000

struct known {
    struct buf instructions, declared;
};

static void known_free(struct known *known)
{
    if (!known)
        return;
    buf_release(&known->instructions);
    buf_release(&known->declared);
    free(known);
}

static void put_key(const struct link *link, const struct session *session, struct buf *out)
{
    const char *server = upstream_server(link->upstream)->name;
    const char *profile = session->profile ? session->profile->name : "";
    buf_put(out, server, strlen(server) + 1);
    buf_put(out, profile, strlen(profile) + 1);
    tally_put_key(session->identity, out);
}

static void note(struct link *link, struct session *session)
{
    struct map *all = &link->gate->known;
    struct buf key = {0};
    put_key(link, session, &key);
    known_free(map_remove(all, buf_span(&key)));
    if (visibility_sees(session, link)) {
        struct known *known = mem_new(struct known);
        buf_put_span(&known->instructions, upstream_instructions(link->upstream));
        buf_put_span(&known->declared, upstream_declared(link->upstream));
        if (all->count >= KNOWN_MAX)
            known_free(map_take_one(all));
        map_put(all, buf_span(&key), known);
    }
    buf_release(&key);
}

void known_note(struct link *link)
{
    if (upstream_server(link->upstream)->isolation == SERVER_SHARED || !source_loaded(link->source))
        return;
    list_each(node, &link->uses) {
        struct list *sessions = &list_entry(node, struct scope_use, node)->scope->sessions;
        if (!list_empty(sessions))  // all of one identity, in one profile
            note(link, list_entry(sessions->next, struct session, scope_node));
    }
}

// NULL: the server itself is up, or nothing is kept.
static const struct known *find(const struct link *link, const struct session *session)
{
    struct buf key = {0};
    if (upstream_revision(link->upstream) != REVISION_NONE)
        return NULL;
    put_key(link, session, &key);
    const struct known *known = map_find(&link->gate->known, buf_span(&key));
    buf_release(&key);
    return known;
}

struct span known_instructions(const struct link *link, const struct session *session)
{
    const struct known *known = find(link, session);
    return known ? buf_span(&known->instructions) : upstream_instructions(link->upstream);
}

struct span known_declared(const struct link *link, const struct session *session)
{
    const struct known *known = find(link, session);
    return known ? buf_span(&known->declared) : upstream_declared(link->upstream);
}

void known_release_all(struct gate *gate)
{
    void *value;
    for (size_t at = 0; map_next(&gate->known, &at, NULL, &value);)
        known_free(value);
    map_release(&gate->known);
}
