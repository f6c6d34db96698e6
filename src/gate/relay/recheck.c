// Owns the update of sessions after a change of visibility: by a new policy, an expired rule, or other roles of the caller.
#include "base/clock.h"
#include "room.h"
#include <stdlib.h>
#include <string.h>

static void recheck(struct session *session)
{
    subscription_recheck(session);
    roots_recheck(session);
    relay_list_changed(session, ~0U);  // the visible items may have changed
}

void recheck_tenant(struct gate *gate, struct tenant *tenant)
{
    void *value;
    gate->policy_epoch++;
    tenant->recheck_at = policy_next_expiry(tenant->memo);
    for (size_t at = 0; map_next(&gate->sessions, &at, NULL, &value);) {
        struct session *session = value;
        if (session->tenant == tenant)
            recheck(session);
    }
}

void recheck_sweep(struct gate *gate)
{
    int64_t now = clock_wall_s();
    tenant_each(node, gate)
        if (now >= tenant_at(node)->recheck_at)
            recheck_tenant(gate, tenant_at(node));
}

static bool same_roles(const struct identity *a, const struct identity *b)
{
    if (a->role_count != b->role_count)
        return false;
    for (size_t i = 0; i < a->role_count; i++)
        if (strcmp(a->roles[i], b->roles[i]) != 0)
            return false;
    return true;
}

void recheck_identity(struct session *session, const struct identity *identity)
{
    struct identity *old = session->identity;
    if (old == identity)
        return;
    session->identity = identity_ref(identity);
    if (!same_roles(old, identity)) {
        free(session->visibility.known);
        session->visibility.known = NULL;
        recheck(session);
    }
    identity_unref(old);
}
