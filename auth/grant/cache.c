// Owns the cache of decrypted grants: its contents, when they may be used, and noticing the changes of other processes.
//
// The whole cache reflects one generation of the store. When a poll finds a newer generation that this process did not
// write, the cache is emptied: this is simple, and changes are rare compared with uses. Polls stop while the cache is
// empty.
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
    bool ours = newest == grant->generation && newest == store->newest + 1;  // this write is the only change since
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
