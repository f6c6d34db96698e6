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
    struct buf line;  // an incomplete line, unless it is known to be a data line
    struct buf data, type, id;
    struct buf next_id;  // of the current event; becomes `id` when the event is complete
    int64_t retry_ms;    // the last retry: field, or -1
    bool in_data;        // the next bytes belong to the value of a data line
    bool told;           // the event in `data` was returned
    bool excess;         // the event in `data` is too large, which the next sse_next() reports
    bool skipping;       // the rest of that event is dropped
    bool has_data, has_id, after_cr, started;
    size_t max;  // of one event's data
};

enum sse_status {
    SSE_MORE,  // feed more bytes
    SSE_EVENT,
    SSE_TOO_LARGE,  // an event above the maximum is dropped; its data is the beginning
};

void sse_init(struct sse_parser *parser, size_t max);
void sse_release(struct sse_parser *parser);
// Prepares for a new connection that resumes the stream: drops an incomplete event and keeps the last id.
void sse_restart(struct sse_parser *parser);
// Consumes bytes up to the next event with a data line, which may be empty. Its spans are valid until the next call.
enum sse_status sse_next(struct sse_parser *parser, struct span *bytes, struct sse_event *event);
struct blob *sse_take(struct sse_parser *parser);  // takes over the data of the last event

// Puts one event; `id` and `type` may be empty. Data with newlines becomes several data: lines.
void sse_put(struct buf *out, struct span id, struct span type, struct span data);
// Puts the beginning of an event. The caller puts data without line ends after it, and then SSE_END.
void sse_put_head(struct buf *out, struct span id, struct span type);
#define SSE_END "\n\n"

#endif
