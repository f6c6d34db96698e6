// The parameters of a message: where the members are that its method has. They are searched once, however large they are.
#ifndef MCP_PARAMS_H
#define MCP_PARAMS_H

#include "mcp/method.h"

// Bytes, as they are in the message. Arguments may be as large as the message.
#define PARAMS_NAME_MAX 1024                        // of a tool, a prompt or an argument
#define PARAMS_URI_MAX 8192                         // also of a cursor or a task id
#define PARAMS_CAPABILITIES_MAX ((size_t)64 << 10)  // of a caller: servers of its own get them as they are
#define PARAMS_TOKEN_MAX 1024                       // a progress token or a request's id
#define PARAMS_REST_MAX ((size_t)256 << 10)         // everything but the arguments, together

#define PARAMS_KNOWN_MAX 13                                    // of completion/complete, with all that it may have
#define PARAMS_RELATED "io.modelcontextprotocol/related-task"  // in _meta: the task that a message belongs to

struct params {
    struct params_member {
        const char *in;  // the member it is in, such as "_meta"; NULL: it is in the parameters themselves
        const char *name;
        struct span value;  // raw JSON
    } known[PARAMS_KNOWN_MAX];
    size_t count;
    struct span
        ambiguous;         // the raw name of a member that a server may take for another one; at is NULL: there is none
    const char *too_long;  // the member that is longer than `max`; "": all but the arguments; NULL: none is
    size_t max;
};

// Reads a valid JSON object without duplicate keys. A span of nothing has no members.
void params_read(enum method method, struct span params, struct params *out);
// Finds a member that the method has; false: it is not there.
bool params_find(const struct params *params, const char *in, const char *name, struct span *value);

#endif
