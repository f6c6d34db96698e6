// Owns the catalogue cache: its file, its worker, and the bound on its size.
//
//     entry (tenant, server, user, digest) → value
//         user     HMAC of the user, empty if the entry is shared
//         digest   HMAC of the server's configuration
//         mac      HMAC of all other columns but `used`: a row that was changed or moved is deleted
//
// The key of the HMACs is in the file. Callers add a secret from elsewhere to the configuration if they have one, so that a copy
// of the file does not allow guessing the secrets in it.
//
// No failure here is an error for a caller: an entry that cannot be read counts as not found, one that cannot be written is logged.
//
// A change that fails (full disk, locked file, no thread for the worker) is kept, as are all changes after it, and tried again in the
// same order: an entry that was forgotten must not come back. Until then nothing is found. A damaged file is not used until the next
// start, which replaces it.
//
//     start ──► on the worker ──► done ──► freed
//                    ▲              │ failed
//                    │ on_retry     ▼
//                    └──────────── kept
//
// Guarded by tests/unit/store/catalogue_test.c.
#include "store/catalogue.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/scan.h"
#include "base/secret.h"
#include "db.h"
#include "loop/offload.h"
#include "store/state.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define JOBS_MAX 1024                  // lookups and puts
#define DELETIONS_MAX 4096             // besides: a revocation must not fail because of them
#define QUEUED_MAX ((size_t)64 << 20)  // bytes of the texts of puts that have not ended, besides the first
#define TOTAL_MAX ((int64_t)256 << 20)
#define UNUSED_MAX_MS (90LL * 86400 * 1000)
#define SEALING_MAX 64  // that sealing may add
#define RETRY_MS 5000
#define DRAIN_MS 50

#define NAMED " WHERE tenant=?1 AND server=?2 AND user=?3 AND digest=?4"
#define STATEMENTS(X)                                                                                       \
    X(GET, "SELECT login,interval,updated,mac,value FROM entry" NAMED)                                      \
    X(USE, "UPDATE entry SET used=?5" NAMED)                                                                \
    X(PUT, "INSERT OR REPLACE INTO entry(tenant,server,user,digest,used,login,interval,updated,mac,value) " \
           "VALUES(?1,?2,?3,?4,?5,?6,?7,?5,?8,?9)")                                                         \
    X(DROP, "DELETE FROM entry" NAMED)                                                                      \
    X(FORGET_USER, "DELETE FROM entry WHERE tenant=?1 AND (server=?2 OR ?2='') AND user=?3")                \
    X(FORGET_SERVER, "DELETE FROM entry WHERE tenant=?1 AND server=?2 AND digest=?4")                       \
    X(TOTAL, "SELECT COALESCE(SUM(LENGTH(value)),0) FROM entry")                                            \
    X(OLDEST, "DELETE FROM entry WHERE rowid=(SELECT rowid FROM entry ORDER BY used,rowid LIMIT 1)")

enum entry_statement {
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
    .what = "a catalogue cache of postern",
    .if_lost = "nothing else is lost: delete it",
    .application = 0x506f7363,
    .version = 1,
    .readable = 1,
    .settings = "PRAGMA synchronous=NORMAL;PRAGMA journal_size_limit=16777216",
    .tables = "CREATE TABLE entry(tenant TEXT NOT NULL,server TEXT NOT NULL,user BLOB NOT NULL,digest BLOB NOT NULL,"
              "used INTEGER NOT NULL,login INTEGER NOT NULL,interval INTEGER NOT NULL,updated INTEGER NOT NULL,mac "
              "BLOB NOT NULL,"
              "value BLOB NOT NULL,UNIQUE(tenant,server,user,digest)) STRICT;"
              "CREATE TABLE secret(id INTEGER PRIMARY KEY CHECK(id=1),key BLOB NOT NULL) STRICT;"
              "INSERT INTO secret VALUES(1,randomblob(32))",
};

struct catalogue {
    struct db db;
    sqlite3_stmt *statements[SQL_COUNT_OF_ALL];
    unsigned char key[CATALOGUE_KEY_BYTES];
    struct loop *loop;
    struct offload *pool;
    int64_t total_max;
    size_t jobs, deletions, queued;  // that have not ended, also those that are kept; and the bytes of their texts
    bool damaged, failing;           // of the worker while a thread runs it; failing: until the next attempt
    bool told;                       // the log says that it is failing
    uint64_t started;                // how much work was started
    size_t under_way;                // on the worker, or on its way
    struct list kept;                // struct catalogue_work: the changes that failed
    struct loop_timer retry;
};

