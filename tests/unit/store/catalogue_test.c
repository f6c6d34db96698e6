// Tests the catalogue cache: entries and the names that find them, the bounds, and damaged files and entries.
#include "base/log.h"
#include "folder.h"
#include "run_until.h"
#include "store/catalogue.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char path[96];
static struct loop *loop;
static struct catalogue *cache;

static struct catalogue *open_with(struct catalogue_config config)
{
    struct err err = {0};
    config.path = path;
    struct catalogue *opened = catalogue_open(loop, &config, &err);
    if (!opened)
        fail_msg("%s", err.detail);
    return opened;
}

static void reopen_with(struct catalogue_config config)
{
    catalogue_close(cache);
    cache = open_with(config);
}

static int set_up(void **state)
{
    struct err err;
    if (make_directory(state) != 0 || !(loop = loop_new(&err)))
        return -1;
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    snprintf(path, sizeof path, "%s/catalogue.db", directory);
    cache = open_with((struct catalogue_config){0});
    return 0;
}

static int tear_down(void **state)
{
    catalogue_close(cache);
    loop_free(loop);
    return remove_directory(state);
}

// ---- what callers do ------------------------------------------------------------------------

static struct catalogue_name name_of(const char *server, const char *user)
{
    return (struct catalogue_name){"default", server, user, SPAN("how it is configured"), NULL};
}

static void put(struct catalogue_name name, const char *text)
{
    struct buf copy = {0};
    buf_put_text(&copy, text);
    assert_true(catalogue_put(cache, &name, &(struct catalogue_facts){7, 8}, &copy));
    assert_null(copy.at);
}

static void on_found(struct catalogue_find *find) { *(bool *)find->arg = true; }

// Compares what is found with `want`; NULL: nothing is.
static void find(struct catalogue_name name, const char *want)
{
    bool done = false;
    struct catalogue_find found = {.done = on_found, .arg = &done};
    assert_true(catalogue_find_start(cache, &name, &found));
    assert_false(done);
    run_loop_until(loop, done);
    assert_span(buf_span(&found.text), span_of(want ? want : ""), name.server);
    if (want) {
        assert_int_equal(found.facts.login, 7);
        assert_int_equal(found.facts.interval_ms, 8);
        assert_in_range(found.age_ms, 0, 60000);
    }
    catalogue_find_cancel(&found);
}

