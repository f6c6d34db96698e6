// Tests the migration of a file of an older version: step by step, in one transaction, beside other processes, and through kill -9.
#include "base/mem.h"
#include "db.h"
#include "folder.h"
#include "old_files.h"
#include "store/record.h"

static char path[96];

static int set_up(void **state)
{
    if (make_directory(state) != 0)
        return -1;
    snprintf(path, sizeof path, "%s/notes.db", directory);
    alarm(240);
    return 0;
}

// ---- a database of notes, whose format has changed twice ------------------------------------

#define NOTES "CREATE TABLE note(id INTEGER PRIMARY KEY,text TEXT NOT NULL"
#define DATED "ALTER TABLE note ADD COLUMN since INTEGER NOT NULL DEFAULT 7"
#define COUNTED "CREATE TABLE total(notes INTEGER NOT NULL);INSERT INTO total SELECT count(*) FROM note"

static const struct db_migration steps[] = {{1, DATED}, {2, COUNTED}, {0}};
static const struct db_migration broken_steps[] = {{1, DATED}, {2, "INSERT INTO nowhere VALUES(1)"}, {0}};

#define KIND(number) .what = "notes", .if_lost = "write them again", .application = 77, .version = (number)
static const struct db_kind first = {KIND(1), .readable = 1, .tables = NOTES ");"};
static const struct db_kind third = {KIND(3), .readable = 2, .migrations = steps,
                                     .tables = NOTES ",since INTEGER NOT NULL DEFAULT 7);" COUNTED};
static const struct db_kind broken = {KIND(3), .readable = 1, .migrations = broken_steps, .tables = NOTES ");"};
static const struct db_kind stranded = {KIND(3), .readable = 3, .migrations = &steps[1], .tables = NOTES ");"};

static void make_first(void)
{
    struct db db;
    struct err err = {0};
    (void)unlink(path);
    if (!db_open(&db, &first, mem_string(path), &err))
        fail_msg("%s", err.detail);
    assert_true(db_run(&db, "INSERT INTO note(text) VALUES('one'),('two')", &err));
    db_close(&db);
}

static struct db open_third(void)
{
    struct db db;
    struct err err = {0};
    if (!db_open(&db, &third, mem_string(path), &err))
        fail_msg("%s", err.detail);
    return db;
}

static int64_t ask(struct db *db, const char *sql)
{
    int64_t number;
    struct err err = {0};
    if (!db_ask(db, sql, &number, &err))
        fail_msg("%s", err.detail);
    return number;
}

static void assert_third(struct db *db, int64_t notes)
{
    assert_int_equal(ask(db, "PRAGMA user_version"), 3);
    assert_int_equal(ask(db, "SELECT count(*) FROM note WHERE since=7 AND text<>''"), notes);
    assert_int_equal(ask(db, "SELECT notes FROM total"), notes);
}

static void refuse(const struct db_kind *kind, const char *part)
{
    struct db db;
    struct err err = {0};
    assert_false(db_open(&db, kind, mem_string(path), &err));
    assert_contains(err.detail, path);
    assert_contains(err.detail, part);
}

// ---- migrating ------------------------------------------------------------------------------

static void a_file_of_an_older_version_is_migrated_through_all_steps(void **state)
{
    (void)state;
    make_first();
    struct db db = open_third();
    assert_third(&db, 2);
    db_close(&db);
    db = open_third();
    assert_third(&db, 2);
    db_close(&db);
}

static void a_new_file_has_the_newest_tables_and_takes_no_step(void **state)
{
    (void)state;
    struct db db = open_third();
    assert_third(&db, 0);
    db_close(&db);
}

static void a_migration_that_fails_leaves_the_file_unchanged(void **state)
{
    (void)state;
    make_first();
    refuse(&broken, "nowhere");
    assert_int_equal(old_file_version(path), 1);
    assert_int_equal(old_file_ask(path, "SELECT count(*) FROM pragma_table_info('note')"), 2);
    struct db db = open_third();
    assert_third(&db, 2);
    db_close(&db);
}

