// Owns bodies of requests while they are read: how large they may be, and what is held for them.
#include "base/log.h"
#include "face.h"
#include "guard.h"
#include <inttypes.h>

#define RESERVED_BODY ((size_t)256 << 10)
#define UNAUTHENTICATED_BODY ((size_t)16 << 10)
#define NO_MEMORY_RETRY_MS 1000

bool visit_measure_body(struct visit *visit, const struct guard_headers *headers, struct err *err)
{
    int64_t max = visit->face->config->limits.max_body, length = 0;
    for (size_t i = 0; i < headers->content_length.len && length <= max; i++)
        length = length * 10 + (headers->content_length.at[i] - '0');
    if (length > max)
        return err_set(err, ERR_TOO_LARGE, "Content-Length above %" PRId64 " (limits.max_body)", max);
    visit->arrival.body.max = (size_t)max;
    visit->length = (size_t)length;
    return true;
}

// P6: a small body is read whoever sends it, because then one look at the credential is enough. More, or a body that does
// not say how much it is, is read for those who are let in.
static bool is_large(const struct visit *visit, const struct guard_headers *headers)
{
    return headers->transfer_encoding.at || visit->length > UNAUTHENTICATED_BODY;
}

static bool authenticate(struct visit *visit)
{
    if (gate_welcomes(visit->face->gate, &visit->arrival)) {
        eviction_authenticated(visit->caller);
        deadline_body(visit->caller);
        return true;
    }
    visit->arrival.op = ARRIVAL_UNREAD;
    gate_arrive(visit->face->gate, &visit->arrival);
    return false;
}

static bool hold(struct visit *visit, size_t more)
{
    struct err err;
    int64_t retry_ms;
    if (gate_hold(visit->face->gate, &visit->arrival, more, &retry_ms, &err))
        return true;
    visit_refuse(visit, &err, retry_ms);
    return false;
}

// Where unauthenticated callers have used up what they share, a caller is authenticated before even a small body is read.
static bool hold_small(struct visit *visit)
{
    struct err err;
    int64_t retry_ms;
    if (visit->length == 0 || gate_hold(visit->face->gate, &visit->arrival, visit->length, &retry_ms, &err))
        return true;
    budget_close(&visit->arrival.held);
    return false;
}

void visit_begin_body(struct visit *visit, const struct guard_headers *headers)
{
    size_t length = visit->length;
    if ((is_large(visit, headers) || !hold_small(visit)) && (!authenticate(visit) || (length && !hold(visit, length))))
        return;
    if (length)
        buf_reserve(&visit->arrival.body, length < RESERVED_BODY ? length : RESERVED_BODY);
}

// The answer can be queued when the body is through, or never: nothing is kept of the rest.
static void refuse_rest(struct visit *visit)
{
    visit->over = true;
    visit->state = VISIT_BODY;
    buf_release(&visit->arrival.body);
    budget_close(&visit->arrival.held);
}

void visit_take_body(struct visit *visit, struct span bytes)
{
    struct buf *body = &visit->arrival.body;
    if (visit->over)
        return;
    if (bytes.len > body->max - body->len) {
        struct err err;
        (void)err_set(&err, ERR_TOO_LARGE, "body above %zu bytes (limits.max_body)", body->max);
        visit_set_error(visit, &err);
        refuse_rest(visit);
    } else if (!visit->length && !visit->page && !hold(visit, bytes.len)) {  // it did not say how much it is
        refuse_rest(visit);
    } else {
        buf_put_span(body, bytes);
    }
    if (body->no_memory) {
        struct err err;
        (void)err_set(&err, ERR_TOO_MANY, "no memory for a body of more than %zu bytes", body->len);
        log_error("out of memory: a request is refused", LOG_INT("bytes", body->len));
        visit_refuse(visit, &err, NO_MEMORY_RETRY_MS);
        refuse_rest(visit);
    }
}
