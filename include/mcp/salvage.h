// Recovers parts of a server's message that is not valid JSON: the request that it answers, and a list without its invalid items.
#ifndef MCP_SALVAGE_H
#define MCP_SALVAGE_H

#include "mcp/message.h"

// message_parse() for messages of servers. If the text is not JSON, `out` is the result of salvage_find().
bool salvage_parse(struct span text, struct message *out, struct err *err) MUST_CHECK;
// Finds the intended role, the id if any, and the unchecked result of a message that is not valid or incomplete.
void salvage_find(struct span text, struct message *out);
// Appends the text, with `null` in place of each invalid element of the member of the result. The output must be parsed again.
// False: the result does not have the member, all of its elements are valid, or too many of them are invalid.
bool salvage_list(struct span text, struct span result, const char *member, struct buf *out);

#endif
