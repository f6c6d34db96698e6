// Records and leases: state that must outlive the process, as opaque bytes under a name, changed by compare-and-swap.
//
// Everything here blocks (a disk, other processes' locks) and a `struct record_store` is for one thread at a time. In the
// gateway that is the worker of store/store.h; a command that has no loop opens one and calls it. Many processes may
// have the same store open.
//
// A record has a generation: a number that every change takes from one counter of the whole store, so that it never occurs
// twice, even after the record was deleted and created again. To change a record, a caller names the generation that it
// has read. If the record has changed since, the result is RECORD_NO, and nothing changes.
//
// A change is on the disk when it returns RECORD_YES, and is one transaction: after any failure, either the old or the new
// record exists.
//
// A lease is held by at most one thread of all processes; a holder that dies loses it when its time is over. The clock is one
// that an administrator cannot set (CLOCK_BOOTTIME), and a lease never lasts longer than its own length.
#ifndef STORE_RECORD_H
#define STORE_RECORD_H

#include "base/err.h"
#include "base/option.h"
#include "base/span.h"
#include <stdbool.h>
#include <stdint.h>

enum {
    RECORD_KEY_MAX = 16 << 10,
    RECORD_VALUE_MAX = 1 << 20,
    RECORD_OWNER_BYTES = 16,
};

struct record_config {
    char *path;                 // the database; NULL: store.db in the state folder, see state_path()
    char *seed;                 // S11: use a copy of this file in memory instead; or NULL
    int64_t page_limit;         // not an option: limits the pages of the database, to test a full disk
    int64_t (*clock_ms)(void);  // not an option: the clock of leases, for tests; NULL: CLOCK_BOOTTIME
};

extern const struct option_table record_options;  // of struct record_config

struct record_store;

struct record_name {
    const char *space;  // "grant", "client", …: a namespace of the code
    struct span key;
};

struct record {
    int64_t generation;  // 0: the record does not exist
    int64_t updated_ms;  // wall clock, since the epoch
    struct span key, value;
};

// Zero: the operation failed; the error says why, and nothing has changed.
enum record_answer { RECORD_FAILED, RECORD_NO, RECORD_YES };

// Opens or creates the database. Fails if it is damaged, not ours, or readable by other users; never replaces such a file by
// a new one.
struct record_store *record_open(const struct record_config *config, struct err *err) MUST_CHECK;
void record_close(struct record_store *store);
const char *record_path(const struct record_store *store);
// The path of the database of this configuration, whether it exists or not. The caller frees it.
char *record_place(const struct record_config *config);
bool record_is_there(const struct record_config *config);  // false: it was not created yet

// RECORD_NO: the record does not exist. Otherwise `out` is valid until the next call with this store.
enum record_answer record_get(struct record_store *store, struct record_name name, struct record *out,
                              struct err *err) MUST_CHECK;
// *generation: that of the current record, 0: the record must not exist; after RECORD_YES, that of the new one.
enum record_answer record_put(struct record_store *store, struct record_name name, struct span value,
                              int64_t *generation, struct err *err) MUST_CHECK;
// Replaces the bytes of a record by other bytes with the same meaning (sealed with another key); the generation stays.
enum record_answer record_rewrite(struct record_store *store, struct record_name name, struct span value,
                                  int64_t generation, struct err *err) MUST_CHECK;
enum record_answer record_delete(struct record_store *store, struct record_name name, int64_t generation,
                                 struct err *err) MUST_CHECK;
// Calls `visit` for each record whose key begins with `name.key`, in the order of keys, until it returns false. It may
// use the store, and change it. False: it could not be read.
bool record_scan(struct record_store *store, struct record_name name,
                 bool (*visit)(void *arg, const struct record *record), void *arg, struct err *err) MUST_CHECK;
// The newest generation: it differs from an earlier result if any record was put or deleted since.
bool record_newest(struct record_store *store, int64_t *generation, struct err *err) MUST_CHECK;

// ---- leases ---------------------------------------------------------------------------------

// Zero it before the first take. Each take sets a random owner, which proves that the lease is still ours.
struct record_lease {
    unsigned char owner[RECORD_OWNER_BYTES];
    int64_t length_ms;
};

// RECORD_NO: another holder has the lease, for at most *free_in_ms more (if not NULL).
enum record_answer record_lease_take(struct record_store *store, struct span name, struct record_lease *lease,
                                     int64_t *free_in_ms, struct err *err) MUST_CHECK;
// Extends the lease to its full length from now. RECORD_NO: it is not ours any more.
enum record_answer record_lease_renew(struct record_store *store, struct span name, const struct record_lease *lease,
                                      struct err *err) MUST_CHECK;
// RECORD_NO: the lease was not ours any more, which needs no handling.
enum record_answer record_lease_release(struct record_store *store, struct span name, const struct record_lease *lease,
                                        struct err *err) MUST_CHECK;

#endif
