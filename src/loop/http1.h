// An HTTP/1.1 answer, read piece by piece: pure, bounded, strict about where it ends.
#ifndef LOOP_HTTP1_H
#define LOOP_HTTP1_H

#include "base/buf.h"
#include "base/err.h"

enum http1_event {
    HTTP1_BROKEN,  // not HTTP, or HTTP that two readers could read differently; the error says why
    HTTP1_MORE,    // all bytes are consumed
    HTTP1_HEAD,    // status and headers are known
    HTTP1_BODY,    // a piece of the body
    HTTP1_END,     // the answer is complete; bytes that are left do not belong to any answer
};

enum http1_state {
    HTTP1_AT_STATUS,
    HTTP1_AT_FIELD,
    HTTP1_AT_BODY,   // `left` bytes of it to come
    HTTP1_TO_CLOSE,  // a body that ends with the connection
    HTTP1_AT_CHUNK,
    HTTP1_IN_CHUNK,
    HTTP1_AFTER_CHUNK,
    HTTP1_AT_TRAILER,
    HTTP1_OVER,
};

struct http1 {
    enum http1_state state;
    int status;
    bool keep;        // the connection may carry another exchange
    uint64_t keep_s;  // if it begins within this time; 0: the server did not give a time
    bool chunked, sized;
    uint64_t left;
    size_t head_bytes;  // so far, including those of interim answers and trailers
    struct buf line;    // a line that came in pieces
    struct buf fields;  // name NUL value NUL, each
};

void http1_release(struct http1 *answer);  // a zeroed struct is ready for use
void http1_clear(struct http1 *answer);    // so is a cleared one, which keeps a little memory
// The next event in `bytes`, which advances past the consumed bytes. `piece` is set for HTTP1_BODY.
enum http1_event http1_next(struct http1 *answer, struct span *bytes, struct span *piece, struct err *err) MUST_CHECK;
// The connection was closed. True: this completes the answer.
bool http1_ends(const struct http1 *answer);
// The value of the field with this name and index, counted from 0. NULL: the answer does not have so many.
const char *http1_field(const struct http1 *answer, const char *name, size_t index);

#endif
