// What of a request only the upstream and its transports use.
#ifndef UPSTREAM_REQUEST_H
#define UPSTREAM_REQUEST_H

#include "upstream.h"

// To its one on_reply; it is over then.
void upstream_request_finish(struct upstream_request *request, const struct upstream_reply *reply);
void upstream_request_fail(struct upstream_request *request, const struct err *err);
void upstream_request_fail_all(struct list *requests, const struct err *err);
void upstream_request_fail_later(struct upstream_request *request);  // from the loop: the server cannot be sent more
void upstream_request_drop(struct upstream_request *request);        // without an on_reply; harmless if it is over
// Moves those that were sent or wait for a token, and those that wait for the server to be ready, to a list of doomed ones: what
// their failure sets off may send new requests, which are not among them.
void upstream_request_doom_sent(struct upstream *upstream, struct list *doomed);
void upstream_request_doom_waiting(struct upstream *upstream, struct list *doomed);

// Before the first byte of a request that may have waited; false: it has to fail with this error.
bool upstream_request_may_send(struct upstream_request *request, struct err *err);
void upstream_request_flush(struct upstream *upstream);               // sends what waits, if the server is ready
void upstream_request_await_ready(struct upstream_request *request);  // until upstream_request_flush()
void upstream_request_await_token(struct upstream_request *request);  // in `refused`, until it is sent again
void upstream_request_send_again(struct upstream_request *request);   // now: one that waited for a token

// Its connection is lost, and not a byte of it was written: it waits for the next one. False: it did so before, or is of use to
// this connection only. `text`: the whole message, unless the request has it.
bool upstream_request_take_back(struct upstream_request *request, struct blob *text);

// Was it sent again with that already? Then it is not once more.
static inline bool upstream_request_retried(const struct upstream_request *request, enum upstream_retry what)
{
    return request->retried & what;
}

// The time it may still go without an answer starts anew.
void upstream_request_touch(struct upstream_request *request);
// We are not reading what the server sends, for lack of room: that time does not count. NULL: for all requests.
void upstream_request_stop_clock(struct upstream *upstream, struct upstream_request *request);
void upstream_request_start_clock(struct upstream *upstream, struct upstream_request *request);  // harmless if it runs

#endif
