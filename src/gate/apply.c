// Owns applying a configuration: at the start, and when a reload replaces the configuration in force.
//
//   configuration   gate->config, provider chains
//   tenants         new, changed, removed; their limits, budgets and policies
//   links           retired, and drained, if their server was removed or changed
//   scopes          detached, if the new configuration would make them differently
//   sessions        ended with their tenant or profile; the others get a new scope if theirs was detached
//
// The reload does not affect a server that is equal in both configurations: its links, scopes, sessions and calls continue. Calls in
// flight keep the configuration that they began with. Nothing here can fail: the checks that may fail run before it, in config/reload.c.
// Guarded by tests/e2e/operations/live-reload.test.mjs.
#include "apply.h"
#include "auth/access/exchanged_tokens.h"
#include "auth/access/identity_assertion.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "connect/connect.h"
#include "connect_hook.h"
#include "gate/gate.h"
#include "gate/method/method.h"
#include "record.h"
#include <stdlib.h>

// ---- tenants and keys -----------------------------------------------------------------------

static bool has_tenant(const struct config *config, const char *name)
{
    for (size_t i = 0; i <= config->tenants.count; i++)
        if (strcmp(config_tenant_name(config, i), name) == 0)
            return true;
    return false;
}

static void configure_tenant(struct gate *gate, size_t number, struct policy *policy)
{
    const char *name = config_tenant_name(gate->config, number);
    struct tenant *tenant = tenant_find(gate, name);
    if (tenant) {  // move it to its place in the list
        list_remove(&tenant->node);
        list_append(&gate->tenants, &tenant->node);
    } else {
        tenant = tenant_new(gate, name);
    }
    tenant_configure(tenant, number);
    if (tenant->policy == policy)
        return;
    tenant_set_policy(tenant, policy);
    tenant->recheck_at = policy_next_expiry(tenant->memo);
    clock_stamp(tenant->policy_since);
    *tenant->failing_since = '\0';
}

static void add_keys(struct gate *gate, const struct option_items *items)
{
    const struct server *servers = items->at;
    for (size_t i = 0; i < items->count; i++)
        if (servers[i].auth.assertion.key_file && !servers[i].disabled)
            assertion_keys_add(gate->keys, &servers[i].auth.assertion);
}

void apply_configuration(struct gate *gate, struct policy *const *policies)
{
    clock_stamp(gate->configuration_since);
    for (size_t i = 0; i <= gate->config->tenants.count; i++)
        configure_tenant(gate, i, policies[i]);
    tenant_each(node, gate)
        if (!has_tenant(gate->config, tenant_at(node)->name))
            tenant_remove(tenant_at(node));
    struct assertion_keys *old = gate->keys;
    gate->keys = assertion_keys_new();
    tenant_each(node, gate)
        add_keys(gate, tenant_at(node)->servers);
    assertion_keys_unref(old);
    if (!gate->exchanged && caller_token_wanted(gate->config))
        gate->exchanged = exchanged_tokens_new();
}

// ---- sessions -------------------------------------------------------------------------------

// The reason to end a session. NULL: the session continues, in the profile of the new configuration.
static const char *find_reason_to_end(struct session *session)
{
    if (!list_linked(&session->tenant->node))
        return "its tenant was removed";
    if (!session->profile)
        return NULL;
    session->profile = profile_find(session->tenant->profiles, span_of(session->profile->name));
    return session->profile ? NULL : "its profile was removed";
}

// Ending a session may end others, so the ids are gathered first.
static void end_removed_sessions(struct gate *gate)
{
    struct span id;
    void *value;
    struct buf gone = {0};
    for (size_t at = 0; map_next(&gate->sessions, &at, &id, &value);) {
        struct session *session = value;
        const char *why = find_reason_to_end(session);
        if (!why)
            continue;
        log_info("session ended", LOG_STR("tenant", session->tenant->name),
                 LOG_STR("subject", session->identity->subject), LOG_STR("why", why));
        buf_put_span(&gone, id);
    }
    for (size_t at = 0; at + SESSION_ID_LEN <= gone.len; at += SESSION_ID_LEN) {
        struct session *session = session_find(gate, span_make(gone.at + at, SESSION_ID_LEN));
        if (!session)
            continue;
        record_session_over(session);
        session_life_end(session);
    }
    buf_release(&gone);
}

static void move_sessions(struct gate *gate)
{
    void *value;
    for (size_t at = 0; map_next(&gate->sessions, &at, NULL, &value);) {
        struct session *session = value;
        if (session->scope && session->scope->detached)
            session_life_move(session);
    }
}

void apply_servers(struct gate *gate)
{
    link_retire_stale(gate);
    scope_detach_stale(gate);
    move_sessions(gate);
}

// ---- applying -------------------------------------------------------------------------------

void gate_apply(struct gate *gate, const struct gate_change *change)
{
    const struct config *old = gate->config;
    struct config_chains *old_chains = gate->chains;
    gate->config = config_ref(change->config);
    gate->chains = config_chains_ref(change->chains);
    gate->grants = gate->grants ? gate->grants : change->grants;
    throttle_configure(&gate->throttle, &gate->config->limits);
    memory_configure(gate);
    apply_configuration(gate, change->policies);
    end_removed_sessions(gate);
    apply_servers(gate);
    kept_forget_changed(gate, old);
    if (gate->connect)
        connect_configure(gate->connect, gate->config);
    else
        gate->connect = connect_hook_new(gate);
    tenant_each(node, gate)
        recheck_tenant(gate, tenant_at(node));
    gate_recheck_identities(gate);
    link_start_eager(gate);
    config_chains_unref(old_chains);
    config_unref(old);
}
