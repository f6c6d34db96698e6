// Owns a request on its way out: its bytes, and how many of them have been sent.
//
// The head and a small body share one buffer, and are sent in one call. A large body stays in place: the request keeps
// a reference to it, for a retry.
#include "base/secret.h"
#include "http_state.h"

#define COPIED_MAX 16384   // bytes of a body that are cheaper to copy than to send separately
#define KEPT_MAX 2048      // memory of a request that is kept for the next one
#define WIPED_BYTES 65536  // headers and forms hold secrets; bytes beyond this are the body of a call

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
    out->large = by_reference ? blob_ref(large) : NULL;
    buf_reserve(&out->text, target->head.len + extra + body - (by_reference ? large->len : 0) +
                                64);  // full size at once: growing would leave a copy behind
    put_head(&out->text, target, request, body);
    buf_put_span(&out->text, request->body);
    for (size_t i = 0; large && !by_reference && i < blob_count(large); i++)
        buf_put_span(&out->text, blob_part(large, i));
    out->len = out->text.len + (by_reference ? large->len : 0);
}

void http_outgoing_clear(struct http_outgoing *out)
{
    struct buf text = out->text;
    secret_wipe(text.at, text.len < WIPED_BYTES ? text.len : WIPED_BYTES);
    blob_unref(out->large);
    if (text.room > KEPT_MAX)
        buf_release(&text);
    buf_clear(&text);
    *out = (struct http_outgoing){.text = text};
}

void http_outgoing_release(struct http_outgoing *out)
{
    http_outgoing_clear(out);
    buf_release(&out->text);
}

void http_outgoing_rewind(struct http_outgoing *out) { out->sent = out->part = out->part_sent = 0; }

static void advance(struct http_outgoing *out, size_t count)
{
    size_t text = out->sent < out->text.len ? out->text.len - out->sent : 0;
    out->sent += count;
    if (!out->large)
        return;
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