// One piece of work on the file. It belongs to the pool until `done`, and to the catalogue while it is kept.
struct catalogue_work {
    struct offload_job job;
    struct list node;
    uint64_t number;  // in the order in which work was started
    bool failed;
    struct err err;  // if it was the first one that failed
    struct catalogue *catalogue;
    void (*run)(struct catalogue_work *work);
    bool deletes;
    size_t queued;                // bytes of its text when it was started
    struct catalogue_find *find;  // NULL: not a lookup, or cancelled
    char *tenant, *server;
    unsigned char user[SECRET_MAC_BYTES], digest[SECRET_MAC_BYTES];
    size_t user_len;
    struct catalogue_sealing sealing;
    bool sealed;
    struct catalogue_facts facts;
    int64_t updated_ms;
    struct buf text;
};

#define AT(member) offsetof(struct catalogue_config, member)
static const struct option rows[] = {
    {.name = "path",
     .type = OPTION_STRING_OR_FALSE,
     .offset = AT(path),
     .fixed = true,
     .help = "The SQLite database; catalogue.db in `$POSTERN_STATE`, `$XDG_STATE_HOME/postern` or "
             "`~/.local/state/postern` if absent. false: no cache, and servers start with the first session."},
    {.name = "fresh",
     .type = OPTION_DURATION,
     .offset = AT(fresh_ms),
     .fallback = "3600",
     .min = 0,
     .max = 2592000000,
     .help = "A server is not started just to refresh its lists if they were fetched less than this time ago."},
    {0},
};
#undef AT

const struct option_table catalogue_options = {"Catalogue cache (catalogue)", sizeof(struct catalogue_config), rows,
                                               NULL};

// ---- opening --------------------------------------------------------------------------------

static bool read_key(struct catalogue *catalogue, struct err *err)
{
    sqlite3_stmt *select = db_prepare(&catalogue->db, "SELECT key FROM secret", err);
    int got = select ? sqlite3_step(select) : SQLITE_ERROR;
    bool ok = got == SQLITE_ROW && sqlite3_column_bytes(select, 0) == sizeof catalogue->key;
    if (ok)
        memcpy(catalogue->key, sqlite3_column_blob(select, 0), sizeof catalogue->key);
    else if (select)
        ok = db_fail(&catalogue->db, err);
    catalogue->db.damaged |= (got == SQLITE_ROW || got == SQLITE_DONE) && !ok;
    sqlite3_finalize(select);
    return ok;
}

static bool prepare(struct catalogue *catalogue, struct err *err)
{
    if (db_prepare_all(&catalogue->db, sql_of, SQL_COUNT_OF_ALL, catalogue->statements, err))
        return true;
    catalogue->db.damaged = true;  // its tables are others
    return false;
}

static void close_file(struct catalogue *catalogue)
{
    db_finalize_all(catalogue->statements, SQL_COUNT_OF_ALL);
    db_close(&catalogue->db);
}

static bool drop_unused(struct catalogue *catalogue, int64_t unused_max, struct err *err)
{
    char sql[96];
    snprintf(sql, sizeof sql, "DELETE FROM entry WHERE used<%lld",
             (long long)(clock_wall_ms() - (unused_max ? unused_max : UNUSED_MAX_MS)));
    return db_run(&catalogue->db, sql, err);
}

static bool open_file(struct catalogue *catalogue, const struct catalogue_config *config, struct err *err)
{
    char *path = state_path(config->path, "catalogue.db");
    if (!config->path)
        state_make_folders(path);
    if (db_open(&catalogue->db, &kind, path, err) && read_key(catalogue, err) && prepare(catalogue, err) &&
        drop_unused(catalogue, config->unused_max, err))
        return true;
    close_file(catalogue);
    return false;
}

