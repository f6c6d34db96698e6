// Tests records and leases: compare-and-swap, races between processes, kill -9, full disks, and damaged and foreign files.
#include "base/clock.h"
#include "folder.h"
#include "store/state.h"
#include "store/store.h"
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char path[96];
static struct record_store *store;

// Replaces the system's function: the folder is on the file system in `pretended`.
static __fsword_t pretended;
int statfs(const char *where, struct statfs *out)
{
    int got = (int)syscall(SYS_statfs, where, out);
    if (got == 0 && pretended)
        out->f_type = pretended;
    return got;
}

static int set_up(void **state)
{
    if (make_directory(state) != 0)
        return -1;
    snprintf(path, sizeof path, "%s/store.db", directory);
    alarm(240);
    return 0;
}

static int tear_down(void **state)
{
    record_close(store);
    store = NULL;
    chmod(directory, 0700);
    return remove_directory(state);
}

static struct record_store *open_with(struct record_config config)
{
    struct err err = {0};
    config.path = path;
    struct record_store *opened = record_open(&config, &err);
    if (!opened)
        fail_msg("%s", err.detail);
    return opened;
}

static void start(void) { store = open_with((struct record_config){0}); }

static struct record_name name_of(const char *key) { return (struct record_name){"grant", span_of(key)}; }

static enum record_answer put(const char *key, const char *value, int64_t *generation)
{
    struct err err = {0};
    enum record_answer answer = record_put(store, name_of(key), span_of(value), generation, &err);
    if (answer == RECORD_FAILED)
        fail_msg("%s", err.detail);
    return answer;
}

static int64_t get(const char *key, const char *want)
{
    struct err err = {0};
    struct record record;
    enum record_answer answer = record_get(store, name_of(key), &record, &err);
    if (!want) {
        assert_int_equal(answer, RECORD_NO);
        assert_int_equal(record.generation, 0);
        return 0;
    }
    assert_int_equal(answer, RECORD_YES);
    assert_span(record.value, span_of(want), key);
    return record.generation;
}

// ---- records --------------------------------------------------------------------------------

static void S4_a_record_changes_only_from_the_generation_that_was_read(void **state)
{
    (void)state;
    struct err err = {0};
    int64_t first = 0, second, stale;
    start();
    get("a", NULL);
    assert_int_equal(put("a", "one", &first), RECORD_YES);
    assert_true(first > 0);
    assert_int_equal(get("a", "one"), first);

    stale = 0;
    assert_int_equal(put("a", "again", &stale), RECORD_NO);  // generation 0 is for a new record, but the record exists
    assert_int_equal(stale, 0);
    second = first;
    assert_int_equal(put("a", "two", &second), RECORD_YES);
    assert_true(second > first);
    stale = first;
    assert_int_equal(put("a", "late", &stale), RECORD_NO);
    assert_int_equal(record_delete(store, name_of("a"), first, &err), RECORD_NO);
    get("a", "two");
    assert_int_equal(record_delete(store, name_of("a"), second, &err), RECORD_YES);
    get("a", NULL);
    assert_int_equal(record_delete(store, name_of("a"), second, &err), RECORD_NO);
}

static void a_generation_is_never_reused_after_a_deletion(void **state)
{
    (void)state;
    struct err err = {0};
    int64_t old = 0, new = 0, newest, before;
    start();
    assert_int_equal(put("a", "one", &old), RECORD_YES);
    assert_true(record_newest(store, &before, &err));
    assert_int_equal(record_delete(store, name_of("a"), old, &err), RECORD_YES);
    assert_true(record_newest(store, &newest, &err));
    assert_true(newest > before);  // a deletion counts as a change
    assert_int_equal(put("a", "one", &new), RECORD_YES);
    assert_true(new > old);
    assert_int_equal(put("a", "from the deleted generation", &old), RECORD_NO);
    record_close(store);
    start();
    assert_int_equal(get("a", "one"), new);
}

