// An arena allocates memory that lives as long as one call, and is wiped and freed at once.
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/span.h"
#include <stddef.h>

struct arena_chunk;

// Chunks of released arenas, kept for the next arenas. The store outlives the arenas that use it.
struct arena_store {
    struct arena_chunk *chunks;
    size_t count;
};

struct arena {
    struct arena_chunk *chunks;
    struct arena_store *store;  // may be NULL
};

void arena_store_release(struct arena_store *store);

void arena_release(struct arena *arena);
void *arena_alloc(struct arena *arena, size_t size);       // zeroed, aligned for any type
char *arena_copy(struct arena *arena, struct span bytes);  // NUL-terminated
struct span arena_span(struct arena *arena, struct span bytes);

#endif
