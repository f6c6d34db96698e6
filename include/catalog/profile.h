// What the configuration says of one profile: which servers and tools callers of /mcp/NAME have, and under which names.
//
// A profile is a way of looking: it changes names and leaves things out. Policy and audit never hear of it; they go
// by the server and its own name.
#ifndef CATALOG_PROFILE_H
#define CATALOG_PROFILE_H

#include "base/option.h"
#include "base/span.h"

// A tool that looks different here; what is NULL stays as the server has it.
struct profile_override {
    char *tool;  // the server's own name
    char *name, *title, *description;
};

struct profile_tools {
    char *server;
    char **allow;                  // patterns of the server's own names; NULL: all
    struct option_items override;  // struct profile_override
};

struct profile {
    char *name;                 // the end of its path
    char **servers;             // in the order of its lists; NULL: all of the tenant
    struct option_items tools;  // struct profile_tools
    bool prefix;
};

extern const struct option_table profile_options;

// All profiles of a tenant against its servers (struct server); `place` is the tenant's.
bool profile_check_all(const struct option_items *profiles, const struct option_items *servers,
                       const struct option_place *place, struct err *err) MUST_CHECK;
bool profile_name_valid(struct span name);
const struct profile *profile_find(const struct option_items *profiles, struct span name);

// What it says of the tools of one server; NULL: nothing, so they are all there as they are.
const struct profile_tools *profile_tools_find(const struct profile *profile, const char *server);
bool profile_tools_allow(const struct profile_tools *tools, struct span tool);

#endif
