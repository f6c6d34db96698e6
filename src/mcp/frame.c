// Owns stdio framing: newline-delimited or Content-Length, detected for each message, of bounded size.
#include "mcp/frame.h"
#include <stdint.h>
#include <stdlib.h>
#include <strings.h>

#define HEADER_MAX 4096
#define HEAD_MIN 64  // bytes of a body that is too large, before it is reported
#define KEPT_ROOM (1U << 20)

void frame_init(struct frame *frame, size_t max) { *frame = (struct frame){.max = max}; }

void frame_release(struct frame *frame) { buf_release(&frame->in); }

void frame_fed(struct frame *frame, size_t len) { frame->in.len += len; }

static struct span rest(const struct frame *frame)
{
    return span_make(frame->in.at + frame->start, frame->in.len - frame->start);
}

static void consume(struct frame *frame, size_t len)
{
    frame->start += len;
    if (frame->scanned < frame->start)
        frame->scanned = frame->start;
}

struct blob *frame_take(struct frame *frame)
{
    struct buf following = {0};
    buf_put_span(&following, rest(frame));
    frame->scanned -= frame->start;
    frame->start = 0;
    struct blob *taken = blob_take(&frame->in);
    frame->in = following;
    return taken;
}

static struct span trim(struct span line)
{
    while (line.len && memchr(" \t\r\n", line.at[line.len - 1], 4))
        line.len--;
    while (line.len && memchr(" \t\r\n", line.at[0], 4))
        line = span_after(line, 1);
    return line;
}

static bool is_header(struct span text)
{
    static const char name[] = "content-length:";
    size_t n = sizeof name - 1;
    return text.len >= n && strncasecmp(text.at, name, n) == 0;
}

// Finds the length of a complete header block, and the length of the body that it announces.
static bool read_head(struct span text, size_t *head, size_t *size)
{
    size_t seen = text.len < HEADER_MAX ? text.len : HEADER_MAX;  // without the body, which may arrive in many pieces
    const char *lf = memmem(text.at, seen, "\n\n", 2), *crlf = memmem(text.at, seen, "\r\n\r\n", 4);
    const char *end = crlf && (!lf || crlf < lf) ? crlf + 4 : lf ? lf + 2 : NULL;
    if (!end)
        return false;
    const char *at = text.at + strlen("content-length:");
    *head = (size_t)(end - text.at);
    *size = 0;
    while (at < end && *at == ' ')
        at++;
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        *size = *size > SIZE_MAX / 16 ? SIZE_MAX / 2 : *size * 10 + (size_t)(*at - '0');
    return true;
}

// Reads a message that begins with "Content-Length: …": a header block, and a body of that length.
static enum frame_status next_counted(struct frame *frame, struct span text, struct span *out)
{
    size_t head, size;
    if (!read_head(text, &head, &size)) {
        if (text.len < HEADER_MAX)
            return FRAME_MORE;
        *out = span_make(text.at, 64);
        consume(frame, text.len);
        return FRAME_JUNK;
    }
    if (size > frame->max) {
        if (text.len - head < HEAD_MIN && text.len - head < size)
            return FRAME_MORE;
        *out = span_make(text.at + head, text.len - head < size ? text.len - head : size);
        frame->skip_body = size;
        consume(frame, head);
        return FRAME_TOO_LARGE;
    }
    if (text.len - head < size)
        return FRAME_MORE;
    *out = span_make(text.at + head, size);
    frame->content_length = true;
    consume(frame, head + size);
    return FRAME_MESSAGE;
}

static enum frame_status next_line(struct frame *frame, struct span text, struct span *out)
{
    size_t looked = frame->scanned - frame->start;
    const char *newline = text.len > looked ? memchr(text.at + looked, '\n', text.len - looked) : NULL;
    if (!newline) {
        frame->scanned = frame->in.len;
        if (text.len <= frame->max + 1)  // the extra byte may be the CR of the line end
            return FRAME_MORE;
        frame->skipping = true;
        *out = text;
        consume(frame, text.len);
        return FRAME_TOO_LARGE;
    }
    struct span line = span_make(text.at, (size_t)(newline - text.at));
    consume(frame, line.len + 1);
    *out = trim(line);
    if (line.len && line.at[line.len - 1] == '\r')
        line.len--;
    if (line.len > frame->max)
        return FRAME_TOO_LARGE;
    if (out->at[0] != '{' && out->at[0] != '[')
        return FRAME_JUNK;
    frame->content_length = false;
    return FRAME_MESSAGE;
}

static bool skip(struct frame *frame)
{
    struct span text = rest(frame);
    if (frame->skip_body) {
        size_t drop = frame->skip_body < text.len ? frame->skip_body : text.len;
        frame->skip_body -= drop;
        consume(frame, drop);
        return frame->skip_body == 0;
    }
    const char *newline = memchr(text.at, '\n', text.len);
    consume(frame, newline ? (size_t)(newline - text.at) + 1 : text.len);
    frame->skipping = newline == NULL;
    return newline != NULL;
}

// Drops a message whose rest cannot be kept for lack of memory.
static void drop_message(struct frame *frame)
{
    struct span text = rest(frame);
    size_t head, size;
    bool counted = is_header(text) && read_head(text, &head, &size);
    if (counted && !frame->skip_body)
        frame->skip_body = head + size - text.len;
    else if (!frame->skip_body)
        frame->skipping = true;
    frame->no_memory = true;
    frame->scanned = 0;
    buf_release(&frame->in);
}

char *frame_room(struct frame *frame, size_t want, size_t *room)
{
    if (frame->start) {
        buf_drop_front(&frame->in, frame->start);
        frame->scanned -= frame->start;
        frame->start = 0;
    }
    if (!buf_try_reserve(&frame->in, want)) {
        drop_message(frame);
        buf_reserve(&frame->in, want);
    }
    *room = frame->in.room - frame->in.len - 1;
    return frame->in.at + frame->in.len;
}

// Frees the memory of a large message after it was consumed, because the next one may take a long time to arrive.
static void give_back(struct frame *frame)
{
    if (frame->in.room <= KEPT_ROOM)
        return;
    buf_release(&frame->in);
    frame->start = frame->scanned = 0;
}

// Skips white space and byte order marks between messages, in any order.
static struct span without_blanks(struct span text)
{
    size_t before;
    do {
        before = text.len;
        while (text.len && memchr(" \t\r\n", text.at[0], 4))
            text = span_after(text, 1);
        text = span_without_bom(text);
    } while (text.len != before);
    return text;
}

enum frame_status frame_next(struct frame *frame, struct span *out)
{
    if (frame->no_memory) {
        frame->no_memory = false;
        *out = (struct span){0};
        return FRAME_NO_MEMORY;
    }
    if (frame->start >= frame->in.len) {
        give_back(frame);
        return FRAME_MORE;
    }
    if ((frame->skipping || frame->skip_body) && !skip(frame))
        return FRAME_MORE;
    struct span text = without_blanks(rest(frame));
    consume(frame, rest(frame).len - text.len);
    if (text.len == 0)
        return FRAME_MORE;
    return is_header(text) ? next_counted(frame, text, out) : next_line(frame, text, out);
}
