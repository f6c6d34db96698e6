// Tests the vault: sealing, records that must not open, the sources of the ring, wrong keys, and rotation during other
// writes.
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "folder.h"
#include "sealing.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KEY_ONE "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
#define KEY_TWO "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
#define KEY_THREE "__________________________________________8"
#define KEY_THREE_PLAIN "//////////////////////////////////////////8="

static char database[96], ring[96];
static struct record_store *records;
static struct vault *vault;

static int set_up(void **state)
{
    struct err err = {0};
    if (make_state_directory(state) != 0)
        return -1;
    snprintf(database, sizeof database, "%s/store.db", directory);
    snprintf(ring, sizeof ring, "%s/vault.key", directory);
    alarm(120);
    return (records = record_open(&(struct record_config){0}, &err)) ? 0 : -1;
}

static int tear_down(void **state)
{
    vault_free(vault);
    vault = NULL;
    record_close(records);
    return remove_directory(state);
}

static void start_with(struct vault_config config)
{
    struct err err = {0};
    vault_free(vault);
    vault = vault_open(&config, records, &err);
    if (!vault)
        fail_msg("%s", err.detail);
}

static void start(void) { start_with((struct vault_config){0}); }

static void refused(struct vault_config config, const char *with)
{
    struct err err = {0};
    vault_free(vault);
    vault = vault_open(&config, records, &err);
    assert_null(vault);
    assert_contains(err.detail, with);
    assert_int_equal(err.code, ERR_CONFIG);
}

static void write_ring(const char *path, const char *text)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static struct record_name grant(const char *key) { return (struct record_name){VAULT_GRANTS, span_of(key)}; }

static int64_t put(const char *key, const char *secret)
{
    struct err err = {0};
    struct buf sealed = {0};
    int64_t generation = 0;
    assert_true(vault_seal(vault, grant(key), span_of(secret), &sealed, &err));
    assert_int_equal(record_put(records, grant(key), buf_span(&sealed), &generation, &err), RECORD_YES);
    buf_release(&sealed);
    return generation;
}

static bool opens(const char *key, const char *secret, struct err *err)
{
    struct record record;
    struct buf plain = {0};
    assert_int_equal(record_get(records, grant(key), &record, err), RECORD_YES);
    bool ok = vault_unseal(vault, grant(key), record.value, &plain, err);
    if (ok)
        assert_span(buf_span(&plain), span_of(secret), key);
    buf_wipe(&plain);
    return ok;
}

// ---- sealing --------------------------------------------------------------------------------

static void S6_a_sealed_secret_opens_and_two_seals_of_it_differ(void **state)
{
    (void)state;
    struct err err = {0};
    struct buf one = {0}, two = {0}, plain = {0};
    start();
    static const char *const texts[] = {"", "x", "a refresh token"};
    for (size_t i = 0; i < COUNT(texts); i++) {
        assert_true(vault_seal(vault, grant("a"), span_of(texts[i]), &one, &err));
        assert_true(vault_seal(vault, grant("a"), span_of(texts[i]), &two, &err));
        assert_int_equal(one.len, strlen(texts[i]) + VAULT_OVERHEAD);
        assert_int_equal(one.at[0], 1);
        assert_memory_equal(one.at, two.at, 9);               // the version and the id of the key
        assert_memory_not_equal(one.at + 9, two.at + 9, 12);  // the nonce
        assert_true(vault_unseal(vault, grant("a"), buf_span(&one), &plain, &err));
        assert_span(buf_span(&plain), span_of(texts[i]), texts[i]);
    }
    buf_release(&one);
    buf_release(&two);
    buf_wipe(&plain);
}

static void S6_a_sealed_secret_with_any_changed_byte_does_not_open(void **state)
{
    (void)state;
    struct err err = {0};
    struct buf sealed = {0}, plain = {0};
    start();
    assert_true(vault_seal(vault, grant("a"), SPAN("secret"), &sealed, &err));
    for (size_t i = 0; i < sealed.len; i++) {
        sealed.at[i] ^= 1;
        err = (struct err){0};
        assert_false(vault_unseal(vault, grant("a"), buf_span(&sealed), &plain, &err));
        assert_true(err.code == ERR_SYSTEM || err.code == ERR_CONFIG);
        assert_int_equal(plain.len, 0);
        sealed.at[i] ^= 1;
    }
    for (size_t len = 0; len < sealed.len; len++)
        assert_false(vault_unseal(vault, grant("a"), span_make(sealed.at, len), &plain, &err));
    assert_true(vault_unseal(vault, grant("a"), buf_span(&sealed), &plain, &err));
    buf_release(&sealed);
    buf_wipe(&plain);
}