static void a_refused_change_does_not_count_as_a_change(void **state)
{
    (void)state;
    struct err err = {0};
    int64_t first = 0, none = 0, before, after;
    start();
    assert_int_equal(put("a", "one", &first), RECORD_YES);
    assert_true(record_newest(store, &before, &err));
    assert_int_equal(put("a", "two", &none), RECORD_NO);
    assert_true(record_newest(store, &after, &err));
    assert_int_equal(before, after);
}

static void S6_a_reseal_keeps_the_generation_and_loses_against_a_change(void **state)
{
    (void)state;
    struct err err = {0};
    int64_t first = 0, second, before, after;
    start();
    assert_int_equal(put("a", "one", &first), RECORD_YES);
    assert_true(record_newest(store, &before, &err));
    assert_int_equal(record_rewrite(store, name_of("a"), SPAN("uno"), first, &err), RECORD_YES);
    assert_int_equal(get("a", "uno"), first);
    assert_true(record_newest(store, &after, &err));
    assert_int_equal(after, before);
    second = first;
    assert_int_equal(put("a", "two", &second), RECORD_YES);
    assert_int_equal(record_rewrite(store, name_of("a"), SPAN("uno"), first, &err), RECORD_NO);
    get("a", "two");
}

static void keys_and_values_are_bytes(void **state)
{
    (void)state;
    struct err err = {0};
    struct record record;
    int64_t g1 = 0, g2 = 0, g3 = 0;
    struct record_name zero = {"grant", SPAN("a\0b")}, other = {"grant", SPAN("a\0c")},
                       elsewhere = {"client", SPAN("a\0b")};
    start();
    assert_int_equal(record_put(store, zero, SPAN("\0\1\2"), &g1, &err), RECORD_YES);
    assert_int_equal(record_put(store, other, (struct span){0}, &g2, &err), RECORD_YES);
    assert_int_equal(record_put(store, elsewhere, SPAN("x"), &g3, &err), RECORD_YES);
    assert_int_equal(record_get(store, zero, &record, &err), RECORD_YES);
    assert_span(record.value, SPAN("\0\1\2"), "zero bytes");
    assert_int_equal(record_get(store, other, &record, &err), RECORD_YES);
    assert_int_equal(record.value.len, 0);
    assert_true(record.updated_ms > 1600000000000);
}

static void a_record_that_is_too_large_is_refused(void **state)
{
    (void)state;
    struct err err = {0};
    int64_t generation = 0;
    static char bytes[RECORD_VALUE_MAX + 1];
    start();
    assert_int_equal(record_put(store, name_of("a"), span_make(bytes, sizeof bytes), &generation, &err), RECORD_FAILED);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    assert_int_equal(record_put(store, (struct record_name){"grant", span_make(bytes, RECORD_KEY_MAX + 1)}, SPAN("x"),
                                &generation, &err),
                     RECORD_FAILED);
    assert_int_equal(record_put(store, name_of("a"), span_make(bytes, RECORD_VALUE_MAX), &generation, &err),
                     RECORD_YES);
}

static bool gather(void *arg, const struct record *record)
{
    struct err err = {0};
    buf_put_span(arg, record->key);
    buf_put_char(arg, ' ');
    if (span_is(record->key, "ab2"))  // the function may change the records
        assert_int_equal(record_delete(store, name_of("ab2"), record->generation, &err), RECORD_YES);
    return !span_is(record->key, "ab9");
}

