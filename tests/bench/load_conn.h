/* load_conn.h: one keep-alive connection of the load generator. */
#ifndef BENCH_LOAD_CONN_H
#define BENCH_LOAD_CONN_H

#include "buf.h"
#include "http1.h"
#include "load_options.h"

#include <stdbool.h>
#include <stdint.h>

struct load_conn {
    int fd; /* -1 when closed */
    struct buf in;
    struct buf out;
    size_t sent;
    struct buf head;      /* of each POST, up to the value of Content-Length */
    struct buf session;   /* header fields of its session, if any */
    bool busy;            /* a call is under way */
    bool measured;        /* the call is not part of the warm-up */
    uint64_t started_ns;  /* when it was sent, or should have been */
    uint64_t due_ns;      /* with a rate: when the next call is due */
    unsigned long serial; /* calls made on this connection */
    bool listed;          /* the number of tools was checked in an answer */
    char id[24];          /* of the call under way, as JSON */
    char nonce[32];
};

enum load_conn_io { LOAD_CONN_FAILED = -1, LOAD_CONN_AGAIN, LOAD_CONN_DONE };

bool load_conn_open(struct load_conn *c, const struct load_options *o);
void load_conn_close(struct load_conn *c);
/* Starts the session of c; blocks. Returns NULL on success, otherwise a description of the error. */
const char *load_conn_handshake(struct load_conn *c, const struct load_options *o);
/* Opens the event stream of c's session on c; blocks. */
bool load_conn_listen(struct load_conn *c, const struct load_options *o);
/* Ends the session of c; blocks. */
bool load_conn_farewell(struct load_conn *c, const struct load_options *o);
/* Queues a POST of that body. */
void load_conn_post(struct load_conn *c, const struct buf *body);
/* Sends the queued bytes; LOAD_CONN_AGAIN when the socket did not take all of them. */
enum load_conn_io load_conn_flush(struct load_conn *c);
/* Receives until a response is complete; the caller drops its total bytes from in. */
enum load_conn_io load_conn_receive(struct load_conn *c, struct http1_message *m);

#endif
