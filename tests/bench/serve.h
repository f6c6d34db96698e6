/* serve.h: the two transports of the benchmark upstream; each runs until its input ends. */
#ifndef BENCH_SERVE_H
#define BENCH_SERVE_H

#include <stdbool.h>

/* Legacy Streamable HTTP on 127.0.0.1, calls answered as JSON or as event streams; port 0 takes a free one. */
int serve_http(int port, bool as_events);
/* Newline-framed messages on stdin and stdout. */
int serve_stdio(void);

#endif
