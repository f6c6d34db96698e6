// Owns the policies of all tenants: the ones in force, and reading those whose files changed. A configuration comes
// with a set of its own, whose policies are read together with it (candidate.c).
//
// Parsing, compiling and embedded tests of a large policy take seconds, so a reload runs on a worker (loop/offload.h):
//
//   loop's thread   policies_poll() finds a change and puts the job of that tenant's file
//   worker          run() makes a new policy; it touches nothing but the job's own members and the configuration
//   loop's thread   done() takes the policy over, logs it, and reports it to the gate
//
// The counter of a policy is a plain integer. It has one owner at a time: the job, and from done() on the loop's
// thread. The previous policy stays in force until then, and also if the new one is not valid. The pool is not a
// background pool: on a busy machine, a change of the policy would then wait for minutes.
// Guarded by tests/e2e/policy/reload.test.mjs.
#include "policies.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/policy_names.h"
#include "loop/offload.h"
#include "store/audit/audit.h"
#include <stdlib.h>

struct policies_file {
    struct policies *all;
    size_t tenant;
    char *path;  // NULL: the built-in policy
    uint64_t seen;
    bool unread;   // a failure without a cause in the file, such as no free descriptor; it may pass without a change
    bool told;     // the log already has this failure
    bool loading;  // the job has been put, and the members from here on belong to the worker
    bool again;    // a reload was requested meanwhile, or the file has changed
    struct offload_job job;
    uint64_t read;  // the fingerprint taken before the file was read
    struct policy *policy;
    struct policy_findings findings;
    struct err err;
};

struct policies {
    const struct config *config;
    struct audit *audit;  // may be NULL
    const struct reload_events *events;
    void *arg;
    struct loop *loop;
    struct offload *pool;
    bool closing;
    struct list node;             // among the sets that are closing
    struct loop_task end;         // when it is closing and the last job is done
    struct policies_file *files;  // of each tenant
    struct policy **in_force;
    size_t count;
};

char *config_policies_path(const struct config *config, size_t tenant)
{
    const struct config_tenant *tenants = config->tenants.at;
    const char *own = tenant && tenants[tenant - 1].policy ? tenants[tenant - 1].policy : config->policy;
    return own ? config_file(config, own) : NULL;
}

struct policy *config_policies_read(const struct config *config, const char *path, struct policy_findings *findings,
                                    struct err *err)
{
    struct policy_names names = policy_names_of(config, path);
    struct policy_load load = {.path = path,
                               .now = clock_wall_s(),
                               .servers = names.servers,
                               .tenants = names.tenants,
                               .providers = names.providers};
    struct policy *policy = policy_load(&load, findings, err);
    policy_names_release(&names);
    return policy;
}

// ---- on the worker --------------------------------------------------------------------------

static void run(struct offload_job *job)
{
    struct policies_file *file = job->arg;
    file->policy = config_policies_read(file->all->config, file->path, &file->findings, &file->err);
}

// ---- results --------------------------------------------------------------------------------

static void record(const struct policies_file *file)
{
    const struct policy *policy = file->policy;
    struct audit_record record = {.event = AUDIT_POLICY,
                                  .status = policy ? AUDIT_OK : AUDIT_ERROR,
                                  .name = span_of(file->path),
                                  .policy = policy ? span_of(policy_digest(policy)) : (struct span){0},
                                  .reason = policy ? (struct span){0} : span_of(file->err.detail)};
    if (file->all->audit)
        (void)audit_put(file->all->audit, &record);
}

static void log_findings(const struct policy_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++) {
        const struct policy_finding *at = &findings->at[i];
        log_at(at->code[0] == 'E' ? LOG_ERROR : LOG_WARN, "policy", LOG_STR("code", at->code),
               LOG_STR("file", at->file), LOG_INT("line", at->line), LOG_STR("rule", at->rule ? at->rule : "-"),
               LOG_STR("text", at->text));
    }
}

// The policy that was read, which the caller now owns. NULL: it is not valid, or could not be read.
static struct policy *take(struct policies_file *file)
{
    struct policy *policy = file->policy;
    file->told = file->unread && file->findings.unread && file->read == file->seen;
    file->unread = file->findings.unread;
    file->seen = file->read;
    if (!file->told) {
        log_findings(&file->findings);
        record(file);
    }
    if (policy)
        log_info("policy loaded", LOG_STR("path", file->path), LOG_INT("rules", policy_rule_count(policy)),
                 LOG_INT("tests", policy_test_count(policy)), LOG_STR("digest", policy_digest(policy)));
    policy_findings_release(&file->findings);
    file->findings = (struct policy_findings){0};
    file->policy = NULL;
    return policy;
}

static void put(struct policies_file *file, uint64_t fingerprint)
{
    file->read = fingerprint;
    file->err = (struct err){0};
    file->again = !offload_put(file->all->pool, &file->job);  // without a thread, the next poll tries again
    file->loading = !file->again;
}

// The pool may be waiting for a job of another set, so freeing is left to the end of the turn.
static void end_when_idle(struct policies *all)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->files[i].loading)
            return;
    loop_task_put(all->loop, &all->end);
}

