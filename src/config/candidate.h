// The next configuration, not in force yet: a worker reads it from its files, with the policies of all its tenants.
#ifndef CONFIG_CANDIDATE_H
#define CONFIG_CANDIDATE_H

#include "base/err.h"
#include "config/config.h"
#include "loop/offload.h"

struct policy;

struct candidate {
    struct offload_job job;
    const char *path;
    uint64_t fingerprint;      // of the files before they were read
    struct config *config;     // NULL: `err` says why
    struct policy **policies;  // of each tenant; NULL: `err` says why
    uint64_t *seen;            // fingerprint of each policy before it was read
    struct err err;            // ERR_SYSTEM: a file could not be read, and may be readable later as it is
};

// The files of the configuration at this path: itself and tenants.d beside it.
uint64_t candidate_fingerprint(const char *path);
// For `job.run`.
void candidate_read(struct offload_job *job);
void candidate_release(struct candidate *candidate);

#endif
