// Tests watching files: each way to replace a file or folder is reported once, and other changes are not reported.
#include "loop/file_watch.h"
#include "unit.h"
#include <fcntl.h>
#include <sys/stat.h>

#define WAIT_MS 10000

static struct loop *loop;
static struct file_watch *watch, *sentinel;
static int reports, sentinel_reports, awaited;
static struct loop_timer patience;
static char folder[64], place[600];

static void on_change(void *arg)
{
    int *count = arg;
    ++*count;
    if (arg == &reports ? reports == awaited : sentinel_reports == 2)
        loop_stop(loop);
}

static void on_impatient(struct loop_timer *timer)
{
    (void)timer;
    fail_msg("no report for %d ms", WAIT_MS);
}

static void wait_for(int count)
{
    awaited = count;
    loop_timer_set(loop, &patience, WAIT_MS);
    if (reports < count)
        loop_run(loop);
    loop_timer_stop(loop, &patience);
    assert_int_equal(reports, count);
}

static const char *path_of(const char *name)
{
    static char paths[8][600];
    static unsigned next;
    char *path = paths[next++ % COUNT(paths)];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void write_to(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void move(const char *from, const char *to) { assert_int_equal(rename(path_of(from), path_of(to)), 0); }

static void make_folder(const char *name) { assert_int_equal(mkdir(path_of(name), 0700), 0); }

static void make_link(const char *target, const char *name) { assert_int_equal(symlink(target, path_of(name)), 0); }

// Watches these paths, and waits for the report that each file_watch_set() causes.
static void watch_paths(const char *first, const char *second)
{
    const char *const paths[] = {path_of(first), second ? path_of(second) : NULL, NULL};
    file_watch_set(watch, paths);
    wait_for(1);
}

static int set_up(void **state)
{
    (void)state;
    struct err err;
    strcpy(folder, "/tmp/postern-watch-XXXXXX");
    loop = mkdtemp(folder) ? loop_new(&err) : NULL;
    reports = sentinel_reports = 0;
    patience = (struct loop_timer){.on_due = on_impatient};
    watch = loop ? file_watch_new(loop, on_change, &reports) : NULL;
    sentinel = NULL;
    return watch ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    file_watch_free(watch);
    file_watch_free(sentinel);
    loop_free(loop);
    snprintf(place, sizeof place, "rm -rf %s", folder);
    return system(place);
}

static void a_file_written_in_place_is_reported(void **state)
{
    (void)state;
    write_to("a.json", "1");
    watch_paths("a.json", NULL);
    write_to("a.json", "2");
    wait_for(2);
}

static void a_file_replaced_by_renaming_is_reported(void **state)
{
    (void)state;
    write_to("a.json", "1");
    watch_paths("a.json", NULL);
    for (int i = 0; i < 3; i++) {
        write_to("new", "2");
        move("new", "a.json");
        wait_for(2 + i);
    }
}

static void a_file_made_readable_is_reported(void **state)
{
    (void)state;
    write_to("a.json", "1");
    assert_int_equal(chmod(path_of("a.json"), 0000), 0);
    watch_paths("a.json", NULL);
    assert_int_equal(chmod(path_of("a.json"), 0600), 0);
    wait_for(2);
}

static void a_file_that_appears_in_new_folders_is_reported(void **state)
{
    (void)state;
    watch_paths("one/two/a.json", NULL);
    make_folder("one");
    wait_for(2);
    make_folder("one/two");
    wait_for(3);
    write_to("one/two/a.json", "1");
    wait_for(4);
}

static void any_entry_of_a_watched_folder_is_reported(void **state)
{
    (void)state;
    make_folder("policies");
    watch_paths("policies", NULL);
    write_to("policies/new.json", "1");
    wait_for(2);
    assert_int_equal(unlink(path_of("policies/new.json")), 0);
    wait_for(3);
}

static void a_folder_replaced_by_renaming_is_watched_in_its_new_place(void **state)
{
    (void)state;
    make_folder("policies");
    make_folder("next");
    watch_paths("policies", NULL);
    move("policies", "old");
    move("next", "policies");
    wait_for(2);
    write_to("policies/a.json", "1");
    wait_for(3);
}

// As Kubernetes does it: a.json -> ..data/a.json and ..data -> ..1, and then ..data is replaced by renaming.
static void a_config_map_that_is_swapped_is_reported(void **state)
{
    (void)state;
    make_folder("..1");
    make_folder("..2");
    write_to("..1/a.json", "1");
    write_to("..2/a.json", "2");
    make_link("..1", "..data");
    make_link("..data/a.json", "a.json");
    watch_paths("a.json", NULL);
    make_link("..2", "..next");
    move("..next", "..data");
    wait_for(2);
    write_to("..2/a.json", "3");
    wait_for(3);
}

static void a_cycle_of_links_can_be_watched(void **state)
{
    (void)state;
    make_link("b", "a");
    make_link("a", "b");
    watch_paths("a", NULL);
    assert_int_equal(unlink(path_of("b")), 0);
    wait_for(2);
}

static void a_burst_of_changes_is_one_report(void **state)
{
    (void)state;
    watch_paths("a.json", "b.json");
    for (int i = 0; i < 100; i++) {
        write_to(i % 2 ? "a.json" : "b.json", "1");
        write_to("new", "2");
        move("new", "a.json");
    }
    wait_for(2);
}

static void write_to_other(struct loop_task *task)
{
    (void)task;
    write_to("other/a.json", "1");
}

// The only report is that of a later change to a second watched path.
static void changes_beside_a_watched_file_are_not_reported(void **state)
{
    (void)state;
    struct loop_task later = {.run = write_to_other};
    make_folder("other");
    watch_paths("a.json", NULL);
    write_to("b.json", "1");
    move("b.json", "c.json");
    const char *const paths[] = {path_of("other"), NULL};
    sentinel = file_watch_new(loop, on_change, &sentinel_reports);
    file_watch_set(sentinel, paths);
    loop_task_put_later(loop, &later);
    loop_timer_set(loop, &patience, WAIT_MS);
    loop_run(loop);
    loop_timer_stop(loop, &patience);
    assert_int_equal(sentinel_reports, 2);
    assert_int_equal(reports, 1);
}

static void a_path_that_is_no_longer_set_is_not_reported(void **state)
{
    (void)state;
    watch_paths("a.json", NULL);
    const char *const paths[] = {path_of("b.json"), NULL};
    file_watch_set(watch, paths);
    wait_for(2);
    write_to("a.json", "1");
    write_to("b.json", "1");
    wait_for(3);
}

#define test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(a_file_written_in_place_is_reported),
        test(a_file_replaced_by_renaming_is_reported),
        test(a_file_made_readable_is_reported),
        test(a_file_that_appears_in_new_folders_is_reported),
        test(any_entry_of_a_watched_folder_is_reported),
        test(a_folder_replaced_by_renaming_is_watched_in_its_new_place),
        test(a_config_map_that_is_swapped_is_reported),
        test(a_cycle_of_links_can_be_watched),
        test(a_burst_of_changes_is_one_report),
        test(changes_beside_a_watched_file_are_not_reported),
        test(a_path_that_is_no_longer_set_is_not_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
