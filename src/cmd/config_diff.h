// `postern config diff`, for config.c.
#ifndef CMD_CONFIG_DIFF_H
#define CMD_CONFIG_DIFF_H

#include "cmd/base/options.h"

int config_diff_run(const struct flags *flags);

#endif
