// Owns the counts and the last error of each server, while the gateway runs.
//
// Durations are counted in buckets that grow by a quarter of a power of two, from 1 us to over an hour, so that p99 is at most a
// quarter too large. When enough calls were counted, all buckets are halved: the p99 is that of the last few thousand calls.
#include "gate/session/server_runtime.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/scan.h"
#include "room.h"
#include <stdlib.h>

#define RECENT_MAX 8192
#define STEPS 4  // of a power of two

static size_t bucket_of(int64_t us)
{
    uint64_t value = us > 0 ? (uint64_t)us : 0;
    if (value < STEPS)
        return (size_t)value;
    unsigned power = 63U - (unsigned)__builtin_clzll(value);  // at least 2
    size_t bucket = (size_t)(power - 1) * STEPS + (size_t)(value >> (power - 2)) % STEPS;
    return bucket < SERVER_RUNTIME_BUCKETS ? bucket : SERVER_RUNTIME_BUCKETS - 1;
}

// The largest duration in the bucket.
static int64_t bucket_end_us(size_t bucket)
{
    if (bucket < STEPS)
        return (int64_t)bucket;
    unsigned power = (unsigned)(bucket / STEPS) + 1;
    return ((int64_t)(STEPS + bucket % STEPS + 1) << (power - 2)) - 1;
}

struct server_runtime *server_runtime_get(struct tenant *tenant, const char *server)
{
    struct server_runtime *runtime = map_find(&tenant->runtimes, span_of(server));
    if (!runtime) {
        runtime = mem_new(struct server_runtime);
        map_put(&tenant->runtimes, span_of(server), runtime);
    }
    return runtime;
}

const struct server_runtime *server_runtime_find(const struct tenant *tenant, const char *server)
{
    return map_find(&tenant->runtimes, span_of(server));
}

bool server_runtime_enabled(const struct tenant *tenant, const struct server *server)
{
    const struct server_runtime *runtime = server_runtime_find(tenant, server->name);
    return !server->disabled && !(runtime && runtime->disabled);
}

void server_runtime_forget(struct tenant *tenant, bool all)
{
    struct span name;
    void *runtime;
    for (size_t at = 0; map_next(&tenant->runtimes, &at, &name, &runtime);)
        if (all || !server_find(tenant->servers, name)) {
            map_remove(&tenant->runtimes, name);
            free(runtime);
        }
    if (all)
        map_release(&tenant->runtimes);
}

static void halve(struct server_runtime *runtime)
{
    runtime->recent = 0;
    for (size_t i = 0; i < SERVER_RUNTIME_BUCKETS; i++)
        runtime->recent += runtime->buckets[i] /= 2;
}

void server_runtime_count(struct server_runtime *runtime, int64_t us, bool failed)
{
    runtime->calls++;
    runtime->failed += failed;
    runtime->buckets[bucket_of(us)]++;
    if (++runtime->recent >= RECENT_MAX)
        halve(runtime);
}

int64_t server_runtime_p99_us(const struct server_runtime *runtime)
{
    uint32_t above = 0, most = runtime->recent / 100;  // calls that may be slower
    for (size_t i = SERVER_RUNTIME_BUCKETS; i-- > 0;)
        if ((above += runtime->buckets[i]) > most)
            return bucket_end_us(i);
    return -1;
}

void server_runtime_note_error(struct server_runtime *runtime, const char *why)
{
    struct span text = span_of(why);
    size_t len = scan_cut(text, sizeof runtime->error - 1);
    memcpy(runtime->error, why, len);
    runtime->error[len] = '\0';
    scan_mend(runtime->error, len);
    clock_stamp(runtime->error_at);
}
