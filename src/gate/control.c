// Owns the operations on a running gateway: reports on its state, and changes that an operator makes.
//
// An operation answers from memory, or changes something in the same turn of the loop. Those that change something are rows of
// the audit log. Guarded by tests/e2e/operations/control.test.mjs.
#include "gate/control.h"
#include "apply.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/scan.h"
#include "gate/session/server_runtime.h"
#include "health.h"
#include <stdlib.h>
#include <unistd.h>

#define INSTANCES_SHOWN 16  // of each server

static json_int_t count_calls(const struct gate *gate)
{
    json_int_t count = 0;
    list_each(node, &gate->calls)
        count += list_entry(node, struct call, node)->message.kind == MESSAGE_REQUEST;
    return count;
}

json_t *gate_control_status(const struct gate *gate)
{
    json_t *tree = health_tree(gate, true);
    json_object_update_new(tree,
                           json_pack("{s:s,s:I,s:I,s:{s:I}}", "version", POSTERN_VERSION, "pid", (json_int_t)getpid(),
                                     "uptime_s", (json_int_t)((loop_now(gate->loop) - gate->started_ms) / 1000),
                                     "calls", "in_flight", count_calls(gate)));
    return tree;
}

// ---- servers --------------------------------------------------------------------------------

// A server writes any bytes: those that are not UTF-8, and U+0000, are replaced.
static json_t *text_json(struct span bytes)
{
    char *text = mem_span(bytes);
    scan_mend(text, bytes.len);
    for (size_t i = 0; i < bytes.len; i++)
        text[i] = text[i] ? text[i] : ' ';
    json_t *out = json_stringn(text, bytes.len);
    free(text);
    return out;
}

struct row {
    const struct tenant *tenant;
    const struct server *server;
    const struct link *best;  // its state is that of the server; NULL: no link
    json_int_t links;
    json_t *instances;
};

struct rows {
    struct row *at;
    size_t count;
    struct map by_name;  // "tenant\0server" -> struct row
};

static const struct {
    const char *text;
    int weight;
} states[UPSTREAM_CLOSING + 1] = {
    [UPSTREAM_DOWN] = {"idle", 2},      [UPSTREAM_STARTING] = {"starting", 5}, [UPSTREAM_READY] = {"ready", 6},
    [UPSTREAM_BACKOFF] = {"failed", 4}, [UPSTREAM_RESTING] = {"stopping", 3},  [UPSTREAM_CLOSING] = {"draining", 1},
};

static enum upstream_state state_of(const struct link *link)
{
    return link->retired_until_ms ? UPSTREAM_CLOSING : upstream_state(link->upstream);
}

static void put_name(const char *tenant, const char *server, struct buf *out)
{
    buf_clear(out);
    buf_put(out, tenant, strlen(tenant) + 1);
    buf_put_text(out, server);
}

static void add_rows(struct rows *rows, const struct tenant *tenant)
{
    const struct server *servers = tenant->servers->at;
    rows->at = mem_resize(rows->at, (rows->count + tenant->servers->count + 1) * sizeof *rows->at);
    for (size_t i = 0; i < tenant->servers->count; i++)
        rows->at[rows->count++] = (struct row){.tenant = tenant, .server = &servers[i], .instances = json_array()};
}

static void name_rows(struct rows *rows)
{
    struct buf name = {0};
    for (size_t i = 0; i < rows->count; i++) {
        put_name(rows->at[i].tenant->name, rows->at[i].server->name, &name);
        map_put(&rows->by_name, buf_span(&name), &rows->at[i]);
    }
    buf_release(&name);
}

static json_t *instance_of(const struct link *link)
{
    json_int_t calls = 0;
    list_each(node, &link->calls)
        calls++;
    json_t *instance = json_pack("{s:s,s:I,s:I}", "state", states[state_of(link)].text, "calls_in_flight", calls,
                                 "uptime_s", (json_int_t)(upstream_ready_ms(link->upstream) / 1000));
    if (upstream_pid(link->upstream))
        json_object_set_new(instance, "pid", json_integer(upstream_pid(link->upstream)));
    if (link->counted_for)
        json_object_set_new(instance, "subject", json_string(link->counted_for->subject));
    return instance;
}

static void add_link(const struct rows *rows, const struct link *link)
{
    struct buf name = {0};
    put_name(link->tenant->name, upstream_server(link->upstream)->name, &name);
    struct row *row = map_find(&rows->by_name, buf_span(&name));
    buf_release(&name);
    if (!row)
        return;
    if (row->links++ < INSTANCES_SHOWN)
        json_array_append_new(row->instances, instance_of(link));
    if (!row->best || states[state_of(link)].weight > states[state_of(row->best)].weight)
        row->best = link;
}

