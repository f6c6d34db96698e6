// Owns the limits on server processes: in all, of a tenant, and of an identity.
//
// A link counts from the start of its server until the server is down or the link is freed. A server that callers share, or that
// anonymous callers use, counts for its tenant and in all, but not for an identity. Guarded by tests/e2e/limits/limits.test.mjs.
#include "room.h"
#include <inttypes.h>

bool process_may_start(struct link *link, struct err *err)
{
    struct gate *gate = link->gate;
    struct tenant *tenant = link->tenant;
    const struct config_limits *limits = &gate->config->limits;
    size_t own = link->counted_for ? tally_count(&gate->process_counts, link->counted_for) : 0;
    if (link->counted || upstream_server(link->upstream)->type != SERVER_STDIO)
        return true;
    if ((int64_t)gate->process_count >= limits->processes)
        return err_set(err, ERR_PROCESSES, "%zu server processes are running (limits.processes = %" PRId64 ")",
                       gate->process_count, limits->processes);
    if ((int64_t)tenant->process_count >= tenant->process_limit)
        return err_set(err, ERR_PROCESSES,
                       "%zu server processes of tenant \"%s\" are running (tenants.%s.limits.processes = %" PRId64 ")",
                       tenant->process_count, tenant->name, tenant->name, tenant->process_limit);
    if (own && (int64_t)own >= limits->identity_processes)
        return err_set(err, ERR_PROCESSES,
                       "%zu server processes of \"%s\" are running (limits.identity_processes = %" PRId64 ")", own,
                       link->counted_for->subject, limits->identity_processes);
    link->counted = true;
    gate->process_count++;
    tenant->process_count++;
    if (link->counted_for)
        tally_add(&gate->process_counts, link->counted_for);
    return true;
}

void process_ended(struct link *link)
{
    struct gate *gate = link->gate;
    if (!link->counted)
        return;
    link->counted = false;
    gate->process_count--;
    link->tenant->process_count--;
    if (link->counted_for)
        tally_drop(&gate->process_counts, link->counted_for);
}
