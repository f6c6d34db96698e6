// Keys of other programs in a configuration: what people copy from their client or from another gateway means the same here.
#ifndef CONFIG_ALIASES_H
#define CONFIG_ALIASES_H

#include "base/option.h"

// Rewrites the servers of the tree, at the top and in tenants, to our keys. place->notes gets a line for each name that changed,
// and one for all keys that have no effect here. After a failure, the tree has no key of which a problem was noted. `renamed` gets
// the path of each key that changed, as it is now, with the path that it has in the file.
bool aliases_apply(json_t *tree, const struct option_place *place, struct option_pairs *renamed,
                   struct err *err) MUST_CHECK;

#endif
