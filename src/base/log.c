// Owns log lines: level, format, and writing each line with one write().
#include "base/log.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/scan.h"
#include <unistd.h>

static enum log_level threshold = LOG_INFO;
static enum log_format line_format = LOG_FORMAT_TEXT;
static const char *const level_names[] = {"debug", "info", "warn", "error"};

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
            scan_encode_lossy(f->text, line);
    }
}

static void put_json(struct buf *line, enum log_level level, const char *message, const struct log_field *fields)
{
    buf_printf(line, "\",\"level\":\"%s\",\"msg\":", level_names[level]);
    scan_encode_lossy(span_of(message), line);
    for (const struct log_field *f = fields; f->name; f++) {
        buf_printf(line, ",\"%s\":", f->name);
        if (f->text.at)
            scan_encode_lossy(f->text, line);
        else
            buf_put_int(line, f->number);
    }
    buf_put_char(line, '}');
}

void log_write(enum log_level level, const char *message, const struct log_field *fields)
{
    char stamp[32];
    struct buf line = {0};
    clock_stamp(stamp);
    if (line_format == LOG_FORMAT_JSON)
        buf_put_text(&line, "{\"time\":\"");
    buf_put_text(&line, stamp);
    (line_format == LOG_FORMAT_JSON ? put_json : put_text)(&line, level, message, fields);
    buf_put_char(&line, '\n');
    ssize_t written = write(STDERR_FILENO, line.at, line.len);
    (void)written;  // nowhere to complain to
    buf_release(&line);
}
