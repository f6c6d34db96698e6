// Owns the cache of open grants: what it holds, when it may be trusted, and following what other processes do.
//
// All of it is true as of one generation of the whole store. When a look at the store shows a newer one that is not ours,
// the cache is emptied: simple, and changes are rare beside uses. Looks are taken while it holds anything.
#include "base/mem.h"
#include "work.h"
#include <stdlib.h>

struct grant_cached {
    struct list node;  // in `recent`, the least recently used first
    const struct grant *grant;
    size_t key_len;
    char key[];
};

static void release(struct grant_store *store, struct grant_cached *cached)
{
    map_remove(&store->cache, span_make(cached->key, cached->key_len));
    list_remove(&cached->node);
    grant_unref(cached->grant);
    free(cached);
}

const struct grant *grant_cache_find(struct grant_store *store, struct span key)
{
    if (loop_now(store->loop) - store->checked_ms > GRANT_STORE_STALE_MS)
        return NULL;
    struct grant_cached *cached = map_find(&store->cache, key);
    if (!cached)
        return NULL;
    list_remove(&cached->node);
    list_append(&store->recent, &cached->node);
    return cached->grant;
}

void grant_cache_drop(struct grant_store *store, struct span key)
{
    struct grant_cached *cached = map_find(&store->cache, key);
    if (cached)
        release(store, cached);
}

void grant_cache_clear(struct grant_store *store)
{
    while (!list_empty(&store->recent))
        release(store, list_entry(store->recent.next, struct grant_cached, node));
}

void grant_cache_checked(struct grant_store *store, int64_t newest, int64_t started_ms)
{
    if (newest != store->newest) {
        grant_cache_clear(store);
        store->version++;
    }
    store->newest = newest;
    store->checked_ms = started_ms;
}

void grant_cache_wrote(struct grant_store *store, int64_t generation)
{
    if (generation == store->newest + 1)
        store->newest = generation;
}

void grant_cache_put(struct grant_store *store, struct span key, const struct grant *grant, int64_t newest,
                     int64_t started_ms)
{
    bool ours = newest == grant->generation && newest == store->newest + 1;  // the only change since is this one
    if (ours)
        store->newest = newest;
    grant_cache_checked(store, newest, started_ms);
    grant_cache_drop(store, key);
    if (store->cache.count >= GRANT_STORE_CACHE)
        release(store, list_entry(store->recent.next, struct grant_cached, node));
    struct grant_cached *cached = mem_alloc(sizeof *cached + key.len);
    cached->grant = grant_ref(grant);
    cached->key_len = key.len;
    memcpy(cached->key, key.at, key.len);
    map_put(&store->cache, key, cached);
    list_append(&store->recent, &cached->node);
    if (!store->poll.slot && !store->polling && !store->closing)
        loop_timer_set(store->loop, &store->poll, GRANT_STORE_POLL_MS);
}
