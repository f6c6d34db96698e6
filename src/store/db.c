// Owns opening SQLite files: permissions, pragmas, checking that a file is ours and sound, migrating a file of an older
// version, and error messages.
//
// WAL, so that readers and one writer in many processes do not block each other; synchronous FULL, so that committed
// data survives a loss of power; secure_delete, so that deleted data is overwritten.
//
// All steps of a migration and the new version are one transaction: after kill -9 the file is of the old version or of the
// new one, and complete (tests/unit/store/db_test.c).
#include "db.h"
#include "base/log.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

enum { BUSY_STEPS = 2500, BUSY_STEP_MS = 7, CHECKED_BYTES = 64 << 20 };  // 10 s in all
enum { NEW_FILE = -1 };                                                  // instead of its version
#define CIFS_MAGIC 0xFF534D42UL
#define SMB2_MAGIC 0xFE534D42UL

bool db_fail(struct db *db, struct err *err)
{
    int code = db->sqlite ? sqlite3_errcode(db->sqlite) : SQLITE_NOMEM;
    const char *said = db->sqlite ? sqlite3_errmsg(db->sqlite) : "out of memory";
    switch (code & 0xFF) {
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
        db->damaged = true;
        return err_set(err, ERR_CONFIG, "%s: not %s, or a damaged one (%s); %s", db->path, db->kind->what, said,
                       db->kind->if_lost);
    case SQLITE_FULL:
        return err_set(err, ERR_SYSTEM, "%s: cannot write (%s); free disk space; data that was stored before is intact",
                       db->path, said);
    case SQLITE_CANTOPEN:
        return err_set(err, ERR_CONFIG, "%s: cannot be opened (%s)", db->path,
                       strerror(sqlite3_system_errno(db->sqlite)));
    default: return err_set(err, ERR_SYSTEM, "%s: %s", db->path, said);
    }
}

bool db_run(struct db *db, const char *sql, struct err *err)
{
    return sqlite3_exec(db->sqlite, sql, NULL, NULL, NULL) == SQLITE_OK || db_fail(db, err);
}

static int on_text(void *arg, int count, char **values, char **names)
{
    (void)names;
    buf_put_text(arg, count && values[0] ? values[0] : "");
    return 0;
}

static bool ask_text(struct db *db, const char *sql, struct buf *text, struct err *err)
{
    return sqlite3_exec(db->sqlite, sql, on_text, text, NULL) == SQLITE_OK || db_fail(db, err);
}

bool db_ask(struct db *db, const char *sql, int64_t *number, struct err *err)
{
    struct buf text = {0};
    bool ok = ask_text(db, sql, &text, err);
    *number = ok ? strtoll(buf_text(&text), NULL, 10) : 0;
    buf_release(&text);
    return ok;
}

sqlite3_stmt *db_prepare(struct db *db, const char *sql, struct err *err)
{
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v3(db->sqlite, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, NULL) != SQLITE_OK)
        (void)db_fail(db, err);
    return statement;
}

bool db_prepare_all(struct db *db, const char *const *sql, size_t count, sqlite3_stmt **out, struct err *err)
{
    for (size_t i = 0; i < count; i++)
        if (!(out[i] = db_prepare(db, sql[i], err)))
            return false;
    return true;
}

void db_finalize_all(sqlite3_stmt **statements, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sqlite3_finalize(statements[i]);
        statements[i] = NULL;
    }
}

void db_bind_bytes(sqlite3_stmt *statement, int at, struct span bytes)
{
    sqlite3_bind_blob64(statement, at, bytes.len ? bytes.at : "", bytes.len, SQLITE_STATIC);
}

bool db_begin(struct db *db, struct err *err) { return db_run(db, "BEGIN IMMEDIATE", err); }

void db_rollback(struct db *db) { sqlite3_exec(db->sqlite, "ROLLBACK", NULL, NULL, NULL); }

bool db_commit(struct db *db, struct err *err)
{
    bool ok = db_run(db, "COMMIT", err);
    if (!ok)
        db_rollback(db);
    return ok;
}