// It is kept under another name: a path in the configuration may be wrong.
static void put_aside(const struct catalogue_config *config, const struct err *why)
{
    char *path = state_path(config->path, "catalogue.db");
    struct buf aside = {0}, log = {0};
    buf_printf(&aside, "%s.damaged", path);
    buf_printf(&log, "%s-wal", path);
    log_warn("catalogue cache damaged: making a new one", LOG_STR("path", path), LOG_STR("moved_to", buf_text(&aside)),
             LOG_STR("detail", why->detail));
    (void)!rename(path, buf_text(&aside));
    (void)unlink(buf_text(&log));
    buf_release(&aside);
    buf_release(&log);
    free(path);
}

static void on_retry(struct loop_timer *timer);

struct catalogue *catalogue_open(struct loop *loop, const struct catalogue_config *config, struct err *err)
{
    struct catalogue *catalogue = mem_new(struct catalogue);
    catalogue->loop = loop;
    catalogue->retry = (struct loop_timer){.on_due = on_retry, .arg = catalogue, .name = "catalogue cache"};
    list_init(&catalogue->kept);
    catalogue->total_max = config->total_max ? config->total_max : TOTAL_MAX;
    bool open = open_file(catalogue, config, err);
    if (!open && catalogue->db.damaged) {
        put_aside(config, err);
        open = open_file(catalogue, config, err);
    }
    if (open && (catalogue->pool = offload_new(loop, JOBS_MAX + DELETIONS_MAX, err)))
        return catalogue;
    catalogue_close(catalogue);
    return NULL;
}

// ---- on the worker --------------------------------------------------------------------------

static struct span bytes_of(const unsigned char *bytes, size_t len) { return span_make((const char *)bytes, len); }

// What the entry is called, in one text.
static void put_name(const struct catalogue_work *work, struct buf *out)
{
    buf_put(out, work->tenant, strlen(work->tenant) + 1);
    buf_put(out, work->server, strlen(work->server) + 1);
    buf_put(out, work->user, work->user_len);
    buf_put(out, work->digest, sizeof work->digest);
}

static void find_mac(const struct catalogue_work *work, struct span value, unsigned char mac[SECRET_MAC_BYTES])
{
    struct buf message = {0};
    put_name(work, &message);
    buf_printf(&message, "%lld/%lld/%lld/", (long long)work->facts.login, (long long)work->facts.interval_ms,
               (long long)work->updated_ms);
    buf_put_span(&message, value);
    secret_mac(work->catalogue->key, sizeof work->catalogue->key, buf_span(&message), mac);
    buf_release(&message);
}

static sqlite3_stmt *bound(const struct catalogue_work *work, enum entry_statement which)
{
    sqlite3_stmt *statement = work->catalogue->statements[which];
    sqlite3_bind_text(statement, 1, work->tenant, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 2, work->server, -1, SQLITE_STATIC);
    db_bind_bytes(statement, 3, bytes_of(work->user, work->user_len));
    db_bind_bytes(statement, 4, bytes_of(work->digest, sizeof work->digest));
    return statement;
}

static void fail(struct catalogue_work *work)
{
    struct catalogue *catalogue = work->catalogue;
    (void)db_fail(&catalogue->db, &work->err);
    catalogue->damaged = catalogue->db.damaged;
    catalogue->failing = !catalogue->damaged;
    if (catalogue->damaged)
        log_warn("catalogue cache not used any more", LOG_STR("detail", work->err.detail));
}

// Runs a statement that has no rows, and resets it.
static bool run_statement(sqlite3_stmt *statement)
{
    bool ok = sqlite3_step(statement) == SQLITE_DONE;
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    return ok;
}

static void change(struct catalogue_work *work, sqlite3_stmt *statement)
{
    if (!run_statement(statement))
        fail(work);
}

// The entry is there, even if this cannot be written. Callers wait for the entry, so it does not wait for another process.
static void mark_used(struct catalogue_work *work)
{
    sqlite3_stmt *update = bound(work, SQL_USE);
    sqlite3_bind_int64(update, 5, clock_wall_ms());
    db_set_waiting(&work->catalogue->db, false);
    (void)run_statement(update);
    db_set_waiting(&work->catalogue->db, true);
}

static void drop(struct catalogue_work *work, const char *why)
{
    log_warn("catalogue entry damaged: dropped", LOG_STR("tenant", work->tenant), LOG_STR("server", work->server),
             LOG_STR("detail", why));
    buf_clear(&work->text);
    change(work, bound(work, SQL_DROP));
}

