// Owns requests that wait for another token: the server refused their token, or it had expired before they were sent.
#include "renewal.h"
#include "request.h"

void renewal_on_refused(struct upstream_request *request, enum upstream_retry with, unsigned version)
{
    struct upstream *upstream = request->upstream;
    request->retried |= with;
    upstream_request_await_token(request);
    access_renew(upstream->spec.access, version,
                 &upstream->renewal);  // even if other requests wait already, maybe for the store only
}

static struct upstream_request *first_refused(const struct upstream *upstream)
{
    return list_entry(upstream->refused.next, struct upstream_request, node);
}

static void fail_refused(struct upstream *upstream, const struct err *err)
{
    struct err why = *err;
    while (!list_empty(&upstream->refused)) {
        struct upstream_request *request = first_refused(upstream);
        bool scope = upstream_request_retried(request, UPSTREAM_RETRY_SCOPE);
        why.code = scope ? ERR_LOGIN : err->code;  // the server is available, but the grant does not cover this request
        upstream_request_fail(request, &why);
    }
}

// Sends the refused requests again with the new token, the handshake first.
void renewal_on_token(struct access_wait *wait, const struct err *err)
{
    struct upstream *upstream = wait->arg;
    if (err) {
        fail_refused(upstream, err);
        return;
    }
    int64_t login = access_login(upstream->spec.access);
    if (upstream->state == UPSTREAM_READY && login != upstream->login) {
        upstream->events->on_other_login(upstream);
        return;
    }
    while (!list_empty(&upstream->refused)) {
        struct upstream_request *request = first_refused(upstream);
        if (request->initial) {
            upstream->login = login;
            upstream_request_send_again(request);
        } else {
            upstream_request_await_ready(request);
        }
    }
    upstream_request_flush(upstream);
}