static void a_file_of_a_newer_version_is_refused_unchanged_with_advice(void **state)
{
    (void)state;
    struct db db = open_third();
    db_close(&db);
    refuse(&first, "made by a newer version of postern (format 3, this one has 1); run that version, or restore");
    assert_int_equal(old_file_version(path), 3);
}

static void a_file_that_cannot_be_migrated_is_refused_unchanged(void **state)
{
    (void)state;
    make_first();
    refuse(&stranded, "made by an older version of postern (format 1, this one has 3) and cannot be migrated");
    assert_int_equal(old_file_version(path), 1);
}

static void a_reader_reads_older_files_if_their_kind_allows_it_and_does_not_migrate_them(void **state)
{
    (void)state;
    struct db db;
    struct err err = {0};
    make_first();
    assert_false(db_open_to_read(&db, &third, mem_string(path), &err));
    assert_contains(err.detail, "start `postern serve`, which migrates it");
    old_file_run(path, DATED ";PRAGMA user_version=2");
    assert_true(db_open_to_read(&db, &third, mem_string(path), &err));
    assert_int_equal(ask(&db, "SELECT count(*) FROM note"), 2);
    db_close(&db);
    assert_int_equal(old_file_version(path), 2);
}

static void a_seed_is_migrated_in_memory_and_its_file_stays_unchanged(void **state)
{
    (void)state;
    struct db db;
    struct err err = {0};
    make_first();
    assert_true(db_open_copy(&db, &third, mem_string(path), &err));
    assert_third(&db, 2);
    db_close(&db);
    assert_int_equal(old_file_version(path), 1);
}

// ---- beside other processes -----------------------------------------------------------------

static void a_process_that_still_has_the_file_open_writes_to_it_after_the_migration(void **state)
{
    (void)state;
    struct db before;
    struct err err = {0};
    make_first();
    assert_true(db_open(&before, &first, mem_string(path), &err));
    sqlite3_stmt *insert = db_prepare(&before, "INSERT INTO note(text) VALUES('three')", &err);
    struct db db = open_third();
    assert_int_equal(sqlite3_step(insert), SQLITE_DONE);
    sqlite3_finalize(insert);
    db_close(&before);
    assert_int_equal(ask(&db, "SELECT count(*) FROM note WHERE since=7"), 3);
    db_close(&db);
}

static void processes_that_open_the_same_old_file_migrate_it_once(void **state)
{
    (void)state;
    enum { PROCESSES = 6 };
    pid_t children[PROCESSES];
    int gate[2], status;
    char byte;
    make_first();
    assert_int_equal(pipe(gate), 0);
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            struct db db;
            struct err err = {0};
            close(gate[1]);
            (void)!read(gate[0], &byte, 1);  // all processes start when the pipe is closed
            _exit(db_open(&db, &third, mem_string(path), &err) ? 0 : 1);
        }
    }
    close(gate[0]);
    close(gate[1]);
    for (int i = 0; i < PROCESSES; i++) {
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    struct db db = open_third();
    assert_third(&db, 2);
    db_close(&db);
}

// ---- kill -9 --------------------------------------------------------------------------------

static void migrate_and_end(void)
{
    struct db db = open_third();
    db_close(&db);
}

static void a_killed_migration_leaves_the_old_file_or_the_new_one(void **state)
{
    (void)state;
    int step = 0, older = 0, newer = 0;
    bool killed;
    do {
        make_first();
        killed = old_file_killed(migrate_and_end, step++);
        *(old_file_version(path) == 1 ? &older : &newer) += 1;
        int64_t columns = old_file_ask(path, "SELECT count(*) FROM pragma_table_info('note')");
        assert_int_equal(columns, old_file_version(path) == 1 ? 2 : 3);
        struct db db = open_third();
        assert_third(&db, 2);
        db_close(&db);
    } while (killed);
    assert_true(older > 20 && newer >= 1);
}

// ---- the store ------------------------------------------------------------------------------

static struct record_store *open_store(void)
{
    struct err err = {0};
    struct record_store *store = record_open(&(struct record_config){.path = path}, &err);
    if (!store)
        fail_msg("%s", err.detail);
    return store;
}

