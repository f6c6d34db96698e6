// Owns reading an HTTP/1.1 answer.
//
//   status line ─► fields ─┬─► body of a known length ───────────────┐
//        ▲           │     ├─► chunk ─► its bytes ─► ... ─► trailers ┼─► over
//        └── 1xx ────┘     └─► body up to the close ─────────────────┘
//
// The end of an answer decides where the next answer on the connection begins. So a length that can be read in two ways
// is an error (RFC 9112 §6.3), and a doubtful but harmless detail ends the connection after the answer.
#include "http1.h"
#include "base/field.h"
#include <strings.h>

#define HEAD_MAX ((size_t)64 << 10)
#define CHUNK_DIGITS_MAX 15
#define KEPT_MAX 2048  // memory for fields that is kept for the next answer

void http1_release(struct http1 *answer)
{
    buf_release(&answer->line);
    buf_release(&answer->fields);
}

void http1_clear(struct http1 *answer)
{
    struct buf line = answer->line, fields = answer->fields;
    if (fields.room > KEPT_MAX)
        buf_release(&fields);
    buf_release(&line);
    buf_clear(&fields);
    *answer = (struct http1){.fields = fields};
}

const char *http1_field(const struct http1 *answer, const char *name, size_t index)
{
    const char *at = answer->fields.at, *end = at + answer->fields.len;
    while (at < end) {
        const char *value = at + strlen(at) + 1;
        if (strcasecmp(at, name) == 0 && index-- == 0)
            return value;
        at = value + strlen(value) + 1;
    }
    return NULL;
}

bool http1_ends(const struct http1 *answer) { return answer->state == HTTP1_TO_CLOSE || answer->state == HTTP1_OVER; }

static enum http1_event broken(struct err *err, const char *why)
{
    (void)err_set(err, ERR_UPSTREAM_TRANSPORT, "the answer is not valid HTTP: %s", why);
    return HTTP1_BROKEN;
}

// One line without its end, if it is complete. A line that came in one piece is used in place.
static enum http1_event take_line(struct http1 *answer, struct span *bytes, struct span *line, struct err *err)
{
    const char *newline = bytes->len ? memchr(bytes->at, '\n', bytes->len) : NULL;
    size_t len = newline ? (size_t)(newline - bytes->at) + 1 : bytes->len;
    answer->head_bytes += len;
    if (answer->head_bytes > HEAD_MAX)
        return broken(err, "its header section is too large");
    *line = span_make(bytes->at, len);
    *bytes = span_after(*bytes, len);
    if (!newline || answer->line.len) {
        buf_put_span(&answer->line, *line);
        *line = buf_span(&answer->line);
    }
    if (!newline)
        return HTTP1_MORE;
    answer->line.len = 0;  // its bytes stay valid until the next line
    line->len--;
    if (line->len && line->at[line->len - 1] == '\r')
        line->len--;
    if (memchr(line->at, '\r', line->len) || memchr(line->at, '\0', line->len))
        return broken(err, "a control character in its header section");
    return HTTP1_HEAD;
}

static bool digit(char c) { return c >= '0' && c <= '9'; }

// "HTTP/1.1 200 OK"; the reason may be missing.
static bool take_status(struct http1 *answer, struct span line)
{
    if (line.len < 12 || memcmp(line.at, "HTTP/1.", 7) != 0 || !digit(line.at[7]) || line.at[8] != ' ' ||
        !digit(line.at[9]) || !digit(line.at[10]) || !digit(line.at[11]) || (line.len > 12 && line.at[12] != ' '))
        return false;
    answer->status = (line.at[9] - '0') * 100 + (line.at[10] - '0') * 10 + (line.at[11] - '0');
    answer->keep = line.at[7] != '0';
    return answer->status >= 100;
}

static struct span trim(struct span text)
{
    while (text.len && (text.at[0] == ' ' || text.at[0] == '\t'))
        text = span_after(text, 1);
    while (text.len && (text.at[text.len - 1] == ' ' || text.at[text.len - 1] == '\t'))
        text.len--;
    return text;
}

// Whether the comma-separated list contains the word.
static bool lists(struct span list, const char *word)
{
    while (list.len) {
        const char *comma = memchr(list.at, ',', list.len);
        size_t len = comma ? (size_t)(comma - list.at) : list.len;
        if (field_is_named(trim(span_make(list.at, len)), word))
            return true;
        list = span_after(list, len + 1);
    }
    return false;
}

// "timeout=5, max=100"
static void take_keep_alive(struct http1 *answer, struct span list)
{
    static const char name[] = "timeout=";
    while (list.len) {
        const char *comma = memchr(list.at, ',', list.len);
        size_t len = comma ? (size_t)(comma - list.at) : list.len;
        struct span item = trim(span_make(list.at, len));
        uint64_t seconds;
        if (item.len >= strlen(name) && strncasecmp(item.at, name, strlen(name)) == 0 &&
            span_to_u64(span_after(item, strlen(name)), &seconds)) {
            answer->keep = answer->keep && seconds > 0;
            answer->keep_s = seconds;
        }
        list = comma ? span_after(list, len + 1) : (struct span){0};
    }
}

