// The objects of the HTTP face, shared by its files: the face, its connections and their requests.
#ifndef FRONT_FACE_H
#define FRONT_FACE_H

#include "base/list.h"
#include "base/map.h"
#include "config/chains.h"
#include "config/front.h"
#include "gate/gate.h"
#include "listener.h"
#include "tls.h"

// See accept.c.
enum accept_state { ACCEPT_CLOSED, ACCEPT_OPEN, ACCEPT_FULL, ACCEPT_STARVED };

struct acceptor {
    enum accept_state state;
    struct loop_watch watch;
};

#define SHARDS_MAX 1024
#define SHARD_FILL 32  // connections of a shard before another shard is started

// One libmicrohttpd daemon with a part of a listener's connections; see shard.c.
struct shard {
    struct http_face *face;
    size_t index;  // in face->shards
    struct MHD_Daemon *daemon;
    struct loop_watch ready;
    struct loop_task run;
    struct loop_timer run_later;
    int again;  // runs without a pause that the library asked for
    bool resumed, running;
    bool active;          // the last run called back for something other than a waiting request
    struct list waiting;  // exchange.node of requests that wait and are not suspended
    struct list starved;  // tls_line.node of those whose handshake waits for bytes
};

struct http_exchange;

// What a shard reports: calls go down to it, events come up through these. The first four are for the library.
struct shard_events {
    MHD_AccessHandlerCallback on_request;
    MHD_RequestCompletedCallback on_completed;
    MHD_NotifyConnectionCallback on_connection;
    void *(*on_request_line)(void *arg, const char *uri, struct MHD_Connection *connection);
    void (*on_ran)(struct shard *shard);              // the library has run
    void (*suspend)(struct http_exchange *exchange);  // it has waited for QUIET_MS
};

struct http_face {
    struct loop *loop;
    struct gate *gate;
    const struct config *snapshot;
    struct config_front config;  // a view of the configuration
    struct config_chains *chains;
    struct provider_chain *chain;  // the chain of this listener
    const struct shard_events *events;
    struct listener listener;
    struct tls *tls;  // NULL: plain HTTP
    struct acceptor accept;
    struct loop_timer sweep;
    int64_t gone_ms;      // when to check next for callers that have disconnected
    struct list streams;  // exchange.beat, longest pause first
    struct loop_timer heartbeat;
    struct list callers;
    struct list listening;  // caller.listening
    size_t caller_count;
    struct list unauthenticated, idle;  // caller.rank; see eviction.c
    struct map sources;                 // addresses of unauthenticated connections
    size_t evicted;                     // connections closed to make room, since the last log line about them
    int64_t evicted_ms;                 // when the next such line may be logged
    struct MHD_Response *accepted;
    bool quiesced;                     // does not accept connections, and closes each one with its next answer
    struct shard *shards[SHARDS_MAX];  // NULL: not started; the first always is
    uint32_t loads[SHARDS_MAX];        // connections of each
};

// The deadlines of a connection; see deadline.c.
enum deadline_kind { DEADLINE_NONE, DEADLINE_TIME, DEADLINE_BODY, DEADLINE_SEND };

struct deadline {
    enum deadline_kind kind;
    int64_t due_ms;    // when it is checked
    int64_t began_ms;  // when the window began in which bytes must move
    int64_t end_ms;    // when a body must be complete, even if its rate is sufficient
    uint64_t moved;    // bytes at the beginning of the window
    bool sampled;      // DEADLINE_SEND: `moved` is known
    struct loop_timer timer;
};

// One connection.
struct caller {
    struct http_face *face;
    struct shard *shard;
    struct list node;
    int fd;
    struct deadline deadline;
    struct list listening;  // in face->listening, while more of a request is expected
    struct loop_watch hangup;
    struct http_exchange *exchange;
    char *query;  // of the request that begins, if it is for a page; not decoded
    struct MHD_Connection *connection;
    struct peer peer;
    bool peer_known;                 // the certificate has been read
    bool authenticated;              // a request on it was accepted by the providers
    struct list rank;                // in `unauthenticated` or `idle` of the face
    struct list neighbour;           // in its source, while it is unauthenticated
    struct eviction_source *source;  // NULL: it does not count for an address
    bool parked;                     // suspended in the handshake, until bytes arrive
    struct tls_line line;
};

