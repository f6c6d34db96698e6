// Owns allocation: every block comes from here, and failure ends the process loudly.
#include "base/mem.h"
#include <stdio.h>
#include <stdlib.h>

static void *checked(void *block, size_t size)
{
    if (!block) {
        fprintf(stderr, "postern: out of memory (%zu bytes)\n", size);
        abort();
    }
    return block;
}

void *mem_alloc(size_t size) { return checked(calloc(1, size ? size : 1), size); }

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
