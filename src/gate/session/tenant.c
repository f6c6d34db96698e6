// Owns finding tenants by name.
#include "gate/session/state.h"

struct tenant *tenant_find(const struct gate *gate, const char *name)
{
    for (size_t i = 0; i < gate->tenant_count; i++)
        if (strcmp(gate->tenants[i].name, name) == 0)
            return &gate->tenants[i];
    return NULL;
}
