// Records and leases: what must outlive the process, as opaque bytes under a name, changed by compare-and-swap.
//
// Everything here blocks (a disk, other processes' locks) and a `struct record_store` is for one thread at a time. In the
// gateway that is the worker of store/store.h; a command that has no loop opens one and calls it. Many processes may
// have the same store open.
//
// A record has a generation: a number that every change takes anew from one counter of the whole store, so that it never
// comes back, also not after the record was deleted and made again. To change a record one must name the generation
// that was read; if somebody else was faster the answer is RECORD_NO and nothing has changed.
//
// A change is on the disk when it returns RECORD_YES, and one transaction: whatever happens, the old or the new record
// is there, never neither.
//
// Leases answer "who does this now, of all threads and processes": a holder that dies loses it when its time is over.
// The clock is one that no administrator can set (CLOCK_BOOTTIME), and no lease lasts longer than its own length.
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
    char *seed;                 // S11: instead, a copy of this one in memory; NULL: no
    int64_t page_limit;         // no option: the database may have so many pages; a full disk, for tests
    int64_t (*clock_ms)(void);  // no option: the clock of leases, for tests; NULL: CLOCK_BOOTTIME
};

extern const struct option_table record_options;  // of struct record_config

struct record_store;

struct record_name {
    const char *space;  // "grant", "client", …: a word of ours
    struct span key;
};

struct record {
    int64_t generation;  // 0: there is none
    int64_t updated_ms;  // wall clock, since the epoch
    struct span key, value;
};

// Zero is "it could not be done": the error says why, and nothing has changed.
enum record_answer { RECORD_FAILED, RECORD_NO, RECORD_YES };

// Opens or makes the database. Refuses one that is damaged, not ours, or that others could read; never makes a new one in
// its place.
struct record_store *record_open(const struct record_config *config, struct err *err) MUST_CHECK;
void record_close(struct record_store *store);
const char *record_path(const struct record_store *store);
// Where the database of this configuration is, whether it has been made or not. The caller frees it.
char *record_place(const struct record_config *config);
bool record_is_there(const struct record_config *config);  // false: nobody has made it yet

// RECORD_NO: there is none. Otherwise `out` is valid until the next call with this store.
enum record_answer record_get(struct record_store *store, struct record_name name, struct record *out,
                              struct err *err) MUST_CHECK;
// *generation: the one that must be there now, 0: no record must be there; and after RECORD_YES the new one.
enum record_answer record_put(struct record_store *store, struct record_name name, struct span value,
                              int64_t *generation, struct err *err) MUST_CHECK;
// The same content in other bytes (sealed with another key): nobody has to know, so the generation stays.
enum record_answer record_rewrite(struct record_store *store, struct record_name name, struct span value,
                                  int64_t generation, struct err *err) MUST_CHECK;
enum record_answer record_delete(struct record_store *store, struct record_name name, int64_t generation,
                                 struct err *err) MUST_CHECK;
// Calls `visit` for each record whose key begins with `name.key`, in the order of keys, until it returns false. It may
// use the store, and change it. False: it could not be read.
bool record_scan(struct record_store *store, struct record_name name,
                 bool (*visit)(void *arg, const struct record *record), void *arg, struct err *err) MUST_CHECK;
// The newest generation given out: it differs from the last answer when any record was put or deleted since.
bool record_newest(struct record_store *store, int64_t *generation, struct err *err) MUST_CHECK;

// ---- leases ---------------------------------------------------------------------------------

// Zero it before the first take. The owner is random for each take: it is what proves that the lease is ours.
struct record_lease {
    unsigned char owner[RECORD_OWNER_BYTES];
    int64_t length_ms;
};

// RECORD_NO: somebody else has it; *free_in_ms (if not NULL) says for how long at most.
enum record_answer record_lease_take(struct record_store *store, struct span name, struct record_lease *lease,
                                     int64_t *free_in_ms, struct err *err) MUST_CHECK;
// Its length again, from now on. RECORD_NO: it is not ours any more.
enum record_answer record_lease_renew(struct record_store *store, struct span name, const struct record_lease *lease,
                                      struct err *err) MUST_CHECK;
// Giving back what is not ours any more is no error: RECORD_NO.
enum record_answer record_lease_release(struct record_store *store, struct span name, const struct record_lease *lease,
                                        struct err *err) MUST_CHECK;

#endif
