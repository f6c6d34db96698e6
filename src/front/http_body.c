// Owns request bodies while they are read: their size limits, and the memory that is reserved for them.
#include "base/log.h"
#include "face.h"
#include "guard.h"
#include <inttypes.h>

#define RESERVED_BODY ((size_t)256 << 10)
#define UNAUTHENTICATED_BODY ((size_t)16 << 10)
#define NO_MEMORY_RETRY_MS 1000

bool http_body_measure(struct http_exchange *exchange, const struct guard_headers *headers, struct err *err)
{
    int64_t max = exchange->face->config.limits->max_body, length = 0;
    for (size_t i = 0; i < headers->content_length.len && length <= max; i++)
        length = length * 10 + (headers->content_length.at[i] - '0');
    if (length > max)
        return err_set(err, ERR_TOO_LARGE, "Content-Length exceeds limits.max_body (%" PRId64 ")", max);
    exchange->arrival.body.max = (size_t)max;
    exchange->length = (size_t)length;
    return true;
}

// P6: a small body is read before its caller is authenticated, so that the credential is checked once. A large body, or one
// without Content-Length, is read only after authentication.
static bool is_large(const struct http_exchange *exchange, const struct guard_headers *headers)
{
    return headers->transfer_encoding.at || exchange->length > UNAUTHENTICATED_BODY;
}

static bool authenticate(struct http_exchange *exchange)
{
    if (gate_welcomes(exchange->face->gate, &exchange->arrival)) {
        eviction_authenticated(exchange->caller);
        deadline_body(exchange->caller);
        return true;
    }
    exchange->arrival.op = ARRIVAL_UNREAD;
    gate_arrive(exchange->face->gate, &exchange->arrival);
    return false;
}

static bool hold(struct http_exchange *exchange, size_t more)
{
    struct err err;
    int64_t retry_ms;
    if (gate_hold(exchange->face->gate, &exchange->arrival, more, &retry_ms, &err))
        return true;
    http_answer_refuse(exchange, &err, retry_ms);
    return false;
}

// False: unauthenticated callers have used up their shared budget, so the caller must authenticate before even a small body is
// read.
static bool hold_small(struct http_exchange *exchange)
{
    struct err err;
    int64_t retry_ms;
    if (exchange->length == 0 || gate_hold(exchange->face->gate, &exchange->arrival, exchange->length, &retry_ms, &err))
        return true;
    budget_close(&exchange->arrival.held);
    return false;
}

void http_body_begin(struct http_exchange *exchange, const struct guard_headers *headers)
{
    size_t length = exchange->length;
    if ((is_large(exchange, headers) || !hold_small(exchange)) &&
        (!authenticate(exchange) || (length && !hold(exchange, length))))
        return;
    if (length)
        buf_reserve(&exchange->arrival.body, length < RESERVED_BODY ? length : RESERVED_BODY);
}

// libmicrohttpd can queue the answer only after the whole body. The rest of the body is discarded.
static void refuse_rest(struct http_exchange *exchange, const struct err *err, int64_t retry_ms)
{
    http_answer_refuse_body(exchange, err, retry_ms);
    buf_release(&exchange->arrival.body);
    budget_close(&exchange->arrival.held);
}

void http_body_take(struct http_exchange *exchange, struct span bytes)
{
    struct arrival *arrival = &exchange->arrival;
    struct buf *body = &arrival->body;
    struct err err;
    int64_t retry_ms;
    bool counted = exchange->length || exchange->page;  // false: a chunked body, whose memory is reserved as it arrives
    if (exchange->state == EXCHANGE_SKIPPING)
        return;
    if (bytes.len > body->max - body->len) {
        (void)err_set(&err, ERR_TOO_LARGE, "body exceeds %s (%zu bytes)",
                      exchange->page ? "the limit of a form" : "limits.max_body", body->max);
        refuse_rest(exchange, &err, 0);
    } else if (!counted && !gate_hold(exchange->face->gate, arrival, bytes.len, &retry_ms, &err)) {
        refuse_rest(exchange, &err, retry_ms);
    } else {
        buf_put_span(body, bytes);
        if (!body->no_memory)
            return;
        (void)err_set(&err, ERR_TOO_MANY, "out of memory after %zu bytes of a body", body->len);
        log_error("request refused: out of memory", LOG_INT("bytes", body->len));
        refuse_rest(exchange, &err, NO_MEMORY_RETRY_MS);
    }
}
