// Rewrites chosen values inside JSON text and keeps every other byte unchanged.
#ifndef MCP_REWRITE_H
#define MCP_REWRITE_H

#include "base/pieces.h"
#include "base/span.h"
#include <stdbool.h>
#include <stddef.h>

#define REWRITE_DEPTH 8

// A path of member names. "*" matches every element of an array. "*:kind" matches the elements that are objects whose `type` is
// "kind", and also such an object in place of the array; then rules by member name do not apply to that object.
struct rewrite_rule {
    const char *path[REWRITE_DEPTH + 1];
    int what;
};

// Called with the raw JSON value at a rule's path. Appends its replacement (raw JSON) and returns true, or
// returns false to keep the value.
typedef bool rewrite_fn(void *arg, int what, struct span raw, struct buf *out);

// Rewrites valid JSON by at most 32 rules. True: the complete new text was appended to `out`. False: nothing changed, and
// `out` is untouched.
bool rewrite_json(struct span json, const struct rewrite_rule *rules, size_t count, rewrite_fn *fn, void *arg,
                  struct buf *out);
// The same for JSON in a blob: `out` gets the complete text, changed or not, and shares its unchanged parts with the blob.
void rewrite_shared(struct blob *owner, struct span json, const struct rewrite_rule *rules, size_t count,
                    rewrite_fn *fn, void *arg, struct pieces *out);

#endif
