// Shared by the files of the HTTP client: the objects, and which file calls which.
//
//   http_client.c      the client: its lists and tasks
//   http_transfer.c    transfers: the request, the answer, its end
//   http_target.c      targets: a URL and its fixed headers
//   http_outgoing.c    the bytes of a request, and how many of them were sent
//   http_connection.c  connections, and libcurl's sockets and timer in the loop
//
// A file calls those below it. Events of a connection go up through the client's on_ready and on_opened.
#ifndef HTTP_STATE_H
#define HTTP_STATE_H

#include "base/buf.h"
#include "base/list.h"
#include "http1.h"
#include "loop/http_client.h"
#include <curl/curl.h>
#include <netinet/in.h>

#define HTTP_READ_BYTES 65536
#define HTTP_FIRST_BYTES 16384  // with the head; the rest of the body may have memory of its own
// Connections of one target that may be busy at once. Urgent transfers have a limit of their own, which is not part of
// the first.
#define HTTP_BUSY_MAX 256
#define HTTP_BUSY_URGENT_MAX 32
#define HTTP_PARTS_A_CALL 16  // of a request, in one system call

struct http_connection;

struct client_socket {
    struct loop_watch watch;
    struct http_client *client;
    struct http_connection *connection;  // the connection whose exchanges it carries; NULL while curl opens it
    bool in_use;                         // curl wants its events now
    bool ours;                           // opened by on_curl_open, so on_curl_close will report its end
    bool kept;                           // curl is done with it, and must not close it
};

struct http_client {
    struct loop *loop;
    CURLM *multi;
    void (*on_ready)(struct http_connection *connection, unsigned events);  // an event on an open connection
    void (*on_opened)(struct http_connection *connection, CURLcode code);   // curl has opened one, or could not
    struct loop_timer timer;
    struct loop_timer expiry;
    struct loop_timer more;
    struct loop_task start;  // starts the transfers in `waiting`
    struct loop_task work;   // drives curl, and closes connections
    struct list waiting;     // transfers to start, and those waiting for a connection of their target
    struct list unread;      // connections with more to read than one turn allows
    struct list idle;        // connections, longest idle first
    struct list retired;     // connections to close
    struct list spare;       // transfers that are over, for the next ones
    size_t spare_count;
    struct client_socket **sockets;  // by descriptor
    size_t socket_room;
    bool kick;
    char *room;  // HTTP_READ_BYTES, the shared read buffer
};

struct http_target {
    struct http_client *client;
    char *url;
    CURLU *parsed;
    int64_t connect_timeout_ms;
    char *ca_file;  // NULL: only the system's authorities
    struct header {
        char *name, *value;
    } * headers;
    size_t header_count;
    struct buf head;   // of a request, from the path to the last fixed header
    struct list idle;  // connections, last used at the end
    unsigned running;
    unsigned busy[2];  // connections; [1]: those with urgent transfers
    bool loopback, secure;
    bool orphan;  // freed by its owner while transfers ran
    bool (*allow)(void *arg, const struct sockaddr *address);
    void *allow_arg;
};

struct http_connection {
    struct http_target *target;
    struct list node;              // in the client's `idle`, `unread` or `retired`
    struct list target_node;       // in the target's `idle`
    CURL *easy;                    // NULL: a plain connection that is open
    CURLU *url;                    // what `easy` opens; NULL: its target's text
    CURLSH *share;                 // NULL: it is in the cache of the multi handle
    struct client_socket *socket;  // once it is open
    struct http_transfer *transfer;
    int64_t idle_since_ms, usable_until_ms;
    bool used;   // it has carried an exchange before
    bool plain;  // HTTP is spoken on the socket itself, without TLS or a proxy
    bool retired;
    bool disallowed;                 // its address was refused
    char address[INET6_ADDRSTRLEN];  // of the server or the proxy; "": not known
    char problem[CURL_ERROR_SIZE];
};

struct http_outgoing {
    struct buf text;     // the head, and the copied part of the body
    struct blob *large;  // the part that is not copied
    size_t len, sent;    // of both parts
    size_t part, part_sent;
};

struct http_transfer {
    struct http_client *client;
    struct http_target *target;
    struct list node;
    struct http_connection *connection;
    struct http1 answer;
    struct buf held;               // bytes that were read but not reported, because the transfer was paused
    struct http_outgoing request;  // kept until the answer begins, for a retry
    struct loop_timer deadline;
    bool over;      // no more callbacks
    bool answered;  // a byte of the answer has arrived
    bool paused;    // reading is paused
    bool retried;
    bool harmless;  // may be sent twice
    bool urgent;
    const struct http_events *events;
    void *arg;
};

// ---- http_outgoing.c ------------------------------------------------------------------------

// `out` is zeroed or cleared.
void http_outgoing_init(struct http_outgoing *out, const struct http_target *target,
                        const struct http_request *request);
void http_outgoing_clear(struct http_outgoing *out);    // wipes the part that may be secret, keeps a little memory
void http_outgoing_release(struct http_outgoing *out);  // keeps no memory
void http_outgoing_rewind(struct http_outgoing *out);   // to send it again
ssize_t http_outgoing_send(struct http_outgoing *out, struct http_connection *connection);
static inline bool http_outgoing_sent(const struct http_outgoing *out) { return out->sent == out->len; }

// ---- http_connection.c ----------------------------------------------------------------------

void http_connection_drive(struct http_client *client);   // sets up the multi handle and the timers
void http_connection_settle(struct http_client *client);  // asks curl which connections it has opened
struct http_connection *http_connection_new(struct http_target *target);
// From now on, the client gets the events of the connection.
void http_connection_opened(struct http_connection *connection, curl_socket_t fd);
// Returns the number of bytes that were sent or received, 0 for the server's end, or:
enum { HTTP_BROKEN = -2, HTTP_LATER = -1 };
ssize_t http_connection_send(struct http_connection *connection, const struct span *parts, size_t count);
ssize_t http_connection_receive(struct http_connection *connection, char *room, size_t size);
bool http_connection_watch(struct http_connection *connection, unsigned events, struct err *err) MUST_CHECK;
// Keeps the connection until its next use. `keep_s`: how long the server promises to keep it, or 0.
void http_connection_rest(struct http_connection *connection, uint64_t keep_s);
struct http_connection *http_connection_find_idle(struct http_target *target);
// Whether bytes that were sent have not reached the server.
bool http_connection_unheard(const struct http_connection *connection);
// Removes the connection from all lists; it is closed at the end of the turn.
void http_connection_retire(struct http_connection *connection);
void http_connection_close_retired(struct http_client *client);

// ---- http_transfer.c ------------------------------------------------------------------------

void http_transfer_free(struct http_transfer *transfer);  // one that has ended, with its buffers
bool http_transfer_go(struct http_transfer *transfer);    // true: a connection is opened for it
void http_transfer_ready(struct http_connection *connection, unsigned events);
void http_transfer_opened(struct http_connection *connection, CURLcode code);
void http_transfer_read_on(struct http_connection *connection);  // data may be buffered that the socket does not report

// ---- http_target.c --------------------------------------------------------------------------

void http_target_release(struct http_target *target);

#endif
