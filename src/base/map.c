// Owns the hash map: open addressing, linear probing, a seed per process against chosen keys.
#include "base/map.h"
#include "base/mem.h"
#include "base/secret.h"
#include <stdlib.h>

enum slot_state { SLOT_FREE, SLOT_TAKEN, SLOT_REMOVED };

struct map_slot {
    uint64_t hash;
    char *key;
    size_t key_len;
    void *value;
    char small[16];  // short keys live here: no allocation for ids
    enum slot_state state;
};

static uint64_t seed(void)
{
    static uint64_t value;
    if (!value)
        secret_random(&value, sizeof value);
    return value;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t word_at(const char *at, size_t len)
{
    uint64_t word = 0;
    memcpy(&word, at, len);
    return word;
}

// Sixteen bytes at a time. Each word is multiplied only with a secret value, so that keys cannot be chosen to collide.
static uint64_t hash_of(struct span key)
{
    uint64_t secret = seed(), hash = mix(secret ^ key.len, 0x9E3779B97F4A7C15ULL);
    const char *at = key.at;
    size_t left = key.len;
    for (; left > 16; at += 16, left -= 16)
        hash = mix(word_at(at, 8) ^ secret, word_at(at + 8, 8) ^ hash);
    if (left >= 8)  // the two words may overlap
        hash = mix(word_at(at, 8) ^ secret, word_at(at + left - 8, 8) ^ hash);
    else if (left)
        hash = mix(word_at(at, left) ^ secret, hash);
    return mix(hash, 0xE7037ED1A0B428DBULL ^ secret);
}

static const char *slot_key(const struct map_slot *slot) { return slot->key ? slot->key : slot->small; }

static struct map_slot *probe(const struct map *map, struct span key, uint64_t hash, bool for_put)
{
    if (!map->room)
        return NULL;
    struct map_slot *reusable = NULL;
    for (size_t i = hash & (map->room - 1);; i = (i + 1) & (map->room - 1)) {
        struct map_slot *slot = &map->slots[i];
        if (slot->state == SLOT_FREE)
            return for_put ? (reusable ? reusable : slot) : NULL;
        if (slot->state == SLOT_REMOVED) {
            if (!reusable)
                reusable = slot;
            continue;
        }
        if (slot->hash == hash && span_equal(span_make(slot_key(slot), slot->key_len), key))
            return slot;
    }
}

static void grow(struct map *map)
{
    struct map old = *map;
    map->room = old.count * 4 < 16 ? 16 : 1;
    while (map->room < old.count * 4)
        map->room *= 2;
    map->slots = mem_alloc(map->room * sizeof *map->slots);
    map->used = map->count;
    for (size_t i = 0; i < old.room; i++) {
        const struct map_slot *slot = &old.slots[i];
        if (slot->state != SLOT_TAKEN)
            continue;
        size_t at = slot->hash & (map->room - 1);
        while (map->slots[at].state != SLOT_FREE)
            at = (at + 1) & (map->room - 1);
        map->slots[at] = *slot;
    }
    free(old.slots);
}

void map_release(struct map *map)
{
    for (size_t i = 0; i < map->room; i++)
        free(map->slots[i].key);
    free(map->slots);
    *map = (struct map){0};
}

void *map_find(const struct map *map, struct span key)
{
    if (!map->count)
        return NULL;
    const struct map_slot *slot = probe(map, key, hash_of(key), false);
    return slot ? slot->value : NULL;
}

void *map_put(struct map *map, struct span key, void *value)
{
    if (map->room == 0 || (map->used + 1) * 4 > map->room * 3)
        grow(map);
    uint64_t hash = hash_of(key);
    struct map_slot *slot = probe(map, key, hash, true);
    if (slot->state == SLOT_TAKEN) {
        void *old = slot->value;
        slot->value = value;
        return old;
    }
    if (slot->state == SLOT_FREE)
        map->used++;
    *slot = (struct map_slot){.hash = hash, .key_len = key.len, .value = value, .state = SLOT_TAKEN};
    if (key.len > sizeof slot->small)
        slot->key = mem_span(key);
    else if (key.len)
        memcpy(slot->small, key.at, key.len);
    map->count++;
    return NULL;
}

void *map_remove(struct map *map, struct span key)
{
    struct map_slot *slot = map->count ? probe(map, key, hash_of(key), false) : NULL;
    if (!slot)
        return NULL;
    void *value = slot->value;
    free(slot->key);
    *slot = (struct map_slot){.state = SLOT_REMOVED};
    map->count--;
    return value;
}

void *map_take_one(struct map *map)
{
    struct span key;
    void *value;
    size_t at = 0;
    if (!map_next(map, &at, &key, &value))
        return NULL;
    struct map_slot *slot = &map->slots[at - 1];
    free(slot->key);
    *slot = (struct map_slot){.state = SLOT_REMOVED};
    map->count--;
    return value;
}

bool map_next(const struct map *map, size_t *at, struct span *key, void **value)
{
    for (; *at < map->room; (*at)++) {
        const struct map_slot *slot = &map->slots[*at];
        if (slot->state != SLOT_TAKEN)
            continue;
        if (key)
            *key = span_make(slot_key(slot), slot->key_len);
        *value = slot->value;
        (*at)++;
        return true;
    }
    return false;
}
