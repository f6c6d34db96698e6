// Owns what follows when a session may see more or less than before: a policy, a rule's expiry or its caller's roles changed.
#include "room.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void recheck(struct session *session)
{
    subscription_recheck(session);
    roots_recheck(session);
    relay_list_changed(session, ~0U);  // what it may see may have changed
}

void recheck_tenant(struct gate *gate, struct tenant *tenant)
{
    void *value;
    gate->policy_epoch++;
    tenant->recheck_at = policy_next_expiry(tenant->policy);
    for (size_t at = 0; map_next(&gate->sessions, &at, NULL, &value);) {
        struct session *session = value;
        if (session->tenant == tenant)
            recheck(session);
    }
}

void recheck_sweep(struct gate *gate)
{
    int64_t now = (int64_t)time(NULL);
    for (size_t i = 0; i < gate->tenant_count; i++)
        if (now >= gate->tenants[i].recheck_at)
            recheck_tenant(gate, &gate->tenants[i]);
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
