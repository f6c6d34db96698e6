// Owns message streams to callers: queue, replay window, bounds.
//
// events: [kept for replay … | next to pull … | newest]. A pulled event of a resumable stream stays
// until the window is full. What waits unsent is bounded in bytes: an attached caller that lets it grow
// beyond is cut off; while nobody is attached the oldest goes.
#include "gate/stream.h"
#include "base/mem.h"
#include <stdlib.h>

struct event {
    struct list node;
    uint64_t sequence;
    struct blob *message;  // NULL: priming
};

struct stream {
    unsigned refs;
    unsigned index;
    bool resumable, ended;
    struct stream_limits limits;
    struct list events;
    size_t count, unsent_bytes;
    struct event *next;  // to pull; NULL: nothing waits
    uint64_t last;       // sequence
    struct stream_sink sink;
};

struct stream *stream_new(unsigned index, bool resumable, const struct stream_limits *limits)
{
    struct stream *stream = mem_new(struct stream);
    *stream = (struct stream){.refs = 1, .index = index, .resumable = resumable, .limits = *limits};
    list_init(&stream->events);
    return stream;
}

static size_t weight(const struct event *event) { return event->message ? event->message->len : 0; }

static void drop(struct stream *stream, struct event *event)
{
    if (event == stream->next)
        stream->next = event->node.next == &stream->events ? NULL : list_entry(event->node.next, struct event, node);
    list_remove(&event->node);
    stream->count--;
    blob_unref(event->message);
    free(event);
}

struct stream *stream_ref(struct stream *stream)
{
    stream->refs++;
    return stream;
}

void stream_unref(struct stream *stream)
{
    if (!stream || --stream->refs)
        return;
    while (!list_empty(&stream->events))
        drop(stream, list_entry(stream->events.next, struct event, node));
    free(stream);
}

bool stream_attached(const struct stream *stream) { return stream->sink.wake != NULL; }
bool stream_ended(const struct stream *stream) { return stream->ended; }
unsigned stream_index(const struct stream *stream) { return stream->index; }
bool stream_resumable(const struct stream *stream) { return stream->resumable; }
bool stream_over(const struct stream *stream) { return stream->ended && !stream->next; }

static void wake(struct stream *stream)
{
    if (stream->sink.wake)
        stream->sink.wake(stream->sink.arg);
}

void stream_attach(struct stream *stream, const struct stream_sink *sink) { stream->sink = *sink; }

void stream_detach(struct stream *stream, const void *arg)
{
    if (stream->sink.arg == arg)
        stream->sink = (struct stream_sink){0};
}

void stream_cut(struct stream *stream)
{
    struct stream_sink sink = stream->sink;
    stream->sink = (struct stream_sink){0};
    if (sink.cut)
        sink.cut(sink.arg);
}

bool stream_rewind(struct stream *stream, uint64_t sequence)
{
    uint64_t oldest = stream->last + 1;
    if (!list_empty(&stream->events))
        oldest = list_entry(stream->events.next, struct event, node)->sequence;
    if (sequence > stream->last || sequence + 1 < oldest)
        return false;
    stream->next = NULL;
    stream->unsent_bytes = 0;
    list_each(node, &stream->events) {
        struct event *event = list_entry(node, struct event, node);
        if (event->sequence <= sequence)
            continue;
        if (!stream->next)
            stream->next = event;
        stream->unsent_bytes += weight(event);
    }
    return true;
}

static void trim(struct stream *stream)
{
    // Sent events go when the window is full; unsent ones only while nobody reads.
    while (stream->count > stream->limits.events) {
        struct event *oldest = list_entry(stream->events.next, struct event, node);
        if (oldest == stream->next) {
            if (stream_attached(stream) || oldest->node.next == &stream->events)
                return;
            stream->unsent_bytes -= weight(oldest);
        }
        drop(stream, oldest);
    }
}

static void append(struct stream *stream, struct blob *message)
{
    struct event *event = mem_new(struct event);
    event->sequence = ++stream->last;
    event->message = message;
    list_append(&stream->events, &event->node);
    stream->count++;
    stream->unsent_bytes += weight(event);
    if (!stream->next)
        stream->next = event;
}

void stream_prime(struct stream *stream)
{
    append(stream, NULL);
    wake(stream);
}

void stream_push(struct stream *stream, struct blob *message)
{
    bool behind = stream->next != NULL;
    append(stream, message);
    trim(stream);
    // One message may be of any size; a heap of them may not.
    if (behind && stream->unsent_bytes > stream->limits.bytes) {
        if (stream_attached(stream)) {
            stream_cut(stream);
            return;
        }
        while (stream->unsent_bytes > stream->limits.bytes && stream->next->node.next != &stream->events) {
            stream->unsent_bytes -= weight(stream->next);
            drop(stream, stream->next);
        }
    }
    wake(stream);
}

void stream_end(struct stream *stream)
{
    if (stream->ended)
        return;
    stream->ended = true;
    wake(stream);
}

bool stream_pull(struct stream *stream, struct stream_item *out)
{
    // What was pulled before has been copied by now; a stream that cannot resume need not keep it.
    while (!stream->resumable && !list_empty(&stream->events)) {
        struct event *oldest = list_entry(stream->events.next, struct event, node);
        if (oldest == stream->next)
            break;
        drop(stream, oldest);
    }
    struct event *event = stream->next;
    if (!event)
        return false;
    stream->next = event->node.next == &stream->events ? NULL : list_entry(event->node.next, struct event, node);
    stream->unsent_bytes -= weight(event);
    out->sequence = event->sequence;
    out->message = event->message ? blob_span(event->message) : (struct span){"", 0};
    return true;
}