// Reads the row from the file; false: not found.
static bool read_row(struct catalogue_work *work, struct buf *value, unsigned char mac[SECRET_MAC_BYTES])
{
    sqlite3_stmt *select = bound(work, SQL_GET);
    int got = sqlite3_step(select);
    if (got == SQLITE_ROW) {
        work->facts = (struct catalogue_facts){sqlite3_column_int64(select, 0), sqlite3_column_int64(select, 1)};
        work->updated_ms = sqlite3_column_int64(select, 2);
        if (sqlite3_column_bytes(select, 3) == SECRET_MAC_BYTES)
            memcpy(mac, sqlite3_column_blob(select, 3), SECRET_MAC_BYTES);
        int len = sqlite3_column_bytes(select, 4);
        if (len > 0 && len <= CATALOGUE_ENTRY_MAX + SEALING_MAX)
            buf_put_span(value, span_make(sqlite3_column_blob(select, 4), (size_t)len));
    } else if (got != SQLITE_DONE) {
        fail(work);
    }
    sqlite3_reset(select);
    sqlite3_clear_bindings(select);
    return got == SQLITE_ROW;
}

static bool open_value(struct catalogue_work *work, struct buf *value)
{
    struct buf name = {0};
    if (!work->sealed) {
        work->text = *value;
        *value = (struct buf){0};
        return true;
    }
    put_name(work, &name);
    bool ok = work->sealing.unseal(work->sealing.key, buf_span(&name), buf_span(value), &work->text);
    buf_release(&name);
    return ok;
}

// The reason not to trust the row; NULL: it is as catalogue_put() wrote it.
static const char *find_damage(struct catalogue_work *work, struct buf *value, const unsigned char *mac)
{
    unsigned char expected[SECRET_MAC_BYTES];
    struct span whole;
    struct err err;
    find_mac(work, buf_span(value), expected);
    if (!secret_equal(mac, expected, sizeof expected))
        return "it was changed, or moved from another place";
    if (!open_value(work, value))
        return "it does not open with the key of the vault";
    return scan_document(buf_span(&work->text), false, &whole, &err) && scan_is_object(whole)
               ? NULL
               : "it is not a JSON object";
}

static void run_find(struct catalogue_work *work)
{
    struct buf value = {0};
    unsigned char mac[SECRET_MAC_BYTES] = {0};
    if (read_row(work, &value, mac)) {
        const char *damage = find_damage(work, &value, mac);
        if (damage)
            drop(work, damage);
        else
            mark_used(work);
    }
    buf_release(&value);
}

static bool close_value(struct catalogue_work *work, struct buf *value)
{
    struct buf name = {0};
    if (!work->sealed) {
        buf_put_span(value, buf_span(&work->text));
        return true;
    }
    put_name(work, &name);
    bool ok = work->sealing.seal(work->sealing.key, buf_span(&name), buf_span(&work->text), value);
    buf_release(&name);
    return ok;
}

static int64_t find_total(struct catalogue *catalogue)
{
    sqlite3_stmt *select = catalogue->statements[SQL_TOTAL];
    int64_t total = 0;
    if (sqlite3_step(select) == SQLITE_ROW)
        total = sqlite3_column_int64(select, 0);
    sqlite3_reset(select);
    return total;
}

static bool is_usable(const struct catalogue *catalogue) { return !catalogue->damaged && !catalogue->failing; }

static void make_room(struct catalogue_work *work)
{
    struct catalogue *catalogue = work->catalogue;
    while (is_usable(catalogue) && find_total(catalogue) > catalogue->total_max)
        change(work, catalogue->statements[SQL_OLDEST]);
}

static void run_put(struct catalogue_work *work)
{
    struct buf value = {0};
    unsigned char mac[SECRET_MAC_BYTES];
    if (close_value(work, &value)) {
        sqlite3_stmt *insert = bound(work, SQL_PUT);
        find_mac(work, buf_span(&value), mac);
        sqlite3_bind_int64(insert, 5, work->updated_ms);
        sqlite3_bind_int64(insert, 6, work->facts.login);
        sqlite3_bind_int64(insert, 7, work->facts.interval_ms);
        db_bind_bytes(insert, 8, bytes_of(mac, sizeof mac));
        db_bind_bytes(insert, 9, buf_span(&value));
        change(work, insert);
        make_room(work);
    }
    buf_release(&value);
}

