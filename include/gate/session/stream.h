// A stream of messages to one caller: queued here, pulled by the face that has the connection, and
// kept for a while so that a caller who lost the connection can go on where it stopped.
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
    void (*wake)(void *arg);  // there is something to pull, or the stream has ended
    void (*cut)(void *arg);   // the caller is too slow, or the session is over: close the connection
    void *arg;
};

struct stream_limits {
    size_t bytes;                // that may wait unsent
    size_t events;               // kept for replay
    struct budget *budget;       // that its messages count for; NULL: none
    const struct identity *who;  // whose it is, for the log; NULL: not known
};

// What stream_pull gives: a message, or a priming event that only carries its id.
struct stream_item {
    uint64_t sequence;
    struct blob *message;  // NULL: priming; valid until the next call on the stream
};

struct stream *stream_ref(struct stream *stream);
void stream_unref(struct stream *stream);

void stream_attach(struct stream *stream, const struct stream_sink *sink);
void stream_detach(struct stream *stream, const void *arg);  // only if it is that sink which is attached
bool stream_attached(const struct stream *stream);
// Replay starts after this sequence; false if that is too long ago.
bool stream_rewind(struct stream *stream, uint64_t sequence);

void stream_prime(struct stream *stream);
void stream_cut(struct stream *stream);

bool stream_pull(struct stream *stream, struct stream_item *out);
bool stream_over(const struct stream *stream);       // ended, and everything pulled
size_t stream_unread(const struct stream *stream);   // bytes of answers that the caller has not fetched
size_t stream_waiting(const struct stream *stream);  // bytes of all that was not pulled yet
unsigned stream_index(const struct stream *stream);
bool stream_resumable(const struct stream *stream);

#endif
