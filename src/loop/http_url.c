// Owns reading URLs, with libcurl's parser, so that a check and the connection never read one differently.
#include "loop/http_url.h"
#include "base/buf.h"
#include "base/mem.h"
#include <arpa/inet.h>
#include <curl/curl.h>
#include <stdlib.h>
#include <strings.h>

// Only a literal address counts: "127.0.0.1.example" is a name that can resolve to any address.
static bool is_local(const char *host)
{
    struct in_addr address;
    return strcasecmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
           (inet_pton(AF_INET, host, &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
}

bool http_url_is_loopback(const char *text)
{
    char *host = NULL;
    CURLU *url = curl_url();
    bool local =
        !curl_url_set(url, CURLUPART_URL, text, 0) && !curl_url_get(url, CURLUPART_HOST, &host, 0) && is_local(host);
    curl_free(host);
    curl_url_cleanup(url);
    return local;
}

char *http_url_resolve(const char *base, const char *reference)
{
    char *text = NULL, *out = NULL;
    CURLU *url = curl_url();
    if (!curl_url_set(url, CURLUPART_URL, base, 0) && !curl_url_set(url, CURLUPART_URL, reference, 0) &&
        !curl_url_get(url, CURLUPART_URL, &text, 0))
        out = mem_string(text);
    curl_free(text);
    curl_url_cleanup(url);
    return out;
}

static char *origin_of(const char *text)
{
    char *scheme = NULL, *host = NULL, *port = NULL;
    struct buf out = {0};
    CURLU *url = curl_url();
    if (!curl_url_set(url, CURLUPART_URL, text, 0) && !curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) &&
        !curl_url_get(url, CURLUPART_HOST, &host, 0) && !curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT))
        buf_printf(&out, "%s://%s:%s", scheme, host, port);
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_url_cleanup(url);
    return buf_take(&out, NULL);
}

bool http_url_same_origin(const char *a, const char *b)
{
    char *x = origin_of(a), *y = origin_of(b);
    bool same = *x && strcasecmp(x, y) == 0;
    free(x);
    free(y);
    return same;
}

bool http_url_valid(const char *text)
{
    char *origin = origin_of(text), *user = NULL;
    CURLU *url = curl_url();
    bool web = strncasecmp(origin, "http://", 7) == 0 || strncasecmp(origin, "https://", 8) == 0;
    bool named = !curl_url_set(url, CURLUPART_URL, text, 0) && !curl_url_get(url, CURLUPART_USER, &user, 0);
    curl_free(user);
    curl_url_cleanup(url);
    free(origin);
    return web && !named;
}
