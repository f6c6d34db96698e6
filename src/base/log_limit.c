// Owns bounding log lines: the windows in which the lines of an event and a source are counted.
#include "log_limit.h"
#include <stdio.h>

// The values of the source fields of a line, separated by spaces, except "-".
static void read_source(const struct log_field *fields, char *out, size_t size)
{
    static const char *const names[] = {"server", "tenant", "subject", "address", "file"};
    size_t len = 0;
    *out = '\0';
    for (const struct log_field *field = fields; field->name; field++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strcmp(field->name, names[i]) == 0 && field->text.at && !span_is(field->text, "-") && len < size - 1) {
                int more = snprintf(out + len, size - len, "%s%.*s", len ? " " : "",
                                    (int)(field->text.len < size ? field->text.len : size), field->text.at);
                len += more > 0 ? (size_t)more : 0;
            }
}

// The open window of an event and a source, or a new one. NULL: all windows are in use.
static struct log_window *find(struct log_window *windows, size_t count, const struct log_window *wanted,
                               int64_t now_ms)
{
    struct log_window *place = NULL;
    for (struct log_window *at = windows; at < windows + count; at++) {
        bool open = at->event && at->ends_ms > now_ms;
        if (open && strcmp(at->event, wanted->event) == 0 && strcmp(at->source, wanted->source) == 0)
            return at;
        if (!open && !at->left_out && !place)
            place = at;
    }
    if (place) {
        *place = *wanted;
        place->ends_ms = now_ms + LOG_LIMIT_WINDOW_MS;
    }
    return place;
}

bool log_limit_pass(struct log_limit *limit, const char *event, const struct log_field *fields, int64_t now_ms)
{
    struct log_window wanted = {.event = event};
    struct log_window *all = find(limit->events, LOG_LIMIT_EVENTS, &wanted, now_ms);
    read_source(fields, wanted.source, sizeof wanted.source);
    struct log_window *one = find(limit->sources, LOG_LIMIT_SOURCES, &wanted, now_ms);
    struct log_window *full = one && one->passed == LOG_LIMIT_SOURCE  ? one
                              : all && all->passed == LOG_LIMIT_EVENT ? all
                                                                      : NULL;
    if (full) {
        full->left_out++;
        return false;
    }
    if (one)
        one->passed++;
    if (all)
        all->passed++;
    return true;
}

static bool take_ended(struct log_window *windows, size_t count, int64_t now_ms, struct log_window *out)
{
    for (struct log_window *at = windows; at < windows + count; at++)
        if (at->left_out && at->ends_ms <= now_ms) {
            *out = *at;
            at->left_out = 0;
            return true;
        }
    return false;
}

bool log_limit_ended(struct log_limit *limit, int64_t now_ms, struct log_window *out)
{
    return take_ended(limit->sources, LOG_LIMIT_SOURCES, now_ms, out) ||
           take_ended(limit->events, LOG_LIMIT_EVENTS, now_ms, out);
}
