// Message framing on pipes: one message per line, or LSP-style Content-Length, detected for each message.
#ifndef MCP_FRAME_H
#define MCP_FRAME_H

#include "base/blob.h"
#include "base/span.h"
#include <stdbool.h>

enum frame_status {
    FRAME_MORE,  // feed more bytes
    FRAME_MESSAGE,
    FRAME_JUNK,       // a line that cannot be a message; the span shows it
    FRAME_TOO_LARGE,  // a message above the maximum is dropped; the span is its beginning
    FRAME_NO_MEMORY,  // a message was dropped for lack of memory
};

struct frame {
    struct buf in;
    size_t start;    // of the bytes that are not consumed yet
    size_t scanned;  // no newline before this
    size_t max;
    bool no_memory;       // a message was dropped, and frame_next() has not reported it yet
    bool skipping;        // dropping the rest of an over-long line
    size_t skip_body;     // dropping the rest of an over-long Content-Length body
    bool content_length;  // the last message came with Content-Length
};

void frame_init(struct frame *frame, size_t max);
void frame_release(struct frame *frame);
char *frame_room(struct frame *frame, size_t want, size_t *room);  // the buffer for the next read
void frame_fed(struct frame *frame, size_t len);
// The next message; its span lives until the next frame_room().
enum frame_status frame_next(struct frame *frame, struct span *out);
// Takes over the memory of the last message. The bytes behind it are moved to other memory.
struct blob *frame_take(struct frame *frame);

#endif
