// Owns the cache of verified tokens: the identity of each by the token's SHA-256, least recently used first out.
#include "jwt_cache.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/secret.h"
#include <stdlib.h>

struct cached {
    struct list node;
    unsigned char key[SECRET_MAC_BYTES];
    const struct identity *identity;
};

struct jwt_cache {
    struct map map;
    struct list used;  // least recently used first
    size_t room;
};

static struct span cached_key(const struct cached *entry)
{
    return span_make((const char *)entry->key, sizeof entry->key);
}

struct jwt_cache *jwt_cache_new(size_t room)
{
    struct jwt_cache *cache = mem_new(struct jwt_cache);
    cache->room = room;
    list_init(&cache->used);
    return cache;
}

static void forget(struct jwt_cache *cache, struct cached *entry)
{
    (void)map_remove(&cache->map, cached_key(entry));
    list_remove(&entry->node);
    identity_unref(entry->identity);
    free(entry);
}

void jwt_cache_clear(struct jwt_cache *cache)
{
    list_each(node, &cache->used)
        forget(cache, list_entry(node, struct cached, node));
}

void jwt_cache_free(struct jwt_cache *cache)
{
    if (!cache)
        return;
    jwt_cache_clear(cache);
    map_release(&cache->map);
    free(cache);
}

const struct identity *jwt_cache_find(struct jwt_cache *cache, struct span token, int64_t now)
{
    struct cached sought;
    secret_digest(token, sought.key);
    struct cached *entry = map_find(&cache->map, cached_key(&sought));
    if (!entry)
        return NULL;
    if (now >= entry->identity->expires) {
        forget(cache, entry);
        return NULL;
    }
    list_remove(&entry->node);
    list_append(&cache->used, &entry->node);
    return entry->identity;
}

void jwt_cache_put(struct jwt_cache *cache, struct span token, const struct identity *identity)
{
    if (!cache->room || identity->expires <= 0)
        return;
    struct cached *entry = mem_new(struct cached);
    secret_digest(token, entry->key);
    struct cached *old = map_find(&cache->map, cached_key(entry));
    if (!old && cache->map.count >= cache->room)
        old = list_entry(cache->used.next, struct cached, node);
    if (old)
        forget(cache, old);
    entry->identity = identity_ref(identity);
    list_append(&cache->used, &entry->node);
    (void)map_put(&cache->map, cached_key(entry), entry);
}
