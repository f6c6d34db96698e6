/* check.h: decides whether an HTTP response is the right answer to the request it follows. */
#ifndef BENCH_CHECK_H
#define BENCH_CHECK_H

#include "http1.h"

struct check_want {
    struct span id;    /* as JSON */
    struct span nonce; /* must occur in the answer; empty: not checked */
    size_t min_bytes;  /* least size of the body */
    size_t text;       /* bytes of pattern.h in the answer; 0: any text */
    size_t tools;      /* number of tools in the answer; 0: any number */
};

/* Returns NULL when the answer is right, otherwise a description of the mistake. */
const char *check_answer(const struct http1_message *m, const struct check_want *want);
/* The JSON-RPC message in a body: the JSON itself, or the SSE event with that id. */
struct span check_message(const struct http1_message *m, struct span id);

#endif
