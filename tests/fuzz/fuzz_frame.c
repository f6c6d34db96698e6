// Fuzzes stdio framing: any split gives the same messages, spans lie in the buffer, and bounds hold.
//
// The first byte of the input picks the maximum. Content-Length headers beyond 4096 bytes are left out:
// how much of such junk is dropped at once depends on how much of it has arrived.
#include "base/buf.h"
#include "fuzz.h"
#include "mcp/frame.h"

static void feed(struct span stream, size_t max, size_t piece, struct buf *heard)
{
    struct frame frame;
    frame_init(&frame, max);
    for (size_t at = 0; at < stream.len; at += piece) {
        size_t room, len = stream.len - at < piece ? stream.len - at : piece;
        char *into = frame_room(&frame, len, &room);
        REQUIRE(room >= len);
        memcpy(into, stream.at + at, len);
        frame_fed(&frame, len);
        struct span text = {0};
        enum frame_status status;
        while ((status = frame_next(&frame, &text)) != FRAME_MORE) {
            buf_put_int(heard, (int64_t)status);
            buf_put_char(heard, '\n');
            if (status == FRAME_TOO_LARGE)
                continue;
            REQUIRE(span_inside(text, buf_span(&frame.in)));
            REQUIRE(status == FRAME_JUNK || text.len <= max);
            if (status == FRAME_MESSAGE && !frame.content_length)
                REQUIRE(text.len && (text.at[0] == '{' || text.at[0] == '[') && !memchr(text.at, '\n', text.len));
            buf_put_span(heard, text);
            buf_put_char(heard, '\n');
        }
        REQUIRE(frame.start <= frame.in.len && frame.scanned >= frame.start);
    }
    frame_release(&frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const size_t pieces[] = {1, 2, 5, 17};
    if (len < 1 || len > 4000)
        return 0;
    size_t max = (size_t)bytes[0] + 16;  // at least the name of the header
    struct span stream = span_make((const char *)bytes + 1, len - 1);
    struct buf whole = {0};
    feed(stream, max, len, &whole);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct buf parts = {0};
        feed(stream, max, pieces[i], &parts);
        REQUIRE_SAME(buf_span(&whole), buf_span(&parts));
        buf_release(&parts);
    }
    buf_release(&whole);
    return 0;
}
