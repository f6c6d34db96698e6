// Owns records and leases in SQLite: the two tables, the counter of generations, and each change as one transaction.
//
// Every change takes the next number of the one row in `counter` as its generation, in its own transaction: numbers are
// never used twice, and comparing the newest number with an earlier one shows whether anything has changed since.
//
// A lease is held while  now < until <= now + length.  The second half is for a clock that starts again from zero (after
// a restart of the machine): without it an old lease could hold for days. Leases that are not held are deleted by the next take.
#include "store/record.h"
#include "base/mem.h"
#include "base/secret.h"
#include "db.h"
#include "store/state.h"
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define STATEMENTS(X)                                                                                                 \
    X(GET, "SELECT key,generation,updated,value FROM record WHERE space=?1 AND key=?2")                               \
    X(NEXT, "SELECT key,generation,updated,value FROM record WHERE space=?1 AND key>?2 ORDER BY key LIMIT 1")         \
    X(FROM, "SELECT key,generation,updated,value FROM record WHERE space=?1 AND key>=?2 ORDER BY key LIMIT 1")        \
    X(NEWEST, "SELECT last FROM counter")                                                                             \
    X(COUNT, "UPDATE counter SET last=last+1 RETURNING last")                                                         \
    X(INSERT, "INSERT INTO record(space,key,generation,updated,value) VALUES(?1,?2,?3,?4,?5) ON CONFLICT DO NOTHING") \
    X(UPDATE, "UPDATE record SET generation=?3,updated=?4,value=?5 WHERE space=?1 AND key=?2 AND generation=?6")      \
    X(REWRITE, "UPDATE record SET value=?3 WHERE space=?1 AND key=?2 AND generation=?4")                              \
    X(DELETE, "DELETE FROM record WHERE space=?1 AND key=?2 AND generation=?3")                                       \
    X(HOLDER, "SELECT until FROM lease WHERE name=?1 AND until>?2 AND until<=?2+length")                              \
    X(BURY, "DELETE FROM lease WHERE NOT (until>?1 AND until<=?1+length)")                                            \
    X(TAKE, "INSERT INTO lease(name,owner,until,length) VALUES(?1,?2,?3,?4) ON CONFLICT DO NOTHING")                  \
    X(RENEW, "UPDATE lease SET until=?3,length=?4 WHERE name=?1 AND owner=?2")                                        \
    X(RELEASE, "DELETE FROM lease WHERE name=?1 AND owner=?2")

enum statement {
#define X(name, sql) SQL_##name,
    STATEMENTS(X)
#undef X
        SQL_COUNT_OF_ALL
};

static const char *const sql_of[] = {
#define X(name, sql) sql,
    STATEMENTS(X)
#undef X
};

static const struct db_kind kind = {
    .what = "a postern store",
    .if_lost =
        "nothing was changed: restore a backup, or move the file away; then all users must connect their servers again",
    .application = 0x506f7372,
    .version = 1,
    .readable = 1,
    .settings = "PRAGMA journal_size_limit=16777216",
    .tables = "CREATE TABLE record(space TEXT NOT NULL,key BLOB NOT NULL,generation INTEGER NOT NULL,"
              "updated INTEGER NOT NULL,value BLOB NOT NULL,PRIMARY KEY(space,key)) STRICT;"
              "CREATE TABLE lease(name BLOB PRIMARY KEY,owner BLOB NOT NULL,until INTEGER NOT NULL,"
              "length INTEGER NOT NULL) STRICT;"
              "CREATE TABLE counter(id INTEGER PRIMARY KEY CHECK(id=1),last INTEGER NOT NULL) STRICT;"
              "INSERT INTO counter VALUES(1,0)",
};

struct record_store {
    struct db db;
    sqlite3_stmt *statements[SQL_COUNT_OF_ALL];
    int64_t (*clock_ms)(void);
    struct buf key, value;  // of the record read last
};

