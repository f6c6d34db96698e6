// Makes the start of a thread fail for a while, as at the limit of TasksMax or ulimit -u. For a child process of a test: it becomes
// another user, because root has no limit.
#ifndef NO_THREADS_H
#define NO_THREADS_H

#include "folder.h"
#include "unit.h"
#include <sys/resource.h>
#include <unistd.h>

#define NO_THREADS_USER 65534

// `database` is in `directory` and open. The result is for allow_threads().
static inline struct rlimit forbid_threads(const char *database)
{
    struct rlimit before, none;
    char log[120], shared[120];
    snprintf(log, sizeof log, "%s-wal", database);
    snprintf(shared, sizeof shared, "%s-shm", database);
    const char *const files[] = {directory, database, log, shared};
    for (size_t i = 0; geteuid() == 0 && i < COUNT(files); i++)
        assert_int_equal(chown(files[i], NO_THREADS_USER, NO_THREADS_USER), 0);
    assert_true(geteuid() != 0 || setresuid(NO_THREADS_USER, NO_THREADS_USER, NO_THREADS_USER) == 0);
    assert_int_equal(getrlimit(RLIMIT_NPROC, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NPROC, &none), 0);
    return before;
}

static inline void allow_threads(struct rlimit before) { assert_int_equal(setrlimit(RLIMIT_NPROC, &before), 0); }

#endif
