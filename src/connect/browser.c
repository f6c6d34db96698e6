// Owns the cookie that binds a login to its browser (H7): a login can be completed only by the browser that has it.
//
// Its name ends in eight digits of the state's digest. Its value is random, followed by a dot and the time it expires, so
// that the oldest can be found.
#include "auth/grant/vault.h"
#include "base/clock.h"
#include "base/secret.h"
#include "state.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define NAME "postern_oa_"
#define DIGITS 8
#define LOGINS_MAX 8  // logins of one browser at once

static const char *name_prefix(const struct connect *connect) { return connect->secure ? "__Host-" NAME : NAME; }

static void cookie_name(const struct connect *connect, struct span state, char out[CONNECT_COOKIE_NAME])
{
    unsigned char digest[SECRET_MAC_BYTES];
    secret_digest(state, digest);
    snprintf(out, CONNECT_COOKIE_NAME, "%s%02x%02x%02x%02x", name_prefix(connect), digest[0], digest[1], digest[2],
             digest[3]);
}

bool connect_browser_is_bound(const struct connect_request *request, struct span state, const struct attempt *attempt)
{
    char name[CONNECT_COOKIE_NAME];
    unsigned char digest[SECRET_MAC_BYTES];
    cookie_name(request->connect, state, name);
    const char *value = request->cookie(request->arg, name);
    if (!value || attempt->cookie.len != sizeof digest)
        return false;
    secret_digest(span_of(value), digest);
    return secret_equal(digest, attempt->cookie.bytes, sizeof digest);
}

// The oldest of a browser's logins.
struct oldest {
    const char *prefix;
    size_t count;
    char name[CONNECT_COOKIE_NAME];
    int64_t expires_ms;
};

static void on_cookie(void *arg, const char *name, const char *value)
{
    struct oldest *oldest = arg;
    size_t len = strlen(oldest->prefix);
    if (strncmp(name, oldest->prefix, len) != 0 || strspn(name + len, "0123456789abcdef") != DIGITS ||
        strlen(name) != len + DIGITS)
        return;
    const char *dot = strchr(value, '.');
    int64_t expires_ms = dot ? strtoll(dot + 1, NULL, 10) : 0;
    if (oldest->count++ && expires_ms >= oldest->expires_ms)
        return;
    oldest->expires_ms = expires_ms;
    snprintf(oldest->name, sizeof oldest->name, "%s", name);
}

static void make_room(const struct connect_request *request, struct connect_page *page)
{
    struct oldest oldest = {.prefix = name_prefix(request->connect)};
    request->each_cookie(request->arg, on_cookie, &oldest);
    if (oldest.count >= LOGINS_MAX)
        connect_page_add_cookie(page, oldest.name, "", 0);
}

void connect_browser_bind(const struct connect_request *request, struct span state, struct attempt *attempt,
                          struct connect_page *page)
{
    unsigned char digest[SECRET_MAC_BYTES];
    char name[CONNECT_COOKIE_NAME];
    struct buf value = {0};
    make_room(request, page);
    secret_put_random(&value, CONNECT_SECRET_BYTES);
    buf_printf(&value, ".%" PRId64, attempt->expires_ms);
    secret_digest(buf_span(&value), digest);
    secret_set(&attempt->cookie, span_make((const char *)digest, sizeof digest));
    cookie_name(request->connect, state, name);
    int64_t left = attempt->expires_ms / 1000 - clock_wall_s() + 1;
    connect_page_add_cookie(page, name, buf_text(&value), left > 0 ? left : 1);
    buf_wipe(&value);
}

void connect_browser_unbind(const struct connect_request *request, struct span state, struct connect_page *page)
{
    char name[CONNECT_COOKIE_NAME];
    cookie_name(request->connect, state, name);
    connect_page_add_cookie(page, name, "", 0);
}