static void S6_a_record_moved_to_another_key_or_space_does_not_open(void **state)
{
    (void)state;
    struct err err = {0};
    struct buf sealed = {0}, plain = {0};
    start();
    assert_true(vault_seal(vault, grant("alice"), SPAN("secret"), &sealed, &err));
    assert_false(vault_unseal(vault, grant("bob"), buf_span(&sealed), &plain, &err));
    assert_contains(err.detail, "moved");
    assert_false(
        vault_unseal(vault, (struct record_name){VAULT_CLIENTS, SPAN("alice")}, buf_span(&sealed), &plain, &err));
    assert_true(vault_unseal(vault, grant("alice"), buf_span(&sealed), &plain, &err));
    // The same bytes, divided otherwise between space and key, name another record.
    assert_false(vault_unseal(vault, (struct record_name){"gran", SPAN("talice")}, buf_span(&sealed), &plain, &err));
    buf_release(&sealed);
    buf_wipe(&plain);
}

// ---- sources --------------------------------------------------------------------------------

static void S2_S6_a_key_ring_is_created_once_and_readable_only_by_its_owner(void **state)
{
    (void)state;
    struct err err = {0};
    struct stat is;
    umask(0);
    start();
    umask(022);
    assert_int_equal(stat(ring, &is), 0);
    assert_int_equal(is.st_mode & 0777, 0600);
    assert_string_equal(vault_source(vault), ring);
    put("a", "secret");
    ino_t first = is.st_ino;
    start();
    assert_int_equal(stat(ring, &is), 0);
    assert_int_equal(is.st_ino, first);
    assert_true(opens("a", "secret", &err));
}

static void S7_a_missing_key_ring_is_not_recreated_and_records_are_not_deleted(void **state)
{
    (void)state;
    struct err err = {0};
    char aside[128];
    start();
    put("a", "secret");
    snprintf(aside, sizeof aside, "%s.aside", ring);
    assert_int_equal(rename(ring, aside), 0);
    refused((struct vault_config){0}, "restore it from a backup");
    assert_int_not_equal(access(ring, F_OK), 0);
    assert_int_equal(rename(aside, ring), 0);
    start();
    assert_true(opens("a", "secret", &err));
}

static void S7_a_wrong_key_ring_is_refused_at_startup_with_advice(void **state)
{
    (void)state;
    struct err err = {0};
    setenv("POSTERN_VAULT_KEY", KEY_ONE, 1);
    start();
    put("a", "secret");
    setenv("POSTERN_VAULT_KEY", KEY_TWO, 1);
    refused((struct vault_config){0}, "not in POSTERN_VAULT_KEY: restore that key");
    setenv("POSTERN_VAULT_KEY", KEY_TWO "," KEY_ONE, 1);
    start();
    assert_true(opens("a", "secret", &err));
}

static void S6_the_sources_of_the_key_ring_are_tried_in_order(void **state)
{
    (void)state;
    char credential[128], file[128];
    snprintf(credential, sizeof credential, "%s/postern-vault-key", directory);
    snprintf(file, sizeof file, "%s/mine.key", directory);
    write_ring(credential, KEY_TWO "\n");
    chmod(credential, 0440);  // the mode that systemd gives it
    write_ring(file, "# mine\n" KEY_TWO "\n" KEY_THREE_PLAIN "," KEY_ONE "\n");
    write_ring(ring, KEY_TWO);
    setenv("CREDENTIALS_DIRECTORY", directory, 1);
    setenv("POSTERN_VAULT_KEY", KEY_ONE " " KEY_TWO, 1);
    start_with((struct vault_config){.key_file = file});
    assert_string_equal(vault_source(vault), file);
    start();
    assert_string_equal(vault_source(vault), "POSTERN_VAULT_KEY");
    unsetenv("POSTERN_VAULT_KEY");
    start();
    assert_string_equal(vault_source(vault), credential);
    unlink(credential);
    start();
    assert_string_equal(vault_source(vault), ring);
}

static void S6_an_invalid_key_ring_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "does not contain a key"},
        {"# nothing but words\n", "does not contain a key"},
        {"password", "key 1 is not 32 bytes"},
        {KEY_ONE "A", "key 1 is not 32 bytes"},
        {KEY_ONE "\nAAAA", "key 2 is not 32 bytes"},
        {KEY_ONE "\n" KEY_ONE, "is a duplicate"},
        {KEY_THREE "," KEY_THREE_PLAIN, "is a duplicate"},
        {"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA!", "key 1 is not 32 bytes"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct err err = {0};
        setenv("POSTERN_VAULT_KEY", rows[i].text, 1);
        assert_row(!(vault = vault_open(&(struct vault_config){0}, records, &err)), rows[i].text);
        assert_contains(err.detail, rows[i].says);
        assert_null(strstr(err.detail, "AAAA"));  // an error never quotes a key
    }
}