static void run_forget_user(struct catalogue_work *work) { change(work, bound(work, SQL_FORGET_USER)); }

static void run_forget_server(struct catalogue_work *work) { change(work, bound(work, SQL_FORGET_SERVER)); }

static void run(struct offload_job *job)
{
    struct catalogue_work *work = job->arg;
    if (is_usable(work->catalogue))
        work->run(work);
    work->failed = work->catalogue->failing;
}

// ---- on the loop ----------------------------------------------------------------------------

static void work_free(struct catalogue_work *work)
{
    secret_wipe(&work->sealing, sizeof work->sealing);
    buf_wipe(&work->text);
    free(work->tenant);
    free(work->server);
    free(work);
}

// Frees work that was started.
static void work_end(struct catalogue_work *work)
{
    struct catalogue *catalogue = work->catalogue;
    *(work->deletes ? &catalogue->deletions : &catalogue->jobs) -= 1;
    catalogue->queued -= work->queued;
    work_free(work);
}

static void note_failed(struct catalogue *catalogue, const struct err *err)
{
    if (!catalogue->told)
        log_warn("cannot write the catalogue cache", LOG_STR("problem", err->detail));
    catalogue->told = true;
    if (!catalogue->retry.slot)
        loop_timer_set(catalogue->loop, &catalogue->retry, RETRY_MS);
}

// In the order in which work was started: one without a thread may be kept before others that began earlier.
static void keep(struct catalogue_work *work)
{
    struct list *kept = &work->catalogue->kept, *before = kept->prev;
    while (before != kept && list_entry(before, struct catalogue_work, node)->number > work->number)
        before = before->prev;
    list_append(before->next, &work->node);
}

// The first work in the order in which it was started, or NULL.
static struct catalogue_work *take_kept(struct list *kept)
{
    struct catalogue_work *work = list_empty(kept) ? NULL : list_entry(kept->next, struct catalogue_work, node);
    if (work)
        list_remove(&work->node);
    return work;
}

static void note_done(struct catalogue *catalogue)
{
    if (!catalogue->told || catalogue->under_way || !list_empty(&catalogue->kept))
        return;
    log_warn("catalogue cache writes resumed");
    catalogue->told = false;
}

static void done(struct offload_job *job)
{
    struct catalogue_work *work = job->arg;
    struct catalogue *catalogue = work->catalogue;
    struct catalogue_find *find = work->find;
    catalogue->under_way--;
    if (work->failed)
        note_failed(catalogue, &work->err);
    else
        note_done(catalogue);
    if (work->failed && work->run != run_find) {
        keep(work);
        return;
    }
    if (find) {
        int64_t now_ms = clock_wall_ms(), then_ms = work->updated_ms;
        find->work = NULL;
        find->text = work->text;
        find->facts = work->facts;
        // After the clock was set back, and for what no gateway has written, it is as old as can be.
        find->age_ms = then_ms < 0 || then_ms > now_ms ? INT64_MAX : now_ms - then_ms;
        work->text = (struct buf){0};
    }
    work_end(work);
    if (find)
        find->done(find);
}

static struct catalogue_work *work_new(struct catalogue *catalogue, const struct catalogue_name *name,
                                       void (*run_it)(struct catalogue_work *work))
{
    struct catalogue_work *work = mem_new(struct catalogue_work);
    work->catalogue = catalogue;
    work->run = run_it;
    work->job = (struct offload_job){.run = run, .done = done, .arg = work};
    work->tenant = mem_string(name->tenant);
    work->server = mem_string(name->server ? name->server : "");
    secret_mac(catalogue->key, sizeof catalogue->key, name->configuration, work->digest);
    if (name->user) {
        secret_mac(catalogue->key, sizeof catalogue->key, span_of(name->user), work->user);
        work->user_len = sizeof work->user;
    }
    if ((work->sealed = name->sealing != NULL))
        work->sealing = *name->sealing;
    return work;
}

static bool has_room(const struct catalogue_work *work)
{
    const struct catalogue *catalogue = work->catalogue;
    return work->deletes
               ? catalogue->deletions < DELETIONS_MAX
               : catalogue->jobs < JOBS_MAX && (!catalogue->queued || catalogue->queued + work->text.len <= QUEUED_MAX);
}

