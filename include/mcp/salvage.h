// What can be saved of a server's message that is not valid JSON: the request it answers, and a list without the items
// to blame.
#ifndef MCP_SALVAGE_H
#define MCP_SALVAGE_H

#include "mcp/message.h"

// message_parse() of what a server sent. If it is not JSON, `out` is what salvage_find() has found.
bool salvage_parse(struct span text, struct message *out, struct err *err) MUST_CHECK;
// What a text was meant to be that is not valid, or only the beginning of a message: its role, its id if it has one,
// and its result, which is not checked.
void salvage_find(struct span text, struct message *out);
// Appends the text with `null` in place of each element of the result's member that is not valid JSON. What comes out
// is still to be parsed. False: the result does not have the member, or its elements are not to blame, or too many of
// them are.
bool salvage_list(struct span text, struct span result, const char *member, struct buf *out);

#endif