static void a_scan_sees_the_keys_with_the_prefix_in_order(void **state)
{
    (void)state;
    struct err err = {0};
    struct buf seen = {0};
    start();
    static const char *const keys[] = {"b", "ab3", "a", "ab1", "ab", "ac", "ab2", "aa\xff"};
    for (size_t i = 0; i < COUNT(keys); i++) {
        int64_t generation = 0;
        assert_int_equal(put(keys[i], "x", &generation), RECORD_YES);
    }
    assert_true(record_scan(store, name_of("ab"), gather, &seen, &err));
    assert_string_equal(buf_text(&seen), "ab ab1 ab2 ab3 ");
    get("ab2", NULL);
    buf_clear(&seen);
    assert_true(record_scan(store, name_of(""), gather, &seen, &err));
    assert_string_equal(buf_text(&seen), "a aa\xff ab ab1 ab3 ac b ");
    buf_clear(&seen);
    int64_t generation = 0;
    assert_int_equal(put("ab9", "x", &generation), RECORD_YES);
    assert_true(record_scan(store, name_of("ab"), gather, &seen, &err));  // ends when the function returns false
    assert_string_equal(buf_text(&seen), "ab ab1 ab3 ab9 ");
    buf_release(&seen);
}

// ---- leases ---------------------------------------------------------------------------------

static int64_t fake_now = 1000000;
static int64_t fake_clock(void) { return fake_now; }

static void F4_a_lease_has_one_holder_until_it_expires(void **state)
{
    (void)state;
    struct err err = {0};
    struct record_lease one = {.length_ms = 100}, two = {.length_ms = 100};
    int64_t free_in = 0;
    store = open_with((struct record_config){.clock_ms = fake_clock});
    assert_int_equal(record_lease_take(store, SPAN("g"), &one, NULL, &err), RECORD_YES);
    fake_now += 40;
    assert_int_equal(record_lease_take(store, SPAN("g"), &two, &free_in, &err), RECORD_NO);
    assert_int_equal(free_in, 60);
    assert_int_equal(record_lease_take(store, SPAN("another"), &two, NULL, &err), RECORD_YES);
    assert_int_equal(record_lease_renew(store, SPAN("g"), &one, &err), RECORD_YES);
    fake_now += 99;
    assert_int_equal(record_lease_take(store, SPAN("g"), &two, NULL, &err), RECORD_NO);
    fake_now += 1;
    assert_int_equal(record_lease_take(store, SPAN("g"), &two, NULL, &err), RECORD_YES);
    assert_int_equal(record_lease_renew(store, SPAN("g"), &one, &err), RECORD_NO);    // the lease is held by `two`
    assert_int_equal(record_lease_release(store, SPAN("g"), &one, &err), RECORD_NO);  // `one` cannot release it
    assert_int_equal(record_lease_take(store, SPAN("g"), &one, NULL, &err), RECORD_NO);
    assert_int_equal(record_lease_release(store, SPAN("g"), &two, &err), RECORD_YES);
    assert_int_equal(record_lease_take(store, SPAN("g"), &one, NULL, &err), RECORD_YES);
}

static void F4_a_clock_that_goes_back_does_not_hold_a_lease_for_longer_than_its_length(void **state)
{
    (void)state;
    struct err err = {0};
    struct record_lease one = {.length_ms = 100}, two = {.length_ms = 100};
    store = open_with((struct record_config){.clock_ms = fake_clock});
    assert_int_equal(record_lease_take(store, SPAN("g"), &one, NULL, &err), RECORD_YES);
    int64_t before = fake_now;
    fake_now = 5;  // the clock was reset when the machine started again
    assert_int_equal(record_lease_take(store, SPAN("g"), &two, NULL, &err), RECORD_YES);
    fake_now += 60;
    assert_int_equal(record_lease_take(store, SPAN("g"), &one, NULL, &err), RECORD_NO);
    fake_now -= 30;  // the clock goes back by less than the lease
    struct record_lease three = {.length_ms = 100};
    assert_int_equal(record_lease_take(store, SPAN("g"), &three, NULL, &err), RECORD_NO);
    fake_now = before;
}

// ---- more than one process ------------------------------------------------------------------

enum { RACERS = 3, ROUNDS = 1000 };

