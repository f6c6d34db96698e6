// The configuration of one profile: the servers and tools of callers of /mcp/NAME, and their names there.
//
// A profile is a selection, not a permission: it renames and omits items. Policy and audit ignore it; they use the server and the
// server's own name of an item.
#ifndef CATALOG_PROFILE_H
#define CATALOG_PROFILE_H

#include "base/option.h"
#include "base/span.h"

// The changes to one tool; a member that is NULL keeps the server's value.
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
    char *name;                 // the last part of its path
    char **servers;             // in the order of the merged lists; NULL: all servers of the tenant
    struct option_items tools;  // struct profile_tools
    bool prefix;
};

extern const struct option_table profile_options;

// Checks all profiles of a tenant against its servers (struct server); `place` is that of the tenant.
bool profile_check_all(const struct option_items *profiles, const struct option_items *servers,
                       const struct option_place *place, struct err *err) MUST_CHECK;
bool profile_name_valid(struct span name);
const struct profile *profile_find(const struct option_items *profiles, struct span name);

// The profile's entry for the tools of one server; NULL: no entry, so all tools are included unchanged.
const struct profile_tools *profile_tools_find(const struct profile *profile, const char *server);
bool profile_tools_allow(const struct profile_tools *tools, struct span tool);

#endif
