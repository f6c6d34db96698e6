// Owns the revision names and the negotiation rule.
#include "mcp/revision.h"

static const char *const names[] = {"", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"};

enum revision revision_parse(struct span text)
{
    for (int i = REVISION_LATEST; i > REVISION_NONE; i--)
        if (span_is(text, names[i]))
            return (enum revision)i;
    return REVISION_NONE;
}

const char *revision_text(enum revision revision) { return names[revision]; }

enum revision revision_negotiate(struct span asked)
{
    enum revision known = revision_parse(asked);
    return known ? known : REVISION_LATEST;
}
