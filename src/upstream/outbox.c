// Owns the queue of messages to a stdio server.
//
//   queue of messages ──► staged: framed, at most STAGE bytes ──► write
//
// Small messages of one turn are written together. A large message is staged piece by piece, and its raw line ends are replaced by
// blanks there. When the pipe is full, only a message that is partly written stays staged: all behind it can still be dropped.
// Guarded by tests/unit/upstream/outbox_test.c.
#include "outbox.h"
#include "base/mem.h"
#include "mcp/message.h"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define STAGE ((size_t)64 << 10)  // the capacity of a pipe
#define WRITES_A_TURN 4

struct outbox_message {
    struct blob *text;
    struct blob_reader reader;
    uint64_t id;
    size_t start, end;  // in `staged`
    bool counted;
    bool staged;  // at least a part is staged
    bool whole;   // all of it is staged
    bool begun;   // at least a part is written
};

static void remove_messages(struct outbox *outbox, size_t at, size_t count)
{
    for (size_t i = at; i < at + count; i++) {
        outbox->bytes -= outbox->queue[i].text->len;
        blob_unref(outbox->queue[i].text);
    }
    outbox->count -= count;
    if (outbox->count > at)
        memmove(outbox->queue + at, outbox->queue + at + count, (outbox->count - at) * sizeof *outbox->queue);
}

void outbox_release(struct outbox *outbox)
{
    remove_messages(outbox, 0, outbox->count);
    free(outbox->queue);
    buf_release(&outbox->staged);
    *outbox = (struct outbox){0};
}

void outbox_put(struct outbox *outbox, struct blob *message, uint64_t id, bool counted)
{
    if (outbox->count == outbox->room) {
        outbox->room = outbox->room ? outbox->room * 2 : 16;
        outbox->queue = mem_resize(outbox->queue, outbox->room * sizeof *outbox->queue);
    }
    outbox->bytes += message->len;
    outbox->queue[outbox->count++] = (struct outbox_message){.text = blob_ref(message), .id = id, .counted = counted};
}

uint64_t outbox_unsent(const struct outbox *outbox, size_t at)
{
    return outbox->queue[at].begun ? 0 : outbox->queue[at].id;
}

struct blob *outbox_text(const struct outbox *outbox, size_t at) { return outbox->queue[at].text; }

void outbox_drop(struct outbox *outbox, size_t at) { remove_messages(outbox, at, 1); }

// ---- writing --------------------------------------------------------------------------------

static void stage_message(struct outbox *outbox, struct outbox_message *message)
{
    struct buf *out = &outbox->staged;
    if (!message->staged) {
        message->staged = true;
        message->start = out->len;
        message->reader = (struct blob_reader){.blob = message->text};
        if (message->counted)
            buf_printf(out, "Content-Length: %zu\r\n\r\n", message->text->len);
    }
    size_t left = message->text->len < STAGE ? message->text->len : STAGE;
    buf_reserve(out, left);
    size_t got = blob_read(&message->reader, out->at + out->len, left);
    if (!message->counted)
        message_flatten(out->at + out->len, got);
    out->len += got;
    message->whole = message->reader.part == blob_count(message->text);
    if (message->whole && !message->counted)
        buf_put_char(out, '\n');
    message->end = out->len;
}

static void stage(struct outbox *outbox)
{
    while (outbox->next < outbox->count && outbox->staged.len < STAGE) {
        struct outbox_message *message = &outbox->queue[outbox->next];
        stage_message(outbox, message);
        if (message->whole)
            outbox->next++;
    }
}

// Removes the messages that are completely written.
static void settle(struct outbox *outbox)
{
    size_t written = 0;
    for (size_t i = 0; i < outbox->count && outbox->queue[i].staged; i++) {
        struct outbox_message *message = &outbox->queue[i];
        message->begun = message->begun || message->start < outbox->sent;
        if (message->whole && message->end <= outbox->sent)
            written++;
    }
    remove_messages(outbox, 0, written);
    outbox->next -= written;
    if (outbox->sent < outbox->staged.len)
        return;
    outbox->sent = 0;
    buf_clear(&outbox->staged);
}

// Removes from the stage the messages of which nothing has been written.
static void unstage(struct outbox *outbox)
{
    for (size_t i = outbox->count; i-- > 0;) {
        struct outbox_message *message = &outbox->queue[i];
        if (!message->staged || message->begun)
            continue;
        message->staged = message->whole = false;
        outbox->staged.len = message->start;
        outbox->next = i;
    }
}

enum outbox_status outbox_write(struct outbox *outbox, int fd)
{
    for (int i = 0; i < WRITES_A_TURN; i++) {
        stage(outbox);
        if (outbox->sent == outbox->staged.len)
            return OUTBOX_EMPTY;
        ssize_t put = write(fd, outbox->staged.at + outbox->sent, outbox->staged.len - outbox->sent);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0 && errno == EAGAIN)
            break;
        if (put < 0)
            return OUTBOX_BROKEN;
        outbox->sent += (size_t)put;
        settle(outbox);
    }
    unstage(outbox);
    return outbox->count ? OUTBOX_MORE : OUTBOX_EMPTY;
}
