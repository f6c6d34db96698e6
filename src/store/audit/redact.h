// What of a call's arguments may be written down: values under telling names, and at places somebody listed, are
// replaced before the text leaves the call.
//
// A key tells if it contains one of the words, without regard to case and to `_`, `-`, `.` and blanks, however it is
// spelt in the JSON text ("API_Key", "x-api-key" and "ap\u0069Key" all contain `api_key`). The whole value goes,
// objects and arrays too. What is hidden in a string (JSON inside JSON) is found by a pointer only.
#ifndef STORE_AUDIT_REDACT_H
#define STORE_AUDIT_REDACT_H

#include "base/buf.h"
#include "store/audit/audit.h"

#define REDACT_MAX ((size_t)64 << 10)  // bytes that are kept of one call's arguments
#define REDACT_POINTERS_MAX 64
#define REDACT_MARK "\"[redacted]\""

extern const struct option_table redact_options;  // of struct audit_redact

// The rules, compiled; immutable.
struct redact;

struct redact *redact_new(const struct audit_redact *config);
void redact_free(struct redact *rules);
// Appends the arguments as they may be kept: a JSON object. What is no object, or is too long even so, is replaced as a
// whole by a JSON string that says so, with its size and SHA-256. `json` must be valid.
void redact_put(const struct redact *rules, struct span json, struct buf *out);

#endif
