// Allocation that cannot fail: running out of memory ends the process with a message. Where a caller or a server
// determines the size, allocation may fail: that ends its call.
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include "base/span.h"
#include <stddef.h>

void *mem_alloc(size_t size);  // zeroed
void *mem_resize(void *block, size_t size);
char *mem_copy(const void *bytes, size_t len);  // NUL-terminated copy
char *mem_string(const char *text);             // NULL stays NULL
char *mem_span(struct span s);
// Returns freed memory to the system if there is much of it. Too slow for every call.
void mem_give_back(void);

// How many freed objects of a kind that every call needs are kept for reuse: more than one turn of the loop needs. None
// with AddressSanitizer, so that it sees every use after free.
#ifdef __has_feature
#define MEM_SANITIZED __has_feature(address_sanitizer)
#else
#define MEM_SANITIZED 0
#endif
#if defined(__SANITIZE_ADDRESS__) || MEM_SANITIZED
#define MEM_SPARES 0
#else
#define MEM_SPARES 64
#endif

#define mem_new(type) ((type *)mem_alloc(sizeof(type)))

#endif
