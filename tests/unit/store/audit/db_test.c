// Tests the migration of an audit database of the previous version: its rows verify together with new rows, also after kill -9.
#include "db.h"
#include "folder.h"
#include "old_files.h"
#include <inttypes.h>

enum { OLD_ROWS = 3 };  // the rows in format-5.sql

static char path[96];

static int set_up(void **state)
{
    if (make_directory(state) != 0)
        return -1;
    snprintf(path, sizeof path, "%s/audit.db", directory);
    old_file_make(path, "format-5.sql");
    alarm(240);
    return 0;
}

static void on_finding(void *arg, int64_t seq, const char *text)
{
    (void)arg;
    fail_msg("row %" PRId64 ": %s", seq, text);
}

static void assert_rows(int64_t rows)
{
    struct err err = {0};
    struct audit_verdict verdict;
    if (!audit_verify(path, on_finding, NULL, &verdict, &err))
        fail_msg("%s", err.detail);
    assert_int_equal(verdict.rows, rows);
    assert_int_equal(verdict.first_seq, 1);
    assert_int_equal(verdict.last_seq, rows);
}

static void add_row(void)
{
    struct err err = {0};
    const struct audit_config config = {.path = path, .queue = 10};
    const struct audit_record record = {.event = AUDIT_OPERATION,
                                        .provider = span_of("os"),
                                        .subject = span_of("root"),
                                        .server = span_of("files"),
                                        .method = span_of("restart"),
                                        .status = AUDIT_OK};
    if (!audit_write(&config, &record, &err))
        fail_msg("%s", err.detail);
}

static void a_database_of_the_previous_version_is_migrated_and_its_chains_continue(void **state)
{
    (void)state;
    assert_rows(OLD_ROWS);  // readers read the old version
    assert_int_equal(old_file_version(path), 5);
    add_row();
    assert_int_equal(old_file_version(path), 6);
    assert_rows(OLD_ROWS + 1);
    assert_int_equal(old_file_ask(path, "SELECT count(*) FROM audit WHERE event='operation' AND method='restart'"), 1);
    assert_int_equal(old_file_ask(path, "SELECT chain FROM segment WHERE seq=4"), AUDIT_CHAIN_ADMINISTRATION);
    assert_int_equal(old_file_ask(path, "SELECT count(*) FROM audit WHERE subject='ana' AND token<>''"), 1);
}

static void a_killed_migration_loses_no_row_and_breaks_no_chain(void **state)
{
    (void)state;
    int step = 0, older = 0, newer = 0;
    bool killed;
    do {
        old_file_make(path, "format-5.sql");
        killed = old_file_killed(add_row, step++);
        *(old_file_version(path) == 5 ? &older : &newer) += 1;
        int64_t rows = old_file_ask(path, "SELECT max(last) FROM segment");
        assert_in_range(rows, OLD_ROWS, OLD_ROWS + 1);
        assert_rows(rows);
        add_row();
        assert_rows(rows + 1);
    } while (killed);
    assert_true(older > 10 && newer > 10);
}

static void a_database_of_another_version_is_refused_with_advice(void **state)
{
    (void)state;
    struct audit_db db = {0};
    struct err err = {0};
    const struct audit_config config = {.path = path};
    old_file_run(path, "PRAGMA user_version=7");
    assert_false(audit_db_open(&db, &config, &err));
    assert_contains(err.detail, "made by a newer version of postern (format 7, this one has 6); run that version");
    old_file_run(path, "PRAGMA user_version=4");
    assert_false(audit_db_open(&db, &config, &err));
    assert_contains(err.detail,
                    "an older version of postern (format 4, this one has 6) and cannot be migrated; move it");
    assert_int_equal(old_file_version(path), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, remove_directory)
        TEST(a_database_of_the_previous_version_is_migrated_and_its_chains_continue),
        TEST(a_killed_migration_loses_no_row_and_breaks_no_chain),
        TEST(a_database_of_another_version_is_refused_with_advice),
    };
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
