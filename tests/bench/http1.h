/* http1.h: the framing of HTTP/1.1 messages, for both ends of the benchmark. */
#ifndef BENCH_HTTP1_H
#define BENCH_HTTP1_H

#include "scan.h"

#include <stdbool.h>
#include <stddef.h>

struct http1_message {
    struct span method; /* requests */
    int status;         /* responses; 0 for requests */
    struct span type;
    struct span session;
    struct span body; /* chunks already joined */
    size_t total;     /* bytes of the whole message */
    bool close;       /* the sender ends the connection after it */
};

enum http1_state { HTTP1_BAD = -1, HTTP1_PARTIAL, HTTP1_COMPLETE };

/* Looks for one complete message at data. Chunks are joined in place, when all of them have arrived. */
enum http1_state http1_read(char *data, size_t len, struct http1_message *m);

#endif