// The processes wait at the barrier, so that all have read before one writes.
struct race {
    pthread_barrier_t line;
    atomic_int trouble, losses;
    atomic_int wins[ROUNDS];
    atomic_long begin;
};

static struct race *shared_race(void)
{
    struct race *race = mmap(NULL, sizeof *race, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(race, MAP_FAILED);
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&race->line, &shared, RACERS);
    return race;
}

static void note(struct race *race, int round, enum record_answer answer)
{
    atomic_fetch_add(answer == RECORD_YES  ? &race->wins[round]
                     : answer == RECORD_NO ? &race->losses
                                           : &race->trouble,
                     1);
}

// Runs in a child, where assertions of cmocka do not work.
static void race_for_records(struct race *race)
{
    struct err err = {0};
    struct record_store *mine = open_with((struct record_config){0});
    for (int round = 0; round < ROUNDS; round++) {
        struct record record;
        pthread_barrier_wait(&race->line);
        if (record_get(mine, name_of("counter"), &record, &err) == RECORD_FAILED)
            atomic_fetch_add(&race->trouble, 1);
        char text[32];
        int len = snprintf(text, sizeof text, "%ld", record.generation ? strtol(record.value.at, NULL, 10) + 1 : 1);
        int64_t generation = record.generation;
        pthread_barrier_wait(&race->line);
        note(race, round, record_put(mine, name_of("counter"), span_make(text, (size_t)len + 1), &generation, &err));
    }
    record_close(mine);
}

static void race_for_leases(struct race *race)
{
    struct err err = {0};
    struct record_store *mine = open_with((struct record_config){0});
    for (int round = 0; round < ROUNDS; round++) {
        struct record_lease lease = {.length_ms = 60000};
        pthread_barrier_wait(&race->line);
        enum record_answer got = record_lease_take(mine, SPAN("grant"), &lease, NULL, &err);
        note(race, round, got);
        pthread_barrier_wait(&race->line);  // the lease is held until all have tried
        if (got == RECORD_YES && record_lease_release(mine, SPAN("grant"), &lease, &err) != RECORD_YES)
            atomic_fetch_add(&race->trouble, 1);
    }
    record_close(mine);
}

static void one_winner_each(const struct race *race)
{
    assert_int_equal(atomic_load(&race->trouble), 0);
    for (int round = 0; round < ROUNDS; round++)
        assert_int_equal(atomic_load(&race->wins[round]), 1);
    assert_int_equal(atomic_load(&race->losses), ROUNDS * (RACERS - 1));
}

static void run_race(struct race *race, void (*racer)(struct race *race))
{
    pid_t children[RACERS];
    for (int i = 0; i < RACERS; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            racer(race);
            _exit(0);
        }
    }
    for (int i = 0; i < RACERS; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    one_winner_each(race);
}

static void F7_exactly_one_of_several_processes_that_change_a_record_wins_each_round(void **state)
{
    (void)state;
    struct race *race = shared_race();
    run_race(race, race_for_records);
    start();
    struct err err = {0};
    struct record record;
    assert_int_equal(record_get(store, name_of("counter"), &record, &err), RECORD_YES);
    assert_int_equal(strtol(record.value.at, NULL, 10), ROUNDS);  // no increment was lost or counted twice
    munmap(race, sizeof *race);
}

static void F4_only_one_of_several_processes_gets_a_lease(void **state)
{
    (void)state;
    struct race *race = shared_race();
    run_race(race, race_for_leases);
    munmap(race, sizeof *race);
}

static void wait_for(const atomic_long *flag)
{
    int64_t end = clock_now_ms() + 20000;
    while (!atomic_load(flag) && clock_now_ms() < end)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    assert_true(atomic_load(flag) != 0);
}

