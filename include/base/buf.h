// A growable byte buffer with a ceiling; going over it sets `overflow` and drops what follows. So does the end of memory: a
// buffer with a ceiling is for what comes from outside. Without one, the end of memory ends the process.
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
    size_t max;  // 0: no ceiling
    bool overflow;
    bool no_memory;  // which is why
};

void buf_release(struct buf *buf);
void buf_wipe(struct buf *buf);   // of a secret: overwrites all of its memory, then releases it
void buf_clear(struct buf *buf);  // keeps the memory
void buf_reserve(struct buf *buf, size_t extra);
bool buf_try_reserve(struct buf *buf, size_t extra);                // false: there is not so much memory
void buf_put_more(struct buf *buf, const void *bytes, size_t len);  // buf_put(), when there may be no room
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
