// Owns arenas: chunks that grow, are wiped and freed together at the end of a call.
#include "base/arena.h"
#include "base/mem.h"
#include <stdalign.h>
#include <stdlib.h>

#define CHUNK_SIZE 2048

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, room;
    alignas(max_align_t) char bytes[];
};

void arena_release(struct arena *arena)
{
    for (struct arena_chunk *chunk = arena->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        explicit_bzero(chunk->bytes, chunk->used);
        free(chunk);
    }
    arena->chunks = NULL;
}

void *arena_alloc(struct arena *arena, size_t size)
{
    size = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
    struct arena_chunk *chunk = arena->chunks;
    if (!chunk || chunk->room - chunk->used < size) {
        size_t room = size > CHUNK_SIZE / 4 ? size + CHUNK_SIZE : CHUNK_SIZE;
        chunk = mem_resize(NULL, sizeof *chunk + room);
        chunk->next = arena->chunks;
        chunk->used = 0;
        chunk->room = room;
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
