// JSON lines to a file or standard output, for log shippers.
#ifndef STORE_JSONL_H
#define STORE_JSONL_H

#include "base/err.h"
#include "base/span.h"
#include <stdatomic.h>
#include <sys/types.h>

struct jsonl {
    char *path;  // NULL: standard output
    int fd;
    bool torn;    // the last write ended inside a line
    size_t lost;  // lines that were not, or not completely, written since the caller reset it
    dev_t device;
    ino_t inode;
};

bool jsonl_open(struct jsonl *out, const char *path, struct err *err) MUST_CHECK;  // "-": standard output
// Appends whole lines. Fails if the reader accepts nothing for five seconds, or immediately if *hurry.
bool jsonl_write(struct jsonl *out, struct span lines, const atomic_bool *hurry, struct err *err) MUST_CHECK;
void jsonl_close(struct jsonl *out);

#endif
