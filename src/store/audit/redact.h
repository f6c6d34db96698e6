// Redaction of a call's arguments: values under sensitive names, and values at configured places, are replaced before the
// text is recorded.
//
// A key is sensitive if it contains one of the words, regardless of case and of `_`, `-`, `.` and blanks, however it is
// spelt in the JSON text ("API_Key", "x-api-key" and "ap\u0069Key" all contain `api_key`). The whole value is replaced,
// including objects and arrays. A secret inside a string (JSON inside JSON) is only found by a pointer.
#ifndef STORE_AUDIT_REDACT_H
#define STORE_AUDIT_REDACT_H

#include "base/buf.h"
#include "store/audit/audit.h"

#define REDACT_MAX ((size_t)64 << 10)  // bytes recorded of one call's arguments
#define REDACT_POINTERS_MAX 64
#define REDACT_MARK "\"[redacted]\""

extern const struct option_table redact_options;  // of struct audit_redact

// The rules, compiled; immutable.
struct redact;

struct redact *redact_new(const struct audit_redact *config);
void redact_free(struct redact *rules);
// Appends the redacted arguments: a JSON object. If the arguments are not an object, or too long even when redacted, a
// JSON string with the reason, the size and the SHA-256 replaces them. `json` must be valid.
void redact_put(const struct redact *rules, struct span json, struct buf *out);

#endif