// ---- the file -------------------------------------------------------------------------------

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? mem_copy(path, slash == path ? 1 : (size_t)(slash - path)) : mem_string(".");
}

// A user that may write to the folder could replace the file.
static bool check_folder(const struct db *db, const char *folder, struct err *err)
{
    struct stat is;
    struct statfs system;
    if (stat(folder, &is) != 0 || statfs(folder, &system) != 0)
        return err_set(err, ERR_CONFIG,
                       "%s: cannot access its folder: %s; create it, or set $POSTERN_STATE to another one", db->path,
                       strerror(errno));
    if (!db->kind->open && is.st_uid != geteuid() && is.st_uid != 0)
        return err_set(err, ERR_CONFIG,
                       "%s: is owned by another user (uid %ld); change its owner with chown, or use another folder",
                       folder, (long)is.st_uid);
    if (!db->kind->open && is.st_mode & (S_IWGRP | S_IWOTH))
        return err_set(err, ERR_CONFIG, "%s: other users may write to this folder; run 'chmod 700 %s'", folder, folder);
    unsigned long type = (unsigned long)system.f_type & 0xFFFFFFFFUL;
    if (type == NFS_SUPER_MAGIC || type == SMB_SUPER_MAGIC || type == CIFS_MAGIC || type == SMB2_MAGIC)
        return err_set(
            err, ERR_CONFIG,
            "%s: is on a network file system, where processes cannot share a database safely; use a local file system",
            folder);
    return true;
}

// Creates the file for the owner only; SQLite gives its other files the same mode. An existing file is only checked with
// stat: closing a descriptor of it would drop the locks of other descriptors in this process.
static bool check_file(const struct db *db, struct err *err)
{
    struct stat is;
    int fd = open(db->path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 && errno != EEXIST)
        return err_set(err, ERR_CONFIG, "%s: cannot be created: %s", db->path, strerror(errno));
    if (fd >= 0)
        close(fd);
    if (stat(db->path, &is) != 0)
        return err_set(err, ERR_CONFIG, "%s: %s", db->path, strerror(errno));
    if (!S_ISREG(is.st_mode))
        return err_set(err, ERR_CONFIG, "%s: is not a regular file", db->path);
    if (db->kind->open)
        return true;
    if (is.st_uid != geteuid())
        return err_set(err, ERR_CONFIG, "%s: is owned by another user (uid %ld); change its owner with chown", db->path,
                       (long)is.st_uid);
    if (is.st_mode & (S_IRWXG | S_IRWXO))
        return err_set(err, ERR_CONFIG, "%s: is readable by other users (mode %03o); run 'chmod 600 %s'", db->path,
                       (unsigned)is.st_mode & 0777, db->path);
    return true;
}

// ---- the content -----------------------------------------------------------------------------

static bool is_sound(struct db *db, struct err *err)
{
    struct buf said = {0};
    bool ok = ask_text(db, "PRAGMA quick_check(1)", &said, err);
    if (ok && !span_is(buf_span(&said), "ok")) {
        db->damaged = true;
        ok = err_set(err, ERR_CONFIG, "%s: damaged (%.200s); %s", db->path, buf_text(&said), db->kind->if_lost);
    }
    buf_release(&said);
    return ok;
}

// The step that migrates from this version, or NULL.
static const struct db_migration *find_step(const struct db_kind *kind, int64_t version)
{
    const struct db_migration *step = kind->migrations;
    while (step && step->sql && step->from != version)
        step++;
    return step && step->sql ? step : NULL;
}

// Is this file ours, and not of a newer version? *version: NEW_FILE if the file is empty.
static bool check_content(struct db *db, int64_t *version, struct err *err)
{
    int64_t application, tables, pages, page_size;
    if (!db_ask(db, "SELECT count(*) FROM sqlite_schema", &tables, err) ||
        !db_ask(db, "PRAGMA application_id", &application, err) || !db_ask(db, "PRAGMA user_version", version, err) ||
        !db_ask(db, "PRAGMA page_count", &pages, err) || !db_ask(db, "PRAGMA page_size", &page_size, err))
        return false;
    if (tables == 0 && application == 0) {
        *version = NEW_FILE;
        return true;
    }
    if (application != db->kind->application)
        return err_set(err, ERR_CONFIG, "%s: a database of another program, not %s", db->path, db->kind->what);
    if (*version > db->kind->version)
        return err_set(err, ERR_CONFIG,
                       "%s: made by a newer version of postern (format %" PRId64
                       ", this one has %d); run that version, or restore the backup from before the upgrade",
                       db->path, *version, db->kind->version);
    return pages * page_size > CHECKED_BYTES || is_sound(db, err);
}

