// How often a log line may be written: lines of one event and one source are bounded, and lines left out are counted.
//
// An event is a message; its source is the values of the fields `server`, `tenant`, `subject`, `address` and `file`. In
// each window of ten seconds the first LOG_LIMIT_SOURCE lines of an event from one source pass, and the first
// LOG_LIMIT_EVENT of the event from all sources. Pure: the caller passes the time, and serializes the calls.
#ifndef BASE_LOG_LIMIT_H
#define BASE_LOG_LIMIT_H

#include "base/log.h"

enum {
    LOG_LIMIT_WINDOW_MS = 10000,
    LOG_LIMIT_SOURCE = 100,
    LOG_LIMIT_EVENT = 1000,
    LOG_LIMIT_EVENTS = 128,   // counted at a time; lines of further events pass
    LOG_LIMIT_SOURCES = 128,  // likewise; lines of further sources count for their event only
};

struct log_window {
    const char *event;  // NULL: unused
    char source[96];    // "": all sources
    int64_t ends_ms;
    unsigned passed;
    uint64_t left_out;
};

struct log_limit {
    struct log_window events[LOG_LIMIT_EVENTS], sources[LOG_LIMIT_SOURCES];
};

// Returns each window that has ended with lines left out once. False: no such window.
bool log_limit_ended(struct log_limit *limit, int64_t now_ms, struct log_window *out);
// Whether this line may be written. If not, it is counted.
bool log_limit_pass(struct log_limit *limit, const char *event, const struct log_field *fields, int64_t now_ms);

#endif
