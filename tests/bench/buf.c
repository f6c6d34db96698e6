/* buf.c: a growable byte buffer; running out of memory ends the program. */
#include "buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *buf_room(struct buf *b, size_t n)
{
    if (b->cap - b->len < n) {
        size_t cap = b->cap ? b->cap : 1024;
        while (cap - b->len < n)
            cap *= 2;
        char *data = realloc(b->data, cap);
        if (!data) {
            fputs("out of memory\n", stderr);
            exit(3);
        }
        b->data = data;
        b->cap = cap;
    }
    return b->data + b->len;
}

void buf_append(struct buf *b, const void *data, size_t n)
{
    if (n == 0)
        return;
    memcpy(buf_room(b, n), data, n);
    b->len += n;
}

void buf_text(struct buf *b, const char *text) { buf_append(b, text, strlen(text)); }

void buf_number(struct buf *b, unsigned long n)
{
    char digits[24];
    size_t at = sizeof digits;

    do {
        digits[--at] = (char)('0' + n % 10);
        n /= 10;
    } while (n);
    buf_append(b, digits + at, sizeof digits - at);
}

void buf_drop(struct buf *b, size_t n)
{
    b->len -= n;
    if (n && b->len)
        memmove(b->data, b->data + n, b->len);
}

void buf_free(struct buf *b)
{
    free(b->data);
    *b = (struct buf){0};
}
