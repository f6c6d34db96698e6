// Databases of older versions, and opening them in a process that is killed during the migration.
#ifndef OLD_FILES_H
#define OLD_FILES_H

#include "unit.h"
#include <sqlite3.h>
#include <sys/stat.h>

static inline void old_file_run(const char *path, const char *sql)
{
    sqlite3 *db;
    char *why = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_exec(db, sql, NULL, NULL, &why);
    if (why)
        fail_msg("%s: %s", path, why);
    sqlite3_close(db);
}

static inline int64_t old_file_ask(const char *path, const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *statement;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    int64_t number = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return number;
}

static inline int64_t old_file_version(const char *path) { return old_file_ask(path, "PRAGMA user_version"); }

// Makes a database from a script such as format-5.sql in the folder of the test, which is a dump by that version.
static inline void old_file_make(const char *path, const char *script)
{
    static char sql[1 << 16];
    FILE *in = fopen(script, "r");
    assert_non_null(in);
    size_t len = fread(sql, 1, sizeof sql - 1, in);
    assert_true(len > 0 && len < sizeof sql - 1);
    sql[len] = '\0';
    assert_int_equal(fclose(in), 0);
    (void)unlink(path);
    old_file_run(path, sql);
    assert_int_equal(chmod(path, 0600), 0);
}

// ---- kill -9 --------------------------------------------------------------------------------

static int old_file_steps_left;

static inline int old_file_on_step(void *arg, int action, const char *a, const char *b, const char *c, const char *d)
{
    (void)arg, (void)action, (void)a, (void)b, (void)c, (void)d;
    if (old_file_steps_left-- == 0)
        raise(SIGKILL);
    return SQLITE_OK;
}

static inline int old_file_on_open(sqlite3 *db, char **why, const struct sqlite3_api_routines *api)
{
    (void)why, (void)api;
    return sqlite3_set_authorizer(db, old_file_on_step, NULL);
}

// Runs `open` in a process that is killed before the given step of its statements; false if it ended before that step.
static inline bool old_file_killed(void (*open)(void), int step)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        old_file_steps_left = step;
        sqlite3_auto_extension((void (*)(void))old_file_on_open);
        open();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status);
}

#endif
