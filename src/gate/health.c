// Owns the health report: a status for every caller, and details for callers on this host.
//
// The report is made from data in memory. It does not wait, and it contains no secrets.
#include "health.h"
#include "auth/grant/store.h"
#include "base/clock.h"
#include "base/log.h"
#include "gate/gate.h"
#include <stdlib.h>

// A new policy could not be loaded, and the old one is still in force.
void gate_health_policy_failed(struct gate *gate, const char *tenant)
{
    struct tenant *failed = tenant_find(gate, tenant);
    if (!failed)
        return;
    failed->reload_failed++;
    if (!*failed->failing_since)
        clock_stamp(failed->failing_since);
}

void gate_health_credentials_failed(struct gate *gate, bool failed) { gate->credentials_failed = failed; }
void gate_health_certificates_failed(struct gate *gate, bool failed) { gate->certificates_failed = failed; }

void gate_health_configuration_failed(struct gate *gate, bool failed)
{
    if (!failed)
        *gate->configuration_failing_since = '\0';
    else if (!*gate->configuration_failing_since)
        clock_stamp(gate->configuration_failing_since);
}

static json_t *time_or_null(const char *stamp) { return *stamp ? json_string(stamp) : json_null(); }

// Each of these functions returns one part of the report, and sets *bad if that part has a problem.

static json_t *put_policies(const struct gate *gate, bool *bad)
{
    json_t *all = json_array();
    tenant_each(node, gate) {
        const struct tenant *tenant = tenant_at(node);
        *bad = *bad || *tenant->failing_since;
        json_array_append_new(all, json_pack("{s:s,s:s,s:s,s:I,s:o}", "tenant", tenant->name, "digest",
                                             policy_digest(tenant->policy), "since", tenant->policy_since,
                                             "reload_failed", (json_int_t)tenant->reload_failed, "failing_since",
                                             time_or_null(tenant->failing_since)));
    }
    return all;
}

static json_t *put_configuration(const struct gate *gate, bool *bad)
{
    *bad = *gate->configuration_failing_since;
    return json_pack("{s:s,s:o}", "since", gate->configuration_since, "failing_since",
                     time_or_null(gate->configuration_failing_since));
}

static json_t *put_issuers(const struct gate *gate, bool *bad)
{
    json_t *all = json_array();
    struct provider_health health;
    struct provider_chain *chain;
    for (size_t c = 0; (chain = config_chains_at(gate->chains, c)); c++)
        for (size_t i = 0; provider_chain_health(chain, i, &health); i++) {
            if (!health.issuer)
                continue;
            *bad = *bad || health.failures;
            json_t *age = health.keys_age_ms < 0 ? json_null() : json_integer(health.keys_age_ms / 1000);
            json_array_append_new(all, json_pack("{s:s,s:s,s:o,s:I}", "provider", health.name, "issuer", health.issuer,
                                                 "keys_age_s", age, "failures", (json_int_t)health.failures));
        }
    return all;
}

static json_t *put_audit(const struct gate *gate, bool *bad)
{
    if (!gate->audit)
        return json_null();
    struct audit_stats stats = audit_stats(gate->audit);
    *bad = stats.failing || audit_losing(gate->audit, clock_now_ms()) || !audit_healthy(gate->audit);
    return json_pack("{s:I,s:I,s:I,s:I,s:b}", "queued", (json_int_t)stats.queued, "room",
                     (json_int_t)gate->config->audit.queue, "dropped", (json_int_t)stats.dropped, "write_errors",
                     (json_int_t)stats.write_errors, "failing", (int)stats.failing);
}

static json_t *put_tokens(const struct gate *gate, bool *bad)
{
    if (!gate->grants)
        return json_null();
    size_t unsaved = grant_store_unsaved(gate->grants, NULL);
    *bad = unsaved > 0;
    return json_pack("{s:I}", "unsaved", (json_int_t)unsaved);
}

