// One JSON-RPC 2.0 message as spans of its text: kind, id, method and payload.
#ifndef MCP_MESSAGE_H
#define MCP_MESSAGE_H

#include "base/buf.h"
#include "base/err.h"
#include "base/span.h"
#include <stdbool.h>

#define MESSAGE_ID_MAX 1024  // bytes; every answer repeats the id, errors included
#define MESSAGE_METHOD_MAX 256

// Texts above this are parsed, hashed and searched by a worker thread, because that would take more than a few
// milliseconds on the loop. For smaller texts, passing them to the worker would cost more than it saves.
#define MESSAGE_LARGE ((size_t)256 << 10)
// Texts above this are passed on by reference; smaller ones are copied, which is cheaper.
#define MESSAGE_SHARED ((size_t)32 << 10)

enum message_kind {
    MESSAGE_INVALID,
    MESSAGE_REQUEST,
    MESSAGE_NOTIFICATION,
    MESSAGE_RESULT,
    MESSAGE_ERROR,
};

// The intended role of a message, as far as it could be read. An invalid message may have one.
enum message_role {
    MESSAGE_UNCLEAR,
    MESSAGE_ASKS,     // a request or a notification
    MESSAGE_ANSWERS,  // a result or an error
};

struct message {
    enum message_kind kind;
    enum message_role role;
    struct span text;
    struct span id;      // raw JSON, so that type and value stay exact; at is NULL if absent
    struct span method;  // characters
    struct span params;  // raw JSON object; at is NULL if absent
    struct span result;  // raw JSON
    struct span error;   // raw JSON object
    bool lines;          // the text may have raw line ends
    char method_room[64];
};

// Parses one message. With `strict` (for callers) duplicate keys are refused at every level. ERR_PARSE: the text is not JSON.
// ERR_INVALID_REQUEST: the text is JSON, but not a message; `role` and `id` are set if they could be read.
bool message_parse(struct span text, bool strict, struct message *out, struct err *err) MUST_CHECK;

void message_copy(struct message *to, const struct message *from);  // does not copy the text

// Writers; `id`, `params` and `result` are raw JSON.
// Appends the beginning of a request: the caller appends the params, if any, and the closing brace.
void message_begin_request(struct buf *out, uint64_t id, const char *method);
void message_put_request(struct buf *out, struct span id, const char *method, struct span params);
void message_put_notification(struct buf *out, const char *method, struct span params);
void message_put_result(struct buf *out, struct span id, struct span result);
// `data_members` is raw JSON members to add to `data` after "reason", such as "\"uri\":\"x\"", or empty.
void message_put_error(struct buf *out, struct span id, enum err_code code, struct span data_members);
// The same with another text; NULL: the text of the code.
void message_put_error_text(struct buf *out, struct span id, enum err_code code, const char *text,
                            struct span data_members);
// Puts an existing error object, raw.
void message_put_raw_error(struct buf *out, struct span id, struct span error);

// Replaces raw line ends by spaces, as line framing requires. In valid JSON they can only be white space.
void message_flatten(char *text, size_t len);

#endif
