// Owns reading the next configuration.
//
// The worker uses nothing but the candidate and the environment, which does not change while the gateway runs.
#include "candidate.h"
#include "auth/policy/policy.h"
#include "base/mem.h"
#include "policies.h"
#include <stdlib.h>

uint64_t candidate_fingerprint(const char *path)
{
    const char *slash = strrchr(path, '/');
    struct buf folder = {0};
    if (slash)
        buf_put(&folder, path, (size_t)(slash + 1 - path));
    buf_put_text(&folder, "tenants.d");
    uint64_t sum = policy_fingerprint(path) + 31 * policy_fingerprint(buf_text(&folder));
    buf_release(&folder);
    return sum;
}

static uint64_t find_fingerprint(const struct config *config, size_t tenant)
{
    char *path = config_policies_path(config, tenant);
    uint64_t fingerprint = path ? policy_fingerprint(path) : 0;
    free(path);
    return fingerprint;
}

static bool read_policies(struct candidate *candidate)
{
    const struct config *config = candidate->config;
    candidate->policies = mem_alloc((config->tenants.count + 1) * sizeof(struct policy *));
    candidate->seen = mem_alloc((config->tenants.count + 1) * sizeof *candidate->seen);
    for (size_t i = 0; i <= config->tenants.count; i++) {
        struct policy_findings findings = {0};
        struct err why = {0};
        candidate->seen[i] = find_fingerprint(config, i);
        candidate->policies[i] = config_policies_of(config, i, &findings, &why);
        bool unread = findings.unread;
        policy_findings_release(&findings);
        if (!candidate->policies[i])
            return err_set(&candidate->err, unread ? ERR_SYSTEM : why.code, "%s%s/policy: %s", i ? "/tenants/" : "",
                           i ? config_tenant_name(config, i) : "", why.detail);
    }
    return true;
}

void candidate_read(struct offload_job *job)
{
    struct candidate *candidate = job->arg;
    candidate->fingerprint = candidate_fingerprint(candidate->path);
    candidate->config = config_load(candidate->path, NULL, &candidate->err);
    if (candidate->config && !read_policies(candidate)) {
        struct err why = candidate->err;
        candidate_release(candidate);
        candidate->err = why;
    }
}

void candidate_release(struct candidate *candidate)
{
    for (size_t i = 0; candidate->policies && i <= candidate->config->tenants.count; i++)
        policy_unref(candidate->policies[i]);
    free(candidate->policies);
    free(candidate->seen);
    config_unref(candidate->config);
    candidate->policies = NULL;
    candidate->seen = NULL;
    candidate->config = NULL;
    candidate->err = (struct err){0};
}
