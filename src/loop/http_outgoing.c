// Owns a request on its way out: its bytes, and how many of them were sent.
//
// The head and a small body are one buffer, and go out in one call. A large body stays where it is: the request keeps a
// reference to it, for a second try.
#include "base/secret.h"
#include "http_state.h"

#define COPIED_MAX 16384   // bytes of a body that are cheaper to copy than to send apart
#define WIPED_BYTES 65536  // headers and forms hold secrets; what is larger than those is the body of a call

static const char *const methods[] = {
    [HTTP_POST] = "POST ", [HTTP_GET] = "GET ", [HTTP_DELETE] = "DELETE ", [HTTP_PUT] = "PUT "};

static void put_head(struct buf *out, const struct http_target *target, const struct http_request *request, size_t body)
{
    buf_put_text(out, methods[request->method]);
    buf_put_span(out, buf_span(&target->head));
    if (request->extra_header) {
        buf_put_text(out, request->extra_header);
        buf_put_text(out, "\r\n");
    }
    if (request->method == HTTP_POST || request->method == HTTP_PUT) {
        buf_put_text(out, "Content-Length: ");
        buf_put_int(out, (int64_t)body);
        buf_put_text(out, "\r\n");
    }
    buf_put_text(out, "\r\n");
}

void http_outgoing_init(struct http_outgoing *out, const struct http_target *target, const struct http_request *request)
{
    struct blob *large = request->large;
    size_t body = request->body.len + (large ? large->len : 0);
    size_t extra = request->extra_header ? strlen(request->extra_header) + 2 : 0;
    bool by_reference = large && large->len > COPIED_MAX;
    *out = (struct http_outgoing){.large = by_reference ? blob_ref(large) : NULL};
    buf_reserve(&out->text, target->head.len + extra + body - (by_reference ? large->len : 0) +
                                64);  // all of it: growing would leave a copy behind
    put_head(&out->text, target, request, body);
    buf_put_span(&out->text, request->body);
    for (size_t i = 0; large && !by_reference && i < blob_count(large); i++)
        buf_put_span(&out->text, blob_part(large, i));
    out->len = out->text.len + (by_reference ? large->len : 0);
}

void http_outgoing_release(struct http_outgoing *out)
{
    secret_wipe(out->text.at, out->text.len < WIPED_BYTES ? out->text.len : WIPED_BYTES);
    buf_release(&out->text);
    blob_unref(out->large);
    *out = (struct http_outgoing){0};
}

void http_outgoing_rewind(struct http_outgoing *out) { out->sent = out->part = out->part_sent = 0; }

static void advance(struct http_outgoing *out, size_t count)
{
    size_t text = out->sent < out->text.len ? out->text.len - out->sent : 0;
    out->sent += count;
    out->part_sent += count > text ? count - text : 0;
    while (out->part_sent && out->part_sent >= blob_part(out->large, out->part).len)
        out->part_sent -= blob_part(out->large, out->part++).len;
}

ssize_t http_outgoing_send(struct http_outgoing *out, struct http_connection *connection)
{
    struct span parts[HTTP_PARTS_A_CALL];
    size_t count = 0;
    if (out->sent < out->text.len)
        parts[count++] = span_after(buf_span(&out->text), out->sent);
    for (size_t i = out->part; out->large && i < blob_count(out->large) && count < HTTP_PARTS_A_CALL; i++)
        parts[count++] = span_after(blob_part(out->large, i), i == out->part ? out->part_sent : 0);
    ssize_t sent = http_connection_send(connection, parts, count);
    if (sent > 0)
        advance(out, (size_t)sent);
    return sent;
}
