// Owns the documents that any caller may read: the metadata of the protected resource, the JWK set, and the health report.
#include "base/scan.h"
#include "face.h"
#include "guard.h"

// RFC 9728, for any caller and any origin: how to get a token is not a secret. Every valid profile name gets an answer, so
// that the answer does not reveal which profiles exist.
bool document_is_metadata(struct http_exchange *exchange, const struct guard_line *line)
{
    struct span path = http_path(line->url);
    bool asked = span_is(path, DOCUMENT_METADATA_PATH) ||
                 http_path_is_endpoint(path, DOCUMENT_METADATA_PATH "/mcp", &exchange->arrival.profile);
    return asked && provider_chain_issuers(exchange->face->chain)[0] &&
           (strcmp(line->method, "GET") == 0 || strcmp(line->method, "HEAD") == 0 ||
            strcmp(line->method, "OPTIONS") == 0);
}

void document_set_metadata(struct http_exchange *exchange)
{
    struct buf base = {0}, *out = &exchange->answer.body;
    const char *const *issuers = provider_chain_issuers(exchange->face->chain);
    http_path_put_base(exchange, &base);
    http_path_put(exchange, &base);
    http_exchange_set_state(exchange, EXCHANGE_ANSWERED);
    exchange->answer.status = 200;
    buf_put_text(out, "{\"resource\":");
    scan_encode_lossy(buf_span(&base), out);
    buf_put_text(out, ",\"authorization_servers\":[");
    for (size_t i = 0; issuers[i]; i++) {
        buf_put_text(out, i ? "," : "");
        scan_encode_lossy(span_of(issuers[i]), out);
    }
    const char *const *scopes = provider_chain_scopes(exchange->face->chain);
    for (size_t i = 0; scopes && scopes[i]; i++) {
        buf_put_text(out, i ? "," : "],\"scopes_supported\":[");
        scan_encode_lossy(span_of(scopes[i]), out);
    }
    buf_put_text(out, "],\"bearer_methods_supported\":[\"header\"]}");
    buf_release(&base);
}

// The public keys with which a server verifies identity assertions (auth.assertion). Clients may cache them.
#define KEYS_PATH "/.well-known/jwks.json"

bool document_is_keys(const struct http_exchange *exchange, const struct guard_line *line)
{
    return span_is(http_path(line->url), KEYS_PATH) && gate_keys(exchange->face->gate).len &&
           (strcmp(line->method, "GET") == 0 || strcmp(line->method, "HEAD") == 0 ||
            strcmp(line->method, "OPTIONS") == 0);
}

void document_set_keys(struct http_exchange *exchange)
{
    exchange->keys = true;
    http_exchange_set_state(exchange, EXCHANGE_ANSWERED);
    exchange->answer.status = 200;
    buf_put_span(&exchange->answer.body, gate_keys(exchange->face->gate));
}

// Any caller gets one word. The details are only for callers on this host whose request shows no sign of a proxy.
bool document_is_health(const struct guard_line *line)
{
    return span_is(http_path(line->url), "/healthz") &&
           (strcmp(line->method, "GET") == 0 || strcmp(line->method, "HEAD") == 0);
}

static bool is_at_home(const struct http_exchange *exchange)
{
    static const char *const marks[] = {"Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"};
    const struct peer *peer = &exchange->caller->peer;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, marks[i]))
            return false;
    return (peer->loopback || peer->address.ss_family == AF_UNIX) && guard_is_loopback(exchange->host);
}

void document_set_health(struct http_exchange *exchange)
{
    exchange->health = true;
    http_exchange_set_state(exchange, EXCHANGE_ANSWERED);
    exchange->answer.status =
        gate_health(exchange->face->gate, is_at_home(exchange), &exchange->answer.body) ? 200 : 503;
}
