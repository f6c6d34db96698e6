// The audit log: one record for each call, denial, failed authentication, policy load and token event, in rows that are
// chained by hashes and written on a thread of their own.
//
// A row's hash is the SHA-256, in hex, of three texts one after the other: the previous row's hash, the SHA-256 of the
// members `event` to `first_seq` as a JSON object, and `seq`, `time` and the other members as a JSON array. Hashes are 64
// hex digits. JSON has no white space and the order below. Absent members are left out of the object (texts that are empty,
// a `count` and a `first_seq` of 0) and are null in the array. The first row of a chain follows 64 zeros. So audit_verify()
// finds a row that was changed, removed or moved. A user that may write to the file can replace a whole chain: keep the
// heads that `verify` prints, or the JSON lines, in another place.
//
// There are three chains: of calls, of failed authentication, and of everything else (policies, tokens, gaps). Each has its own
// limit on size, so that rows of one never make retention delete rows of another; all share the numbers of `seq`. A row's hash
// includes the hash of the previous row of the same chain.
#ifndef STORE_AUDIT_H
#define STORE_AUDIT_H

#include "base/err.h"
#include "base/list.h"
#include "base/option.h"
#include "base/secret.h"
#include "base/span.h"
#include "loop/loop.h"

#define AUDIT_HASH_CHARS SECRET_HEX_CHARS

enum audit_event {
    AUDIT_CALL,            // a call, denied ones as well
    AUDIT_AUTHENTICATION,  // a caller failed to authenticate
    AUDIT_POLICY,          // a policy was loaded, or refused
    AUDIT_TOKEN,           // a token was obtained, refreshed or deleted
    AUDIT_OPERATION,  // an operator changed a running gateway (restart, disable, reload, ...), or its configuration was reloaded
    AUDIT_GAP,  // `count` records were dropped here; written by the audit log itself
    // `count` rows of the chain that `kind` names were deleted; `first_seq` is its first row left; written by the audit log itself
    AUDIT_RETENTION,
};
enum audit_chain { AUDIT_CHAIN_CALLS, AUDIT_CHAIN_AUTHENTICATION, AUDIT_CHAIN_ADMINISTRATION, AUDIT_CHAINS };
enum audit_decision { AUDIT_UNDECIDED, AUDIT_DENY, AUDIT_ALLOW };
enum audit_status { AUDIT_ERROR, AUDIT_OK, AUDIT_DENIED, AUDIT_TIMEOUT, AUDIT_CANCELLED, AUDIT_GONE };

// An empty text is an absent one. Texts are cut at 1 KiB, `roles` and `arguments` at 64 KiB.
struct audit_record {
    int64_t time_ms;  // since the epoch; 0: now
    enum audit_event event;
    struct span tenant;
    struct span provider, subject, proof;  // the caller, and how it was authenticated
    struct span token;                     // token id, never a token
    struct span roles;                     // of the subject, a JSON array of strings; absent: none
    struct span peer;                      // the address of a caller that failed to authenticate
    struct span server, kind, name;        // the item; kind is "tool", "prompt", "resource", ...
    struct span method;
    enum audit_decision decision;
    struct span rule, policy;  // id of the deciding rule, digest of the policy
    enum audit_status status;
    struct span reason;  // of an error
    int64_t count, first_seq;
    struct span request;           // request id
    struct span arguments_sha256;  // secret_digest_hex() of the arguments
    struct span arguments;         // audit_arguments()
    int64_t duration_us, bytes_in, bytes_out;
    const char
        *who;  // audit_row_who(), instead of `tenant` to `roles`; NULL: those members. NULL in rows that are read
};

// The members `tenant` to `roles` as text of a row, computed once for many rows of one caller; the caller frees it.
char *audit_row_who(const struct audit_record *record);
const char *audit_row_chain_text(enum audit_chain chain);
const char *audit_row_event_text(enum audit_event event);
const char *audit_row_status_text(enum audit_status status);

// ---- writing --------------------------------------------------------------------------------

// The arguments that are redacted before a call is recorded, in addition to those with sensitive names.
struct audit_redact {
    char **keys;      // sensitive words; NULL at the end, or NULL
    char **pointers;  // JSON Pointers into the arguments, `*` for any element or member; the same
};

struct audit_config {
    char *path;   // the database; NULL: audit_path()
    char *jsonl;  // also as JSON lines to this file, "-" is standard output; NULL: no
    bool required;
    int64_t retention_days;                // 0: forever
    int64_t retention_size[AUDIT_CHAINS];  // 0: unlimited
    int64_t queue;
    bool arguments;  // record them, redacted
    struct audit_redact redact;
    int64_t page_limit;  // not an option: limits the pages of the database, to test a full disk
};

