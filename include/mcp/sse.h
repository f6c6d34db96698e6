// Server-sent events: an incremental parser and a writer.
#ifndef MCP_SSE_H
#define MCP_SSE_H

#include "base/buf.h"
#include "base/span.h"
#include <stdbool.h>
#include <stdint.h>

struct sse_event {
    struct span type;  // "message" if the stream named none
    struct span data;
    struct span id;  // the last id seen on the stream; empty if none
};

struct sse_parser {
    struct buf line, data, type, id;
    struct buf next_id;  // of the event that is coming; counts when the event is complete
    int64_t retry_ms;    // the last retry: field, or -1
    bool has_data, has_id, after_cr, started;
    size_t max;  // of one event's data
};

void sse_init(struct sse_parser *parser, size_t max);
void sse_release(struct sse_parser *parser);
void sse_restart(
    struct sse_parser *parser);  // a new connection goes on: half an event is forgotten, the last id is not
// Feeds bytes; calls on_event for each event that has data, if only empty. False from on_event, or an
// event above the maximum, stops with false.
bool sse_push(struct sse_parser *parser, struct span bytes, bool (*on_event)(void *arg, const struct sse_event *event),
              void *arg);

// One event; `id` and `type` may be empty. Newlines in the data become several data: lines.
void sse_put(struct buf *out, struct span id, struct span type, struct span data);

#endif
