// Log lines on standard error, as text or JSON: a message and named fields.
//
//     log_info("server ready", LOG_STR("server", name), LOG_INT("tools", n));
//
// Set up once at start; its state is process-wide.
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/span.h"
#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_OFF };
enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

struct log_field {
    const char *name;
    struct span text;  // text.at == NULL: a number
    int64_t number;
};

#define LOG_STR(field, value) ((struct log_field){(field), span_of(value), 0})
#define LOG_SPAN(field, value) ((struct log_field){(field), (value), 0})
#define LOG_INT(field, value) ((struct log_field){(field), {NULL, 0}, (int64_t)(value)})

void log_setup(enum log_level level, enum log_format format);
bool log_enabled(enum log_level level);
void log_write(enum log_level level, const char *message, const struct log_field *fields);

// ---- without waiting ------------------------------------------------------------------------
//
// From log_start_queue() on, no line waits for the reader of standard error: lines that it does not accept are queued,
// and dropped when the queue is full. Lines of one event and source are bounded, except at level debug. Both kinds of
// loss are counted, and reported in lines of their own ("log lines dropped", "log lines left out"). Lines may come from
// any thread.

// Called once, before other threads exist. Returns the descriptor to watch: when it becomes writable, call log_flush().
int log_start_queue(void);
bool log_flush(void);   // call it periodically too, to report lines left out; true: the queue is empty
void log_finish(void);  // before the process ends: waits for the reader, for at most a second

struct log_stats {
    uint64_t dropped, left_out;
};
struct log_stats log_stats(void);

// ---- levels ---------------------------------------------------------------------------------

#define log_at(level, message, ...)                                                                   \
    do {                                                                                              \
        if (log_enabled(level))                                                                       \
            log_write((level), (message), (const struct log_field[]){__VA_ARGS__ __VA_OPT__(, ){0}}); \
    } while (0)
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_at(LOG_INFO, __VA_ARGS__)
#define log_warn(...) log_at(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)

#endif
