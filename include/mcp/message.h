// One JSON-RPC 2.0 message as spans of its text: what it is, its id, method and payload.
#ifndef MCP_MESSAGE_H
#define MCP_MESSAGE_H

#include "base/buf.h"
#include "base/err.h"
#include "base/span.h"
#include <stdbool.h>

#define MESSAGE_ID_MAX 1024  // every answer repeats it, errors included
#define MESSAGE_METHOD_MAX 256

// Texts above this are parsed, hashed and searched by a worker thread: on the loop that would take more than a few
// milliseconds. Below it, handing them to the worker costs more than it saves.
#define MESSAGE_LARGE ((size_t)256 << 10)
// Texts above this are passed on where they are; below it, a copy costs less than what keeps track of them.
#define MESSAGE_SHARED ((size_t)32 << 10)

enum message_kind {
    MESSAGE_INVALID,
    MESSAGE_REQUEST,
    MESSAGE_NOTIFICATION,
    MESSAGE_RESULT,
    MESSAGE_ERROR,
};

// What a message is meant to be, as far as it could be read: also of one that is not valid.
enum message_role {
    MESSAGE_UNCLEAR,
    MESSAGE_ASKS,     // a request or a notification
    MESSAGE_ANSWERS,  // a result or an error
};

struct message {
    enum message_kind kind;
    enum message_role role;
    struct span text;
    struct span id;      // raw JSON, so type and value stay exact; at is NULL without one
    struct span method;  // characters
    struct span params;  // raw JSON object; at is NULL without
    struct span result;  // raw JSON
    struct span error;   // raw JSON object
    bool lines;          // the text may have raw line ends
    char method_room[64];
};

// Parses one message. With `strict` (what callers send) duplicate keys anywhere are refused.
// ERR_PARSE: no JSON. ERR_INVALID_REQUEST: JSON, but no message; `role` and `id` are set if they could be read.
bool message_parse(struct span text, bool strict, struct message *out, struct err *err) MUST_CHECK;

void message_copy(struct message *to, const struct message *from);  // whose text stays where it is

// Writers; `id`, `params` and `result` are raw JSON.
// Without its end: the caller appends the params, if there are any, and the brace.
void message_begin_request(struct buf *out, uint64_t id, const char *method);
void message_put_request(struct buf *out, struct span id, const char *method, struct span params);
void message_put_notification(struct buf *out, const char *method, struct span params);
void message_put_result(struct buf *out, struct span id, struct span result);
// `data_members` is raw JSON members to add to `data` after "reason", such as "\"uri\":\"x\"", or empty.
void message_put_error(struct buf *out, struct span id, enum err_code code, struct span data_members);
// The same with a text of its own; NULL: the code's.
void message_put_error_text(struct buf *out, struct span id, enum err_code code, const char *text,
                            struct span data_members);
// An error object that came from elsewhere, raw.
void message_put_raw_error(struct buf *out, struct span id, struct span error);

// Raw newlines can only be white space in valid JSON; line framing needs them gone.
void message_flatten(char *text, size_t len);

#endif