// HTTP+SSE: the endpoint of this request.
enum endpoint { ENDPOINT_NONE, ENDPOINT_MCP, ENDPOINT_MESSAGES };

// See http_exchange.c.
enum http_exchange_state {
    EXCHANGE_BODY,
    EXCHANGE_SKIPPING,
    EXCHANGE_WAITING,
    EXCHANGE_ANSWERED,  // from here on the answer can be sent
    EXCHANGE_STREAMING,
};

// One request.
struct http_exchange {
    struct arrival arrival;
    struct config_chains *chains;  // for its credentials, even if a reload replaces them before they are checked
    struct page *page;             // NULL: the request is not for a page
    struct http_face *face;
    struct caller *caller;
    struct MHD_Connection *connection;
    struct list node;                // in the shard's `waiting`
    enum http_exchange_state state;  // http_exchange_set_state()
    bool suspended;
    bool broken;    // its socket is shut down, and its stream must end
    bool http_1_0;  // the caller does not support chunks: a stream ends with its connection
    enum endpoint endpoint;
    struct span origin, host;
    size_t length;  // of its body, if the caller declared it
    bool anywhere;  // pages of any origin may read the answer
    bool keys;      // the answer is the JWK set, and may be cached
    bool health;    // the answer is the health report, and may not be cached
    struct answer answer;
    size_t answer_bytes;      // of its body
    struct budget_hold held;  // for the answer, until the caller has read it
    char session_id[64];
    struct stream *stream;
    struct buf out;  // formatted for the stream, not sent yet
    size_t sent;
    struct blob *large;  // an answer, or a message in parts that follows `out`; may be NULL
    struct blob_reader rest;
    bool corked;        // the last segment waits for the rest of the answer
    uint64_t received;  // bytes of the body
    struct list beat;   // in face->streams
    int64_t sent_ms;    // when the last byte was sent on the stream
};

// shard.c
bool shard_start_first(struct http_face *face, struct err *err) MUST_CHECK;
void shard_add_connection(struct http_face *face, int fd, const struct sockaddr *address, socklen_t len);
// Lets the library do its pending work; again in this turn after a resume.
void shard_run(struct shard *shard);
void shard_touch(struct shard *shard);            // runs it again in this turn
void shard_wait(struct http_exchange *exchange);  // until http_exchange_resume()
void shard_resume(struct shard *shard, struct MHD_Connection *connection);
void shard_stop_empty(struct http_face *face);  // not from a callback of the library
void shard_stop_all(struct http_face *face);    // when no connection is suspended

int64_t shard_descriptors(int64_t connections);

// request.c, for struct shard_events
enum MHD_Result request_on_request(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                                   const char *version, const char *upload, size_t *upload_size, void **state);
void request_on_completed(void *arg, struct MHD_Connection *connection, void **state,
                          enum MHD_RequestTerminationCode why);

// http_exchange.c
void http_exchange_set_state(struct http_exchange *exchange, enum http_exchange_state state);
void http_exchange_resume(struct http_exchange *exchange);  // a waiting exchange has an answer or a message
void http_exchange_suspend(struct http_exchange *exchange);

// abandon.c
// Ends the request of this connection that waits for the gate, if any.
void abandon_request(struct caller *caller, const struct err *err);

// accept.c
bool accept_start(struct http_face *face, struct err *err) MUST_CHECK;
void accept_stop(struct http_face *face);   // before the listener is closed
void accept_freed(struct http_face *face);  // a connection has closed
void accept_sweep(struct http_face *face);  // called regularly

// deadline.c
// The connection was opened: starts the time limit of the handshake and the headers.
void deadline_start(struct caller *caller);
void deadline_stop(struct caller *caller);    // it was closed
void deadline_header(struct caller *caller);  // the request line has arrived: starts that of the headers
void deadline_body(struct caller *caller);    // that of the body
void deadline_none(struct caller *caller);    // nothing is expected from the caller
void deadline_send(struct caller *caller);    // an answer or messages are being sent to it
void deadline_idle(struct caller *caller);    // the request is over

// eviction.c: which connections are closed to make room
void eviction_add(struct caller *caller);            // the connection was opened
void eviction_remove(struct caller *caller);         // the connection was closed
void eviction_begin(struct caller *caller);          // a request begins
void eviction_end(struct caller *caller);            // the request is over
void eviction_authenticated(struct caller *caller);  // a credential was accepted
// Closes a connection, or finds that one has closed. False: none may be closed.
bool eviction_make_room(struct http_face *face);

