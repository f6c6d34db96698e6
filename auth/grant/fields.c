// Owns the encoding of sealed objects (members with tag and length), and of keys that consist of several texts.
#include "base/mem.h"
#include "base/secret.h"
#include "encoding.h"
#include <stdlib.h>

enum { VERSION = 1, HEAD_BYTES = 5, TIME_BYTES = 8 };

// Returns the bytes of a member; those of a time are written to `room`.
static struct span bytes_of(const struct field *field, const void *object, char room[TIME_BYTES])
{
    const void *at = (const char *)object + field->offset;
    if (field->type == FIELD_TEXT)
        return span_of(*(char *const *)at);
    if (field->type == FIELD_SECRET)
        return secret_span(at);
    uint64_t time = (uint64_t) * (const int64_t *)at;
    for (int i = 0; i < TIME_BYTES; i++)
        room[i] = (char)(time >> (8 * (TIME_BYTES - 1 - i)));
    return span_make(room, time ? TIME_BYTES : 0);
}

void fields_encode(const struct field *table, const void *object, struct buf *out)
{
    char room[TIME_BYTES];
    size_t need = 1;
    for (const struct field *field = table; field->type; field++)
        need += HEAD_BYTES + bytes_of(field, object, room).len;
    buf_reserve(out, need);  // all at once: growing the buffer would leave copies of secrets in freed memory
    buf_put_char(out, VERSION);
    for (const struct field *field = table; field->type; field++) {
        struct span bytes = bytes_of(field, object, room);
        if (!bytes.len)
            continue;
        buf_put_char(out, (char)field->tag);
        for (int shift = 24; shift >= 0; shift -= 8)
            buf_put_char(out, (char)(bytes.len >> shift));
        buf_put_span(out, bytes);
    }
}

static const struct field *find(const struct field *table, unsigned char tag)
{
    for (; table->type; table++)
        if (table->tag == tag)
            return table;
    return NULL;
}

static bool set(const struct field *field, struct span bytes, void *object)
{
    void *at = (char *)object + field->offset;
    if (field->type == FIELD_TIME) {
        uint64_t time = 0;
        for (size_t i = 0; i < bytes.len; i++)
            time = time << 8 | (unsigned char)bytes.at[i];
        *(int64_t *)at = (int64_t)time;
        return bytes.len == TIME_BYTES;
    }
    if (field->type == FIELD_SECRET) {
        secret_set(at, bytes);
        return true;
    }
    if (*(char **)at || memchr(bytes.at, '\0', bytes.len))
        return false;
    *(char **)at = mem_span(bytes);
    return true;
}

bool fields_decode(const struct field *table, struct span bytes, void *object, struct err *err)
{
    bool ok = bytes.len && bytes.at[0] == VERSION;
    bytes = span_after(bytes, 1);
    while (ok && bytes.len) {
        size_t len = 0;
        unsigned char tag = (unsigned char)bytes.at[0];
        for (size_t i = 1; i < HEAD_BYTES && i < bytes.len; i++)
            len = len << 8 | (unsigned char)bytes.at[i];
        if (bytes.len < HEAD_BYTES || bytes.len - HEAD_BYTES < len) {
            ok = false;
            break;
        }
        const struct field *field = find(table, tag);
        ok = !field || set(field, span_make(bytes.at + HEAD_BYTES, len), object);
        bytes = span_after(bytes, HEAD_BYTES + len);
    }
    return ok || err_set(err, ERR_SYSTEM, "a stored object is damaged, or was written by a later version");
}

void fields_copy(const struct field *table, const void *from, void *to)
{
    for (; table->type; table++) {
        const void *source = (const char *)from + table->offset;
        void *target = (char *)to + table->offset;
        if (table->type == FIELD_TEXT)
            *(char **)target = mem_string(*(char *const *)source);
        else if (table->type == FIELD_TIME)
            *(int64_t *)target = *(const int64_t *)source;
        else {
            *(struct secret *)target = (struct secret){0};
            secret_set(target, secret_span(source));
        }
    }
}

void fields_release(const struct field *table, void *object)
{
    for (; table->type; table++) {
        void *at = (char *)object + table->offset;
        if (table->type == FIELD_TEXT) {
            free(*(char **)at);
            *(char **)at = NULL;
        } else if (table->type == FIELD_SECRET) {
            secret_release(at);
        } else {
            *(int64_t *)at = 0;
        }
    }
}

void fields_put_key(struct buf *out, const char *const *texts, size_t count)
{
    for (size_t i = 0; i < count && texts[i]; i++)
        buf_printf(out, "%zu:%s,", strlen(texts[i]), texts[i]);
}

bool fields_take_key(struct span key, char **texts, size_t count)
{
    size_t got = 0;
    while (got < count) {
        uint64_t len;
        const char *colon = key.len ? memchr(key.at, ':', key.len) : NULL;
        if (!colon)
            break;
        size_t digits = (size_t)(colon - key.at);
        if (!span_to_u64(span_make(key.at, digits), &len) || key.len - digits < 2 || len > key.len - digits - 2 ||
            colon[1 + len] != ',')
            break;
        texts[got++] = mem_copy(colon + 1, (size_t)len);
        key = span_after(key, digits + (size_t)len + 2);
    }
    if (got == count && key.len == 0)
        return true;
    while (got)
        free(texts[--got]);
    return false;
}
