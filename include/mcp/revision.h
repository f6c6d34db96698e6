// Protocol revisions up to 2025-11-25, in order, so that `>=` means "at least".
#ifndef MCP_REVISION_H
#define MCP_REVISION_H

#include "base/span.h"

enum revision {
    REVISION_NONE,
    REVISION_2024_11_05,
    REVISION_2025_03_26,  // Streamable HTTP, batches
    REVISION_2025_06_18,  // version header, no batches, elicitation
    REVISION_2025_11_25,  // priming events, tasks, URL elicitation
};

#define REVISION_LATEST REVISION_2025_11_25
#define REVISION_ASSUMED REVISION_2025_03_26  // without a version header

enum revision revision_parse(struct span text);  // REVISION_NONE if unknown
const char *revision_text(enum revision revision);
enum revision revision_negotiate(struct span asked);  // `asked` if it is supported, otherwise the latest

#endif