static void put_offers(const struct link *link, json_t *out)
{
    const struct source *source = link->source;
    if (source_loaded(source))
        json_object_update_new(out, json_pack("{s:s,s:I,s:I,s:I,s:I}", "revision",
                                              revision_text(upstream_revision(link->upstream)), "tools",
                                              (json_int_t)source_count(source, CATALOG_TOOLS), "prompts",
                                              (json_int_t)source_count(source, CATALOG_PROMPTS), "resources",
                                              (json_int_t)source_count(source, CATALOG_RESOURCES), "templates",
                                              (json_int_t)source_count(source, CATALOG_TEMPLATES)));
}

static void put_runtime(const struct server_runtime *runtime, json_t *out)
{
    int64_t p99 = runtime ? server_runtime_p99_us(runtime) : -1;
    json_object_update_new(out, json_pack("{s:I,s:I}", "calls", (json_int_t)(runtime ? runtime->calls : 0), "failed",
                                          (json_int_t)(runtime ? runtime->failed : 0)));
    json_object_set_new(out, "p99_ms", p99 < 0 ? json_null() : json_real((double)p99 / 1000));
    if (runtime && *runtime->error)
        json_object_update_new(
            out, json_pack("{s:s,s:s}", "last_error", runtime->error, "last_error_at", runtime->error_at));
}

// Takes over its instances.
static json_t *row_json(const struct row *row)
{
    const struct server *server = row->server;
    const char *state = !server_runtime_enabled(row->tenant, server) ? "disabled"
                        : row->best                                  ? states[state_of(row->best)].text
                                                                     : "idle";
    json_t *out = json_pack("{s:s,s:s,s:s,s:s,s:I,s:o}", "tenant", row->tenant->name, "name", server->name, "state",
                            state, "where", server->url ? server->url : server->command, "instance_count", row->links,
                            "instances", row->instances);
    if (strcmp(state, "disabled") == 0)
        json_object_set_new(out, "disabled_by", json_string(server->disabled ? "configuration" : "operator"));
    put_runtime(server_runtime_find(row->tenant, server->name), out);
    if (row->best && state_of(row->best) == UPSTREAM_BACKOFF)
        json_object_update_new(out, json_pack("{s:o,s:b}", "problem",
                                              text_json(span_of(upstream_problem(row->best->upstream))), "circuit_open",
                                              upstream_circuit_open(row->best->upstream)));
    if (row->best)
        put_offers(row->best, out);
    return out;
}

json_t *gate_control_servers(const struct gate *gate, const char *tenant, struct err *err)
{
    struct rows rows = {0};
    void *link;
    if (tenant && !tenant_find(gate, tenant)) {
        (void)err_set(err, ERR_CONFIG, "the gateway has no tenant \"%s\"", tenant);
        return NULL;
    }
    tenant_each(node, gate)
        if (!tenant || strcmp(tenant_at(node)->name, tenant) == 0)
            add_rows(&rows, tenant_at(node));
    name_rows(&rows);
    for (size_t at = 0; map_next(&gate->links, &at, NULL, &link);)
        add_link(&rows, link);
    list_each(node, &gate->retired)
        add_link(&rows, list_entry(node, struct link, retired_node));
    json_t *out = json_array();
    for (size_t i = 0; i < rows.count; i++)
        json_array_append_new(out, row_json(&rows.at[i]));
    map_release(&rows.by_name);
    free(rows.at);
    return out;
}

// ---- one server -----------------------------------------------------------------------------

static struct tenant *find_target(const struct gate *gate, const struct gate_control_target *target, struct err *err)
{
    struct tenant *tenant = tenant_find(gate, target->tenant);
    if (!tenant)
        (void)err_set(err, ERR_CONFIG, "the gateway has no tenant \"%s\"", target->tenant);
    else if (!server_find(tenant->servers, span_of(target->server)))
        (void)err_set(err, ERR_CONFIG, "tenant \"%s\" has no server \"%s\"; 'postern servers' lists them",
                      target->tenant, target->server);
    else
        return tenant;
    return NULL;
}

static void add_log(const struct link *link, json_t *out)
{
    json_t *instance = instance_of(link);
    json_object_set_new(instance, "stderr", text_json(upstream_stderr(link->upstream)));
    json_array_append_new(out, instance);
}

json_t *gate_control_logs(const struct gate *gate, const struct gate_control_target *target, struct err *err)
{
    const struct tenant *tenant = find_target(gate, target, err);
    void *link;
    if (!tenant)
        return NULL;
    json_t *out = json_array();
    for (size_t at = 0; json_array_size(out) < INSTANCES_SHOWN && map_next(&gate->links, &at, NULL, &link);)
        if (link_is_of(link, tenant, target->server))
            add_log(link, out);
    list_each(node, &gate->retired) {
        const struct link *retired = list_entry(node, struct link, retired_node);
        if (json_array_size(out) < INSTANCES_SHOWN && link_is_of(retired, tenant, target->server))
            add_log(retired, out);
    }
    return out;
}

