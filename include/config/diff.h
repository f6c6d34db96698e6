// The differences between two configurations, which are the changes that a reload would make.
#ifndef CONFIG_DIFF_H
#define CONFIG_DIFF_H

#include "base/buf.h"
#include "base/json.h"
#include <stdbool.h>

struct config;
struct config_diff;

// `expanded`: both have the values of variables of the environment, which may be secrets, so that no text is shown.
struct config_diff *config_diff_new(const struct config *before, const struct config *after, bool expanded);
void config_diff_free(struct config_diff *diff);

bool config_diff_is_empty(const struct config_diff *diff);
// The first option that differs and that a running gateway cannot change; NULL: there is no such option.
const char *config_diff_fixed(const struct config_diff *diff);
// One line for each change: "+ /mcpServers/files", "- /profiles/dev", "~ /limits/sessions: 100 -> 200". Secrets are not
// shown.
void config_diff_put(const struct config_diff *diff, struct buf *out);
// [{"change":"changed","path":"/limits/sessions","before":100,"after":200}]
json_t *config_diff_json(const struct config_diff *diff);

#endif
