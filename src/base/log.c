// Owns log lines: level, format, and writing each line with one write(), which may wait, or through the queue, which
// does not.
#include "base/log.h"
#include "base/clock.h"
#include "base/scan.h"
#include "log_limit.h"
#include "log_queue.h"
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#define FINISH_MS 1000

static enum log_level threshold = LOG_INFO;
static enum log_format line_format = LOG_FORMAT_TEXT;
static const char *const level_names[] = {"debug", "info", "warn", "error"};

static bool queued;                                       // set while there is one thread
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // guards the variables below
static struct log_queue queue;
static struct log_limit limit;
static uint64_t left_out;

void log_setup(enum log_level level, enum log_format format)
{
    threshold = level;
    line_format = format;
}

bool log_enabled(enum log_level level) { return level >= threshold; }

static bool plain(struct span text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.at[i] <= ' ' || text.at[i] == '"' || text.at[i] == '=' || text.at[i] >= 0x7f)
            return false;
    return text.len > 0;
}

// The log may be read on a terminal.
static void put_quoted(struct buf *line, struct span text)
{
    struct buf encoded = {0};
    scan_encode_lossy(text, &encoded);
    scan_put_shown(buf_span(&encoded), line);
    buf_release(&encoded);
}

static void put_text(struct buf *line, enum log_level level, const char *message, const struct log_field *fields)
{
    buf_printf(line, " %-5s %s", level_names[level], message);
    for (const struct log_field *f = fields; f->name; f++) {
        buf_printf(line, " %s=", f->name);
        if (!f->text.at)
            buf_put_int(line, f->number);
        else if (plain(f->text))
            buf_put_span(line, f->text);
        else
            put_quoted(line, f->text);
    }
}

static void put_json(struct buf *line, enum log_level level, const char *message, const struct log_field *fields)
{
    buf_printf(line, "\",\"level\":\"%s\",\"msg\":", level_names[level]);
    scan_encode_lossy(span_of(message), line);
    for (const struct log_field *f = fields; f->name; f++) {
        buf_printf(line, ",\"%s\":", f->name);
        if (f->text.at)
            put_quoted(line, f->text);
        else
            buf_put_int(line, f->number);
    }
    buf_put_char(line, '}');
}

static void put_line(struct buf *line, enum log_level level, const char *message, const struct log_field *fields)
{
    char stamp[32];
    clock_stamp(stamp);
    if (line_format == LOG_FORMAT_JSON)
        buf_put_text(line, "{\"time\":\"");
    buf_put_text(line, stamp);
    (line_format == LOG_FORMAT_JSON ? put_json : put_text)(line, level, message, fields);
    buf_put_char(line, '\n');
}

// ---- the queue ------------------------------------------------------------------------------

static void enqueue(enum log_level level, const char *message, const struct log_field *fields)
{
    struct buf line = {0};
    put_line(&line, level, message, fields);
    log_queue_put(&queue, buf_span(&line));
    buf_release(&line);
}

// Reports dropped lines where they would have been, and lines that were left out when their window ends.
static void report_gaps(int64_t now_ms)
{
    struct log_window window;
    uint64_t gap = log_queue_gap(&queue);
    if (gap && log_enabled(LOG_WARN))
        enqueue(LOG_WARN, "log lines dropped", (const struct log_field[]){LOG_INT("count", gap), {0}});
    while (log_limit_ended(&limit, now_ms, &window))
        if (log_enabled(LOG_WARN))
            enqueue(LOG_WARN, "log lines left out",
                    (const struct log_field[]){LOG_STR("event", window.event),
                                               LOG_STR("source", window.source),
                                               LOG_INT("count", window.left_out),
                                               {0}});
}

static void write_queued(enum log_level level, const char *message, const struct log_field *fields)
{
    int64_t now_ms = clock_now_ms();
    pthread_mutex_lock(&lock);
    (void)log_queue_flush(&queue);
    report_gaps(now_ms);
    if (level == LOG_DEBUG || log_limit_pass(&limit, message, fields, now_ms))
        enqueue(level, message, fields);
    else
        left_out++;
    pthread_mutex_unlock(&lock);
}

int log_start_queue(void)
{
    log_queue_open(&queue, STDERR_FILENO);
    queued = true;
    return queue.fd;
}

bool log_flush(void)
{
    pthread_mutex_lock(&lock);
    (void)log_queue_flush(&queue);
    report_gaps(clock_now_ms());
    bool done = log_queue_flush(&queue);
    pthread_mutex_unlock(&lock);
    return done;
}

void log_finish(void)
{
    int64_t end_ms = clock_now_ms() + FINISH_MS, left;
    if (!queued)
        return;
    pthread_mutex_lock(&lock);
    report_gaps(INT64_MAX);
    pthread_mutex_unlock(&lock);
    while (!log_flush() && (left = end_ms - clock_now_ms()) > 0)
        (void)poll(&(struct pollfd){.fd = queue.fd, .events = POLLOUT}, 1, (int)left);
}

struct log_stats log_stats(void)
{
    pthread_mutex_lock(&lock);
    struct log_stats stats = {queue.dropped, left_out};
    pthread_mutex_unlock(&lock);
    return stats;
}

void log_write(enum log_level level, const char *message, const struct log_field *fields)
{
    if (queued) {
        write_queued(level, message, fields);
        return;
    }
    struct buf line = {0};
    put_line(&line, level, message, fields);
    ssize_t written = write(STDERR_FILENO, line.at, line.len);
    (void)written;  // a failure cannot be reported anywhere
    buf_release(&line);
}
