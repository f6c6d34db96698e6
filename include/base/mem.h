// Allocation that cannot fail: running out of memory ends the process with a message. Where callers and servers say how
// much it is, it may fail: that ends their call.
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include "base/span.h"
#include <stddef.h>

void *mem_alloc(size_t size);  // zeroed
void *mem_resize(void *block, size_t size);
void *mem_try_resize(void *block, size_t size);  // NULL: there is not so much, and the block stays as it is
char *mem_copy(const void *bytes, size_t len);   // NUL-terminated copy
char *mem_string(const char *text);              // NULL stays NULL
char *mem_span(struct span s);
// Gives freed memory back to the system if there is much of it. Takes a moment: not for every call.
void mem_give_back(void);

#define mem_new(type) ((type *)mem_alloc(sizeof(type)))

#endif