static bool check_steps(const struct db *db, int64_t version, struct err *err)
{
    for (int64_t at = version; version != NEW_FILE && at < db->kind->version; at++)
        if (!find_step(db->kind, at))
            return err_set(
                err, ERR_CONFIG,
                "%s: made by an older version of postern (format %" PRId64
                ", this one has %d) and cannot be migrated; move it away, and a new one will be created; that "
                "version can still read it",
                db->path, version, db->kind->version);
    return true;
}

static bool check_readable(const struct db *db, int64_t version, struct err *err)
{
    if (version == NEW_FILE)
        return err_set(err, ERR_CONFIG, "%s: an empty file, not %s", db->path, db->kind->what);
    return version >= db->kind->readable ||
           err_set(err, ERR_CONFIG,
                   "%s: made by an older version of postern (format %" PRId64
                   ", this one has %d); read it with that version, or start `postern serve`, which migrates it",
                   db->path, version, db->kind->version);
}

static bool make_tables(struct db *db, struct err *err)
{
    char sql[64];
    snprintf(sql, sizeof sql, "PRAGMA application_id=%d", db->kind->application);
    return db_run(db, sql, err) && db_run(db, db->kind->tables, err);
}

static bool migrate(struct db *db, int64_t version, struct err *err)
{
    if (!check_steps(db, version, err))
        return false;
    for (int64_t at = version; at < db->kind->version; at++)
        if (!db_run(db, find_step(db->kind, at)->sql, err))
            return false;
    return true;
}

static bool set_version(struct db *db, struct err *err)
{
    char sql[64];
    snprintf(sql, sizeof sql, "PRAGMA user_version=%d", db->kind->version);
    return db_run(db, sql, err);
}

// The version is read again under the lock: another process may have migrated the file.
static bool bring_up_to_date(struct db *db, struct err *err)
{
    int64_t version;
    if (!db_begin(db, err))
        return false;
    if (!check_content(db, &version, err) ||
        !(version == NEW_FILE ? make_tables(db, err) : migrate(db, version, err)) || !set_version(db, err)) {
        db_rollback(db);
        return false;
    }
    if (!db_commit(db, err))
        return false;
    if (version != NEW_FILE && version < db->kind->version)
        log_info("database migrated", LOG_STR("path", db->path), LOG_INT("from", version),
                 LOG_INT("to", db->kind->version));
    return true;
}

// Another process writes. SQLite's own handler sleeps up to 100 ms at a time and may miss the short gaps that a busy
// writer leaves between two transactions; short, uneven pauses find them.
static int on_busy(void *arg, int times)
{
    (void)arg;
    if (times >= BUSY_STEPS)
        return 0;
    nanosleep(&(struct timespec){.tv_nsec = (1 + times * 3 % BUSY_STEP_MS) * 1000000L}, NULL);
    return 1;
}

void db_set_waiting(struct db *db, bool waits) { sqlite3_busy_handler(db->sqlite, waits ? on_busy : NULL, NULL); }

static void set_guards(struct db *db)
{
    db_set_waiting(db, true);
    sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
}

static bool set_up(struct db *db, struct err *err)
{
    int64_t version;
    set_guards(db);
    return check_content(db, &version, err) && check_steps(db, version, err) &&
           (version != NEW_FILE || db_run(db, db->kind->fresh, err)) &&
           db_run(db, "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;PRAGMA secure_delete=ON", err) &&
           db_run(db, db->kind->settings, err) && (version == db->kind->version || bring_up_to_date(db, err));
}

