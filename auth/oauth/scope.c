// Owns sets of scopes in the form of OAuth (words separated by spaces), and the choice of the scopes to request.
#include "scope.h"

#define SCOPE_MAX ((size_t)4 << 10)

static bool has_word(const char *scopes, struct span word)
{
    for (const char *at = scopes; at && *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (span_equal(span_make(at, strcspn(at, " ")), word))
            return true;
    return false;
}

bool oauth_scope_covers(const char *scopes, const char *wanted)
{
    for (const char *at = wanted + strspn(wanted, " "); *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (!has_word(scopes, span_make(at, strcspn(at, " "))))
            return false;
    return true;
}

static const char *unite(const char *a, const char *b, struct arena *arena)
{
    const char *sources[] = {a, b};
    const char *out = NULL;
    struct buf words = {.max = SCOPE_MAX};
    for (size_t i = 0; i < 2; i++)
        for (const char *at = sources[i]; at && *at; at += strcspn(at, " "), at += strspn(at, " ")) {
            char *word = arena_copy(arena, span_make(at, strcspn(at, " ")));
            if (!*word || (words.len && has_word(buf_text(&words), span_of(word))))
                continue;
            if (words.len)
                buf_put_char(&words, ' ');
            buf_put_text(&words, word);
        }
    if (words.len && !words.overflow)
        out = arena_copy(arena, buf_span(&words));
    buf_release(&words);
    return out;
}

const char *oauth_scope_choose(const struct oauth_scope_wish *wish, struct arena *arena)
{
    const char *first = wish->configured ? wish->configured : wish->challenged ? wish->challenged : wish->supported;
    const char *scope = unite(wish->held, first, arena);
    if (wish->held && wish->challenged)
        scope = unite(scope, wish->challenged, arena);
    return scope && wish->offline ? unite(scope, "offline_access", arena) : scope;
}

const char *oauth_scope_join(const json_t *list, struct arena *arena)
{
    struct buf words = {.max = SCOPE_MAX};
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        const char *text = json_string_value(item);
        if (!text || !*text || strpbrk(text, " \t\r\n\"\\"))
            continue;
        if (words.len)
            buf_put_char(&words, ' ');
        buf_put_text(&words, text);
    }
    const char *out = words.len && !words.overflow ? arena_copy(arena, buf_span(&words)) : NULL;
    buf_release(&words);
    return out;
}