static void run_sql(const char *sql)
{
    sqlite3 *file;
    catalogue_close(cache);
    assert_int_equal(sqlite3_open(path, &file), SQLITE_OK);
    if (sqlite3_exec(file, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s", sqlite3_errmsg(file));
    sqlite3_close(file);
    cache = open_with((struct catalogue_config){0});
}

static bool file_contains(const char *text)
{
    char bytes[1 << 16];
    bool found = false;
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    size_t len = fread(bytes, 1, sizeof bytes, in);
    for (size_t i = 0; i + strlen(text) <= len; i++)
        found |= memcmp(bytes + i, text, strlen(text)) == 0;
    fclose(in);
    return found;
}

// ---- tests ----------------------------------------------------------------------------------

static void an_entry_is_found_after_a_restart(void **state)
{
    (void)state;
    find(name_of("files", NULL), NULL);
    put(name_of("files", NULL), "{\"tools\":[]}");
    find(name_of("files", NULL), "{\"tools\":[]}");
    reopen_with((struct catalogue_config){0});
    find(name_of("files", NULL), "{\"tools\":[]}");
    put(name_of("files", NULL), "{}");
    find(name_of("files", NULL), "{}");
}

static void an_entry_is_found_only_under_its_own_tenant_server_user_and_configuration(void **state)
{
    (void)state;
    struct catalogue_name name = name_of("files", "alice");
    put(name, "{\"of\":\"alice\"}");
    find(name_of("files", "bob"), NULL);
    find(name_of("files", NULL), NULL);
    find(name_of("other", "alice"), NULL);
    name.tenant = "globex";
    find(name, NULL);
    name = name_of("files", "alice");
    name.configuration = SPAN("changed");
    find(name, NULL);
    find(name_of("files", "alice"), "{\"of\":\"alice\"}");
}

static void the_file_names_no_user_and_no_configuration(void **state)
{
    (void)state;
    struct catalogue_name name = name_of("files", "alice");
    name.configuration = SPAN("token=abc123");
    put(name, "{}");
    find(name, "{}");
    catalogue_close(cache);
    assert_true(file_contains("files"));
    assert_false(file_contains("alice"));
    assert_false(file_contains("abc123"));
    cache = open_with((struct catalogue_config){0});
}

static void a_user_is_forgotten_at_one_server_or_at_all(void **state)
{
    (void)state;
    const char *servers[] = {"one", "two"};
    for (size_t i = 0; i < COUNT(servers); i++) {
        put(name_of(servers[i], "alice"), "{}");
        put(name_of(servers[i], "bob"), "{}");
        put(name_of(servers[i], NULL), "{}");
    }
    catalogue_forget_user(cache, "default", "one", "alice");
    find(name_of("one", "alice"), NULL);
    find(name_of("two", "alice"), "{}");
    catalogue_forget_user(cache, "default", NULL, "bob");
    find(name_of("one", "bob"), NULL);
    find(name_of("two", "bob"), NULL);
    find(name_of("one", NULL), "{}");
    find(name_of("two", "alice"), "{}");
}

static void a_server_is_forgotten_with_this_configuration_only(void **state)
{
    (void)state;
    struct catalogue_name other = name_of("files", NULL);
    other.configuration = SPAN("another");
    put(name_of("files", NULL), "{}");
    put(name_of("files", "alice"), "{}");
    put(other, "{}");
    struct catalogue_name name = name_of("files", NULL);
    catalogue_forget_server(cache, &name);
    find(name_of("files", NULL), NULL);
    find(name_of("files", "alice"), NULL);
    find(other, "{}");
}

// A cipher that shows whether it was used, and with which name.
static bool flip(const unsigned char *key, struct span name, struct span in, struct buf *out)
{
    for (size_t i = 0; i < in.len; i++)
        buf_put_char(out, (char)(in.at[i] ^ key[0] ^ name.at[name.len - 1]));
    return key[1] == 0;
}

static void a_sealed_entry_is_not_readable_in_the_file(void **state)
{
    (void)state;
    struct catalogue_sealing sealing = {flip, flip, {0x5a}};
    struct catalogue_name name = name_of("files", "alice");
    name.sealing = &sealing;
    put(name, "{\"secret\":\"of alice\"}");
    find(name, "{\"secret\":\"of alice\"}");
    catalogue_close(cache);
    assert_false(file_contains("of alice"));
    cache = open_with((struct catalogue_config){0});
    sealing.key[1] = 1;  // another key: it does not open
    find(name, NULL);
    sealing.key[1] = 0;  // and is gone
    find(name, NULL);
}

static void a_changed_or_moved_entry_is_dropped(void **state)
{
    (void)state;
    static const char *const changes[] = {
        "UPDATE entry SET value=CAST('{\"tools\":[1]}' AS BLOB)",
        "UPDATE entry SET server='other' WHERE server='files'",
        "UPDATE entry SET login=8",
        "UPDATE entry SET interval=9",
        "UPDATE entry SET updated=updated+1",
        "UPDATE entry SET updated=-9223372036854775807-1",
        "UPDATE entry SET mac=x'00'",
        "UPDATE entry SET value=zeroblob(20000000)",
        "UPDATE entry SET user=x'',server='files' WHERE server='alices'",
    };
    for (size_t i = 0; i < COUNT(changes); i++) {
        put(name_of("alices", "alice"), "{}");
        if (i + 1 < COUNT(changes)) {
            put(name_of("files", NULL), "{\"tools\":[]}");
            find(name_of("files", NULL), "{\"tools\":[]}");
        }
        run_sql(changes[i]);
        find(name_of("files", NULL), NULL);
        find(name_of("other", NULL), NULL);
    }
}

static void an_entry_that_is_not_a_json_object_is_dropped(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "[]", "{", "{}x", "\"{}\"", "\xff"};
    for (size_t i = 0; i < COUNT(texts); i++) {
        put(name_of("files", NULL), texts[i]);
        find(name_of("files", NULL), NULL);
    }
}

static void a_damaged_file_is_replaced_and_kept_aside(void **state)
{
    (void)state;
    char aside[128];
    put(name_of("files", NULL), "{}");
    catalogue_close(cache);
    write_file(path, "this is not a database, however long one looks at it; it is a text that says so and no more");
    cache = open_with((struct catalogue_config){0});
    find(name_of("files", NULL), NULL);
    put(name_of("files", NULL), "{}");
    find(name_of("files", NULL), "{}");
    snprintf(aside, sizeof aside, "%s.damaged", path);
    assert_int_equal(access(aside, R_OK), 0);
}

static void a_file_without_its_key_is_replaced(void **state)
{
    (void)state;
    static const char *const changes[] = {"UPDATE secret SET key=x'01'", "DELETE FROM secret"};
    for (size_t i = 0; i < COUNT(changes); i++) {
        put(name_of("files", NULL), "{}");
        run_sql(changes[i]);
        find(name_of("files", NULL), NULL);
        put(name_of("files", NULL), "{}");
        find(name_of("files", NULL), "{}");
    }
}

static void a_database_of_another_program_is_refused_and_kept(void **state)
{
    (void)state;
    struct err err = {0};
    sqlite3 *file;
    catalogue_close(cache);
    cache = NULL;
    (void)unlink(path);
    assert_int_equal(sqlite3_open(path, &file), SQLITE_OK);
    assert_int_equal(sqlite3_exec(file, "CREATE TABLE mine(a)", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(file);
    assert_int_equal(chmod(path, 0600), 0);
    assert_null(catalogue_open(loop, &(struct catalogue_config){.path = path}, &err));
    assert_non_null(strstr(err.detail, "another program"));
    assert_true(file_contains("mine"));
}

static void the_entries_that_were_not_used_for_longest_go_first(void **state)
{
    (void)state;
    char text[1100];
    snprintf(text, sizeof text, "{\"a\":\"%01000d\"}", 0);
    reopen_with((struct catalogue_config){.total_max = 2500});
    put(name_of("one", NULL), text);
    put(name_of("two", NULL), text);
    find(name_of("one", NULL), text);
    run_sql("UPDATE entry SET used=used-1000 WHERE server='two'");
    reopen_with((struct catalogue_config){.total_max = 2500});
    put(name_of("three", NULL), text);
    find(name_of("one", NULL), text);
    find(name_of("two", NULL), NULL);
    find(name_of("three", NULL), text);
}

static void an_entry_that_was_not_used_for_long_is_gone_at_the_next_start(void **state)
{
    (void)state;
    put(name_of("files", NULL), "{}");
    find(name_of("files", NULL), "{}");
    run_sql("UPDATE entry SET used=used-7200000");
    reopen_with((struct catalogue_config){.unused_max = 3600000});
    find(name_of("files", NULL), NULL);
}

// An object of at least so many bytes.
static struct buf large(size_t len)
{
    struct buf text = {0};
    buf_put_text(&text, "{\"a\":\"");
    while (text.len < len)
        buf_put_text(&text, "0123456789012345678901234567890123456789012345678901234567890123");
    buf_put_text(&text, "\"}");
    return text;
}

static void large_entries_that_wait_are_bounded_and_deletions_are_not_held_up(void **state)
{
    (void)state;
    struct catalogue_name name = name_of("files", NULL);
    struct buf text;
    int accepted = 0;
    put(name_of("own", "alice"), "{}");
    while (accepted < 100 && (text = large(10 << 20), catalogue_put(cache, &name, &(struct catalogue_facts){0}, &text)))
        accepted++;
    assert_in_range(accepted, 2, 6);
    assert_null(text.at);
    catalogue_forget_user(cache, "default", NULL, "alice");
    reopen_with((struct catalogue_config){0});
    find(name_of("own", "alice"), NULL);
    put(name, "{}");
    find(name, "{}");
}

static void an_entry_that_is_too_large_is_not_kept(void **state)
{
    (void)state;
    struct buf text = large(CATALOGUE_ENTRY_MAX);
    struct catalogue_name name = name_of("files", NULL);
    assert_true(catalogue_put(cache, &name, &(struct catalogue_facts){0}, &text));
    assert_null(text.at);
    find(name, NULL);
}

// Simulates a full disk by a limit on the file size. Setting the returned limit frees the disk.
static struct rlimit fill_disk(void)
{
    struct rlimit before, small;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    return before;
}

static bool is_found(const char *server)
{
    bool done = false;
    struct catalogue_name name = name_of(server, NULL);
    struct catalogue_find found = {.done = on_found, .arg = &done};
    assert_true(catalogue_find_start(cache, &name, &found));
    run_loop_until(loop, done);
    bool any = found.text.len > 0;
    catalogue_find_cancel(&found);
    return any;
}

static void changes_that_fail_on_a_full_disk_are_made_later_in_their_order(void **state)
{
    (void)state;
    struct catalogue_name gone = name_of("gone", NULL);
    put(name_of("before", NULL), "{}");
    put(gone, "{}");
    find(name_of("before", NULL), "{}");
    struct rlimit before = fill_disk();
    put(name_of("new", NULL), "{}");
    put(gone, "{\"tools\":[]}");
    catalogue_forget_server(cache, &gone);
    find(gone, NULL);  // although it is still in the file
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    run_loop_until(loop, is_found("new"));
    find(gone, NULL);
    find(name_of("before", NULL), "{}");
    reopen_with((struct catalogue_config){0});
    find(name_of("new", NULL), "{}");
    find(gone, NULL);
}

static void changes_that_failed_are_made_at_the_latest_when_the_cache_is_closed(void **state)
{
    (void)state;
    find(name_of("new", NULL), NULL);
    struct rlimit before = fill_disk();
    put(name_of("new", NULL), "{}");
    find(name_of("new", NULL), NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    reopen_with((struct catalogue_config){0});
    find(name_of("new", NULL), "{}");
}

static void changes_that_still_fail_when_the_cache_is_closed_are_lost(void **state)
{
    (void)state;
    find(name_of("new", NULL), NULL);
    struct rlimit before = fill_disk();
    put(name_of("new", NULL), "{}");
    find(name_of("new", NULL), NULL);
    catalogue_close(cache);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    cache = open_with((struct catalogue_config){0});
    find(name_of("new", NULL), NULL);
}

static void an_entry_is_found_at_once_while_another_process_writes_to_the_file(void **state)
{
    (void)state;
    sqlite3 *other;
    put(name_of("files", NULL), "{}");
    find(name_of("files", NULL), "{}");
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    int64_t began = clock_now_ms();
    find(name_of("files", NULL), "{}");
    assert_in_range(clock_now_ms() - began, 0, 5000);  // a change waits for 10 s
    sqlite3_close(other);
}

static bool no_threads;

// Replaces the system's function, because the limit on threads does not apply to root.
int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *arg)
{
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    return no_threads ? EAGAIN : create(thread, how, run, arg);
}

static void wait_ms(int64_t ms)
{
    int64_t until = clock_now_ms() + ms;
    run_loop_until(loop, clock_now_ms() >= until);
}

static void changes_for_which_no_thread_can_be_started_are_made_later_in_their_order(void **state)
{
    (void)state;
    struct catalogue_name gone = name_of("gone", NULL);
    put(gone, "{}");
    find(gone, "{}");
    struct rlimit before = fill_disk();
    put(gone, "{\"tools\":[]}");
    find(gone, NULL);
    wait_ms(50);  // the thread ends
    no_threads = true;
    catalogue_forget_server(cache, &gone);
    put(name_of("new", NULL), "{}");
    wait_ms(6000);  // longer than the pause before the next attempt
    no_threads = false;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    find(gone, NULL);  // although it is still in the file
    run_loop_until(loop, is_found("new"));
    find(gone, NULL);
}

static void a_lookup_that_was_cancelled_is_not_reported(void **state)
{
    (void)state;
    bool done = false;
    struct catalogue_find one = {.done = on_found, .arg = &done};
    struct catalogue_name name = name_of("files", NULL);
    put(name, "{}");
    assert_true(catalogue_find_start(cache, &name, &one));
    catalogue_find_cancel(&one);
    find(name, "{}");
    assert_false(done);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_entry_is_found_after_a_restart),
        TEST(an_entry_is_found_only_under_its_own_tenant_server_user_and_configuration),
        TEST(the_file_names_no_user_and_no_configuration),
        TEST(a_user_is_forgotten_at_one_server_or_at_all),
        TEST(a_server_is_forgotten_with_this_configuration_only),
        TEST(a_sealed_entry_is_not_readable_in_the_file),
        TEST(a_changed_or_moved_entry_is_dropped),
        TEST(an_entry_that_is_not_a_json_object_is_dropped),
        TEST(a_damaged_file_is_replaced_and_kept_aside),
        TEST(a_file_without_its_key_is_replaced),
        TEST(a_database_of_another_program_is_refused_and_kept),
        TEST(the_entries_that_were_not_used_for_longest_go_first),
        TEST(an_entry_that_was_not_used_for_long_is_gone_at_the_next_start),
        TEST(large_entries_that_wait_are_bounded_and_deletions_are_not_held_up),
        TEST(an_entry_that_is_too_large_is_not_kept),
        TEST(changes_that_fail_on_a_full_disk_are_made_later_in_their_order),
        TEST(changes_that_failed_are_made_at_the_latest_when_the_cache_is_closed),
        TEST(changes_that_still_fail_when_the_cache_is_closed_are_lost),
        TEST(an_entry_is_found_at_once_while_another_process_writes_to_the_file),
        TEST(changes_for_which_no_thread_can_be_started_are_made_later_in_their_order),
        TEST(a_lookup_that_was_cancelled_is_not_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
