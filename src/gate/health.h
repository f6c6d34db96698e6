// The gateway's own health as a tree, for the health page and for the control socket.
#ifndef HEALTH_H
#define HEALTH_H

#include "base/json.h"
#include "gate/method/method.h"

json_t *health_tree(const struct gate *gate, bool detailed);

#endif
