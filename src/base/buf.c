// Owns the growable byte buffer.
#include "base/buf.h"
#include "mem.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void buf_release(struct buf *buf)
{
    free(buf->at);
    size_t max = buf->max;
    *buf = (struct buf){.max = max};
}

void buf_wipe(struct buf *buf)
{
    if (buf->at)
        mem_wipe(buf->at, buf->room);
    buf_release(buf);
}

void buf_clear(struct buf *buf)
{
    buf->len = 0;
    buf->overflow = buf->no_memory = false;
}

// Always one byte more than asked for, for the NUL of buf_text().
static size_t room_for(const struct buf *buf, size_t extra)
{
    size_t need = buf->len + extra + 1, room = buf->room ? buf->room : 64;
    while (room < need)
        room += room > (1U << 20) ? room / 4 : room;
    return room;
}

bool buf_try_reserve(struct buf *buf, size_t extra)
{
    size_t room = room_for(buf, extra);
    if (room <= buf->room)
        return true;
    char *at = mem_try_resize(buf->at, room);
    if (!at)
        return false;
    buf->at = at;
    buf->room = room;
    return true;
}

void buf_reserve(struct buf *buf, size_t extra)
{
    if (buf->max) {
        buf->no_memory = !buf_try_reserve(buf, extra);
        buf->overflow = buf->overflow || buf->no_memory;
        return;
    }
    size_t room = room_for(buf, extra);
    if (room > buf->room)
        buf->at = mem_resize(buf->at, room);
    buf->room = room;
}

void buf_put_more(struct buf *buf, const void *bytes, size_t len)
{
    if (!bytes || len == 0 || buf->overflow)
        return;
    if (buf->max && len > buf->max - buf->len) {
        buf->overflow = true;
        return;
    }
    buf_reserve(buf, len);
    if (buf->overflow)
        return;
    memcpy(buf->at + buf->len, bytes, len);
    buf->len += len;
}

// Two digits with each division.
void buf_put_int(struct buf *buf, int64_t value)
{
    static const char pairs[] =
        "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748"
        "49505152535455565758596061626364656667686970717273747576777879808182838485868788899091929394959697"
        "9899";
    char digits[24];
    size_t at = sizeof digits;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    for (; rest >= 10; rest /= 100)
        memcpy(digits + (at -= 2), pairs + rest % 100 * 2, 2);
    if (rest || at == sizeof digits)
        digits[--at] = (char)('0' + rest);
    if (value < 0)
        digits[--at] = '-';
    buf_put(buf, digits + at, sizeof digits - at);
}

void buf_printf(struct buf *buf, const char *format, ...)
{
    char small[256];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(small, sizeof small, format, args);
    va_end(args);
    if (len < 0)
        return;
    if ((size_t)len < sizeof small) {
        buf_put(buf, small, (size_t)len);
        return;
    }
    char *large = mem_alloc((size_t)len + 1);
    va_start(args, format);
    vsnprintf(large, (size_t)len + 1, format, args);
    va_end(args);
    buf_put(buf, large, (size_t)len);
    free(large);
}

void buf_drop_front(struct buf *buf, size_t len)
{
    if (len >= buf->len) {
        buf->len = 0;
        return;
    }
    memmove(buf->at, buf->at + len, buf->len - len);
    buf->len -= len;
}

char *buf_text(struct buf *buf)
{
    buf_reserve(buf, 0);
    buf->at[buf->len] = '\0';
    return buf->at;
}

char *buf_take(struct buf *buf, size_t *len)
{
    char *bytes = buf_text(buf);
    if (len)
        *len = buf->len;
    size_t max = buf->max;
    *buf = (struct buf){.max = max};
    return bytes;
}
