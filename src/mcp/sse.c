// Owns the SSE format (HTML living standard §9.2): CR, LF and CRLF line ends, BOM, comments, split input.
#include "mcp/sse.h"
#include <stdlib.h>

#define BOM_SIZE 3
#define KEPT_ROOM ((size_t)1 << 20)  // bytes of buffer to keep after a large event

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
    parser->has_data = parser->has_id = parser->after_cr = parser->started = parser->in_data = parser->told = false;
    parser->excess = parser->skipping = false;
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

// Appends data, up to the maximum.
static void put_data(struct sse_parser *parser, struct span part)
{
    struct buf *data = &parser->data;
    if (parser->skipping)
        return;
    parser->excess = part.len > data->max - data->len;
    buf_put(data, part.at, parser->excess ? data->max - data->len : part.len);
    parser->excess |= data->overflow;
}

static void take_data(struct sse_parser *parser, struct span value)
{
    if (parser->has_data)
        put_data(parser, span_of("\n"));
    if (!parser->excess)
        put_data(parser, value);
    parser->has_data = true;
}

static void take_field(struct sse_parser *parser, struct span line)
{
    const char *colon = memchr(line.at, ':', line.len);
    struct span name = colon ? span_make(line.at, (size_t)(colon - line.at)) : line;
    struct span value = colon ? span_after(line, name.len + 1) : span_make(line.at, 0);
    if (value.len && value.at[0] == ' ')
        value = span_after(value, 1);
    if (span_is(name, "data")) {
        take_data(parser, value);
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

static void forget_event(struct sse_parser *parser)
{
    if (parser->data.room > KEPT_ROOM)
        buf_release(&parser->data);
    buf_clear(&parser->data);
    buf_clear(&parser->type);
    parser->has_data = parser->told = parser->skipping = false;
}

static struct sse_event event_of(const struct sse_parser *parser)
{
    return (struct sse_event){.type = parser->type.len ? buf_span(&parser->type) : span_of("message"),
                              .data = buf_span(&parser->data),
                              .id = buf_span(&parser->id)};
}

static enum sse_status end_event(struct sse_parser *parser, struct sse_event *event)
{
    if (parser->has_id) {
        buf_clear(&parser->id);
        buf_put_span(&parser->id, buf_span(&parser->next_id));
        parser->has_id = false;
    }
    if (!parser->has_data || parser->skipping) {
        forget_event(parser);
        return SSE_MORE;
    }
    *event = event_of(parser);
    parser->told = true;
    return SSE_EVENT;
}

static struct span without_bom(const struct sse_parser *parser, struct span line)
{
    return parser->started ? line : span_without_bom(line);
}

static enum sse_status end_line(struct sse_parser *parser, struct span line, struct sse_event *event)
{
    line = without_bom(parser, line);
    parser->started = true;
    if (line.len == 0)
        return end_event(parser, event);
    bool endless = parser->line.overflow || (line.len > parser->line.max && !span_starts(line, "data:"));
    if (line.at[0] != ':' && !endless)
        take_field(parser, line);
    return SSE_MORE;
}

// Takes a part of a line that arrives in parts. As soon as it is known to be a data line, its value goes directly to the event, so
// that a large event is in memory only once.
static void put_part(struct sse_parser *parser, struct span part)
{
    struct buf *line = &parser->line;
    size_t start = BOM_SIZE + strlen("data: ");
    if (!parser->in_data && line->len < start) {
        size_t len = part.len < start - line->len ? part.len : start - line->len;
        buf_put(line, part.at, len);
        part = span_after(part, len);
        struct span begun = without_bom(parser, buf_span(line));
        if (line->len == start && span_starts(begun, "data:")) {
            take_field(parser, begun);
            parser->in_data = parser->started = true;
        }
    }
    if (!parser->in_data)
        buf_put_span(line, part);
    else if (!parser->excess)
        put_data(parser, part);
}

static const char *find_end(const char *at, const char *end)
{
    const char *lf = memchr(at, '\n', (size_t)(end - at));
    const char *cr = memchr(at, '\r', (size_t)((lf ? lf : end) - at));
    return cr ? cr : lf;
}

enum sse_status sse_next(struct sse_parser *parser, struct span *bytes, struct sse_event *event)
{
    enum sse_status status = SSE_MORE;
    if (parser->told)
        forget_event(parser);
    if (parser->skipping)
        buf_release(&parser->data);
    while (bytes->len && status == SSE_MORE && !parser->excess) {
        bool ended = parser->after_cr && bytes->at[0] == '\n';  // the line that the CR ended
        parser->after_cr = false;
        if (ended) {
            *bytes = span_after(*bytes, 1);
            continue;
        }
        const char *stop = find_end(bytes->at, bytes->at + bytes->len);
        struct span line = span_make(bytes->at, stop ? (size_t)(stop - bytes->at) : bytes->len);
        *bytes = span_after(*bytes, line.len + (stop ? 1 : 0));
        if (!stop || parser->line.len)
            put_part(parser, line);
        if (!stop)
            break;
        parser->after_cr = *stop == '\r';
        if (!parser->in_data)
            status = end_line(parser, parser->line.len ? buf_span(&parser->line) : line, event);
        parser->in_data = false;
        buf_clear(&parser->line);
    }
    if (!parser->excess)
        return status;
    parser->excess = false;
    parser->skipping = true;
    *event = event_of(parser);
    return SSE_TOO_LARGE;
}

struct blob *sse_take(struct sse_parser *parser) { return blob_take(&parser->data); }

void sse_put_head(struct buf *out, struct span id, struct span type)
{
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
    buf_put_text(out, "data: ");
}

void sse_put(struct buf *out, struct span id, struct span type, struct span data)
{
    buf_reserve(out, data.len + id.len + type.len + 64);
    sse_put_head(out, id, type);
    const char *at = data.at ? data.at : "", *end = at + data.len;
    for (const char *stop; data.len && (stop = find_end(at, end));) {
        buf_put(out, at, (size_t)(stop - at));
        buf_put_text(out, "\ndata: ");
        at = stop + (stop + 1 < end && stop[0] == '\r' && stop[1] == '\n' ? 2 : 1);
    }
    buf_put(out, at, (size_t)(end - at));
    buf_put_text(out, SSE_END);
}
