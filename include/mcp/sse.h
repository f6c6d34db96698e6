// Server-sent events: an incremental parser and a writer.
#ifndef MCP_SSE_H
#define MCP_SSE_H

#include "base/blob.h"
#include "base/span.h"
#include <stdbool.h>
#include <stdint.h>

struct sse_event {
    struct span type;  // "message" if the stream named none
    struct span data;
    struct span id;  // the last id seen on the stream; empty if none
};

struct sse_parser {
    struct buf line;  // one that has begun and may be a data line, or is none
    struct buf data, type, id;
    struct buf next_id;  // of the event that is coming; counts when the event is complete
    int64_t retry_ms;    // the last retry: field, or -1
    bool in_data;        // what comes belongs to the value of a data line
    bool told;           // the event in `data` was
    bool excess;         // the event in `data` is too large, which the next sse_next() reports
    bool skipping;       // the rest of it is dropped
    bool has_data, has_id, after_cr, started;
    size_t max;  // of one event's data
};

enum sse_status {
    SSE_MORE,  // feed more bytes
    SSE_EVENT,
    SSE_TOO_LARGE,  // an event above the maximum is dropped; its data show how it begins
};

void sse_init(struct sse_parser *parser, size_t max);
void sse_release(struct sse_parser *parser);
void sse_restart(
    struct sse_parser *parser);  // a new connection goes on: half an event is forgotten, the last id is not
// Consumes bytes up to the next event that has data, if only empty. Its spans live until the next call.
enum sse_status sse_next(struct sse_parser *parser, struct span *bytes, struct sse_event *event);
struct blob *sse_take(struct sse_parser *parser);  // the data of the event just told, with its memory

// One event; `id` and `type` may be empty. Newlines in the data become several data: lines.
void sse_put(struct buf *out, struct span id, struct span type, struct span data);
// The same for data without line ends, which the caller puts after this, and SSE_END after that.
void sse_put_head(struct buf *out, struct span id, struct span type);
#define SSE_END "\n\n"

#endif