static void S2_a_key_file_that_others_may_read_is_refused(void **state)
{
    (void)state;
    static const mode_t modes[] = {0640, 0604, 0660, 0644};
    write_ring(ring, KEY_ONE);
    for (size_t i = 0; i < COUNT(modes); i++) {
        chmod(ring, modes[i]);
        refused((struct vault_config){.key_file = ring}, "chmod 600");
        refused((struct vault_config){0}, "chmod 600");
    }
    chmod(ring, 0400);
    start_with((struct vault_config){.key_file = ring});
    refused((struct vault_config){.key_file = "/nonexistent/key"}, "cannot read the vault's keys");
}

// ---- rotation -------------------------------------------------------------------------------

// Makes the last rotation an hour old.
static void age_ring(void)
{
    struct timespec then[2] = {{.tv_sec = time(NULL) - 3600}, {.tv_sec = time(NULL) - 3600}};
    assert_int_equal(utimensat(AT_FDCWD, ring, then, 0), 0);
}

static void S6_a_rotation_reseals_every_record_and_keeps_generations(void **state)
{
    (void)state;
    struct err err = {0};
    struct vault_rotation rotation;
    struct vault_status status;
    start();
    int64_t generation[20];
    for (int i = 0; i < 20; i++) {
        char key[16];
        snprintf(key, sizeof key, "key%d", i);
        generation[i] = put(key, key);
    }
    assert_true(vault_status(vault, records, &status, &err));
    assert_int_equal(status.count, 1);
    assert_int_equal(status.keys[0].records, 21);  // including the check record
    char old[VAULT_ID_CHARS + 1];
    memcpy(old, status.keys[0].id, sizeof old);

    assert_true(vault_rotate(vault, records, &rotation, &err));
    assert_true(rotation.made);
    assert_int_equal(rotation.resealed, 21);
    assert_int_equal(rotation.dropped, 0);
    assert_string_not_equal(rotation.id, old);
    assert_true(vault_status(vault, records, &status, &err));
    assert_int_equal(status.count, 2);
    assert_string_equal(status.keys[0].id, rotation.id);
    assert_true(status.keys[0].current);
    assert_int_equal(status.keys[0].records, 21);
    assert_string_equal(status.keys[1].id, old);
    assert_int_equal(status.keys[1].records, 0);
    for (int i = 0; i < 20; i++) {
        char key[16];
        struct record record;
        snprintf(key, sizeof key, "key%d", i);
        assert_true(opens(key, key, &err));
        assert_int_equal(record_get(records, grant(key), &record, &err), RECORD_YES);
        assert_int_equal(record.generation, generation[i]);  // so a refresh in progress can still save
    }
    assert_true(vault_rotate(vault, records, &rotation, &err));
    assert_int_equal(rotation.dropped, 0);  // the previous key stays for processes that still write with it
    assert_true(vault_rotate(vault, records, &rotation, &err));
    assert_int_equal(rotation.dropped, 0);  // within the hour, older keys stay as well
    age_ring();
    assert_true(vault_rotate(vault, records, &rotation, &err));
    assert_int_equal(rotation.dropped, 2);
    assert_true(opens("key0", "key0", &err));
}

static void S6_another_process_follows_a_rotation(void **state)
{
    (void)state;
    struct err err = {0};
    struct vault_rotation rotation;
    start();
    put("before", "one");
    struct vault *other = vault_open(&(struct vault_config){0}, records, &err);
    assert_true(vault_rotate(other, records, &rotation, &err));
    assert_true(opens("before", "one", &err));  // this vault has not read the new key yet
    put("after", "two");
    struct vault_status status;
    assert_true(vault_status(other, records, &status, &err));
    assert_int_equal(status.keys[0].records, 3);  // `after` was sealed with the new key
    vault_free(other);
}

static void S6_a_key_ring_that_cannot_be_written_is_rotated_by_its_owner(void **state)
{
    (void)state;
    struct err err = {0};
    struct vault_rotation rotation;
    setenv("POSTERN_VAULT_KEY", KEY_ONE, 1);
    start();
    put("a", "secret");
    assert_true(vault_rotate(vault, records, &rotation, &err));
    assert_false(rotation.made);
    assert_int_equal(rotation.resealed, 0);
    setenv("POSTERN_VAULT_KEY", KEY_TWO " " KEY_ONE, 1);
    start();
    assert_true(vault_rotate(vault, records, &rotation, &err));
    assert_int_equal(rotation.resealed, 2);
    setenv("POSTERN_VAULT_KEY", KEY_TWO, 1);
    start();
    assert_true(opens("a", "secret", &err));
}

