// jansson as the tree type, and the few ways we load and read it.
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/buf.h"
#include "base/err.h"
#include "base/span.h"
#include <jansson.h>

void json_setup(void);  // once, before any tree is made: what jansson frees is wiped (S9)

// Text from outside: duplicate keys are refused. `what` names the source in the error.
json_t *json_parse(struct span text, const char *what, struct err *err) MUST_CHECK;
// Arguments, for a policy to judge. A lone surrogate, which jansson does not know, becomes U+0000; conditions judge
// no text that holds U+0000, and a key that does is refused.
json_t *json_parse_arguments(struct span text, const char *what, struct err *err) MUST_CHECK;
json_t *json_parse_file(const char *path, struct err *err) MUST_CHECK;
bool json_read_file(const char *path, struct buf *text, struct err *err) MUST_CHECK;  // without parsing it

#endif
