/* check.c: decides whether an HTTP response is the right answer to the request it follows. */
#include "check.h"

#include "buf.h"
#include "pattern.h"

#include <string.h>
#include <strings.h>

/* A large answer that passed the checks: later answers are compared with it instead of being parsed. */
enum { CHECK_LARGE = 4096 };
static struct buf check_known;
static size_t check_id_at, check_id_len;

static bool same(struct span a, struct span b) { return a.len == b.len && memcmp(a.at, b.at, a.len) == 0; }

static bool has_type(const struct http1_message *m, const char *type)
{
    return m->type.len >= strlen(type) && strncasecmp(m->type.at, type, strlen(type)) == 0;
}

/* The data line whose message has that id; comments, other fields and empty data are skipped. */
static struct span event_message(struct span body, struct span id)
{
    while (body.len) {
        const char *nl = memchr(body.at, '\n', body.len);
        struct span line = {body.at, nl ? (size_t)(nl - body.at) : body.len};
        size_t used = nl ? line.len + 1 : line.len;
        struct span found;
        body.at += used;
        body.len -= used;
        if (line.len && line.at[line.len - 1] == '\r')
            line.len--;
        if (line.len < 6 || memcmp(line.at, "data:", 5) != 0)
            continue;
        line.at += 5;
        line.len -= 5;
        if (scan_member(line, "id", &found) && same(found, id))
            return line;
    }
    return (struct span){body.at, 0};
}

struct span check_message(const struct http1_message *m, struct span id)
{
    return has_type(m, "text/event-stream") ? event_message(m->body, id) : m->body;
}

/* True when the message has the right id and otherwise equals the known one. */
static bool is_known(struct span message, struct span id)
{
    size_t tail = check_known.len - check_id_at - check_id_len;
    const char *known_tail = check_known.data + check_id_at + check_id_len;

    return check_known.len && message.len == check_id_at + id.len + tail &&
           memcmp(message.at, check_known.data, check_id_at) == 0 &&
           memcmp(message.at + check_id_at, id.at, id.len) == 0 &&
           memcmp(message.at + check_id_at + id.len, known_tail, tail) == 0;
}

static size_t count_tools(struct span message)
{
    static const char word[] = "\"inputSchema\"";
    const char *end = message.at + message.len;
    size_t count = 0;

    for (const char *p = message.at; (p = memmem(p, (size_t)(end - p), word, sizeof word - 1)); p += sizeof word - 1)
        count++;
    return count;
}

static bool has_text(struct span message, size_t len)
{
    static const char word[] = "\"text\":\"";
    const char *found = memmem(message.at, message.len, word, sizeof word - 1);
    const char *text = found ? found + sizeof word - 1 : NULL;

    return text && (size_t)(message.at + message.len - text) > len && text[len] == '"' &&
           memcmp(text, pattern(len), len) == 0;
}

const char *check_answer(const struct http1_message *m, const struct check_want *want)
{
    struct span message, id, result, flag;

    if (m->status != 200)
        return "the status is not 200";
    if (!has_type(m, "application/json") && !has_type(m, "text/event-stream"))
        return "the content type is neither JSON nor SSE";
    message = check_message(m, want->id);
    if (message.len < want->min_bytes)
        return "the answer is too short";
    if (!want->nonce.len && !want->tools && message.len >= CHECK_LARGE && is_known(message, want->id))
        return NULL;
    if (!scan_whole(message))
        return "the answer is not JSON";
    if (!scan_member(message, "id", &id) || !same(id, want->id))
        return "the id is not that of the request";
    if (!scan_member(message, "result", &result))
        return "the result is missing";
    if (scan_member(result, "isError", &flag) && scan_is(flag, "true"))
        return "the result is an error";
    if (want->nonce.len && !memmem(message.at, message.len, want->nonce.at, want->nonce.len))
        return "the nonce belongs to another call";
    if (want->text && !has_text(message, want->text))
        return "the text differs";
    if (want->tools && count_tools(message) != want->tools)
        return "the number of tools is wrong";
    if (message.len >= CHECK_LARGE) {
        check_known.len = 0;
        buf_append(&check_known, message.at, message.len);
        check_id_at = (size_t)(id.at - message.at);
        check_id_len = id.len;
    }
    return NULL;
}
