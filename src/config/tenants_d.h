// tenants.d: a folder beside the configuration in which each file NAME.json is one tenant.
#ifndef CONFIG_TENANTS_D_H
#define CONFIG_TENANTS_D_H

#include "base/option.h"

// Appends the tenants in the folder `place->file` to those of the configuration, in the order of their names. A folder
// that does not exist is empty; any other failure to read is an error that names the file.
bool tenants_d_read(struct option_items *tenants, const struct option_table *options, const struct option_place *place,
                    struct err *err) MUST_CHECK;

#endif
