// Owns the functions that transports share: giving up a server, and headers and bodies of HTTP requests.
#include "transport.h"
#include "auth/access/identity_assertion.h"
#include "base/clock.h"
#include "base/log.h"
#include "request.h"

#define COPIED_MAX ((size_t)64 << 10)  // bytes of a message that is copied into its transfer

void transport_note_byte(struct upstream *upstream) { upstream->last_byte_ms = loop_now(upstream->spec.loop); }

void transport_lose(struct upstream *upstream, const struct err *err)
{
    if (upstream->losing)
        return;
    upstream->losing = true;
    upstream->why = *err;
    loop_task_put(upstream->spec.loop, &upstream->lose);
}

void transport_lose_deaf(struct upstream *upstream)
{
    struct err err;
    (void)err_set(&err, ERR_UPSTREAM_DIED, "server \"%s\" does not accept messages: %d are waiting to be sent",
                  upstream->server->name, TRANSPORT_UNASKED_MAX);
    transport_lose(upstream, &err);
}

struct http_target *transport_target(const struct upstream *upstream, const char *url)
{
    const struct server *server = upstream->server;
    struct http_target *target = http_target_new(upstream->spec.http, url, server->connect_timeout_ms);
    http_target_trust(target, server->tls.ca_file);
    for (size_t i = 0; i < server->headers.count; i++)
        http_target_header(target, server->headers.at[i].name, server->headers.at[i].value);
    return target;
}

unsigned transport_present(const struct upstream *upstream, struct http_target *target)
{
    const struct access *access = upstream->spec.access;
    if (!access)
        return 0;
    http_target_header(target, "Authorization", access_header(access));
    return access_version(access);
}

const char *transport_assertion(struct upstream *upstream, const struct identity *who)
{
    struct err err;
    const char *text = identity_assertion_text(upstream->spec.assertion, who, clock_wall_s(), &err);
    if (!text)
        log_error("cannot sign the identity assertion", LOG_STR("server", upstream->server->name),
                  LOG_STR("detail", err.detail));
    return text;
}

void transport_put_assertion(struct upstream *upstream, struct http_target *target,
                             const struct upstream_request *request)
{
    if (upstream->spec.assertion)
        http_target_header(target, identity_assertion_header(upstream->spec.assertion),
                           transport_assertion(upstream, request ? request->who : NULL));
}

bool transport_unreachable(struct upstream *upstream, struct upstream_request *request, bool busy,
                           const struct err *err)
{
    if (!request || !upstream_request_take_back(request, NULL))
        return false;
    if (!busy)
        transport_lose(upstream, err);
    else if (!upstream->losing)
        upstream_request_flush(upstream);
    return true;
}

void transport_set_body(struct http_request *request, struct blob *message)
{
    bool large = !message->at || message->len > COPIED_MAX;
    request->body = large ? (struct span){0} : blob_span(message);
    request->large = large ? message : NULL;
}

int64_t transport_hear(struct upstream *upstream, struct http_transfer *transfer, int status)
{
    if (upstream->spec.access && (status == 401 || status == 403))
        access_hear(upstream->spec.access, transfer);
    return status == 429 || status == 503 ? http_transfer_retry_after(transfer) : 0;
}
