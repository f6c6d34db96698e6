/* template.h: request bodies with placeholders for the id, the nonce and the milliseconds. */
#ifndef BENCH_TEMPLATE_H
#define BENCH_TEMPLATE_H

#include "buf.h"
#include "scan.h"

struct template_values {
    struct span id;    /* for @ID@, as JSON */
    struct span nonce; /* for @NONCE@, without quotes */
    unsigned long ms;  /* for @MS@ */
};

void template_render(struct buf *out, struct span body, const struct template_values *v);

#endif