// Shown in the details only, and without effect on the status: a server of one user that is down does not degrade the gateway.
static json_t *put_servers(const struct gate *gate, bool *bad)
{
    *bad = false;
    void *value;
    json_int_t count[UPSTREAM_CLOSING + 1] = {0}, open = 0;
    for (size_t at = 0; map_next(&gate->links, &at, NULL, &value);) {
        const struct upstream *upstream = ((const struct link *)value)->upstream;
        count[upstream_state(upstream)]++;
        open += upstream_circuit_open(upstream);
    }
    return json_pack("{s:I,s:I,s:I,s:I,s:I}", "up", count[UPSTREAM_READY], "down", count[UPSTREAM_BACKOFF], "starting",
                     count[UPSTREAM_STARTING], "idle", count[UPSTREAM_DOWN] + count[UPSTREAM_RESTING], "circuit_open",
                     open);
}

static json_t *put_sessions(const struct gate *gate, bool *bad)
{
    *bad = false;
    return json_pack("{s:I,s:I}", "open", (json_int_t)gate->sessions.count, "room",
                     (json_int_t)gate->config->limits.sessions);
}

// Memory held for callers, and the number of answers that wait for memory.
static json_t *put_memory(const struct gate *gate, bool *bad)
{
    const struct budget *all = gate->memory.all;
    size_t waiting = 0, largest = 0;
    void *value;
    list_each(node, &all->waiting)
        waiting++;
    for (size_t at = 0; map_next(&gate->memory.identities, &at, NULL, &value);) {
        size_t used = memory_used(value);
        largest = used > largest ? used : largest;
    }
    *bad = false;
    return json_pack("{s:I,s:I,s:I,s:I,s:I}", "held", (json_int_t)all->used, "room", (json_int_t)all->bound,
                     "unauthenticated", (json_int_t)gate->memory.unauthenticated->used, "largest_identity",
                     (json_int_t)largest, "waiting", (json_int_t)waiting);
}

static json_t *put_credentials(const struct gate *gate, bool *bad)
{
    *bad = gate->credentials_failed;
    return json_pack("{s:b}", "failing", (int)gate->credentials_failed);
}

static json_t *put_certificates(const struct gate *gate, bool *bad)
{
    *bad = gate->certificates_failed;
    return json_pack("{s:b}", "failing", (int)gate->certificates_failed);
}

static json_t *put_log(const struct gate *gate, bool *bad)
{
    (void)gate;
    struct log_stats stats = log_stats();
    *bad = false;
    return json_pack("{s:I,s:I}", "dropped", (json_int_t)stats.dropped, "left_out", (json_int_t)stats.left_out);
}

static json_t *put_loop(const struct gate *gate, bool *bad)
{
    struct loop_stalls stalls = loop_stalls(gate->loop);
    *bad = false;
    return json_pack("{s:I,s:I}", "stalls", (json_int_t)stalls.count, "longest_ms", (json_int_t)stalls.longest_ms);
}

static const struct {
    const char *name;
    json_t *(*put)(const struct gate *gate, bool *bad);
    bool decides;  // a problem in it makes the status `degraded`
} parts[] = {
    {"configuration", put_configuration, true},
    {"policies", put_policies, true},
    {"credentials", put_credentials, true},
    {"certificates", put_certificates, true},
    {"issuers", put_issuers, true},
    {"audit", put_audit, true},
    {"tokens", put_tokens, true},
    {"servers", put_servers, false},
    {"sessions", put_sessions, false},
    {"memory", put_memory, false},
    {"log", put_log, false},
    {"loop", put_loop, false},
};

json_t *health_tree(const struct gate *gate, bool detailed)
{
    json_t *tree = json_object(), *problems = json_array(), *details = json_object();
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        bool bad = false;
        if (!parts[i].decides && !detailed)
            continue;
        json_object_set_new(details, parts[i].name, parts[i].put(gate, &bad));
        if (bad)
            json_array_append_new(problems, json_string(parts[i].name));
    }
    const char *status = gate->state != GATE_OPEN ? "stopping" : json_array_size(problems) ? "degraded" : "ok";
    json_object_set_new(tree, "status", json_string(status));
    if (detailed) {
        json_object_set(tree, "problems", problems);
        json_object_update(tree, details);
    }
    json_decref(problems);
    json_decref(details);
    return tree;
}

bool gate_health(const struct gate *gate, bool detailed, struct buf *out)
{
    json_t *tree = health_tree(gate, detailed);
    char *text = json_dumps(tree, JSON_COMPACT);
    buf_put_text(out, text);
    free(text);
    json_decref(tree);
    return gate->state == GATE_OPEN;
}
