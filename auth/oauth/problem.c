// Owns quoting the errors of other parties: escaped, truncated, and without secrets that they have echoed.
#include "auth/oauth/oauth.h"

#define PROBLEM_MAX 256
#define SCRUB_MIN 8

void oauth_problem_put_excerpt(struct span text, struct buf *out)
{
    for (size_t i = 0; i < text.len && i < PROBLEM_MAX; i++) {
        if ((unsigned char)text.at[i] < ' ' || text.at[i] == 0x7f)
            buf_printf(out, "\\x%02x", (unsigned char)text.at[i]);
        else
            buf_put_char(out, text.at[i]);
    }
}

void oauth_problem_put(const json_t *document, struct buf *out)
{
    const char *error = oauth_document_string(document, "error"),
               *text = oauth_document_string(document, "error_description");
    oauth_problem_put_excerpt(span_of(error ? error : "no error code"), out);
    if (text) {
        buf_put_text(out, ": ");
        oauth_problem_put_excerpt(span_of(text), out);
    }
}

// Masks the secret as far as it matches, also where only its beginning occurs, because the server may have truncated
// it.
void oauth_problem_scrub(struct err *err, const char *secret)
{
    char head[SCRUB_MIN + 1] = "";
    size_t len = secret ? strlen(secret) : 0, least = len < SCRUB_MIN ? len : SCRUB_MIN;
    if (len < 4)  // so short a secret occurs in ordinary text
        return;
    memcpy(head, secret, least);
    for (char *at = err->detail; (at = strstr(at, head));)
        for (size_t i = 0; *at && i < len && *at == secret[i]; i++)
            *at++ = '*';
}
