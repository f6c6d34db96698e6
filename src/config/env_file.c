// Owns reading files of environment variables.
//
//     # a comment
//     export NAME=value           # up to a '#' after a space
//     NAME='as it is written'
//     NAME="with \n, \t, \" and \\"
#include "env_file.h"
#include "base/json.h"
#include "base/mem.h"
#include <ctype.h>
#include <stdlib.h>

static struct span trim(struct span text)
{
    while (text.len && isspace((unsigned char)text.at[0]))
        text = span_after(text, 1);
    while (text.len && isspace((unsigned char)text.at[text.len - 1]))
        text.len--;
    return text;
}

static size_t name_len(struct span line)
{
    size_t len = 0;
    while (len < line.len && (isalnum((unsigned char)line.at[len]) || line.at[len] == '_'))
        len++;
    return len && !isdigit((unsigned char)line.at[0]) ? len : 0;
}

static bool unquote(struct span text, struct buf *out)
{
    char quote = text.at[0];
    for (size_t i = 1; i < text.len; i++) {
        char c = text.at[i];
        if (c == quote) {
            struct span rest = trim(span_after(text, i + 1));
            return !rest.len || rest.at[0] == '#';
        }
        if (c == '\\' && quote == '"' && i + 1 < text.len) {
            c = text.at[++i];
            c = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
        }
        buf_put_char(out, c);
    }
    return false;
}

static bool read_value(struct span text, struct buf *out)
{
    if (text.len && (text.at[0] == '"' || text.at[0] == '\''))
        return unquote(text, out);
    for (size_t i = 0; i < text.len; i++)
        if (text.at[i] == '#' && (i == 0 || isspace((unsigned char)text.at[i - 1])))
            text.len = i;
    buf_put_span(out, trim(text));
    return true;
}

// Adds the variable, or gives it a new value: in a file the last line of a name counts, as for a shell. The first `given` variables
// are those of `env`, which stay.
static void put(struct option_pairs *env, size_t given, struct span name, const char *value)
{
    size_t i = 0;
    while (i < env->count && !span_is(name, env->at[i].name))
        i++;
    if (i < given)
        return;
    if (i == env->count) {
        env->at = mem_resize(env->at, (env->count + 1) * sizeof *env->at);
        env->at[env->count++] = (struct option_pair){.name = mem_span(name)};
    } else {
        explicit_bzero(env->at[i].value, strlen(env->at[i].value));
        free(env->at[i].value);
    }
    env->at[i].value = mem_string(value);
}

static bool read_line(struct option_pairs *env, size_t given, struct span line)
{
    struct buf value = {0};
    line = trim(line);
    if (!line.len || line.at[0] == '#')
        return true;
    if (line.len > 7 && strncmp(line.at, "export ", 7) == 0)
        line = trim(span_after(line, 7));
    struct span name = span_make(line.at, name_len(line)), rest = trim(span_after(line, name.len));
    bool ok = name.len && rest.len && rest.at[0] == '=' && read_value(trim(span_after(rest, 1)), &value) &&
              !memchr(buf_text(&value), '\0', value.len);
    if (ok)
        put(env, given, name, buf_text(&value));
    buf_wipe(&value);
    return ok;
}

bool env_file_read(struct server *server, struct err *err)
{
    struct buf text = {0};
    size_t given = server->env.count;
    bool ok = json_read_file(server->env_file, &text, err);
    struct span left = buf_span(&text);
    for (size_t number = 1; ok && left.len; number++) {
        const char *end = memchr(left.at, '\n', left.len);
        struct span line = end ? span_make(left.at, (size_t)(end - left.at)) : left;
        ok = read_line(&server->env, given, line) ||
             err_set(err, ERR_CONFIG, "%s:%zu: not a line like NAME=VALUE", server->env_file, number);
        left = span_after(left, line.len + (end != NULL));
    }
    buf_wipe(&text);
    return ok;
}
