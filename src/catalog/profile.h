// What a view asks of its profile.
#ifndef PROFILE_H
#define PROFILE_H

#include "catalog/profile.h"

const struct profile_override *profile_override_find(const struct profile_tools *tools, struct span tool);
// Is this the name some tool is given? It is kept for that tool, also while its server is away.
bool profile_gives_name(const struct profile *profile, struct span name);

#endif
