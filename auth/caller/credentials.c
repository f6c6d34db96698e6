// Owns reading the credentials that a caller presented.
#include "auth/caller/credentials.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

bool credentials_shown(const struct credentials *credentials)
{
    for (size_t i = 0; i < CREDENTIAL_HEADERS_MAX; i++)
        if (credentials->headers[i].count)
            return true;
    return credentials->authorization.at != NULL;
}

struct span credentials_bearer(const struct credentials *credentials)
{
    static const char scheme[] = "bearer ";
    size_t len = sizeof scheme - 1;
    struct span value = credentials->authorization;
    if (!value.at || value.len <= len || strncasecmp(value.at, scheme, len) != 0)
        return (struct span){0};
    value = span_after(value, len);
    while (value.len && value.at[0] == ' ')
        value = span_after(value, 1);
    return value;
}

bool credentials_source(const struct peer *peer, struct peer_source *out)
{
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    memset(out, 0, sizeof *out);  // padding, too, since it is used as a key
    if (!peer || peer->address.ss_family == AF_UNIX)
        return false;
    out->family = peer->address.ss_family;
    if (out->family == AF_INET) {
        memcpy(&four, &peer->address, sizeof four);
        memcpy(out->bytes, &four.sin_addr, sizeof four.sin_addr);
    } else if (out->family == AF_INET6) {
        memcpy(&six, &peer->address, sizeof six);
        memcpy(out->bytes, &six.sin6_addr, sizeof out->bytes);
    }
    return true;
}

void credentials_put_source(const struct peer *peer, struct buf *out)
{
    struct peer_source source;
    if (credentials_source(peer, &source))
        buf_put(out, (const char *)&source, sizeof source);
}

void credentials_put_address(const struct peer *peer, struct buf *out)
{
    char text[INET6_ADDRSTRLEN] = "";
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    if (peer->address.ss_family == AF_INET) {
        memcpy(&four, &peer->address, sizeof four);
        (void)inet_ntop(AF_INET, &four.sin_addr, text, sizeof text);
    } else if (peer->address.ss_family == AF_INET6) {
        memcpy(&six, &peer->address, sizeof six);
        (void)inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof text);
    } else if (peer->address.ss_family == AF_UNIX) {
        buf_put_text(out, "unix");
    }
    buf_put_text(out, text);
}