static void assert_record(struct record_store *store, const char *space, struct span key, int64_t generation,
                          struct span value)
{
    struct err err = {0};
    struct record record;
    assert_int_equal(record_get(store, (struct record_name){space, key}, &record, &err), RECORD_YES);
    assert_int_equal(record.generation, generation);
    assert_span(record.value, value, space);
}

static void open_store_and_end(void) { record_close(open_store()); }

// A possible next version, with a step that rebuilds the largest table.
static void migrate_store_and_end(void)
{
    static const struct db_migration next[] = {
        {1, "ALTER TABLE record RENAME TO old;"
            "CREATE TABLE record(space TEXT NOT NULL,key BLOB NOT NULL,generation INTEGER NOT NULL,"
            "updated INTEGER NOT NULL,value BLOB NOT NULL,note TEXT,PRIMARY KEY(space,key)) STRICT;"
            "INSERT INTO record SELECT *,NULL FROM old;DROP TABLE old"},
        {0}};
    static const struct db_kind second = {
        .what = "a store", .application = 0x506f7372, .version = 2, .readable = 1, .migrations = next};
    struct db db;
    struct err err = {0};
    if (!db_open(&db, &second, mem_string(path), &err))
        fail_msg("%s", err.detail);
    db_close(&db);
}

static void a_store_of_version_1_keeps_its_records_generations_and_leases(void **state)
{
    (void)state;
    struct err err = {0};
    int64_t newest;
    old_file_make(path, "format-1.sql");
    struct record_store *store = open_store();
    assert_record(store, "grant", SPAN("alice"), 1, SPAN("sealed"));
    assert_record(store, "client", SPAN("issuer"), 3, SPAN("\0\377\0"));
    assert_true(record_newest(store, &newest, &err));
    assert_int_equal(newest, 3);
    int64_t generation = 0;
    struct record_name name = {"grant", SPAN("bob")};
    assert_int_equal(record_put(store, name, SPAN("new"), &generation, &err), RECORD_YES);
    assert_int_equal(generation, 4);
    record_close(store);
}

static void a_killed_migration_of_a_store_loses_no_record(void **state)
{
    (void)state;
    int step = 0, older = 0, newer = 0;
    bool killed;
    do {
        old_file_make(path, "format-1.sql");
        killed = old_file_killed(migrate_store_and_end, step++);
        assert_int_equal(old_file_ask(path, "SELECT count(*) FROM record"), 2);
        assert_int_equal(old_file_ask(path, "SELECT count(*) FROM lease"), 1);
        assert_int_equal(old_file_ask(path, "SELECT last FROM counter"), 3);
        if (old_file_version(path) == 1) {
            older++;
            open_store_and_end();
        } else {
            newer++;
        }
        migrate_store_and_end();
        assert_int_equal(old_file_ask(path, "SELECT count(*) FROM record WHERE note IS NULL"), 2);
    } while (killed);
    assert_true(older > 20 && newer >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, remove_directory)
        TEST(a_file_of_an_older_version_is_migrated_through_all_steps),
        TEST(a_new_file_has_the_newest_tables_and_takes_no_step),
        TEST(a_migration_that_fails_leaves_the_file_unchanged),
        TEST(a_file_of_a_newer_version_is_refused_unchanged_with_advice),
        TEST(a_file_that_cannot_be_migrated_is_refused_unchanged),
        TEST(a_reader_reads_older_files_if_their_kind_allows_it_and_does_not_migrate_them),
        TEST(a_seed_is_migrated_in_memory_and_its_file_stays_unchanged),
        TEST(a_process_that_still_has_the_file_open_writes_to_it_after_the_migration),
        TEST(processes_that_open_the_same_old_file_migrate_it_once),
        TEST(a_killed_migration_leaves_the_old_file_or_the_new_one),
        TEST(a_store_of_version_1_keeps_its_records_generations_and_leases),
        TEST(a_killed_migration_of_a_store_loses_no_record),
    };
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
