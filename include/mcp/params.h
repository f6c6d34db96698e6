// The parameters of a message: where the members are that its method has. They are searched once, however large they are.
#ifndef MCP_PARAMS_H
#define MCP_PARAMS_H

#include "mcp/method.h"

#define PARAMS_KNOWN_MAX 12  // of completion/complete, with all that it may have

struct params {
    struct params_member {
        const char *in;  // the member it is in, such as "_meta"; NULL: it is in the parameters themselves
        const char *name;
        struct span value;  // raw JSON
    } known[PARAMS_KNOWN_MAX];
    size_t count;
    struct span
        ambiguous;  // the raw name of a member that a server may take for another one; at is NULL: there is none
};

// Reads a valid JSON object without duplicate keys. A span of nothing has no members.
void params_read(enum method method, struct span params, struct params *out);
// Finds a member that the method has; false: it is not there.
bool params_find(const struct params *params, const char *in, const char *name, struct span *value);

#endif
