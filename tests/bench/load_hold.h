/* load_hold.h: idle callers with open event streams. */
#ifndef BENCH_LOAD_HOLD_H
#define BENCH_LOAD_HOLD_H

#include "load_conn.h"

/* Holds a stream on each of o->connections connections until standard input ends; the exit status of the program. */
int load_hold(const struct load_options *o, struct load_conn *conns, int epoll);

#endif