static void F4_the_lease_of_a_process_that_was_killed_is_free_after_its_time(void **state)
{
    (void)state;
    struct err err = {0};
    struct race *race = shared_race();
    pid_t child = fork();
    if (child == 0) {
        struct record_lease lease = {.length_ms = 1500};
        struct record_store *mine = open_with((struct record_config){0});
        if (record_lease_take(mine, SPAN("g"), &lease, NULL, &err) == RECORD_YES)
            atomic_store(&race->begin, 1);
        for (;;)
            pause();
    }
    wait_for(&race->begin);
    start();
    struct record_lease mine = {.length_ms = 1000};
    int64_t free_in = 0;
    assert_int_equal(record_lease_take(store, SPAN("g"), &mine, &free_in, &err), RECORD_NO);
    assert_in_range(free_in, 1, 1500);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    int64_t end = clock_now_ms() + free_in + 2000;
    enum record_answer got = RECORD_NO;
    while (got == RECORD_NO && clock_now_ms() < end) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        got = record_lease_take(store, SPAN("g"), &mine, NULL, &err);
    }
    assert_int_equal(got, RECORD_YES);
    munmap(race, sizeof *race);
}

// The value contains its own length, so that a torn write is detected.
static void write_for_ever(struct race *race)
{
    struct err err = {0};
    struct record_store *mine = open_with((struct record_config){0});
    static char value[20000];
    struct record record;
    int64_t generation = record_get(mine, name_of("a"), &record, &err) == RECORD_YES ? record.generation : 0;
    for (unsigned i = 0;; i++) {
        size_t len = 1000 + i * 7919 % 19000;
        memset(value, 'a' + (int)(i % 26), len);
        snprintf(value, 16, "%zu ", len);
        if (record_put(mine, name_of("a"), span_make(value, len), &generation, &err) != RECORD_YES)
            _exit(3);
        atomic_store(&race->begin, 1);
    }
}

static void S3_a_process_killed_while_writing_leaves_the_old_or_the_new_record(void **state)
{
    (void)state;
    struct err err = {0};
    struct race *race = shared_race();
    for (int round = 0; round < 25; round++) {
        atomic_store(&race->begin, 0);
        pid_t child = fork();
        if (child == 0)
            write_for_ever(race);
        wait_for(&race->begin);
        nanosleep(&(struct timespec){.tv_nsec = round * 317000L}, NULL);
        int status;
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        assert_true(WIFSIGNALED(status));
        start();
        struct record record;
        assert_int_equal(record_get(store, name_of("a"), &record, &err), RECORD_YES);
        assert_int_equal(strtoul(record.value.at, NULL, 10), record.value.len);
        record_close(store);
        store = NULL;
    }
    munmap(race, sizeof *race);
}

// ---- files ----------------------------------------------------------------------------------

static void S2_only_the_owner_can_read_the_files_of_the_store(void **state)
{
    (void)state;
    umask(0);
    int64_t generation = 0;
    start();
    assert_int_equal(put("a", "x", &generation), RECORD_YES);
    static const char *const ends[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < COUNT(ends); i++) {
        char name[128];
        struct stat is;
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        assert_int_equal(stat(name, &is), 0);
        assert_int_equal(is.st_mode & 0777, 0600);
    }
    umask(022);
}

static void refused(const char *with, const char *also)
{
    struct err err = {0};
    assert_null(record_open(&(struct record_config){.path = path}, &err));
    assert_contains(err.detail, with);
    assert_contains(err.detail, also);
    assert_int_equal(err.code, ERR_CONFIG);
}

static void S2_a_file_or_folder_open_to_others_is_refused_with_advice(void **state)
{
    (void)state;
    start();
    record_close(store);
    store = NULL;
    chmod(path, 0644);
    refused("readable by other users", "chmod 600");
    chmod(path, 0600);
    chmod(directory, 0770);
    refused("other users may write", "chmod 700");
    chmod(directory, 0700);
    start();
}

