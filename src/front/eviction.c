// Owns eviction: which connections are closed when a listener is full, and how many unauthenticated ones an address may have.
//
// A connection is unauthenticated until the providers have accepted a request on it. It is in `unauthenticated`, oldest
// first, and counts for its address. If an address has more than limits.unauthenticated_connections, the oldest of them is
// closed. If the listener is full, the oldest unauthenticated connection of all is closed, even in the middle of a request.
// So a flood of connections closes its own connections, and a caller that authenticates soon after connecting is served. If
// all connections are authenticated, the one without a request for the longest time is closed (`idle`). An
// authenticated connection with a request or a stream is never closed.
//
// A connection is moved out of `unauthenticated` when eviction looks at it there, or at the end of its request. Until then
// the gate only sets a flag, so that authentication costs a call nothing here.
#include "base/mem.h"
#include "face.h"
#include <stdlib.h>

#define LOOKS 64  // candidates that are given a chance to authenticate before one is closed

struct eviction_source {
    struct peer_source key;
    struct list callers;  // caller.neighbour, oldest first
    size_t count;
};

static struct span key_of(const struct peer_source *key) { return span_make((const char *)key, sizeof *key); }

static void leave_source(struct caller *caller)
{
    struct eviction_source *source = caller->source;
    if (!source)
        return;
    caller->source = NULL;
    list_remove(&caller->neighbour);
    if (--source->count)
        return;
    map_remove(&caller->face->sources, key_of(&source->key));
    free(source);
}

void eviction_remove(struct caller *caller)
{
    leave_source(caller);
    list_remove(&caller->rank);
}

void eviction_authenticated(struct caller *caller)
{
    if (caller->authenticated)
        return;
    caller->authenticated = true;
    eviction_remove(caller);
}

static void evict(struct caller *caller)
{
    eviction_remove(caller);
    caller->face->evicted++;
    struct err err;
    (void)err_set(
        &err, ERR_TOO_MANY,
        "connection evicted: limits.connections (%lld) or limits.unauthenticated_connections (%lld) is reached",
        (long long)caller->face->config.limits->connections,
        (long long)caller->face->config.limits->unauthenticated_connections);
    abandon_request(caller, &err);
    caller_close(caller);
}

// Closes the oldest unauthenticated connection of an address that has too many, but never the newest one.
static void evict_oldest(struct eviction_source *source)
{
    while (source->count > 1) {
        struct caller *caller = list_entry(source->callers.next, struct caller, neighbour);
        if (!caller_is_authenticated(caller)) {
            evict(caller);
            return;
        }
        eviction_authenticated(caller);
    }
}

// Trusted proxies are not counted: all of their callers have the same address.
static void join_source(struct caller *caller)
{
    struct http_face *face = caller->face;
    struct peer_source key;
    if (!credentials_source(&caller->peer, &key) || provider_chain_is_proxy(face->chain, &caller->peer))
        return;
    struct eviction_source *source = map_find(&face->sources, key_of(&key));
    if (!source) {
        source = mem_new(struct eviction_source);
        source->key = key;
        list_init(&source->callers);
        map_put(&face->sources, key_of(&key), source);
    }
    caller->source = source;
    list_append(&source->callers, &caller->neighbour);
    if (++source->count > (size_t)face->config.limits->unauthenticated_connections)
        evict_oldest(source);
}

void eviction_add(struct caller *caller)
{
    list_append(&caller->face->unauthenticated, &caller->rank);
    join_source(caller);
}

void eviction_begin(struct caller *caller)
{
    if (caller->authenticated)
        list_remove(&caller->rank);
}

void eviction_end(struct caller *caller)
{
    if (caller_is_authenticated(caller))
        eviction_authenticated(caller);
    if (caller->authenticated)
        list_append(&caller->face->idle, &caller->rank);
}

// The connection to close next; NULL: all of them are authenticated and busy.
static struct caller *candidate(struct http_face *face)
{
    while (!list_empty(&face->unauthenticated)) {
        struct caller *caller = list_entry(face->unauthenticated.next, struct caller, rank);
        if (!caller_is_authenticated(caller))
            return caller;
        eviction_authenticated(caller);
    }
    return list_empty(&face->idle) ? NULL : list_entry(face->idle.next, struct caller, rank);
}

// A request that has already arrived on the candidate is read first: it may authenticate the connection or end its idleness.
bool eviction_make_room(struct http_face *face)
{
    size_t before = face->caller_count;
    struct caller *caller = candidate(face);
    for (int i = 0; caller && i < LOOKS; i++) {
        shard_run(caller->shard);
        if (face->caller_count < before)
            return true;
        struct caller *next = candidate(face);
        if (next == caller)
            break;
        caller = next;
    }
    if (caller)
        evict(caller);
    return caller != NULL;
}