// False: no thread could be started, because the pool has places for all work that may be started.
static bool put(struct catalogue_work *work)
{
    struct catalogue *catalogue = work->catalogue;
    bool put = offload_put(catalogue->pool, &work->job);
    catalogue->under_way += put;
    if (put)
        return true;
    catalogue->failing = true;
    (void)err_set(&work->err, ERR_SYSTEM, "cannot start a thread; check the limits TasksMax and ulimit -u");
    note_failed(catalogue, &work->err);
    return false;
}

static bool start(struct catalogue_work *work)
{
    struct catalogue *catalogue = work->catalogue;
    if (!has_room(work)) {
        log_warn(work->deletes ? "catalogue entries not deleted: too much work is waiting"
                               : "catalogue cache not used for a server: too much work is waiting",
                 LOG_STR("tenant", work->tenant), LOG_STR("server", work->server));
        work_free(work);
        return false;
    }
    *(work->deletes ? &catalogue->deletions : &catalogue->jobs) += 1;
    catalogue->queued += work->queued = work->text.len;
    work->number = ++catalogue->started;
    if (put(work))
        return true;
    if (work->run == run_find) {
        work_end(work);
        return false;
    }
    keep(work);
    return true;
}

// Moves the kept work to `all`, in its order. No work is under way.
static void take_all_kept(struct catalogue *catalogue, struct list *all)
{
    list_move_all(all, &catalogue->kept);
    catalogue->failing = false;
}

static void on_retry(struct loop_timer *timer)
{
    struct catalogue *catalogue = timer->arg;
    struct catalogue_work *work;
    struct list all;
    if (catalogue->under_way) {  // while work is kept, work under way fails and is kept behind it
        loop_timer_set(catalogue->loop, timer, DRAIN_MS);
        return;
    }
    take_all_kept(catalogue, &all);
    while ((work = take_kept(&all)))
        if (!put(work))
            keep(work);
}

// Runs the kept work here, because the pool was freed: one last attempt, even if the previous one failed.
static void finish_kept(struct catalogue *catalogue)
{
    struct catalogue_work *work;
    struct list all;
    int64_t lost = 0;
    take_all_kept(catalogue, &all);
    while ((work = take_kept(&all))) {
        run(&work->job);
        lost += work->failed;
        work_end(work);
    }
    if (lost)
        log_warn("changes of the catalogue cache lost at shutdown", LOG_INT("count", lost));
}

void catalogue_close(struct catalogue *catalogue)
{
    if (!catalogue)
        return;
    offload_free(catalogue->pool);
    loop_timer_stop(catalogue->loop, &catalogue->retry);
    finish_kept(catalogue);
    close_file(catalogue);
    secret_wipe(catalogue->key, sizeof catalogue->key);
    free(catalogue);
}

bool catalogue_find_start(struct catalogue *catalogue, const struct catalogue_name *name, struct catalogue_find *find)
{
    struct catalogue_work *work = work_new(catalogue, name, run_find);
    work->find = find;
    find->work = start(work) ? work : NULL;
    return find->work;
}

void catalogue_find_cancel(struct catalogue_find *find)
{
    if (find->work)
        find->work->find = NULL;
    find->work = NULL;
    buf_wipe(&find->text);
}

bool catalogue_put(struct catalogue *catalogue, const struct catalogue_name *name, const struct catalogue_facts *facts,
                   struct buf *text)
{
    struct catalogue_work *work = work_new(catalogue, name, run_put);
    work->text = *text;
    *text = (struct buf){0};
    work->facts = *facts;
    work->updated_ms = clock_wall_ms();
    if (work->text.len <= CATALOGUE_ENTRY_MAX)
        return start(work);
    work_free(work);
    return true;
}

static void delete_entries(struct catalogue *catalogue, const struct catalogue_name *name,
                           void (*run_it)(struct catalogue_work *work))
{
    struct catalogue_work *work = work_new(catalogue, name, run_it);
    work->deletes = true;
    (void)start(work);
}

void catalogue_forget_user(struct catalogue *catalogue, const char *tenant, const char *server, const char *user)
{
    delete_entries(catalogue, &(struct catalogue_name){.tenant = tenant, .server = server, .user = user},
                   run_forget_user);
}

void catalogue_forget_server(struct catalogue *catalogue, const struct catalogue_name *name)
{
    delete_entries(catalogue, name, run_forget_server);
}
