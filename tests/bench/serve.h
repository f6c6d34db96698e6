/* serve.h: the two transports of the benchmark upstream; each runs until its input ends. */
#ifndef BENCH_SERVE_H
#define BENCH_SERVE_H

/* Legacy Streamable HTTP with JSON replies on 127.0.0.1; port 0 takes a free one. */
int serve_http(int port);
/* Newline-framed messages on stdin and stdout. */
int serve_stdio(void);

#endif
