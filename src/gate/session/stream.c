// Owns message streams to callers: queue, replay window, bounds.
//
// The events are a ring: [sent, kept for replay … | to pull … newest]. A pulled event of a resumable stream stays until
// the window is full. The bytes of unsent events are bounded. Above the bound, or if the budget is exhausted, an attached
// caller is cut off, and a stream without a caller drops its oldest events. Before a budget counts as exhausted, its
// streams drop the events that they keep for replay.
#include "base/log.h"
#include "base/mem.h"
#include "room.h"
#include <stdlib.h>

#define UNREAD_MAX ((size_t)1 << 20)  // while no caller is attached
#define EVENT_COST 64                 // bytes for an event, in addition to its text
// Waiting bytes that a stream may have while the budget is exhausted. Messages of the same turn of the loop wait together, and a
// caller that reads all of them is not slow.
#define SMALL_MAX 1024

struct event {
    uint64_t sequence;
    struct blob *message;  // NULL: priming
    bool answer;           // to a request of the caller, so it does not count as unsent
};

struct stream {
    unsigned refs;
    unsigned index;
    bool resumable, ended;
    struct stream_limits limits;
    struct event *ring;
    size_t room, first, count;
    size_t sent;          // events of `count` that were sent
    size_t unsent_bytes;  // without answers
    size_t unread_bytes;  // of answers
    size_t kept_bytes;    // of sent events, for replay
    uint64_t last;        // sequence number of the newest event
    struct budget_hold held;
    struct stream_sink sink;
};

struct stream *stream_new(unsigned index, bool resumable, const struct stream_limits *limits)
{
    struct stream *stream = mem_new(struct stream);
    *stream = (struct stream){.refs = 1, .index = index, .resumable = resumable, .limits = *limits};
    stream->held.arg = stream;
    identity_ref(limits->who);
    if (limits->budget)
        budget_open(&stream->held, limits->budget);
    return stream;
}

static struct event *event_at(const struct stream *stream, size_t i)
{
    return &stream->ring[(stream->first + i) % stream->room];
}

static size_t size_of(const struct event *event) { return event->message ? event->message->len : 0; }
static size_t weight(const struct event *event) { return event->answer ? 0 : size_of(event); }
static size_t answer_weight(const struct event *event) { return event->answer ? size_of(event) : 0; }

// The bytes that a message counts for the stream: only EVENT_COST if the message has its own hold.
static size_t cost(const struct blob *message)
{
    return EVENT_COST + (message && message->at && !message->held ? message->len : 0);
}

static void drop_oldest(struct stream *stream)
{
    struct event *event = event_at(stream, 0);
    budget_shrink(&stream->held, cost(event->message));
    if (stream->sent) {
        stream->sent--;
        stream->kept_bytes -= size_of(event);
    } else {
        stream->unsent_bytes -= weight(event);
        stream->unread_bytes -= answer_weight(event);
    }
    blob_unref(event->message);
    stream->first = (stream->first + 1) % stream->room;
    stream->count--;
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
    while (stream->count)
        drop_oldest(stream);
    budget_close(&stream->held);
    identity_unref(stream->limits.who);
    free(stream->ring);
    free(stream);
}

bool stream_attached(const struct stream *stream) { return stream->sink.wake != NULL; }
bool stream_ended(const struct stream *stream) { return stream->ended; }
unsigned stream_index(const struct stream *stream) { return stream->index; }
bool stream_resumable(const struct stream *stream) { return stream->resumable; }
bool stream_over(const struct stream *stream) { return stream->ended && stream->sent == stream->count; }

static void wake(struct stream *stream)
{
    if (stream->sink.wake)
        stream->sink.wake(stream->sink.arg);
}

// Sent events are kept for replay within bounds, and dropped if the stream is not resumable.
static void trim(struct stream *stream)
{
    while (stream->sent &&
           (!stream->resumable || stream->count > stream->limits.events || stream->kept_bytes > stream->limits.bytes))
        drop_oldest(stream);
}

void stream_attach(struct stream *stream, const struct stream_sink *sink) { stream->sink = *sink; }

// True if the stream has events that are kept for replay: sent events or, without an attached caller, any events.
static bool has_kept(const struct stream *stream) { return stream_attached(stream) ? stream->sent : stream->count; }

static void offer_kept(struct stream *stream);

static void drop_kept(struct budget_hold *hold)
{
    struct stream *stream = hold->arg;
    if (has_kept(stream))
        drop_oldest(stream);
    offer_kept(stream);
}

static void offer_kept(struct stream *stream)
{
    if (has_kept(stream))
        budget_spare(&stream->held, drop_kept);
}

void stream_detach(struct stream *stream, const void *arg)
{
    if (stream->sink.arg == arg)
        stream->sink = (struct stream_sink){0};
    trim(stream);
    offer_kept(stream);
}

