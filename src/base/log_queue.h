// A bounded queue of lines before a descriptor that may block: writing never waits.
#ifndef BASE_LOG_QUEUE_H
#define BASE_LOG_QUEUE_H

#include "base/buf.h"

#define LOG_QUEUE_MAX ((size_t)1 << 20)

enum log_sink {
    LOG_SINK_FILE,    // never waits for a reader
    LOG_SINK_OPENED,  // a pipe or a terminal, opened again as non-blocking
    LOG_SINK_SOCKET,
    LOG_SINK_POLLED,  // may not be opened again: polled before each write
};

struct log_queue {
    int fd;
    enum log_sink sink;
    struct buf waiting;  // whole lines, except that the first may have been written in part
    uint64_t dropped;    // lines, because the queue was full or a write failed
    uint64_t told;       // of these, reported so far
    bool broken;         // the last write failed: a report of dropped lines would be lost, too
};

// The flags of the descriptor do not change: every process that shares it has them.
void log_queue_open(struct log_queue *queue, int fd);
void log_queue_close(struct log_queue *queue);
// Writes the line, which ends with a line feed, or queues it, or drops it.
void log_queue_put(struct log_queue *queue, struct span line);
bool log_queue_flush(struct log_queue *queue);  // true: the queue is empty
// The number of dropped lines to report, if the queue can take the report now; else 0.
uint64_t log_queue_gap(struct log_queue *queue);

#endif
