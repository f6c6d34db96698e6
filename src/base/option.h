// The expansion of variables in option values, for its tests.
#ifndef OPTION_H
#define OPTION_H

#include "base/option.h"

// Expands ${NAME} and ${NAME:-default}. A variable that is not set and has no default is an error that names it, or is
// noted in place->unset.
char *option_expand(const char *text, const struct option_place *place, struct err *err) MUST_CHECK;
bool option_size(const char *text, int64_t *bytes);

#endif
