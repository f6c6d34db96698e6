// The HTTP client: transfers run on the loop, many at once, with connections kept and shared.
//
// A target is one URL with its fixed headers. Transfers to it reuse its connections; at the limit of connections,
// transfers wait. Redirects are never followed. Callbacks come from the loop; a transfer may be started or cancelled in
// any of them.
#ifndef LOOP_HTTP_CLIENT_H
#define LOOP_HTTP_CLIENT_H

#include "base/blob.h"
#include "base/err.h"
#include "base/span.h"
#include "loop/loop.h"
#include <stdbool.h>
#include <stdint.h>

struct http_client;
struct http_target;
struct http_transfer;

enum http_method { HTTP_POST, HTTP_GET, HTTP_DELETE, HTTP_PUT };

struct http_events {
    // Once, when the status line and headers have arrived; http_transfer_header() works from here on.
    void (*on_head)(void *arg, struct http_transfer *transfer, int status);
    // Body bytes as they arrive; false aborts the transfer.
    bool (*on_data)(void *arg, struct span bytes);
    // Always last, exactly once; err is NULL if the response is complete. Not called after a cancel.
    void (*on_done)(void *arg, const struct err *err);
    // Before the first byte of the request is sent, and again before it is repeated on another connection: the transfer
    // may have waited for a connection. False: the callback has cancelled the transfer. May be NULL.
    bool (*may_send)(void *arg);
    // Returns memory for that many bytes of the body, which on_data() then gets there. NULL: the client uses its own.
    // May be NULL.
    char *(*body_room)(void *arg, size_t bytes);
};

struct http_request {
    enum http_method method;
    struct span body;          // copied
    struct blob *large;        // the rest of the body, of which a reference is kept; NULL: none
    const char *extra_header;  // one more header line, or NULL; copied
    int64_t timeout_ms;        // for the whole transfer; 0: none
    bool urgent;               // it does not wait for others to end, since they may wait for it
    const struct http_events *events;
    void *arg;
};

struct http_client *http_client_new(struct loop *loop, struct err *err) MUST_CHECK;
void http_client_free(struct http_client *client);

struct http_target *http_target_new(struct http_client *client, const char *url, int64_t connect_timeout_ms);
void http_target_free(struct http_target *target);
// Sets or replaces (by name) a header sent with every transfer; NULL value removes it.
void http_target_header(struct http_target *target, const char *name, const char *value);
// PEM file with authorities to trust for this target beside the system's, read at each connection; NULL: none.
void http_target_trust(struct http_target *target, const char *ca_file);
// Sets a function that is called before each connection and decides whether the resolved address may be used. Such a
// target shares no connections with others and uses no proxy, so the approved address and the contacted address are
// the same.
struct sockaddr;
void http_target_guard(struct http_target *target, bool (*allow)(void *arg, const struct sockaddr *address), void *arg);

struct http_transfer *http_transfer_start(struct http_target *target, const struct http_request *request);
void http_transfer_cancel(struct http_transfer *transfer);  // no callback follows
// From a callback, after its head has come: pauses reading and callbacks until http_transfer_resume(). The deadline
// still applies.
void http_transfer_pause(struct http_transfer *transfer);
void http_transfer_resume(
    struct http_transfer *transfer);  // callbacks come from the loop, not from inside; harmless if not paused
// Not a byte of the request was written to the server. Also from on_done.
bool http_transfer_unsent(const struct http_transfer *transfer);
// A response header's value, valid until the next call on this transfer; NULL if absent.
const char *http_transfer_header(struct http_transfer *transfer, const char *name);
// The same for a header that may occur several times. NULL: the response does not have so many.
const char *http_transfer_header_at(struct http_transfer *transfer, const char *name, size_t index);
// The value of its Retry-After, in seconds or as a date, as milliseconds from now, at most a day. 0: absent or not
// valid.
int64_t http_transfer_retry_after(struct http_transfer *transfer);
// The IP address that answers, as text. NULL before the head has come, or if the address is not known.
const char *http_transfer_address(struct http_transfer *transfer);

#endif