static void done(struct offload_job *job)
{
    struct policies_file *file = job->arg;
    struct policies *all = file->all;
    file->loading = false;
    if (all->closing) {
        policy_unref(file->policy);
        policy_findings_release(&file->findings);
        file->policy = NULL;
        file->findings = (struct policy_findings){0};
        end_when_idle(all);
        return;
    }
    struct policy *policy = take(file);
    if (policy) {
        all->events->policy(all->arg, config_tenant_name(all->config, file->tenant), policy);
        policy_unref(all->in_force[file->tenant]);
        all->in_force[file->tenant] = policy;
    } else if (!file->told) {
        log_error("policy not reloaded: the previous policy stays in force", LOG_STR("detail", file->err.detail));
        all->events->policy(all->arg, config_tenant_name(all->config, file->tenant), NULL);
    }
    if (file->again)
        put(file, policy_fingerprint(file->path));
}

void policies_poll(struct policies *policies, bool asked)
{
    for (size_t i = 0; i < policies->count; i++) {
        struct policies_file *file = &policies->files[i];
        if (!file->path)
            continue;
        uint64_t now = policy_fingerprint(file->path);
        if (file->loading) {
            file->again = file->again || asked || now != file->read;
            continue;
        }
        if (asked || file->again || file->unread || now != file->seen)
            put(file, now);
    }
}

bool policies_pending(const struct policies *policies)
{
    for (size_t i = 0; i < policies->count; i++)
        if (policies->files[i].unread || policies->files[i].again)
            return true;
    return false;
}

// ---- beginning and end ----------------------------------------------------------------------

struct policy *config_policies_of(const struct config *config, size_t tenant, struct policy_findings *findings,
                                  struct err *err)
{
    char *path = config_policies_path(config, tenant);
    struct policy *policy = path ? config_policies_read(config, path, findings, err) : policy_allow_all();
    free(path);
    return policy;
}

static bool read_first(struct policies_file *file, struct err *err)
{
    if (!file->path)
        return (file->all->in_force[file->tenant] = policy_allow_all()) != NULL;
    file->read = policy_fingerprint(file->path);
    run(&file->job);
    file->all->in_force[file->tenant] = take(file);
    *err = file->err;
    return file->all->in_force[file->tenant] != NULL;
}

void policies_free(struct policies *policies)
{
    if (!policies)
        return;
    list_remove(&policies->node);
    for (size_t i = 0; i < policies->count; i++) {
        policy_unref(policies->in_force[i]);
        free(policies->files[i].path);
    }
    loop_task_drop(&policies->end);
    config_unref(policies->config);
    free(policies->files);
    free(policies->in_force);
    free(policies);
}

static void on_end(struct loop_task *task) { policies_free(task->arg); }

static struct policies *make(const struct reload_spec *spec, const struct config *config, struct offload *pool)
{
    struct policies *policies = mem_new(struct policies);
    size_t count = config->tenants.count + 1;
    policies->config = config_ref(config);
    policies->audit = spec->audit;
    policies->events = spec->events;
    policies->arg = spec->arg;
    policies->loop = spec->loop;
    policies->pool = pool;
    policies->end = (struct loop_task){.run = on_end, .arg = policies, .name = "replaced policies"};
    policies->files = mem_alloc(count * sizeof *policies->files);
    policies->in_force = mem_alloc(count * sizeof *policies->in_force);
    for (; policies->count < count; policies->count++) {
        struct policies_file *file = &policies->files[policies->count];
        *file = (struct policies_file){.all = policies, .tenant = policies->count};
        file->job = (struct offload_job){.run = run, .done = done, .arg = file};
        file->path = config_policies_path(config, file->tenant);
    }
    return policies;
}

struct policies *policies_new(const struct reload_spec *spec, struct offload *pool, struct err *err)
{
    struct policies *policies = make(spec, spec->config, pool);
    for (size_t i = 0; i < policies->count; i++)
        if (!read_first(&policies->files[i], err)) {
            policies_free(policies);
            return NULL;
        }
    return policies;
}

struct policies *policies_of(const struct reload_spec *spec, const struct config *config, struct offload *pool,
                             struct policy *const *in_force, const uint64_t *seen)
{
    struct policies *policies = make(spec, config, pool);
    for (size_t i = 0; i < policies->count; i++) {
        policies->in_force[i] = policy_ref(in_force[i]);
        policies->files[i].seen = seen[i];
    }
    return policies;
}

struct policy *const *policies_in_force(const struct policies *policies) { return policies->in_force; }

void policies_put_paths(const struct policies *policies, void (*visit)(void *arg, const char *path), void *arg)
{
    for (size_t i = 0; i < policies->count; i++)
        if (policies->files[i].path)
            visit(arg, policies->files[i].path);
}

void policies_close(struct policies *policies, struct list *closing)
{
    policies->closing = true;
    list_append(closing, &policies->node);
    end_when_idle(policies);
}

struct policies *policies_at(struct list *node) { return list_entry(node, struct policies, node); }