bool db_open(struct db *db, const struct db_kind *kind, char *path, struct err *err)
{
    *db = (struct db){.path = path, .kind = kind};
    char *folder = folder_of(path);
    bool ok = check_folder(db, folder, err) && check_file(db, err);
    free(folder);
    if (ok && sqlite3_open_v2(path, &db->sqlite, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK)
        ok = db_fail(db, err);
    if (ok && set_up(db, err))
        return true;
    db_close(db);
    return false;
}

bool db_open_to_read(struct db *db, const struct db_kind *kind, char *path, struct err *err)
{
    int64_t version;
    *db = (struct db){.path = path, .kind = kind};
    bool ok = access(path, R_OK) == 0 || err_set(err, ERR_CONFIG, "%s: %s", path, strerror(errno));
    if (ok && sqlite3_open_v2(path, &db->sqlite, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK)
        ok = db_fail(db, err);
    if (ok) {
        set_guards(db);
        ok = check_content(db, &version, err) && check_readable(db, version, err);
    }
    if (!ok)
        db_close(db);
    return ok;
}

// ---- a copy ---------------------------------------------------------------------------------

// Changes that are still in the write-ahead log would be missing from a copy of the file.
static bool check_seed(const char *path, struct err *err)
{
    struct stat is;
    struct buf log = {0};
    if (stat(path, &is) != 0)
        return err_set(err, ERR_CONFIG, "%s: %s", path, strerror(errno));
    if (!S_ISREG(is.st_mode))
        return err_set(err, ERR_CONFIG, "%s: is not a regular file", path);
    if (is.st_mode & (S_IWGRP | S_IWOTH))
        return err_set(err, ERR_CONFIG, "%s: is writable by other users (mode %03o); run 'chmod go-w %s'", path,
                       (unsigned)is.st_mode & 0777, path);
    buf_printf(&log, "%s-wal", path);
    bool whole = stat(buf_text(&log), &is) != 0 || is.st_size == 0;
    buf_release(&log);
    return whole || err_set(err, ERR_CONFIG,
                            "%s: %s-wal has changes that are not in this file; make a complete copy with: sqlite3 "
                            "store.db \".backup "
                            "COPY\"",
                            path, path);
}

static sqlite3 *open_seed(const char *path)
{
    struct buf uri = {0};
    sqlite3 *seed = NULL;
    buf_put_text(&uri, "file:");
    for (const char *c = path; *c; c++)
        if (strchr("%?#", *c))
            buf_printf(&uri, "%%%02X", (unsigned char)*c);
        else
            buf_put_char(&uri, *c);
    buf_put_text(&uri, "?immutable=1");
    if (sqlite3_open_v2(buf_text(&uri), &seed, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL) != SQLITE_OK) {
        sqlite3_close(seed);
        seed = NULL;
    }
    buf_release(&uri);
    return seed;
}

static bool copy(struct db *db, struct err *err)
{
    sqlite3 *seed = open_seed(db->path);
    sqlite3_backup *backup = seed ? sqlite3_backup_init(db->sqlite, "main", seed, "main") : NULL;
    int code = backup ? sqlite3_backup_step(backup, -1) : SQLITE_CANTOPEN;
    if (backup)
        sqlite3_backup_finish(backup);
    sqlite3_close(seed);
    if (code == SQLITE_DONE)
        return true;
    return err_set(err, ERR_CONFIG, "%s: not %s, or a damaged one (%s)", db->path, db->kind->what,
                   sqlite3_errstr(code));
}

bool db_open_copy(struct db *db, const struct db_kind *kind, char *path, struct err *err)
{
    *db = (struct db){.path = path, .kind = kind};
    bool ok = check_seed(path, err);
    if (ok && sqlite3_open_v2(":memory:", &db->sqlite, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) != SQLITE_OK)
        ok = db_fail(db, err);
    if (ok && copy(db, err) && set_up(db, err))
        return true;
    db_close(db);
    return false;
}

void db_close(struct db *db)
{
    sqlite3_close(db->sqlite);
    free(db->path);
    *db = (struct db){.damaged = db->damaged};
}
