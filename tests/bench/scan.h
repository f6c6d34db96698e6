/* scan.h: finds members in JSON text without building a tree. */
#ifndef BENCH_SCAN_H
#define BENCH_SCAN_H

#include <stdbool.h>
#include <stddef.h>

struct span {
    const char *at;
    size_t len;
};

/* True when text is exactly one balanced JSON value, white space aside. */
bool scan_whole(struct span text);
/* Finds a direct member of an object; value is its raw text, quotes included. */
bool scan_member(struct span object, const char *key, struct span *value);
/* The inside of a raw string value, escapes left as they are; empty when not a string. */
struct span scan_string(struct span value);
bool scan_is(struct span value, const char *text);

#endif
