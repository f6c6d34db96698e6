/* template.c: request bodies with placeholders for the id, the nonce and the milliseconds. */
#include "template.h"

#include <stdbool.h>
#include <string.h>

static bool at_token(struct span rest, const char *token)
{
    return rest.len >= strlen(token) && memcmp(rest.at, token, strlen(token)) == 0;
}

/* Writes the value of the placeholder at the start of rest, or else its first byte; returns the bytes consumed. */
static size_t put_token(struct buf *out, struct span rest, const struct template_values *v)
{
    if (at_token(rest, "@ID@")) {
        buf_append(out, v->id.at, v->id.len);
        return 4;
    }
    if (at_token(rest, "@NONCE@")) {
        buf_append(out, v->nonce.at, v->nonce.len);
        return 7;
    }
    if (at_token(rest, "@MS@")) {
        buf_number(out, v->ms);
        return 4;
    }
    buf_append(out, rest.at, 1);
    return 1;
}

void template_render(struct buf *out, struct span body, const struct template_values *v)
{
    while (body.len) {
        const char *sign = memchr(body.at, '@', body.len);
        size_t plain = sign ? (size_t)(sign - body.at) : body.len;
        buf_append(out, body.at, plain);
        body.at += plain;
        body.len -= plain;
        if (sign) {
            size_t used = put_token(out, body, v);
            body.at += used;
            body.len -= used;
        }
    }
}
