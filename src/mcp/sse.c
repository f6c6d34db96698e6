// Owns the SSE format (HTML living standard §9.2): CR, LF and CRLF line ends, BOM, comments, split input.
#include "mcp/sse.h"
#include <stdlib.h>

void sse_init(struct sse_parser *parser, size_t max)
{
    *parser = (struct sse_parser){.retry_ms = -1, .max = max};
    parser->line.max = parser->data.max = max + 64;
    parser->type.max = parser->id.max = parser->next_id.max = 4096;
}

void sse_release(struct sse_parser *parser)
{
    buf_release(&parser->line);
    buf_release(&parser->data);
    buf_release(&parser->type);
    buf_release(&parser->id);
    buf_release(&parser->next_id);
}

void sse_restart(struct sse_parser *parser)
{
    buf_clear(&parser->line);
    buf_clear(&parser->data);
    buf_clear(&parser->type);
    parser->has_data = parser->has_id = parser->after_cr = parser->started = false;
}

static void take_retry(struct sse_parser *parser, struct span value)
{
    int64_t ms = 0;
    if (value.len == 0 || value.len > 9)
        return;
    for (size_t i = 0; i < value.len; i++) {
        if (value.at[i] < '0' || value.at[i] > '9')
            return;
        ms = ms * 10 + (value.at[i] - '0');
    }
    parser->retry_ms = ms;
}

static void take_field(struct sse_parser *parser, struct span line)
{
    const char *colon = memchr(line.at, ':', line.len);
    struct span name = colon ? span_make(line.at, (size_t)(colon - line.at)) : line;
    struct span value = colon ? span_after(line, name.len + 1) : span_make(line.at, 0);
    if (value.len && value.at[0] == ' ')
        value = span_after(value, 1);
    if (span_is(name, "data")) {
        if (parser->has_data)
            buf_put_char(&parser->data, '\n');
        buf_put_span(&parser->data, value);
        parser->has_data = true;
    } else if (span_is(name, "event")) {
        buf_clear(&parser->type);
        buf_put_span(&parser->type, value);
    } else if (span_is(name, "id") && !memchr(value.at, '\0', value.len)) {
        buf_clear(&parser->next_id);
        buf_put_span(&parser->next_id, value);
        parser->has_id = true;
    } else if (span_is(name, "retry")) {
        take_retry(parser, value);
    }
}

static bool end_event(struct sse_parser *parser, bool (*on_event)(void *, const struct sse_event *), void *arg)
{
    bool ok = true;
    if (parser->data.overflow)
        return false;
    if (parser->has_id) {
        buf_clear(&parser->id);
        buf_put_span(&parser->id, buf_span(&parser->next_id));
        parser->has_id = false;
    }
    if (parser->has_data) {
        struct sse_event event = {.type = parser->type.len ? buf_span(&parser->type) : span_of("message"),
                                  .data = buf_span(&parser->data),
                                  .id = buf_span(&parser->id)};
        ok = on_event(arg, &event);
    }
    buf_clear(&parser->data);
    buf_clear(&parser->type);
    parser->has_data = false;
    return ok;
}

static bool end_line(struct sse_parser *parser, struct span line, bool (*on_event)(void *, const struct sse_event *),
                     void *arg)
{
    if (!parser->started) {
        parser->started = true;
        if (span_starts(line, "\xEF\xBB\xBF"))
            line = span_after(line, 3);
    }
    if (line.len == 0)
        return end_event(parser, on_event, arg);
    if (line.at[0] != ':')
        take_field(parser, line);
    return true;
}

static const char *find_end(const char *at, const char *end)
{
    const char *lf = memchr(at, '\n', (size_t)(end - at));
    const char *cr = memchr(at, '\r', (size_t)((lf ? lf : end) - at));
    return cr ? cr : lf;
}

bool sse_push(struct sse_parser *parser, struct span bytes, bool (*on_event)(void *arg, const struct sse_event *event),
              void *arg)
{
    const char *at = bytes.at, *end = bytes.at + bytes.len;
    while (at < end) {
        if (parser->after_cr) {
            parser->after_cr = false;
            if (*at == '\n') {
                at++;
                continue;
            }
        }
        const char *stop = find_end(at, end);
        if (!stop) {
            buf_put(&parser->line, at, (size_t)(end - at));
            return !parser->line.overflow;
        }
        struct span line = span_make(at, (size_t)(stop - at));
        if (parser->line.len) {  // its beginning came earlier
            buf_put_span(&parser->line, line);
            if (parser->line.overflow)
                return false;
            line = buf_span(&parser->line);
        }
        parser->after_cr = *stop == '\r';
        at = stop + 1;
        if (line.len > parser->line.max)
            return false;
        bool ok = end_line(parser, line, on_event, arg);
        buf_clear(&parser->line);
        if (!ok)
            return false;
    }
    return true;
}

void sse_put(struct buf *out, struct span id, struct span type, struct span data)
{
    buf_reserve(out, data.len + id.len + type.len + 64);
    if (type.len) {
        buf_put_text(out, "event: ");
        buf_put_span(out, type);
        buf_put_char(out, '\n');
    }
    if (id.len) {
        buf_put_text(out, "id: ");
        buf_put_span(out, id);
        buf_put_char(out, '\n');
    }
    const char *at = data.at ? data.at : "", *end = at + data.len;
    for (;;) {
        const char *stop = data.len ? find_end(at, end) : NULL;
        buf_put_text(out, "data: ");
        if (data.len)
            buf_put(out, at, (size_t)((stop ? stop : end) - at));
        buf_put_char(out, '\n');
        if (!stop)
            break;
        at = stop + (stop + 1 < end && stop[0] == '\r' && stop[1] == '\n' ? 2 : 1);
    }
    buf_put_char(out, '\n');
}
