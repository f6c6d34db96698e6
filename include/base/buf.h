// A growable byte buffer with a ceiling. Going over the ceiling sets `overflow`, and further bytes are dropped; so does
// a failed allocation. A buffer with a ceiling is for data from outside. Without a ceiling, a failed allocation ends
// the process.
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include "base/span.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *at;
    size_t len;
    size_t room;
    size_t max;  // 0: unlimited
    bool overflow;
    bool no_memory;  // the overflow is a failed allocation
};

void buf_release(struct buf *buf);
void buf_wipe(struct buf *buf);   // of a secret: overwrites all of its memory, then releases it
void buf_clear(struct buf *buf);  // keeps the memory
void buf_reserve(struct buf *buf, size_t extra);
bool buf_try_reserve(struct buf *buf, size_t extra);                // false: the allocation failed
void buf_put_more(struct buf *buf, const void *bytes, size_t len);  // buf_put(), if the buffer must grow
void buf_put_int(struct buf *buf, int64_t value);
void buf_printf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_drop_front(struct buf *buf, size_t len);
char *buf_take(struct buf *buf, size_t *len);  // hands the memory over, NUL-terminated; buf is empty again
char *buf_text(struct buf *buf);               // NUL-terminated view

static inline void buf_put(struct buf *buf, const void *bytes, size_t len)
{
    if (!bytes || len == 0 || buf->max || len >= buf->room - buf->len) {
        buf_put_more(buf, bytes, len);
        return;
    }
    memcpy(buf->at + buf->len, bytes, len);
    buf->len += len;
}
static inline void buf_put_span(struct buf *buf, struct span s) { buf_put(buf, s.at, s.len); }
static inline void buf_put_text(struct buf *buf, const char *text) { buf_put(buf, text, strlen(text)); }
static inline void buf_put_char(struct buf *buf, char c) { buf_put(buf, &c, 1); }

static inline struct span buf_span(const struct buf *buf) { return (struct span){buf->at, buf->len}; }

#endif
