// Owns the order in which connections are closed to make room for new ones, and the number of them that one address may have.
//
// A connection is unauthenticated until a request on it was accepted by the providers. It is in `unauthenticated`, oldest
// first, and counts for its address; a new one closes the oldest of an address that has too many. When a listener is full, the
// oldest unauthenticated connection goes, whatever it does. So a flood of connections closes its own, and a caller
// that authenticates soon after it has connected gets in. If all are authenticated, the one that has been without a request for
// the longest time goes (`idle`). An authenticated connection with a request or a stream is never closed to make room.
//
// A connection is moved out of `unauthenticated` when it is looked at there, or when its request is over: the gate only
// sets a flag, which costs a call nothing.
#include "base/mem.h"
#include "face.h"
#include <stdlib.h>

#define LOOKS 64  // at connections, before one of them goes

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
    (void)err_set(&err, ERR_TOO_MANY, "connection closed to make room");
    abandon_request(caller, &err);
    caller_close(caller);
}

// The oldest connection of an address that has too many; the newest is not judged yet.
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

// Trusted proxies are not counted: their address is that of all their callers.
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

// The next one to go; NULL: none may.
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

// A request that has arrived on the connection is read first: then it is perhaps authenticated, and not idle.
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
