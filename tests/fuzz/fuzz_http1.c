// Fuzzes reading HTTP/1.1 responses: any split gives the same result, parts lie in the input, and memory is bounded.
#include "../../src/loop/http1.h"
#include "fuzz.h"

static void feed(struct span stream, size_t piece, struct buf *heard)
{
    struct http1 answer = {0};
    struct err err;
    enum http1_event event = HTTP1_MORE;
    for (size_t at = 0; at < stream.len && event == HTTP1_MORE; at += piece) {
        struct span bytes = span_make(stream.at + at, stream.len - at < piece ? stream.len - at : piece), part = {0};
        while ((event = http1_next(&answer, &bytes, &part, &err)) == HTTP1_HEAD || event == HTTP1_BODY) {
            if (event == HTTP1_HEAD) {
                REQUIRE(answer.status >= 200 && answer.status <= 999);
                buf_put_int(heard, answer.status);
                buf_put_span(heard, buf_span(&answer.fields));
            } else {
                REQUIRE(part.len && span_inside(part, stream));
                buf_put_span(heard, part);
            }
        }
        REQUIRE(event != HTTP1_MORE || !bytes.len);
        REQUIRE(answer.line.len + answer.fields.len <= (64 << 10) + 1024);
    }
    buf_put_int(heard, event);
    buf_put_int(heard, http1_ends(&answer));
    if (event == HTTP1_END)
        buf_put_int(heard, answer.keep);
    http1_release(&answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const size_t pieces[] = {1, 2, 3, 7, 16};
    struct span stream = span_make((const char *)bytes, len);
    struct buf whole = {0};
    if (len > 8192)  // below the bound of a head: how far a head beyond it is read depends on the split
        return 0;
    feed(stream, len + 1, &whole);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct buf parts = {0};
        feed(stream, pieces[i], &parts);
        REQUIRE_SAME(buf_span(&whole), buf_span(&parts));
        buf_release(&parts);
    }
    buf_release(&whole);
    return 0;
}
