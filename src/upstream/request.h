// Requests: the part that only the upstream and its transports use.
#ifndef UPSTREAM_REQUEST_H
#define UPSTREAM_REQUEST_H

#include "upstream.h"

// Ends the request with its single on_reply.
void upstream_request_finish(struct upstream_request *request, const struct upstream_reply *reply);
void upstream_request_fail(struct upstream_request *request, const struct err *err);
void upstream_request_fail_all(struct list *requests, const struct err *err);
void upstream_request_fail_later(struct upstream_request *request);  // from the loop, never from inside the caller
void upstream_request_drop(struct upstream_request *request);        // without an on_reply; no effect if it is over
// Move requests to a list of those that will fail: the first function takes those that were sent or wait for a token, the second
// those that wait for the server to be ready. A request that is sent from an on_reply is not on the list.
void upstream_request_doom_sent(struct upstream *upstream, struct list *doomed);
void upstream_request_doom_waiting(struct upstream *upstream, struct list *doomed);

// Called before the first byte of a request that may have waited. False: the request has to fail with this error.
bool upstream_request_may_send(struct upstream_request *request, struct err *err);
void upstream_request_flush(struct upstream *upstream);  // sends the waiting requests, if the server is ready
void upstream_request_await_ready(struct upstream_request *request);  // until upstream_request_flush()
void upstream_request_await_token(struct upstream_request *request);  // in `refused`, until it is sent again
void upstream_request_send_again(struct upstream_request *request);   // now: one that waited for a token

// The connection was lost before a byte of the request was written: the request waits for the next connection. False: it did so
// before, or is of use to this connection only. `text`: the whole message, unless the request has it.
bool upstream_request_take_back(struct upstream_request *request, struct blob *text);

// True if the request was sent again for this reason already, and must not be sent once more.
static inline bool upstream_request_retried(const struct upstream_request *request, enum upstream_retry what)
{
    return request->retried & what;
}

// Restarts the timeout of a request.
void upstream_request_touch(struct upstream_request *request);
// Stops the timeout while nothing is read from the server because the budget is exhausted. NULL: of all requests.
void upstream_request_stop_clock(struct upstream *upstream, struct upstream_request *request);
void upstream_request_start_clock(struct upstream *upstream, struct upstream_request *request);  // no effect if it runs

#endif
