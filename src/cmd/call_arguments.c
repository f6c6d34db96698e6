// Owns reading the arguments of a tool or prompt from the command line.
#include "call_arguments.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/scan.h"
#include <errno.h>
#include <unistd.h>

#define STDIN_MAX ((size_t)64 << 20)
#define EXPECTED \
    "the arguments must be a JSON object such as '{\"name\": \"value\"}', @FILE with one, or words such as name=value"

static bool read_stdin(struct buf *out, struct err *err)
{
    char block[65536];
    ssize_t got;
    out->max = STDIN_MAX;
    while ((got = read(STDIN_FILENO, block, sizeof block)) > 0)
        buf_put(out, block, (size_t)got);
    return got == 0 || err_set(err, ERR_CONFIG, "standard input: %s", strerror(errno));
}

static bool check_object(struct span text, struct err *err)
{
    struct span value;
    struct err problem;
    if (!scan_document(text, true, &value, &problem))
        return err_set(err, ERR_CONFIG, EXPECTED ": %.200s", problem.detail);
    return scan_is_object(value) || err_set(err, ERR_CONFIG, EXPECTED);
}

static bool put_pair(const char *word, bool texts, struct buf *out, struct err *err)
{
    const char *equals = strchr(word, '=');
    struct span value, key = {word, equals ? (size_t)(equals - word) : 0};
    if (!key.len)
        return err_set(err, ERR_CONFIG, "\"%.100s\": " EXPECTED, word);
    if (!scan_is_utf8(span_of(word)))
        return err_set(err, ERR_CONFIG, "\"%.*s\": the value is not UTF-8", SPAN_ARG(key));
    buf_put_text(out, out->len > 1 ? "," : "");
    scan_encode(key, out);
    buf_put_char(out, ':');
    if (!texts && scan_document(span_of(equals + 1), true, &value, NULL))
        buf_put_span(out, value);
    else
        scan_encode(span_of(equals + 1), out);
    return true;
}

bool call_arguments_read(const char *const *words, int count, bool texts, struct buf *out, struct err *err)
{
    const char *first = count ? words[0] : "{}";
    bool one = count <= 1;
    if (one && strcmp(first, "-") == 0)
        return read_stdin(out, err) && check_object(buf_span(out), err);
    if (one && first[0] == '@')
        return json_read_file(first + 1, out, err) && check_object(buf_span(out), err);
    if (one && !strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_$", first[0])) {
        buf_put_text(out, first);
        return check_object(buf_span(out), err);
    }
    bool ok = true;
    buf_put_char(out, '{');
    for (int i = 0; ok && i < count; i++)
        ok = put_pair(words[i], texts, out, err);
    buf_put_char(out, '}');
    return ok && check_object(buf_span(out), err);
}