extern const struct option_table audit_options;  // of struct audit_config

struct audit_stats {
    uint64_t written;       // rows in the database, by this process
    uint64_t dropped;       // records lost: the queue was full, or they were not written before the end
    uint64_t write_errors;  // batches that were not written; their records are kept and tried again
    uint64_t line_errors;   // batches that were not, or not completely, written as JSON lines
    uint64_t deleted;       // by retention
    size_t queued;          // records not in the database yet
    int64_t last_seq;
    bool failing;  // the last attempt to write failed, or its JSON lines
};

struct audit;

// Opens or creates the database; fails if it is damaged or not ours. This blocks, so it is for the start.
struct audit *audit_open(struct loop *loop, const struct audit_config *config, struct err *err) MUST_CHECK;
// Appends a call's arguments in the form to record, redacted (src/store/audit/redact.h). False: they are not recorded.
bool audit_arguments(const struct audit *audit, struct span arguments, struct buf *out);
// Copies the record, to be written soon; never blocks. False: the queue is full and the record is lost. The loss is counted,
// logged, and recorded (AUDIT_GAP) as soon as the queue accepts records again.
bool audit_put(struct audit *audit, const struct audit_record *record);
// A wait until records cannot be lost with this process any more; zero before its first use.
struct audit_wait {
    struct list node;
    void (*done)(struct audit_wait *wait);  // on the loop
    bool written;                           // false: an attempt failed, and will be repeated
};

bool audit_required(const struct audit *audit);
// With `required`: calls `done` when all records put so far are in the database, or could not be written. Waits at the same
// time share a transaction. False: writing is not possible now, and `done` is not called. To stop waiting, take the node out
// of its list.
bool audit_wait(struct audit *audit, struct audit_wait *wait) MUST_CHECK;
// With `required`, false while a call might not get recorded: the last write failed, or the queue is nearly full (the last
// eighth is reserved for calls in progress). Without `required`, always true.
bool audit_healthy(const struct audit *audit);
// True while records are dropped, and for a minute afterwards, so that a probe every few seconds sees it; `now_ms` is
// clock_now_ms().
bool audit_losing(const struct audit *audit, int64_t now_ms);
struct audit_stats audit_stats(const struct audit *audit);
// Writes the queued records, for at most a few seconds. Before loop_free().
void audit_close(struct audit *audit);

// Writes one record and returns when it is in the database (and the JSON lines, unless they are standard output): for
// commands, while a gateway may be running.
bool audit_write(const struct audit_config *config, const struct audit_record *record, struct err *err) MUST_CHECK;

// The path of the database: `given`, else audit.db in $POSTERN_STATE, $XDG_STATE_HOME/postern or ~/.local/state/postern.
char *audit_path(const char *given);

// ---- reading --------------------------------------------------------------------------------

// NULL and 0: not filtered.
struct audit_filter {
    int64_t since_ms, until_ms;  // since the epoch; including `since_ms`, excluding `until_ms`
    const char *subject, *tenant, *server, *name;
    bool denied;    // by the policy or at authentication
    int64_t limit;  // only the last ones
};

// The spans are valid until the next call with the same reader.
struct audit_row {
    int64_t seq;
    struct span time;  // RFC 3339 with milliseconds
    struct audit_record record;
    struct span prev, hash;
    struct span json;  // the whole row, `prev` and `hash` at its end
};

enum audit_next { AUDIT_READ_FAILED, AUDIT_READ_END, AUDIT_READ_ROW };

struct audit_reader;

// `filter` must outlive the reader.
struct audit_reader *audit_reader_open(const char *path, const struct audit_filter *filter, struct err *err) MUST_CHECK;
// The next row in order. At the end it may be called again later, for rows that were added in the meantime.
enum audit_next audit_reader_next(struct audit_reader *reader, struct audit_row *row, struct err *err) MUST_CHECK;
void audit_reader_close(struct audit_reader *reader);

// Each use of a token for a call, in order, as far back as rows were kept: `time` as in a row.
bool audit_reader_uses(const char *path, void (*on_use)(void *arg, struct span token, struct span time), void *arg,
                       struct err *err) MUST_CHECK;

struct audit_verdict {
    int64_t rows, first_seq, last_seq;
    int64_t dropped;  // in all gap rows
    size_t findings;
    char head[AUDIT_CHAINS][AUDIT_HASH_CHARS + 1];
};

// Checks all chains in one snapshot, also while the gateway writes; on_finding gets each row that is not as it was written.
// False: the database could not be read.
bool audit_verify(const char *path, void (*on_finding)(void *arg, int64_t seq, const char *text), void *arg,
                  struct audit_verdict *verdict, struct err *err) MUST_CHECK;

#endif
