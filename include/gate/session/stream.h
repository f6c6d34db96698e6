// A stream of messages to one caller: queued here, pulled by the face that has the connection, and kept for a while
// so that a caller that lost the connection can resume.
#ifndef GATE_STREAM_H
#define GATE_STREAM_H

#include "auth/caller/identity.h"
#include "base/blob.h"
#include "base/list.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stream;

// The face's side of an attached stream.
struct stream_sink {
    void (*wake)(void *arg);  // a message can be pulled, or the stream has ended
    void (*cut)(void *arg);   // the caller is too slow, or the session is over: close the connection
    void *arg;
};

struct stream_limits {
    size_t bytes;                // the maximum of unsent bytes
    size_t events;               // the maximum of events kept for replay
    struct budget *budget;       // counts its messages; NULL: they do not count
    const struct identity *who;  // the identity of the caller, for the log; or NULL
};

// The result of stream_pull(): a message, or a priming event that only carries its id.
struct stream_item {
    uint64_t sequence;
    struct blob *message;  // NULL: priming; valid until the next call on the stream
};

struct stream *stream_ref(struct stream *stream);
void stream_unref(struct stream *stream);

void stream_attach(struct stream *stream, const struct stream_sink *sink);
void stream_detach(struct stream *stream, const void *arg);  // only if the attached sink has this `arg`
bool stream_attached(const struct stream *stream);
// Starts replay after this sequence number. False: those events are no longer kept.
bool stream_rewind(struct stream *stream, uint64_t sequence);

void stream_prime(struct stream *stream);
void stream_cut(struct stream *stream);

bool stream_pull(struct stream *stream, struct stream_item *out);
bool stream_over(const struct stream *stream);       // ended, and everything pulled
size_t stream_unread(const struct stream *stream);   // bytes of answers that the caller has not fetched
size_t stream_waiting(const struct stream *stream);  // bytes of messages that were not pulled yet
unsigned stream_index(const struct stream *stream);
bool stream_resumable(const struct stream *stream);

#endif