static void S13_a_network_file_system_with_unreliable_locks_is_refused(void **state)
{
    (void)state;
    static const __fsword_t shared[] = {NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, 0xFF534D42, 0xFE534D42};
    for (size_t i = 0; i < COUNT(shared); i++) {
        pretended = shared[i];
        refused("network file system", "cannot share");
    }
    pretended = 0;
    assert_int_equal(access(path, F_OK), -1);  // no file was created
    start();
}

static void S2_the_state_folder_is_created_for_the_owner_only(void **state)
{
    (void)state;
    struct err err = {0};
    struct stat is;
    char folder[128];
    umask(0);
    snprintf(folder, sizeof folder, "%s/state", directory);
    setenv("POSTERN_STATE", folder, 1);
    struct record_store *there = record_open(&(struct record_config){0}, &err);
    umask(022);
    assert_non_null(there);
    assert_int_equal(stat(folder, &is), 0);
    assert_int_equal(is.st_mode & 0777, 0700);
    char *in_it = state_path(NULL, "store.db");
    assert_string_equal(record_path(there), in_it);
    record_close(there);
    unlink(in_it);
    free(in_it);
    rmdir(folder);
    unsetenv("POSTERN_STATE");
}

static void write_bytes(const char *text, size_t len)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_int_equal(write(fd, text, len), (ssize_t)len);
    close(fd);
}

static off_t size_of_file(void)
{
    struct stat is;
    assert_int_equal(stat(path, &is), 0);
    return is.st_size;
}

