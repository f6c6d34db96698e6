// Rewriting chosen strings inside JSON text while every other byte stays as it is.
#ifndef MCP_REWRITE_H
#define MCP_REWRITE_H

#include "base/pieces.h"
#include "base/span.h"
#include <stdbool.h>
#include <stddef.h>

#define REWRITE_DEPTH 8

// A path of member names; "*" stands for every element of an array, and "*:kind" for those elements that are objects
// whose `type` is "kind", or for such an object alone, where it stands in place of an array. Where it does, rules by
// member name do not count.
struct rewrite_rule {
    const char *path[REWRITE_DEPTH + 1];
    int what;
};

// Gets the raw JSON value at a rule's path. Appends its replacement (raw JSON) and returns true, or
// returns false to leave it alone.
typedef bool rewrite_fn(void *arg, int what, struct span raw, struct buf *out);

// Rewrites valid JSON by at most 32 rules. True: `out` got the whole new text. False: nothing changed,
// `out` is untouched.
bool rewrite_json(struct span json, const struct rewrite_rule *rules, size_t count, rewrite_fn *fn, void *arg,
                  struct buf *out);
// The same for JSON that lies in a blob: `out` gets the whole text, changed or not, and shares what stays as it is.
void rewrite_shared(struct blob *owner, struct span json, const struct rewrite_rule *rules, size_t count,
                    rewrite_fn *fn, void *arg, struct pieces *out);

#endif
