// The lookups in a profile that a view needs.
#ifndef PROFILE_H
#define PROFILE_H

#include "catalog/profile.h"

const struct profile_override *profile_override_find(const struct profile_tools *tools, struct span tool);
// True if an override assigns this name to a tool. It is reserved for that tool, even while its server is down.
bool profile_gives_name(const struct profile *profile, struct span name);

#endif
