// A bounded queue of lines before a descriptor that may not take them: writing never waits.
#ifndef BASE_LOG_QUEUE_H
#define BASE_LOG_QUEUE_H

#include "base/buf.h"

#define LOG_QUEUE_MAX ((size_t)1 << 20)

enum log_sink {
    LOG_SINK_FILE,    // never waits for a reader
    LOG_SINK_OPENED,  // a pipe or a terminal, opened anew and non-blocking
    LOG_SINK_SOCKET,
    LOG_SINK_POLLED,  // may not be opened anew: asked before each write
};

struct log_queue {
    int fd;
    enum log_sink sink;
    struct buf waiting;  // whole lines, but that the first may have been written in part
    uint64_t dropped;    // lines, for want of room or because they cannot be written
    uint64_t told;       // of these
    bool broken;         // the last write failed: a report of dropped lines would be lost, too
};

// The descriptor stays as it is: its flags belong to every process that shares it.
void log_queue_open(struct log_queue *queue, int fd);
void log_queue_close(struct log_queue *queue);
// Writes the line, which ends with a line feed, keeps it, or drops it.
void log_queue_put(struct log_queue *queue, struct span line);
bool log_queue_flush(struct log_queue *queue);  // true: nothing waits any more
// How many lines were dropped and not told of, once there is room to tell it.
uint64_t log_queue_gap(struct log_queue *queue);

#endif
