/* check.h: decides whether an HTTP response is the right answer to the request it follows. */
#ifndef BENCH_CHECK_H
#define BENCH_CHECK_H

#include "http1.h"

struct check_want {
    struct span id;    /* as JSON */
    struct span nonce; /* must stand in the answer; empty for none */
    size_t min_bytes;  /* the body has at least so many */
    size_t text;       /* bytes of pattern.h that the answer has; 0 for any text */
    size_t tools;      /* the answer lists exactly so many tools; 0 for any number */
};

/* NULL when the answer is right, otherwise what is wrong with it. */
const char *check_answer(const struct http1_message *m, const struct check_want *want);
/* The JSON-RPC message in a body, be it JSON or the SSE event with that id. */
struct span check_message(const struct http1_message *m, struct span id);

#endif
