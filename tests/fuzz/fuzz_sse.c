// Fuzzes the SSE parser: any split of the stream gives the same events, and a written event is read back.
#include "base/buf.h"
#include "fuzz.h"
#include "mcp/sse.h"

#define MAX 65536  // far above any input, so that no bound is reached

// False if an event was too large.
static bool push(struct sse_parser *parser, struct span bytes, struct buf *heard)
{
    struct sse_event event;
    enum sse_status status;
    bool all = true;
    while ((status = sse_next(parser, &bytes, &event)) != SSE_MORE) {
        all = all && status == SSE_EVENT;
        buf_put_span(heard, event.type);
        buf_put_char(heard, '\n');
        buf_put_span(heard, event.id);
        buf_put_char(heard, '\n');
        buf_put_span(heard, event.data);
        buf_put_char(heard, '\r');  // never inside a part
    }
    return all;
}

static int64_t feed(struct span stream, size_t piece, struct buf *heard)
{
    struct sse_parser parser;
    sse_init(&parser, MAX);
    for (size_t at = 0; at < stream.len; at += piece)
        REQUIRE(push(&parser, span_make(stream.at + at, stream.len - at < piece ? stream.len - at : piece), heard));
    int64_t retry = parser.retry_ms;
    sse_release(&parser);
    return retry;
}

// Writes the data as one event and reads it back: line ends become line feeds, all other bytes stay.
static void round_trip(struct span data)
{
    struct buf out = {0}, heard = {0}, want = {0};
    sse_put(&out, span_of("7"), span_of("kind"), data);
    feed(buf_span(&out), out.len, &heard);
    buf_put_text(&want, "kind\n7\n");
    buf_put_span(&want, data);
    buf_put_char(&want, '\r');
    if (!data.len || !memchr(data.at, '\r', data.len))
        REQUIRE_SAME(buf_span(&heard), buf_span(&want));
    REQUIRE(heard.len && memchr(heard.at, '\r', heard.len) == heard.at + heard.len - 1);  // one event
    buf_release(&out);
    buf_release(&heard);
    buf_release(&want);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const size_t pieces[] = {1, 2, 3, 7, 16};
    struct span stream = span_make((const char *)bytes, len);
    struct buf whole = {0};
    if (len > MAX / 2)
        return 0;
    int64_t retry = feed(stream, len + 1, &whole);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct buf parts = {0};
        REQUIRE(feed(stream, pieces[i], &parts) == retry);
        REQUIRE_SAME(buf_span(&whole), buf_span(&parts));
        buf_release(&parts);
    }
    buf_release(&whole);
    round_trip(stream);
    struct sse_parser bounded;  // with a small bound, memory stays within it
    struct buf heard = {0};
    sse_init(&bounded, 8);
    for (size_t at = 0; at < len; at++) {
        push(&bounded, span_make(stream.at + at, 1), &heard);
        REQUIRE(bounded.line.len <= 8 + 64 && bounded.data.len <= 8 + 64);
    }
    buf_release(&heard);
    sse_release(&bounded);
    return 0;
}