// http_body.c
struct guard_headers;
bool http_body_measure(struct http_exchange *exchange, const struct guard_headers *headers, struct err *err) MUST_CHECK;
void http_body_begin(struct http_exchange *exchange, const struct guard_headers *headers);  // may answer the request
void http_body_take(struct http_exchange *exchange, struct span bytes);

// http_path.c
struct span http_path(const char *url);  // without slashes at its end
// Whether it is this path, or a profile below it. The gate checks whether the profile exists.
bool http_path_is_endpoint(struct span path, const char *name, struct span *profile);
void http_path_put(const struct http_exchange *exchange, struct buf *out);       // "/mcp", or "/mcp/NAME" in a profile
void http_path_put_base(const struct http_exchange *exchange, struct buf *out);  // the gateway's own URL

// http_answer.c
void http_answer_add_cors(const struct http_exchange *exchange, struct MHD_Response *response);
// Sends every answer; takes over the response.
enum MHD_Result http_answer_queue(struct http_exchange *exchange, int status, struct MHD_Response *response);
void http_answer_on_answer(struct arrival *arrival, struct answer *answer);
void http_answer_refuse(struct http_exchange *exchange, const struct err *err, int64_t retry_ms);
// The same before the body is complete: the answer is sent after the body, whose rest is discarded.
void http_answer_refuse_body(struct http_exchange *exchange, const struct err *err, int64_t retry_ms);
void http_answer_set_error(struct http_exchange *exchange, const struct err *err);  // before the gate saw the request
enum MHD_Result http_answer_send(struct http_exchange *exchange);

// document.c
#define DOCUMENT_METADATA_PATH "/.well-known/oauth-protected-resource"
struct guard_line;
bool document_is_metadata(struct http_exchange *exchange, const struct guard_line *line);
void document_set_metadata(struct http_exchange *exchange);
bool document_is_health(const struct guard_line *line);
void document_set_health(struct http_exchange *exchange);
bool document_is_keys(const struct http_exchange *exchange, const struct guard_line *line);
void document_set_keys(struct http_exchange *exchange);

// http_stream.c
void http_stream_on_stream(struct arrival *arrival, struct stream *stream, const char *session_id);
enum MHD_Result http_stream_send(struct http_exchange *exchange);
void http_stream_on_heartbeat(struct loop_timer *timer);  // of the face

// connection.c, for struct shard_events
void connection_on_change(void *arg, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode what);
void *connection_on_request_line(void *arg, const char *uri, struct MHD_Connection *connection);

// caller.c
struct caller *caller_of(struct MHD_Connection *connection);
// Suspends connections whose handshake waits for bytes; called after the library ran.
void caller_park_starved(struct shard *shard);
void caller_unpark(struct caller *caller);
// Whether the providers accepted a request on the connection, the current one included.
bool caller_is_authenticated(const struct caller *caller);
// Ends the connection from the gateway's side.
void caller_close(struct caller *caller);
// A corked connection sends full segments only.
void caller_cork(struct caller *caller, bool on);
// Closes the connections of callers that have closed theirs, where the library does not notice.
void caller_sweep_gone(struct http_face *face);

// ---- http.c
struct http_face_spec {
    struct loop *loop;
    struct gate *gate;
    const struct config *config;  // may not be in force yet
    const struct config_listener *listener;
    const struct http_face *predecessor;  // has the socket already; NULL: the socket is inherited or opened
    struct inherited *inherited;
};
// Listens on an address such as "127.0.0.1:0" or "unix:/run/postern.sock".
struct http_face *http_face_new(const struct http_face_spec *spec, struct err *err) MUST_CHECK;
// Applies the first configuration, or a new one. `predecessor` hands over its socket; it may be NULL.
void http_face_configure(struct http_face *face, const struct config_listener *listener, struct http_face *predecessor);
void http_face_poll(struct http_face *face);    // reads its certificate again if its files have changed
void http_face_reload(struct http_face *face);  // reads its certificate again now; an invalid one changes nothing
bool http_face_failing(const struct http_face *face);  // its certificate changed and cannot be used
void http_face_quiesce(struct http_face *face);        // stops accepting; open connections go on to their next answer
bool http_face_busy(const struct http_face *face);     // an answer is still being sent
void http_face_free(struct http_face *face);

#endif
