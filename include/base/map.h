// A hash map from byte strings to pointers; keys are copied, values belong to the caller.
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include "base/span.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_slot;

struct map {
    struct map_slot *slots;
    size_t count;
    size_t used;  // slots that are or were taken
    size_t room;  // power of two, or 0
};

void map_release(struct map *map);
void *map_find(const struct map *map, struct span key);
void *map_put(struct map *map, struct span key, void *value);  // returns the value it replaced, or NULL
void *map_remove(struct map *map, struct span key);            // returns the value, or NULL
void *map_take_one(struct map *map);  // removes any entry and returns its value: for bounded maps
// for (size_t at = 0; map_next(map, &at, &key, &value);) … ; entries may be removed meanwhile, but not put.
bool map_next(const struct map *map, size_t *at, struct span *key, void **value);

static inline struct span map_key_u64(const uint64_t *id) { return (struct span){(const char *)id, sizeof *id}; }

#endif
