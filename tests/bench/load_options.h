/* load_options.h: the options of the load generator. */
#ifndef BENCH_LOAD_OPTIONS_H
#define BENCH_LOAD_OPTIONS_H

#include "buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <time.h>

struct load_options {
    struct sockaddr_storage address; /* always loopback */
    socklen_t address_len;
    char host[80]; /* for the Host field */
    const char *path;
    unsigned connections;
    double seconds;         /* 0: until requests are done */
    unsigned long requests; /* 0: until the seconds are over */
    double warmup;
    double timeout;
    struct buf body;
    struct buf headers; /* added to each request */
    bool session;       /* open one on each connection */
    bool hold;          /* event streams instead of calls */
    double rate;        /* calls per second; 0: each call follows the previous answer */
    bool mixed;
    const char *prefix; /* of the tool names in mixed mode */
    size_t min_bytes;
    size_t expect_tools;
    size_t expect_text; /* bytes of pattern.h in each answer; 0 for any text */
    bool any_answer;
    bool with_cpu;
    clockid_t cpu_clock; /* of the process whose processor time is printed */
};

/* Reads the options; on a mistake, prints it and exits. */
void load_options_read(struct load_options *o, int argc, char **argv);

#endif
