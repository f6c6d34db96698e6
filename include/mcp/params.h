// The parameters of a message: the spans of the members that its method defines. They are searched only once, even if they are
// large.
#ifndef MCP_PARAMS_H
#define MCP_PARAMS_H

#include "mcp/method.h"

// Bytes in the message, before decoding. Arguments may be as large as the message.
#define PARAMS_NAME_MAX 1024                        // of a tool, a prompt or an argument
#define PARAMS_URI_MAX 8192                         // also of a cursor or a task id
#define PARAMS_CAPABILITIES_MAX ((size_t)64 << 10)  // of a caller: servers of its session get them unchanged
#define PARAMS_TOKEN_MAX 1024                       // a progress token or a request's id
#define PARAMS_REST_MAX ((size_t)256 << 10)         // everything but the arguments, together

#define PARAMS_KNOWN_MAX 13                                    // the members of completion/complete
#define PARAMS_RELATED "io.modelcontextprotocol/related-task"  // in _meta: the task that a message belongs to

struct params {
    struct params_member {
        const char *in;  // the member that contains it, such as "_meta"; NULL: the params themselves
        const char *name;
        struct span value;  // raw JSON
    } known[PARAMS_KNOWN_MAX];
    size_t count;
    struct span ambiguous;  // the raw name of a member that a server may take for another one, or empty
    const char *too_long;   // the member that is longer than `max`; "": all but the arguments; NULL: not too long
    size_t max;
};

// Reads a valid JSON object without duplicate keys. An empty span has no members.
void params_read(enum method method, struct span params, struct params *out);
// Finds a member that the method defines. False: it is absent.
bool params_find(const struct params *params, const char *in, const char *name, struct span *value);

#endif