static const char *take_field(struct http1 *answer, struct span line)
{
    const char *colon = memchr(line.at, ':', line.len);
    struct span name = colon ? span_make(line.at, (size_t)(colon - line.at)) : line;
    if (!colon || !field_is_name(name))  // also refuses a folded line, which begins with a blank
        return "a line of its header section is not a header";
    struct span value = trim(span_after(line, name.len + 1));
    if (field_is_named(name, "content-length")) {
        uint64_t length;
        if (!span_to_u64(value, &length) || (answer->sized && length != answer->left))
            return "its Content-Length is not a single number";
        answer->sized = true;
        answer->left = length;
    } else if (field_is_named(name, "transfer-encoding")) {
        if (answer->chunked || !field_is_named(value, "chunked"))
            return "a Transfer-Encoding other than chunked";
        answer->chunked = true;
    } else if (field_is_named(name, "connection") && lists(value, "close")) {
        answer->keep = false;
    } else if (field_is_named(name, "keep-alive")) {
        take_keep_alive(answer, value);
    }
    buf_put_span(&answer->fields, name);
    buf_put_char(&answer->fields, '\0');
    buf_put_span(&answer->fields, value);
    buf_put_char(&answer->fields, '\0');
    return NULL;
}

// The empty line after the headers: decides which kind of body follows.
static enum http1_event end_head(struct http1 *answer, struct err *err)
{
    if (answer->status == 101)
        return broken(err, "it switches to another protocol");
    if (answer->status < 200) {  // an interim answer: the final one follows
        buf_clear(&answer->fields);
        answer->chunked = answer->sized = false;
        answer->state = HTTP1_AT_STATUS;
        return HTTP1_MORE;
    }
    if (answer->chunked && answer->sized)
        return broken(err, "both a Content-Length and a Transfer-Encoding");
    if (answer->status == 204 || answer->status == 304) {
        answer->state = HTTP1_OVER;
    } else if (answer->chunked) {
        answer->state = HTTP1_AT_CHUNK;
    } else if (answer->sized) {
        answer->state = answer->left ? HTTP1_AT_BODY : HTTP1_OVER;
    } else {
        answer->state = HTTP1_TO_CLOSE;
        answer->keep = false;
    }
    return HTTP1_HEAD;
}

// "1a;name=value": the size in hexadecimal, and extensions, which are ignored.
static bool take_chunk_size(struct http1 *answer, struct span line)
{
    size_t digits = 0;
    answer->left = 0;
    for (; digits < line.len; digits++) {
        char c = line.at[digits], lower = (char)(c | 0x20);
        if (!digit(c) && !(lower >= 'a' && lower <= 'f'))
            break;
        answer->left = answer->left << 4 | (uint64_t)(digit(c) ? c - '0' : lower - 'a' + 10);
        if (digits == CHUNK_DIGITS_MAX)
            return false;
    }
    struct span rest = trim(span_after(line, digits));
    return digits && (!rest.len || rest.at[0] == ';');
}

static enum http1_event take_body(struct http1 *answer, struct span *bytes, struct span *piece)
{
    size_t len = bytes->len;
    if (answer->state != HTTP1_TO_CLOSE && len > answer->left)
        len = (size_t)answer->left;
    *piece = span_make(bytes->at, len);
    *bytes = span_after(*bytes, len);
    if (answer->state == HTTP1_TO_CLOSE)
        return HTTP1_BODY;
    answer->left -= len;
    if (!answer->left)
        answer->state = answer->state == HTTP1_IN_CHUNK ? HTTP1_AFTER_CHUNK : HTTP1_OVER;
    return HTTP1_BODY;
}

// Interprets a line by the state. HTTP1_MORE: no event yet.
static enum http1_event take_meaning(struct http1 *answer, struct span line, struct err *err)
{
    const char *problem;
    switch (answer->state) {
    case HTTP1_AT_STATUS:
        if (!take_status(answer, line))
            return broken(err, "it does not begin with a status line");
        answer->state = HTTP1_AT_FIELD;
        return HTTP1_MORE;
    case HTTP1_AT_FIELD:
        if (!line.len)
            return end_head(answer, err);
        problem = take_field(answer, line);
        return problem ? broken(err, problem) : HTTP1_MORE;
    case HTTP1_AT_CHUNK:
        if (!take_chunk_size(answer, line))
            return broken(err, "a chunk without a size");
        answer->head_bytes = 0;  // many chunks do not count as a large header section
        answer->state = answer->left ? HTTP1_IN_CHUNK : HTTP1_AT_TRAILER;
        return HTTP1_MORE;
    case HTTP1_AFTER_CHUNK:
        if (line.len)
            return broken(err, "a chunk longer than its size");
        answer->state = HTTP1_AT_CHUNK;
        return HTTP1_MORE;
    default:  // HTTP1_AT_TRAILER: trailers are ignored
        if (!line.len)
            answer->state = HTTP1_OVER;
        return HTTP1_MORE;
    }
}

enum http1_event http1_next(struct http1 *answer, struct span *bytes, struct span *piece, struct err *err)
{
    struct span line;
    for (;;) {
        if (answer->state == HTTP1_OVER)
            return HTTP1_END;
        if (!bytes->len)
            return HTTP1_MORE;
        if (answer->state == HTTP1_AT_BODY || answer->state == HTTP1_IN_CHUNK || answer->state == HTTP1_TO_CLOSE)
            return take_body(answer, bytes, piece);
        enum http1_event event = take_line(answer, bytes, &line, err);
        if (event != HTTP1_HEAD)
            return event;
        event = take_meaning(answer, line, err);
        if (event != HTTP1_MORE)
            return event;
    }
}