static void S7_a_rotation_is_refused_while_a_key_is_missing(void **state)
{
    (void)state;
    struct err err = {0};
    struct vault_rotation rotation;
    write_ring(ring, KEY_ONE);
    start();
    put("a", "secret");
    write_ring(ring, KEY_TWO "\n" KEY_ONE);
    put("b", "secret");
    assert_true(vault_rotate(vault, records, &rotation, &err));  // all records are sealed with a new key
    put("c", "secret");
    char text[512] = {0};
    int fd = open(ring, O_RDONLY);
    assert_true(read(fd, text, sizeof text - 1) > 0);
    close(fd);
    write_ring(ring, KEY_ONE);
    vault_free(vault);
    vault = vault_open(&(struct vault_config){0}, records, &err);
    assert_null(vault);
    write_ring(ring, text);
    start();
    assert_true(opens("c", "secret", &err));
}

// After the kill, every record opens. The next round rotates again.
static void S6_a_rotation_may_be_killed_at_any_moment(void **state)
{
    (void)state;
    struct err err = {0};
    start();
    for (int i = 0; i < 100; i++) {
        char key[16];
        snprintf(key, sizeof key, "key%d", i);
        put(key, key);
    }
    for (int round = 0; round < 6; round++) {
        record_close(records);
        pid_t child = fork();
        if (child == 0) {
            struct vault_rotation rotation;
            struct record_store *mine = record_open(&(struct record_config){0}, &err);
            struct vault *own = mine ? vault_open(&(struct vault_config){0}, mine, &err) : NULL;
            _exit(own && vault_rotate(own, mine, &rotation, &err) ? 0 : 3);
        }
        usleep((useconds_t)(3000 * round));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        records = record_open(&(struct record_config){0}, &err);
        assert_non_null(records);
        start();
        for (int i = 0; i < 100; i++) {
            char key[16];
            snprintf(key, sizeof key, "key%d", i);
            assert_true(opens(key, key, &err));
        }
    }
}

// In a child: seals and stores records until it is killed, as a gateway does.
static void store_until_killed(int fd)
{
    struct err err = {0};
    struct record_store *mine = record_open(&(struct record_config){0}, &err);
    struct vault *own = mine ? vault_open(&(struct vault_config){0}, mine, &err) : NULL;
    int64_t generations[10] = {0};
    for (int i = 0; own; i++) {
        char key[16];
        struct buf sealed = {0};
        snprintf(key, sizeof key, "busy%d", i % 10);
        if (!vault_seal(own, grant(key), span_of(key), &sealed, &err) ||
            record_put(mine, grant(key), buf_span(&sealed), &generations[i % 10], &err) != RECORD_YES)
            break;
        buf_release(&sealed);
        if (i == 20 && write(fd, "x", 1) != 1)
            break;
    }
    _exit(3);
}

static void S6_a_rotation_beside_a_gateway_that_writes_loses_no_record(void **state)
{
    (void)state;
    struct err err = {0};
    int ends[2], status;
    char byte;
    start();
    put("still", "still");
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);  // the child ends also if the test fails
        store_until_killed(ends[1]);
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    for (int i = 0; i < 12; i++) {
        struct vault_rotation rotation;
        if (!vault_rotate(vault, records, &rotation, &err))
            fail_msg("%s", err.detail);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status));  // the child did not fail before
    close(ends[0]);
    close(ends[1]);
    assert_true(opens("still", "still", &err));
    for (int i = 0; i < 10; i++) {
        char key[16];
        snprintf(key, sizeof key, "busy%d", i);
        if (!opens(key, key, &err))
            fail_msg("%s: %s", key, err.detail);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(S6_a_sealed_secret_opens_and_two_seals_of_it_differ),
        TEST(S6_a_sealed_secret_with_any_changed_byte_does_not_open),
        TEST(S6_a_record_moved_to_another_key_or_space_does_not_open),
        TEST(S2_S6_a_key_ring_is_created_once_and_readable_only_by_its_owner),
        TEST(S7_a_missing_key_ring_is_not_recreated_and_records_are_not_deleted),
        TEST(S7_a_wrong_key_ring_is_refused_at_startup_with_advice),
        TEST(S6_the_sources_of_the_key_ring_are_tried_in_order),
        TEST(S6_an_invalid_key_ring_is_refused),
        TEST(S2_a_key_file_that_others_may_read_is_refused),
        TEST(S6_a_rotation_reseals_every_record_and_keeps_generations),
        TEST(S6_another_process_follows_a_rotation),
        TEST(S6_a_key_ring_that_cannot_be_written_is_rotated_by_its_owner),
        TEST(S7_a_rotation_is_refused_while_a_key_is_missing),
        TEST(S6_a_rotation_beside_a_gateway_that_writes_loses_no_record),
        TEST(S6_a_rotation_may_be_killed_at_any_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
