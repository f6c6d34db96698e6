// Allocation that may fail, and a wipe that no optimizer drops: for the buffers of base.
#ifndef MEM_H
#define MEM_H

#include "base/mem.h"

void *mem_try_resize(void *block, size_t size);  // NULL: out of memory, and the block is unchanged
void mem_wipe(void *block, size_t len);          // before it is freed

#endif
