/* buf.h: a growable byte buffer, shared by the benchmark programs. */
#ifndef BENCH_BUF_H
#define BENCH_BUF_H

#include <stddef.h>

struct buf {
    char *data;
    size_t len;
    size_t cap;
};

/* Reserves n more bytes and returns a pointer to them; the caller then increases len. */
char *buf_room(struct buf *b, size_t n);
void buf_append(struct buf *b, const void *data, size_t n);
void buf_text(struct buf *b, const char *text);
void buf_number(struct buf *b, unsigned long n);
/* Removes the first n bytes. */
void buf_drop(struct buf *b, size_t n);
void buf_free(struct buf *b);

#endif
