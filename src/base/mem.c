// Owns allocation: every block is allocated here, and a failure ends the process, unless the size came from outside.
#include "mem.h"
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define FREE_MAX ((size_t)2 << 20)
#define TRIM_PAD ((size_t)1 << 20)
#define DISCARD_MIN ((size_t)1 << 20)
#define DISCARD_STEP ((size_t)256 << 10)
#define PAGE ((size_t)64 << 10)  // the smallest page size, on every system

static void *checked(void *block, size_t size)
{
    if (!block) {
        fprintf(stderr, "postern: out of memory (%zu bytes)\n", size);
        abort();
    }
    return block;
}

void *mem_alloc(size_t size) { return checked(calloc(1, size ? size : 1), size); }

void *mem_try_resize(void *block, size_t size) { return realloc(block, size ? size : 1); }

void *mem_resize(void *block, size_t size) { return checked(realloc(block, size ? size : 1), size); }

char *mem_copy(const void *bytes, size_t len)
{
    char *copy = checked(malloc(len + 1), len + 1);
    if (len)
        memcpy(copy, bytes, len);
    copy[len] = '\0';
    return copy;
}

char *mem_string(const char *text) { return text ? mem_copy(text, strlen(text)) : NULL; }

char *mem_span(struct span s) { return mem_copy(s.at, s.len); }

// Whole pages are returned to the system instead, a few at a time: unmapping many takes milliseconds, for which the
// address space is locked, and the loop would wait for a worker of low priority that does not get the processor.
void mem_wipe(void *block, size_t len)
{
    char *at = block, *end = at + len;
    char *first = (char *)(((uintptr_t)at + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
    if (len < DISCARD_MIN) {
        explicit_bzero(block, len);
        return;
    }
    explicit_bzero(at, (size_t)(first - at));
    for (at = first; (size_t)(end - at) >= DISCARD_STEP; at += DISCARD_STEP)
        if (madvise(at, DISCARD_STEP, MADV_DONTNEED) != 0)
            explicit_bzero(at, DISCARD_STEP);
    explicit_bzero(at, (size_t)(end - at));
}

// The C library returns only the end of its heap to the system, and one long-lived block there keeps all memory below
// it.
void mem_give_back(void)
{
    if (mallinfo2().fordblks > FREE_MAX)
        (void)malloc_trim(TRIM_PAD);
}