#define AT(member) offsetof(struct record_config, member)
static const struct option rows[] = {
    {.name = "path",
     .type = OPTION_STRING,
     .offset = AT(path),
     .help = "The SQLite database of the state that must outlive the process: users' tokens and client registrations, "
             "sealed. If absent, it is store.db in `$POSTERN_STATE`, `$XDG_STATE_HOME/postern` or "
             "`~/.local/state/postern`."},
    {.name = "seed",
     .type = OPTION_STRING,
     .offset = AT(seed),
     .help = "Instead of `path`: a store that the gateway only reads, such as a mounted secret. Changes are kept in "
             "memory and are lost when the process ends; see docs/operations.md."},
    {0},
};
#undef AT

static bool check(void *object, const struct option_place *place, struct err *err)
{
    const struct record_config *config = object;
    return !config->path || !config->seed ||
           err_set(err, ERR_CONFIG, "%s: %s: set either \"path\" or \"seed\", not both", place->file, place->path);
}

const struct option_table record_options = {"Store (store)", sizeof(struct record_config), rows, check};

static int64_t clock_of(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int64_t boot_ms(void) { return clock_of(CLOCK_BOOTTIME); }

// ---- opening --------------------------------------------------------------------------------

static bool set_limit(struct record_store *store, int64_t pages, struct err *err)
{
    char sql[64];
    snprintf(sql, sizeof sql, "PRAGMA max_page_count=%" PRId64, pages);
    return pages == 0 || db_run(&store->db, sql, err);
}

char *record_place(const struct record_config *config)
{
    return config->seed ? mem_string(config->seed) : state_path(config->path, "store.db");
}

bool record_is_there(const struct record_config *config)
{
    char *path = record_place(config);
    bool there = config->seed || access(path, F_OK) == 0;  // a seed must exist: record_open() reports if it does not
    free(path);
    return there;
}

struct record_store *record_open(const struct record_config *config, struct err *err)
{
    struct record_store *store = mem_new(struct record_store);
    char *path = record_place(config);
    if (!config->path && !config->seed)
        state_make_folders(path);
    store->clock_ms = config->clock_ms ? config->clock_ms : boot_ms;
    bool open = config->seed ? db_open_copy(&store->db, &kind, path, err) : db_open(&store->db, &kind, path, err);
    if (open && db_prepare_all(&store->db, sql_of, SQL_COUNT_OF_ALL, store->statements, err) &&
        set_limit(store, config->page_limit, err))
        return store;
    record_close(store);
    return NULL;
}

void record_close(struct record_store *store)
{
    if (!store)
        return;
    db_finalize_all(store->statements, SQL_COUNT_OF_ALL);
    db_close(&store->db);
    buf_release(&store->key);
    buf_release(&store->value);
    free(store);
}

const char *record_path(const struct record_store *store) { return store->db.path; }

// ---- statements -----------------------------------------------------------------------------

static sqlite3_stmt *with_name(struct record_store *store, enum statement which, struct record_name name)
{
    sqlite3_stmt *statement = store->statements[which];
    sqlite3_bind_text(statement, 1, name.space, -1, SQLITE_STATIC);
    db_bind_bytes(statement, 2, name.key);
    return statement;
}

static sqlite3_stmt *with_lease(struct record_store *store, enum statement which, struct span name,
                                const struct record_lease *lease)
{
    sqlite3_stmt *statement = store->statements[which];
    db_bind_bytes(statement, 1, name);
    db_bind_bytes(statement, 2, span_make((const char *)lease->owner, sizeof lease->owner));
    return statement;
}

static void reset(sqlite3_stmt *statement)
{
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
}

// The number of rows that the statement changed; RECORD_NO: 0.
static enum record_answer change(struct record_store *store, sqlite3_stmt *statement, struct err *err)
{
    enum record_answer answer = RECORD_FAILED;
    if (sqlite3_step(statement) != SQLITE_DONE)
        (void)db_fail(&store->db, err);
    else
        answer = sqlite3_changes64(store->db.sqlite) > 0 ? RECORD_YES : RECORD_NO;
    reset(statement);
    return answer;
}

static bool number(struct record_store *store, enum statement which, int64_t *out, struct err *err)
{
    sqlite3_stmt *statement = store->statements[which];
    bool ok = sqlite3_step(statement) == SQLITE_ROW || db_fail(&store->db, err);
    *out = ok ? sqlite3_column_int64(statement, 0) : 0;
    if (ok && sqlite3_step(statement) != SQLITE_DONE)
        ok = db_fail(&store->db, err);
    reset(statement);
    return ok;
}

// A transaction changes nothing unless the answer is yes.
static enum record_answer end(struct record_store *store, enum record_answer answer, struct err *err)
{
    if (answer == RECORD_YES)
        return db_commit(&store->db, err) ? RECORD_YES : RECORD_FAILED;
    db_rollback(&store->db);
    return answer;
}

// ---- records --------------------------------------------------------------------------------

static enum record_answer take_row(struct record_store *store, sqlite3_stmt *select, struct record *out,
                                   struct err *err)
{
    int got = sqlite3_step(select);
    enum record_answer answer = RECORD_FAILED;
    if (got == SQLITE_ROW) {
        buf_clear(&store->key);
        buf_clear(&store->value);
        buf_put(&store->key, sqlite3_column_blob(select, 0), (size_t)sqlite3_column_bytes(select, 0));
        buf_put(&store->value, sqlite3_column_blob(select, 3), (size_t)sqlite3_column_bytes(select, 3));
        *out = (struct record){.generation = sqlite3_column_int64(select, 1),
                               .updated_ms = sqlite3_column_int64(select, 2),
                               .key = buf_span(&store->key),
                               .value = buf_span(&store->value)};
        answer = RECORD_YES;
    } else if (got == SQLITE_DONE) {
        answer = RECORD_NO;
    } else {
        (void)db_fail(&store->db, err);
    }
    reset(select);
    return answer;
}

enum record_answer record_get(struct record_store *store, struct record_name name, struct record *out, struct err *err)
{
    *out = (struct record){0};
    return take_row(store, with_name(store, SQL_GET, name), out, err);
}

static enum record_answer put(struct record_store *store, struct record_name name, struct span value,
                              int64_t generation, int64_t *next, struct err *err)
{
    if (!number(store, SQL_COUNT, next, err))
        return RECORD_FAILED;
    sqlite3_stmt *statement = with_name(store, generation ? SQL_UPDATE : SQL_INSERT, name);
    sqlite3_bind_int64(statement, 3, *next);
    sqlite3_bind_int64(statement, 4, clock_of(CLOCK_REALTIME));
    db_bind_bytes(statement, 5, value);
    if (generation)
        sqlite3_bind_int64(statement, 6, generation);
    return change(store, statement, err);
}

enum record_answer record_put(struct record_store *store, struct record_name name, struct span value,
                              int64_t *generation, struct err *err)
{
    int64_t next = 0;
    if (name.key.len > RECORD_KEY_MAX || value.len > RECORD_VALUE_MAX) {
        (void)err_set(err, ERR_TOO_LARGE, "cannot store a record of %zu bytes under a key of %zu bytes: too large",
                      value.len, name.key.len);
        return RECORD_FAILED;
    }
    if (!db_begin(&store->db, err))
        return RECORD_FAILED;
    enum record_answer answer = end(store, put(store, name, value, *generation, &next, err), err);
    if (answer == RECORD_YES)
        *generation = next;
    return answer;
}

enum record_answer record_rewrite(struct record_store *store, struct record_name name, struct span value,
                                  int64_t generation, struct err *err)
{
    if (!db_begin(&store->db, err))
        return RECORD_FAILED;
    sqlite3_stmt *statement = with_name(store, SQL_REWRITE, name);
    db_bind_bytes(statement, 3, value);
    sqlite3_bind_int64(statement, 4, generation);
    return end(store, change(store, statement, err), err);
}

enum record_answer record_delete(struct record_store *store, struct record_name name, int64_t generation,
                                 struct err *err)
{
    int64_t next;
    if (!db_begin(&store->db, err))
        return RECORD_FAILED;
    sqlite3_stmt *statement = with_name(store, SQL_DELETE, name);
    sqlite3_bind_int64(statement, 3, generation);
    enum record_answer answer = change(store, statement, err);
    if (answer == RECORD_YES && !number(store, SQL_COUNT, &next, err))
        answer = RECORD_FAILED;
    return end(store, answer, err);
}

// One row at a time by its key: no transaction stays open, so `visit` may change the records.
bool record_scan(struct record_store *store, struct record_name name,
                 bool (*visit)(void *arg, const struct record *record), void *arg, struct err *err)
{
    struct buf last = {0};
    enum record_answer answer = RECORD_YES;
    bool more = true;
    buf_put_span(&last, name.key);
    for (enum statement which = SQL_FROM; more; which = SQL_NEXT) {
        struct record row = {0};
        answer = take_row(store, with_name(store, which, (struct record_name){name.space, buf_span(&last)}), &row, err);
        more = answer == RECORD_YES && row.key.len >= name.key.len &&
               span_equal(span_make(row.key.at, name.key.len), name.key);
        if (!more)
            break;
        buf_clear(&last);
        buf_put_span(&last, row.key);
        more = visit(arg, &row);
    }
    buf_release(&last);
    return answer != RECORD_FAILED;
}

bool record_newest(struct record_store *store, int64_t *generation, struct err *err)
{
    return number(store, SQL_NEWEST, generation, err);
}

// ---- leases ---------------------------------------------------------------------------------

// Is the lease held now? Checked without a write lock, so that processes that wait do not block the holder.
static enum record_answer look(struct record_store *store, struct span name, int64_t now, int64_t *free_in_ms,
                               struct err *err)
{
    sqlite3_stmt *select = store->statements[SQL_HOLDER];
    db_bind_bytes(select, 1, name);
    sqlite3_bind_int64(select, 2, now);
    int got = sqlite3_step(select);
    if (got == SQLITE_ROW && free_in_ms)
        *free_in_ms = sqlite3_column_int64(select, 0) - now;
    if (got != SQLITE_ROW && got != SQLITE_DONE)
        (void)db_fail(&store->db, err);
    reset(select);
    return got == SQLITE_ROW ? RECORD_YES : got == SQLITE_DONE ? RECORD_NO : RECORD_FAILED;
}

static enum record_answer take(struct record_store *store, struct span name, const struct record_lease *lease,
                               struct err *err)
{
    int64_t now = store->clock_ms();  // after the wait for the lock
    sqlite3_bind_int64(store->statements[SQL_BURY], 1, now);
    if (change(store, store->statements[SQL_BURY], err) == RECORD_FAILED)
        return RECORD_FAILED;
    sqlite3_stmt *insert = with_lease(store, SQL_TAKE, name, lease);
    sqlite3_bind_int64(insert, 3, now + lease->length_ms);
    sqlite3_bind_int64(insert, 4, lease->length_ms);
    return change(store, insert, err);
}

enum record_answer record_lease_take(struct record_store *store, struct span name, struct record_lease *lease,
                                     int64_t *free_in_ms, struct err *err)
{
    enum record_answer held = look(store, name, store->clock_ms(), free_in_ms, err);
    if (held != RECORD_NO)
        return held == RECORD_YES ? RECORD_NO : RECORD_FAILED;
    if (free_in_ms)
        *free_in_ms = 0;
    secret_random(lease->owner, sizeof lease->owner);
    if (!db_begin(&store->db, err))
        return RECORD_FAILED;
    return end(store, take(store, name, lease, err), err);
}

enum record_answer record_lease_renew(struct record_store *store, struct span name, const struct record_lease *lease,
                                      struct err *err)
{
    if (!db_begin(&store->db, err))
        return RECORD_FAILED;
    sqlite3_stmt *update = with_lease(store, SQL_RENEW, name, lease);
    sqlite3_bind_int64(update, 3, store->clock_ms() + lease->length_ms);
    sqlite3_bind_int64(update, 4, lease->length_ms);
    return end(store, change(store, update, err), err);
}

enum record_answer record_lease_release(struct record_store *store, struct span name, const struct record_lease *lease,
                                        struct err *err)
{
    if (!db_begin(&store->db, err))
        return RECORD_FAILED;
    return end(store, change(store, with_lease(store, SQL_RELEASE, name, lease), err), err);
}
