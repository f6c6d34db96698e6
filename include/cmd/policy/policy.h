// `postern policy`: reading, testing and comparing policies.
#ifndef CMD_POLICY_POLICY_H
#define CMD_POLICY_POLICY_H

#include "cmd/base/options.h"

extern const struct command policy_command;

#endif
