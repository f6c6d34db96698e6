/* http1.c: the framing of HTTP/1.1 messages: head, Content-Length, chunks. */
#include "http1.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HTTP1_HEAD_MAX = 32768 };

struct framing {
    bool chunked;
    bool has_length;
    size_t length;
};

static bool is_name(struct span name, const char *text)
{
    return name.len == strlen(text) && strncasecmp(name.at, text, name.len) == 0;
}

static bool read_number(struct span text, size_t *number)
{
    size_t n = 0;

    if (text.len == 0 || text.len > 12)
        return false;
    for (size_t i = 0; i < text.len; i++) {
        if (text.at[i] < '0' || text.at[i] > '9')
            return false;
        n = n * 10 + (size_t)(text.at[i] - '0');
    }
    *number = n;
    return true;
}

static bool read_field(struct span line, struct http1_message *m, struct framing *f)
{
    const char *colon = memchr(line.at, ':', line.len);
    if (!colon)
        return false;
    struct span name = {line.at, (size_t)(colon - line.at)};
    struct span value = {colon + 1, line.len - name.len - 1};
    while (value.len && (*value.at == ' ' || *value.at == '\t')) {
        value.at++;
        value.len--;
    }
    while (value.len && (value.at[value.len - 1] == ' ' || value.at[value.len - 1] == '\t'))
        value.len--;

    if (is_name(name, "content-length")) {
        f->has_length = true;
        return read_number(value, &f->length);
    }
    if (is_name(name, "transfer-encoding"))
        f->chunked = is_name(value, "chunked");
    else if (is_name(name, "content-type"))
        m->type = value;
    else if (is_name(name, "mcp-session-id"))
        m->session = value;
    else if (is_name(name, "connection"))
        m->close = is_name(value, "close");
    return true;
}

static bool read_start(struct span line, struct http1_message *m)
{
    if (line.len >= 12 && memcmp(line.at, "HTTP/1.1 ", 9) == 0) {
        size_t status = 0;
        if (!read_number((struct span){line.at + 9, 3}, &status))
            return false;
        m->status = (int)status;
        return true;
    }
    const char *space = memchr(line.at, ' ', line.len);
    if (!space || line.len < 9 || memcmp(line.at + line.len - 9, " HTTP/1.1", 9) != 0)
        return false;
    m->method = (struct span){line.at, (size_t)(space - line.at)};
    return true;
}

/* Reads one "SIZE[;ext]\r\n" line at *p, moving *p past it. */
static enum http1_state read_chunk_size(const char **p, const char *end, size_t *size)
{
    const char *nl = memchr(*p, '\n', (size_t)(end - *p));
    if (!nl)
        return end - *p > 64 ? HTTP1_BAD : HTTP1_PARTIAL;
    if (!isxdigit((unsigned char)**p))
        return HTTP1_BAD;
    char *stop;
    *size = strtoul(*p, &stop, 16);
    if (stop > nl || *size > ((size_t)1 << 30))
        return HTTP1_BAD;
    *p = nl + 1;
    return HTTP1_COMPLETE;
}

/* Walks the chunks from p; with join set, copies their data together at join. */
static enum http1_state walk_chunks(const char *p, const char *end, char *join, size_t *joined, const char **after)
{
    *joined = 0;
    for (;;) {
        size_t size;
        enum http1_state state = read_chunk_size(&p, end, &size);
        if (state != HTTP1_COMPLETE)
            return state;
        if ((size_t)(end - p) < size + 2)
            return HTTP1_PARTIAL;
        if (p[size] != '\r' || p[size + 1] != '\n') /* trailers are not expected */
            return HTTP1_BAD;
        if (join)
            memmove(join + *joined, p, size);
        *joined += size;
        p += size + 2;
        if (size == 0) {
            *after = p;
            return HTTP1_COMPLETE;
        }
    }
}

static enum http1_state read_body(char *data, size_t len, size_t head, const struct framing *f, struct http1_message *m)
{
    if (f->chunked) {
        const char *after;
        size_t joined;
        enum http1_state state = walk_chunks(data + head, data + len, NULL, &joined, &after);
        if (state != HTTP1_COMPLETE)
            return state;
        walk_chunks(data + head, data + len, data + head, &joined, &after);
        m->body = (struct span){data + head, joined};
        m->total = (size_t)(after - data);
        return HTTP1_COMPLETE;
    }
    /* A response framed by the end of its connection is not supported. */
    if (!f->has_length && m->status && m->status != 202 && m->status != 204)
        return HTTP1_BAD;
    if (len - head < f->length)
        return HTTP1_PARTIAL;
    m->body = (struct span){data + head, f->length};
    m->total = head + f->length;
    return HTTP1_COMPLETE;
}

enum http1_state http1_read(char *data, size_t len, struct http1_message *m)
{
    struct framing f = {0};
    const char *blank = len ? memmem(data, len, "\r\n\r\n", 4) : NULL;

    if (!blank)
        return len > HTTP1_HEAD_MAX ? HTTP1_BAD : HTTP1_PARTIAL;
    *m = (struct http1_message){0};
    const char *end = blank + 2;
    bool first = true;
    for (const char *p = data; p < end; first = false) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        if (!nl || nl == p || nl[-1] != '\r')
            return HTTP1_BAD;
        struct span line = {p, (size_t)(nl - 1 - p)};
        if (!(first ? read_start(line, m) : read_field(line, m, &f)))
            return HTTP1_BAD;
        p = nl + 1;
    }
    return read_body(data, len, (size_t)(blank + 4 - data), &f, m);
}
