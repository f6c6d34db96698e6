// Owns arenas: chunks of memory that are wiped and freed together at the end of a call.
#include "base/arena.h"
#include "base/mem.h"
#include <stdalign.h>
#include <stdlib.h>

#define CHUNK_SIZE 3040  // 3 KiB with its header: enough for most calls

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, room;
    alignas(max_align_t) char bytes[];
};

void arena_store_release(struct arena_store *store)
{
    for (struct arena_chunk *chunk = store->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    *store = (struct arena_store){0};
}

static void chunk_release(struct arena_store *store, struct arena_chunk *chunk)
{
    explicit_bzero(chunk->bytes, chunk->used);
    if (!store || store->count + 1 > MEM_SPARES || chunk->room != CHUNK_SIZE) {
        free(chunk);
        return;
    }
    chunk->next = store->chunks;
    store->chunks = chunk;
    store->count++;
}

static struct arena_chunk *chunk_new(struct arena_store *store, size_t size)
{
    struct arena_chunk *chunk = store ? store->chunks : NULL;
    if (chunk && size <= CHUNK_SIZE) {
        store->chunks = chunk->next;
        store->count--;
    } else {
        size_t room = size > CHUNK_SIZE ? size + CHUNK_SIZE : CHUNK_SIZE;
        chunk = mem_resize(NULL, sizeof *chunk + room);
        chunk->room = room;
    }
    chunk->used = 0;
    return chunk;
}

void arena_release(struct arena *arena)
{
    for (struct arena_chunk *chunk = arena->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        chunk_release(arena->store, chunk);
    }
    arena->chunks = NULL;
}

void *arena_alloc(struct arena *arena, size_t size)
{
    size = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
    struct arena_chunk *chunk = arena->chunks;
    if (!chunk || chunk->room - chunk->used < size) {
        chunk = chunk_new(arena->store, size);
        chunk->next = arena->chunks;
        arena->chunks = chunk;
    }
    void *block = chunk->bytes + chunk->used;
    chunk->used += size;
    return memset(block, 0, size);
}

char *arena_copy(struct arena *arena, struct span bytes)
{
    char *copy = arena_alloc(arena, bytes.len + 1);
    if (bytes.len)
        memcpy(copy, bytes.at, bytes.len);
    return copy;
}

struct span arena_span(struct arena *arena, struct span bytes)
{
    return span_make(arena_copy(arena, bytes), bytes.len);
}
