// Owns the protection of forms against cross-site request forgery: a random cookie, and in the form a MAC of the cookie and
// the purpose of the form, under a key that all processes of the store share.
#include "auth/grant/vault.h"
#include "base/secret.h"
#include "state.h"
#include <stdio.h>

#define COOKIE_SECONDS 3600
#define COOKIE_CHARS 43  // 256 bits as base64url

static void cookie_name(const struct connect *connect, char out[CONNECT_COOKIE_NAME])
{
    snprintf(out, CONNECT_COOKIE_NAME, "%spostern_csrf", connect->secure ? "__Host-" : "");
}

static void put_token(const struct connect *connect, struct span cookie, struct span purpose, struct buf *out)
{
    unsigned char mac[SECRET_MAC_BYTES];
    struct buf message = {0};
    buf_put_text(&message, "csrf");
    buf_put_char(&message, '\0');
    buf_put_span(&message, cookie);
    buf_put_char(&message, '\0');
    buf_put_span(&message, purpose);
    secret_mac(grant_store_key(connect->parts.store), VAULT_KEY_BYTES, buf_span(&message), mac);
    secret_encode(out, span_make((const char *)mac, sizeof mac));
    buf_release(&message);
}

static const char *sent_cookie(const struct connect_request *request)
{
    char name[CONNECT_COOKIE_NAME];
    cookie_name(request->connect, name);
    const char *value = request->cookie(request->arg, name);
    return value && strlen(value) == COOKIE_CHARS ? value : NULL;
}

void connect_csrf_put(const struct connect_request *request, struct span purpose, struct connect_page *page,
                      struct buf *token)
{
    const char *cookie = sent_cookie(request);
    struct buf made = {0};
    if (!cookie) {  // a cookie that the browser has is kept, so that several tabs work
        char name[CONNECT_COOKIE_NAME];
        secret_put_random(&made, CONNECT_SECRET_BYTES);
        cookie = buf_text(&made);
        cookie_name(request->connect, name);
        connect_page_add_cookie(page, name, cookie, COOKIE_SECONDS);
    }
    put_token(request->connect, span_of(cookie), purpose, token);
    page->csrf = buf_text(token);
    buf_release(&made);
}

bool connect_csrf_ok(const struct connect_request *request, struct span purpose)
{
    const char *cookie = sent_cookie(request);
    struct buf expected = {0};
    if (!cookie)
        return false;
    put_token(request->connect, span_of(cookie), purpose, &expected);
    bool ok = request->csrf.len == expected.len && secret_equal(request->csrf.at, expected.at, expected.len);
    buf_release(&expected);
    return ok;
}