static void S5_a_file_that_is_not_a_store_of_postern_is_refused_and_kept(void **state)
{
    (void)state;
    static const char text[] =
        "this is a text file, and it is longer than the header of a database, which has 100 bytes in SQLite";
    write_bytes(text, sizeof text);
    refused("not a postern store", "move the file away");
    assert_int_equal(size_of_file(), sizeof text);
    unlink(path);

    sqlite3 *foreign;
    assert_int_equal(sqlite3_open(path, &foreign), SQLITE_OK);
    assert_int_equal(sqlite3_exec(foreign, "CREATE TABLE diary(x);PRAGMA application_id=7", NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(foreign);
    chmod(path, 0600);
    refused("of another program", "");
    unlink(path);

    start();
    record_close(store);
    store = NULL;
    assert_int_equal(sqlite3_open(path, &foreign), SQLITE_OK);
    assert_int_equal(sqlite3_exec(foreign, "PRAGMA user_version=99", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(foreign);
    refused("a newer version of postern", "99");
}

static void fill(void)
{
    char value[2000];
    start();
    memset(value, 'x', sizeof value);
    for (int i = 0; i < 40; i++) {
        struct err err = {0};
        char key[16];
        int64_t generation = 0;
        snprintf(key, sizeof key, "key%d", i);
        assert_int_equal(record_put(store, name_of(key), span_make(value, sizeof value), &generation, &err),
                         RECORD_YES);
    }
    record_close(store);
    store = NULL;
}

static void S5_a_damaged_database_is_refused_and_kept(void **state)
{
    (void)state;
    fill();
    off_t size = size_of_file();
    char junk[8192];
    memset(junk, 0xA5, sizeof junk);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, junk, sizeof junk, 4096), (ssize_t)sizeof junk);
    close(fd);
    refused("damaged", "nothing was changed");
    assert_int_equal(size_of_file(), size);
}

static void S5_a_truncated_database_is_refused_and_kept(void **state)
{
    (void)state;
    fill();
    off_t size = size_of_file() / 2 / 4096 * 4096;
    assert_int_equal(truncate(path, size), 0);
    refused("damaged", "nothing was changed");
    assert_int_equal(size_of_file(), size);
}

static void a_full_disk_is_an_error_and_existing_records_stay(void **state)
{
    (void)state;
    struct err err = {0};
    static char value[100000];
    int64_t generation = 0, before, other = 0;
    memset(value, 'x', sizeof value);
    store = open_with((struct record_config){.page_limit = 12});
    assert_int_equal(put("a", "small", &generation), RECORD_YES);
    before = generation;
    assert_int_equal(record_put(store, name_of("a"), span_make(value, sizeof value), &generation, &err), RECORD_FAILED);
    assert_contains(err.detail, "free disk space");
    assert_int_equal(err.code, ERR_SYSTEM);
    assert_int_equal(generation, before);
    assert_int_equal(get("a", "small"), before);
    assert_int_equal(record_put(store, name_of("b"), span_make(value, sizeof value), &other, &err), RECORD_FAILED);
    get("b", NULL);
    assert_int_equal(put("a", "still", &generation), RECORD_YES);  // a record that fits is still written
}

// ---- on the loop ----------------------------------------------------------------------------

static pthread_t loop_thread;
static int jobs_done;

struct put_job {
    struct store_job job;
    int64_t generation;
    enum record_answer answer;
};

static void run_put(struct store_job *job, struct record_store *records)
{
    struct put_job *mine = job->arg;
    struct err err = {0};
    assert_false(pthread_equal(pthread_self(), loop_thread));
    mine->answer = record_put(records, name_of("a"), SPAN("x"), &mine->generation, &err);
}

static void on_put(struct store_job *job)
{
    (void)job;
    assert_true(pthread_equal(pthread_self(), loop_thread));
    jobs_done++;
}

static void store_jobs_run_on_the_worker_in_order_and_end_on_the_loop(void **state)
{
    (void)state;
    struct err err = {0};
    struct loop *loop = loop_new(&err);
    struct store *async = store_new(loop, open_with((struct record_config){0}), &err);
    assert_non_null(async);
    loop_thread = pthread_self();
    jobs_done = 0;
    struct put_job jobs[2];
    for (size_t i = 0; i < COUNT(jobs); i++) {
        jobs[i] = (struct put_job){.job = {.run = run_put, .done = on_put, .arg = &jobs[i]}};
        assert_true(store_start(async, &jobs[i].job));
    }
    assert_int_equal(jobs_done, 0);
    assert_true(store_wait(async, 20000));
    assert_int_equal(jobs_done, 2);
    assert_int_equal(jobs[0].answer, RECORD_YES);
    assert_int_equal(jobs[1].answer, RECORD_NO);
    store_free(async);
    loop_free(loop);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(S4_a_record_changes_only_from_the_generation_that_was_read),
        TEST(a_generation_is_never_reused_after_a_deletion),
        TEST(a_refused_change_does_not_count_as_a_change),
        TEST(S6_a_reseal_keeps_the_generation_and_loses_against_a_change),
        TEST(keys_and_values_are_bytes),
        TEST(a_record_that_is_too_large_is_refused),
        TEST(a_scan_sees_the_keys_with_the_prefix_in_order),
        TEST(F4_a_lease_has_one_holder_until_it_expires),
        TEST(F4_a_clock_that_goes_back_does_not_hold_a_lease_for_longer_than_its_length),
        TEST(F7_exactly_one_of_several_processes_that_change_a_record_wins_each_round),
        TEST(F4_only_one_of_several_processes_gets_a_lease),
        TEST(F4_the_lease_of_a_process_that_was_killed_is_free_after_its_time),
        TEST(S3_a_process_killed_while_writing_leaves_the_old_or_the_new_record),
        TEST(S2_only_the_owner_can_read_the_files_of_the_store),
        TEST(S2_a_file_or_folder_open_to_others_is_refused_with_advice),
        TEST(S13_a_network_file_system_with_unreliable_locks_is_refused),
        TEST(S2_the_state_folder_is_created_for_the_owner_only),
        TEST(S5_a_file_that_is_not_a_store_of_postern_is_refused_and_kept),
        TEST(S5_a_damaged_database_is_refused_and_kept),
        TEST(S5_a_truncated_database_is_refused_and_kept),
        TEST(a_full_disk_is_an_error_and_existing_records_stay),
        TEST(store_jobs_run_on_the_worker_in_order_and_end_on_the_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
