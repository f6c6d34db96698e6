// Owns x-www-form-urlencoded text: writing it and reading it.
#include "auth/oauth/oauth.h"
#include <ctype.h>

static void put_encoded(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if (isalnum((unsigned char)*text) || strchr("-._~", *text))  // safe in a query and in a body alike
            buf_put_char(out, *text);
        else
            buf_printf(out, "%%%02X", (unsigned char)*text);
    }
}

void oauth_form_put(struct buf *form, const char *name, const char *value)
{
    if (!value)
        return;
    if (form->len && form->at[form->len - 1] != '?')
        buf_put_char(form, '&');
    if (*name) {
        put_encoded(form, name);
        buf_put_char(form, '=');
    }
    put_encoded(form, value);
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static bool decode(struct span text, struct buf *out)
{
    buf_clear(out);
    for (size_t i = 0; i < text.len; i++) {
        char c = text.at[i];
        if (c == '%') {
            int high = i + 2 < text.len ? hex(text.at[i + 1]) : -1, low = high >= 0 ? hex(text.at[i + 2]) : -1;
            if (low < 0)
                return false;
            c = (char)(high * 16 + low);
            i += 2;
        } else if (c == '+') {
            c = ' ';
        }
        if (!c)
            return false;  // NUL would truncate the value as a C string
        buf_put_char(out, c);
    }
    return true;
}

bool oauth_form_walk(struct span form, bool (*on_pair)(void *arg, struct span name, struct span value), void *arg)
{
    struct buf name = {0}, value = {0};
    bool ok = true;
    while (ok && form.len) {
        const char *end = memchr(form.at, '&', form.len);
        struct span pair = {form.at, end ? (size_t)(end - form.at) : form.len};
        const char *equals = pair.len ? memchr(pair.at, '=', pair.len) : NULL;
        struct span left = {pair.at, equals ? (size_t)(equals - pair.at) : pair.len};
        ok = decode(left, &name) && decode(span_after(pair, left.len + 1), &value);
        if (ok && pair.len)
            ok = on_pair(arg, buf_span(&name), buf_span(&value));
        form = span_after(form, pair.len + 1);
    }
    buf_release(&name);
    buf_release(&value);
    return ok;
}