// ---- what changes something -----------------------------------------------------------------

void gate_control_record(struct gate *gate, const struct gate_control_actor *actor, const char *operation,
                         const struct gate_control_target *target, const struct err *err)
{
    struct audit_record record = {.event = AUDIT_OPERATION,
                                  .tenant = span_of(target ? target->tenant : NULL),
                                  .provider = span_of(actor->provider),
                                  .proof = span_of(actor->provider),
                                  .subject = span_of(actor->subject),
                                  .peer = span_of(actor->from),
                                  .server = span_of(target ? target->server : NULL),
                                  .method = span_of(operation),
                                  .status = err ? AUDIT_ERROR : AUDIT_OK,
                                  .reason = span_of(err ? err->detail : NULL)};
    log_info("operation", LOG_STR("operation", operation), LOG_STR("tenant", target ? target->tenant : "-"),
             LOG_STR("server", target ? target->server : "-"), LOG_STR("subject", actor->subject),
             LOG_STR("from", actor->from), LOG_STR("detail", err ? err->detail : ""));
    if (gate->audit)
        (void)audit_put(gate->audit, &record);
}

static struct tenant *find_changeable(const struct gate *gate, const struct gate_control_target *target,
                                      struct err *err)
{
    if (gate->state == GATE_OPEN)
        return find_target(gate, target, err);
    (void)err_set(err, ERR_SHUTTING_DOWN, "the gateway is stopping");
    return NULL;
}

// Of the processes and connections of a server, those that run, start or failed to start.
static json_int_t count_instances(const struct tenant *tenant, const char *server)
{
    json_int_t count = 0;
    void *value;
    for (size_t at = 0; map_next(&tenant->gate->links, &at, NULL, &value);) {
        const struct link *link = value;
        enum upstream_state state = upstream_state(link->upstream);
        count += link_is_of(link, tenant, server) && state != UPSTREAM_DOWN && state != UPSTREAM_RESTING;
    }
    return count;
}

static bool check_configured(const struct server *server, struct err *err)
{
    return !server->disabled ||
           err_set(err, ERR_CONFIG,
                   "server \"%s\" is disabled in the configuration; change it there, and run 'postern reload'",
                   server->name);
}

static bool check_enabled(const struct tenant *tenant, const struct server *server, struct err *err)
{
    return check_configured(server, err) &&
           (server_runtime_enabled(tenant, server) ||
            err_set(err, ERR_CONFIG, "server \"%s\" is disabled; to start it, run 'postern enable %s'", server->name,
                    server->name));
}

// After servers were retired, disabled or enabled.
static void follow(struct gate *gate, struct tenant *tenant)
{
    apply_servers(gate);
    recheck_tenant(gate, tenant);
    link_start_eager(gate);
}

static json_t *restart(struct gate *gate, const struct gate_control_target *target, struct err *err)
{
    struct tenant *tenant = find_changeable(gate, target, err);
    const struct server *server = tenant ? server_find(tenant->servers, span_of(target->server)) : NULL;
    if (!server || !check_enabled(tenant, server, err))
        return NULL;
    json_int_t instances = count_instances(tenant, target->server);
    link_retire_server(tenant, target->server);
    follow(gate, tenant);
    if (instances)
        link_start_server(tenant, target->server);
    return json_pack("{s:I}", "instances", instances);
}

static json_t *set_disabled(struct gate *gate, const struct gate_control_target *target, bool disabled, struct err *err)
{
    struct tenant *tenant = find_changeable(gate, target, err);
    const struct server *server = tenant ? server_find(tenant->servers, span_of(target->server)) : NULL;
    if (!server || (!disabled && !check_configured(server, err)))
        return NULL;
    json_int_t instances = count_instances(tenant, target->server);
    server_runtime_get(tenant, target->server)->disabled = disabled;
    follow(gate, tenant);
    return json_pack("{s:I}", "instances", instances);
}

static json_t *finish(struct gate *gate, const struct gate_control_actor *actor, const char *operation,
                      const struct gate_control_target *target, json_t *result, const struct err *err)
{
    gate_control_record(gate, actor, operation, target, result ? NULL : err);
    return result;
}

json_t *gate_control_restart(struct gate *gate, const struct gate_control_actor *actor,
                             const struct gate_control_target *target, struct err *err)
{
    return finish(gate, actor, "restart", target, restart(gate, target, err), err);
}

json_t *gate_control_disable(struct gate *gate, const struct gate_control_actor *actor,
                             const struct gate_control_target *target, struct err *err)
{
    return finish(gate, actor, "disable", target, set_disabled(gate, target, true, err), err);
}

json_t *gate_control_enable(struct gate *gate, const struct gate_control_actor *actor,
                            const struct gate_control_target *target, struct err *err)
{
    return finish(gate, actor, "enable", target, set_disabled(gate, target, false, err), err);
}