size_t stream_kept(const struct stream *stream) { return stream->kept_bytes + stream->unsent_bytes; }
size_t stream_unread(const struct stream *stream) { return stream->unread_bytes; }
size_t stream_waiting(const struct stream *stream) { return stream->unsent_bytes + stream->unread_bytes; }

void stream_cut(struct stream *stream)
{
    struct stream_sink sink = stream->sink;
    stream->sink = (struct stream_sink){0};
    if (sink.cut)
        sink.cut(sink.arg);
    offer_kept(stream);
}

bool stream_rewind(struct stream *stream, uint64_t sequence)
{
    uint64_t oldest = stream->last + 1 - stream->count;
    if (sequence > stream->last || sequence + 1 < oldest)
        return false;
    stream->sent = (size_t)(sequence + 1 - oldest);
    stream->unsent_bytes = stream->unread_bytes = stream->kept_bytes = 0;
    for (size_t i = 0; i < stream->count; i++) {
        const struct event *event = event_at(stream, i);
        if (i < stream->sent) {
            stream->kept_bytes += size_of(event);
        } else {
            stream->unsent_bytes += weight(event);
            stream->unread_bytes += answer_weight(event);
        }
    }
    return true;
}

static void append(struct stream *stream, struct blob *message, bool answer)
{
    if (stream->count == stream->room) {
        size_t room = stream->room ? stream->room * 2 : 2;
        struct event *ring = mem_alloc(room * sizeof *ring);
        for (size_t i = 0; i < stream->count; i++)
            ring[i] = *event_at(stream, i);
        free(stream->ring);
        stream->ring = ring;
        stream->room = room;
        stream->first = 0;
    }
    struct event *event = event_at(stream, stream->count++);
    *event = (struct event){++stream->last, message, answer};
    stream->unsent_bytes += weight(event);
    stream->unread_bytes += answer_weight(event);
}

static void cut_off(struct stream *stream, const char *why, const char *option)
{
    const struct identity *who = stream->limits.who;
    log_warn(why, LOG_STR("tenant", who ? who->tenant : "-"), LOG_STR("subject", who ? who->subject : "-"),
             LOG_INT("bytes", stream_waiting(stream)), LOG_STR("option", option));
    stream_cut(stream);
}

// Makes room in the budget: cuts off a slow caller, or drops the oldest events of a stream without a caller.
static void make_room(struct stream *stream, size_t more)
{
    const struct budget *full;
    bool behind = stream_waiting(stream) > SMALL_MAX;
    while (!budget_grow(&stream->held, more, &full)) {
        if (stream_attached(stream) && behind)
            cut_off(stream, "caller cut off: not enough memory for its unread messages", full->option);
        if (stream->count == 0 || stream_attached(stream)) {
            budget_count(&stream->held, more);
            return;
        }
        drop_oldest(stream);
    }
}

void stream_prime(struct stream *stream)
{
    budget_count(&stream->held, cost(NULL));
    append(stream, NULL, false);
    wake(stream);
}

static void push(struct stream *stream, struct blob *message, bool answer)
{
    bool behind = stream->sent < stream->count;
    size_t bytes = stream_attached(stream) || stream->limits.bytes < UNREAD_MAX ? stream->limits.bytes : UNREAD_MAX;
    if (behind && !answer)
        make_room(stream, cost(message));
    else
        budget_count(&stream->held, cost(message));
    append(stream, message, answer);
    trim(stream);
    while (!stream_attached(stream) && stream->count > stream->limits.events)
        drop_oldest(stream);
    // A single message may have any size, but several waiting messages are bounded.
    if (behind && stream->unsent_bytes > bytes) {
        if (stream_attached(stream)) {
            cut_off(stream, "caller cut off: it does not read its stream", "limits.stream_buffer");
            return;
        }
        while (stream->unsent_bytes > bytes && stream->count > 1)
            drop_oldest(stream);
    }
    offer_kept(stream);
    wake(stream);
}

void stream_push(struct stream *stream, struct blob *message) { push(stream, message, false); }

void stream_answer(struct stream *stream, struct blob *message) { push(stream, message, true); }

void stream_end(struct stream *stream)
{
    if (stream->ended)
        return;
    stream->ended = true;
    wake(stream);
}

bool stream_pull(struct stream *stream, struct stream_item *out)
{
    if (stream->sent &&
        event_at(stream, stream->sent - 1)->message)  // the event that was pulled before has been sent by now
        blob_step_back(event_at(stream, stream->sent - 1)->message);
    trim(stream);
    if (stream->sent == stream->count)
        return false;
    struct event *event = event_at(stream, stream->sent++);
    stream->unsent_bytes -= weight(event);
    stream->unread_bytes -= answer_weight(event);
    stream->kept_bytes += size_of(event);
    offer_kept(stream);
    *out = (struct stream_item){event->sequence, event->message};
    return true;
}
