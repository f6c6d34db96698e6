// Tests the grant store: keys of grants, the content of the files, the cache, registrations, attempts, and refreshing
// under a lease.
#include "auth/caller/identity.h"
#include "auth/grant/store.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "encoding.h"
#include "folder.h"
#include "run_until.h"
#include "sealing.h"
#include "store/record.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ISSUER "https://as.example.com"
#define RESOURCE "https://mcp.example.com/mcp"

static char database[96];
static struct loop *loop;
static struct loop *inherited;  // the parent's loop in a child process, which uses its own
static struct grant_store *store;

static int set_up(void **state)
{
    struct err err;
    if (make_state_directory(state) != 0)
        return -1;
    snprintf(database, sizeof database, "%s/store.db", directory);
    alarm(240);
    return (loop = loop_new(&err)) ? 0 : -1;
}

static int tear_down(void **state)
{
    grant_store_close(store);
    store = NULL;
    loop_free(loop);
    return remove_directory(state);
}

static void start_with(struct record_config config)
{
    struct err err = {0};
    store = grant_store_open(loop, &config, &(struct vault_config){0}, &err);
    if (!store)
        fail_msg("%s", err.detail);
}

static void start(void) { start_with((struct record_config){0}); }

static void stop(void)
{
    grant_store_close(store);
    store = NULL;
}

#define run_until(condition) run_loop_until(loop, condition)

// ---- grants ---------------------------------------------------------------------------------

static const struct grant_key alice = {"default", "bearer/alice", ISSUER, RESOURCE};

static struct grant *make(const struct grant_key *key, const char *access, const char *refresh)
{
    struct grant_fields fields = {.token_type = mem_string("Bearer"),
                                  .scope = mem_string("read write"),
                                  .expires_at = 2000000000,
                                  .obtained_at = 1900000000,
                                  .token_endpoint = mem_string(ISSUER "/token"),
                                  .client_id = mem_string("client-1"),
                                  .auth_method = mem_string("none")};
    secret_set(&fields.access_token, span_of(access));
    secret_set(&fields.refresh_token, span_of(refresh));
    return grant_new(key, &fields);
}

static enum grant_answer wait_for(struct grant_request *request)
{
    assert_true(grant_store_wait(store, 20000));
    assert_null(request->work);
    return request->answer;
}

static int64_t save(const struct grant_key *key, const char *access, int64_t generation)
{
    struct grant_request request = {0};
    struct grant *grant = make(key, access, "refresh-of-this");
    grant_store_save(store, grant, generation, &request);
    grant_unref(grant);
    if (wait_for(&request) != GRANT_STORE_DONE)
        fail_msg("%d: %s", request.answer, request.err.detail);
    int64_t saved = request.grant->generation;
    grant_request_release(&request);
    return saved;
}

static enum grant_answer find(const struct grant_key *key, const char *access)
{
    struct grant_request request = {0};
    grant_store_find(store, key, &request);
    enum grant_answer answer = wait_for(&request);
    if (answer == GRANT_STORE_DONE && access)
        assert_span(secret_span(&request.grant->is.access_token), span_of(access), "access token");
    assert_true((answer == GRANT_STORE_DONE) == (request.grant != NULL));
    grant_request_release(&request);
    return answer;
}

static void S1_a_grant_is_read_back_as_it_was_saved(void **state)
{
    (void)state;
    struct grant_request request = {0};
    struct grant_fields fields = {.token_type = mem_string("Bearer"),
                                  .scope = mem_string("read"),
                                  .scope_asked = mem_string("read write"),
                                  .expires_at = 2000000000,
                                  .obtained_at = 1900000000,
                                  .token_endpoint = mem_string(ISSUER "/token"),
                                  .revocation_endpoint = mem_string(ISSUER "/revoke"),
                                  .client_id = mem_string("client-1"),
                                  .client_redirect = mem_string("http://127.0.0.1:8085/callback"),
                                  .auth_method = mem_string("client_secret_basic"),
                                  .account = mem_string("alice@example.com"),
                                  .dead_at = 7,
                                  .dead_reason = mem_string("invalid_grant")};
    secret_set(&fields.access_token, SPAN("access"));
    secret_set(&fields.refresh_token, SPAN("refresh"));
    struct grant *grant = grant_new(&alice, &fields);
    assert_null(fields.scope);
    start();
    grant_store_save(store, grant, 0, &request);
    grant_unref(grant);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    int64_t generation = request.grant->generation;
    stop();
    start();
    grant_store_find(store, &alice, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    const struct grant *got = request.grant;
    assert_int_equal(got->generation, generation);
    assert_string_equal(got->tenant, alice.tenant);
    assert_string_equal(got->user, alice.user);
    assert_string_equal(got->issuer, alice.issuer);
    assert_string_equal(got->resource, alice.resource);
    assert_span(secret_span(&got->is.access_token), SPAN("access"), "access");
    assert_span(secret_span(&got->is.refresh_token), SPAN("refresh"), "refresh");
    assert_string_equal(got->is.token_type, "Bearer");
    assert_string_equal(got->is.scope, "read");
    assert_string_equal(got->is.scope_asked, "read write");
    assert_int_equal(got->is.expires_at, 2000000000);
    assert_int_equal(got->is.obtained_at, 1900000000);
    assert_string_equal(got->is.token_endpoint, ISSUER "/token");
    assert_string_equal(got->is.revocation_endpoint, ISSUER "/revoke");
    assert_string_equal(got->is.client_id, "client-1");
    assert_string_equal(got->is.client_redirect, "http://127.0.0.1:8085/callback");
    assert_string_equal(got->is.auth_method, "client_secret_basic");
    assert_string_equal(got->is.account, "alice@example.com");
    assert_int_equal(got->is.dead_at, 7);
    assert_string_equal(got->is.dead_reason, "invalid_grant");
    grant_request_release(&request);
}

// Each of these keys is that of a different grant.
static void S1_H1_a_grant_is_found_only_under_its_own_key(void **state)
{
    (void)state;
    static const struct grant_key keys[] = {
        {"default", "bearer/alice", ISSUER, RESOURCE},
        {"default", "bearer/bob", ISSUER, RESOURCE},
        {"globex", "bearer/alice", ISSUER, RESOURCE},
        {"default", "jwt/alice", ISSUER, RESOURCE},
        {"default", "bearer/alice", ISSUER "/", RESOURCE},
        {"default", "bearer/alice", ISSUER, RESOURCE "/"},
        {"default", "bearer/alice", ISSUER, ""},
        {"default", "bearer/Alice", ISSUER, RESOURCE},
        {"default", "bearer/alice,", ISSUER, RESOURCE},
        {"default", "a,1:b", "c", "d"},
        {"default", "a", "b,1:c", "d"},
        {"default", "a", "b", "c,1:d"},
        {"default", "", "ab", "c"},
        {"", "default", "ab", "c"},
    };
    start();
    for (size_t i = 0; i < COUNT(keys); i++) {
        char token[16];
        for (size_t k = i; k < COUNT(keys); k++)
            assert_row(find(&keys[k], NULL) == GRANT_STORE_ABSENT && !grant_store_cached(store, &keys[k]),
                       keys[k].user);
        snprintf(token, sizeof token, "token%zu", i);
        save(&keys[i], token, 0);
    }
    for (size_t i = 0; i < COUNT(keys); i++) {
        char token[16];
        snprintf(token, sizeof token, "token%zu", i);
        const struct grant *cached = grant_store_cached(store, &keys[i]);
        assert_non_null(cached);
        assert_span(secret_span(&cached->is.access_token), span_of(token), token);
        assert_int_equal(find(&keys[i], token), GRANT_STORE_DONE);
    }
}

static void S1_equal_subjects_of_two_providers_are_different_users(void **state)
{
    (void)state;
    static const struct {
        const char *provider, *subject, *user;
    } rows[] = {
        {"bearer", "alice", "bearer/alice"},
        {"jwt", "alice", "jwt/alice"},
        {"a", "b/c", "a/b/c"},
        {"a/b", "c", "a%2Fb/c"},
        {"a%2Fb", "c", "a%252Fb/c"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct identity *identity = identity_new(IDENTITY_BEARER, "default", rows[i].provider, rows[i].subject);
        char *user = grant_user(identity);
        assert_string_equal(user, rows[i].user);
        free(user);
        identity_unref(identity);
    }
}

static void F7_a_save_from_an_old_generation_is_a_conflict_and_returns_the_stored_grant(void **state)
{
    (void)state;
    struct grant_request request = {0};
    start();
    int64_t first = save(&alice, "one", 0);
    int64_t second = save(&alice, "two", first);
    assert_true(second > first);
    static const int64_t none = 0;
    int64_t stale[] = {none, first};
    for (size_t i = 0; i < COUNT(stale); i++) {
        struct grant *late = make(&alice, "late", "late");
        grant_store_save(store, late, stale[i], &request);
        grant_unref(late);
        assert_int_equal(wait_for(&request), GRANT_STORE_CONFLICT);
        assert_span(secret_span(&request.grant->is.access_token), SPAN("two"), "the stored grant");
        assert_int_equal(request.grant->generation, second);
    }
    grant_request_release(&request);
    assert_int_equal(find(&alice, "two"), GRANT_STORE_DONE);
}

static void F13_a_removal_deletes_only_the_generation_that_was_refused(void **state)
{
    (void)state;
    struct grant_request request = {0};
    start();
    int64_t first = save(&alice, "one", 0);
    int64_t second = save(&alice, "two", first);
    grant_store_remove(store, &alice, first, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_CONFLICT);  // a process that lost the race never deletes
    assert_int_equal(find(&alice, "two"), GRANT_STORE_DONE);
    grant_store_remove(store, &alice, second, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    assert_int_equal(find(&alice, NULL), GRANT_STORE_ABSENT);
    grant_store_remove(store, &alice, GRANT_STORE_ANY, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_ABSENT);  // S12: a second removal is not an error
    save(&alice, "three", 0);
    grant_store_remove(store, &alice, GRANT_STORE_ANY, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    grant_request_release(&request);
}

static void T9_a_grant_is_fresh_until_shortly_before_it_expires(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        int64_t expires, obtained, now, margin, dead;
        bool fresh;
    } rows[] = {
        {"before expiry", 2000, 1000, 1500, 30, 0, true},
        {"within the margin", 2000, 1000, 1970, 30, 0, false},
        {"just before the margin", 2000, 1000, 1969, 30, 0, true},
        {"expired", 2000, 1000, 2001, 0, 0, false},
        {"expiry unknown", 0, 1000, 999999, 30, 0, true},
        {"the clock went back behind obtained_at", 2000, 1000, 500, 30, 0, true},
        {"dead", 2000, 1000, 1500, 30, 1400, false},
        {"issued expired", 1000, 1000, 1000, 0, 0, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct grant_fields fields = {
            .expires_at = rows[i].expires, .obtained_at = rows[i].obtained, .dead_at = rows[i].dead};
        secret_set(&fields.access_token, SPAN("x"));
        struct grant *grant = grant_new(&alice, &fields);
        assert_row(grant_fresh(grant, rows[i].now, rows[i].margin) == rows[i].fresh, rows[i].label);
        grant_unref(grant);
    }
}

static void T9_a_grant_stays_fresh_when_the_clock_goes_back(void **state)
{
    (void)state;
    struct grant_fields fields = {.obtained_at = 1000, .expires_at = 1010};
    secret_set(&fields.access_token, SPAN("x"));
    struct grant *grant = grant_new(&alice, &fields);
    assert_false(grant_fresh(grant, 1010, 0));
    assert_true(grant_fresh(grant, 1009, 0));
    assert_true(grant_fresh(grant, 0, 0));
    grant_unref(grant);
}

static void S5_damaged_keys_and_bytes_are_refused(void **state)
{
    (void)state;
#define GOOD_KEY "1:a,1:b,1:c,0:,"
    static const struct {
        const char *label, *key;
        size_t key_len;
        const char *bytes;
        size_t len;
        bool good;
    } rows[] = {
        {"no fields", LIT(GOOD_KEY), LIT("\1"), true},
        {"an access token", LIT(GOOD_KEY), LIT("\1\1\0\0\0\2ab"), true},
        {"a tag of a later version", LIT(GOOD_KEY), LIT("\1\177\0\0\0\2ab"), true},
        {"commas and colons in a text", LIT("5:1:a,,,1:b,1:c,0:,"), LIT("\1"), true},
        {"no bytes", LIT(GOOD_KEY), LIT(""), false},
        {"another version", LIT(GOOD_KEY), LIT("\2"), false},
        {"half the head of a field", LIT(GOOD_KEY), LIT("\1\1\0\0"), false},
        {"a length beyond the end", LIT(GOOD_KEY), LIT("\1\1\0\0\0\5ab"), false},
        {"the largest length", LIT(GOOD_KEY), LIT("\1\1\377\377\377\377ab"), false},
        {"a time of two bytes", LIT(GOOD_KEY), LIT("\1\6\0\0\0\2ab"), false},
        {"a text twice", LIT(GOOD_KEY), LIT("\1\4\0\0\0\1a\4\0\0\0\1b"), false},
        {"a zero in a text", LIT(GOOD_KEY), LIT("\1\4\0\0\0\2a\0"), false},
        {"an empty key", LIT(""), LIT("\1"), false},
        {"three texts", LIT("1:a,1:b,1:c,"), LIT("\1"), false},
        {"five texts", LIT(GOOD_KEY "1:e,"), LIT("\1"), false},
        {"no comma at the end", LIT("1:a,1:b,1:c,0:"), LIT("\1"), false},
        {"a length that is too long", LIT("1:a,1:b,1:c,9:,"), LIT("\1"), false},
        {"a length that is not a number", LIT("1:a,1:b,1:c,x:,"), LIT("\1"), false},
        {"a length below zero", LIT("1:a,1:b,1:c,-1:,"), LIT("\1"), false},
        {"a length of many digits", LIT("1:a,1:b,1:c,99999999999999999999:,"), LIT("\1"), false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct err err = {0};
        struct grant *grant =
            grant_decode(span_make(rows[i].key, rows[i].key_len), span_make(rows[i].bytes, rows[i].len), 1, &err);
        assert_row((grant != NULL) == rows[i].good, rows[i].label);
        grant_unref(grant);
    }
}

static void H14_grants_are_listed_and_purged_by_tenant_user_and_issuer(void **state)
{
    (void)state;
    struct grant_request request = {0};
    static const struct grant_key keys[] = {
        {"default", "bearer/alice", "https://one", "r1"},  {"default", "bearer/alice", "https://two", "r2"},
        {"default", "bearer/al", "https://one", "r1"},     {"globex", "bearer/alice", "https://one", "r1"},
        {"default", "bearer/alice2", "https://one", "r1"},
    };
    static const struct {
        const char *label;
        struct grant_filter filter;
        size_t count;
    } rows[] = {
        {"all", {0}, 5},
        {"a tenant", {.tenant = "default"}, 4},
        {"a user", {.tenant = "default", .user = "bearer/alice"}, 2},
        {"a user at an issuer", {"default", "bearer/alice", "https://two"}, 1},
        {"an issuer", {.tenant = "default", .issuer = "https://one"}, 3},
        {"an issuer, everywhere", {.issuer = "https://one"}, 4},
        {"a user, everywhere", {.user = "bearer/alice"}, 3},
        {"a user at an issuer, everywhere", {.user = "bearer/alice", .issuer = "https://one"}, 2},
        {"a user without grants", {.tenant = "default", .user = "bearer/carol"}, 0},
        {"a user without grants, everywhere", {.user = "bearer/carol"}, 0},
        {"an unknown tenant", {.tenant = "defaul"}, 0},
    };
    start();
    for (size_t i = 0; i < COUNT(keys); i++)
        save(&keys[i], "token", 0);
    for (size_t i = 0; i < COUNT(rows); i++) {
        grant_store_list(store, &rows[i].filter, &request);
        assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
        assert_row(request.count == rows[i].count, rows[i].label);
    }
    grant_store_purge(store, &(struct grant_filter){.tenant = "default", .user = "bearer/alice"}, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    assert_int_equal(request.count, 2);
    assert_null(grant_store_cached(store, &keys[0]));
    assert_int_equal(find(&keys[0], NULL), GRANT_STORE_ABSENT);
    assert_int_equal(find(&keys[2], "token"), GRANT_STORE_DONE);
    assert_int_equal(find(&keys[3], "token"), GRANT_STORE_DONE);
    grant_store_purge(store, &(struct grant_filter){.issuer = "https://one"}, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    assert_int_equal(request.count, 3);
    grant_request_release(&request);
}

// ---- requests -------------------------------------------------------------------------------

static int done_count;
static void on_done(struct grant_request *request)
{
    (void)request;
    done_count++;
}

static void a_cancelled_request_is_not_called_back_and_its_write_completes(void **state)
{
    (void)state;
    start();
    done_count = 0;
    struct grant_request *request = mem_new(struct grant_request);
    request->on_done = on_done;
    struct grant *grant = make(&alice, "one", "r");
    grant_store_save(store, grant, 0, request);
    grant_unref(grant);
    grant_request_cancel(request);
    free(request);
    assert_true(grant_store_wait(store, 20000));
    assert_int_equal(done_count, 0);
    assert_int_equal(find(&alice, "one"), GRANT_STORE_DONE);
}

// The write of another process blocks the worker. 4096 requests wait, and the others are refused.
static void requests_beyond_the_queue_fail_and_each_is_called_back_once(void **state)
{
    (void)state;
    enum { MANY = 5000, WAITING = 4096 };
    static struct grant_request requests[MANY], blocked;
    size_t failed = 0;
    sqlite3 *writer;
    start();
    assert_true(grant_store_wait(store, 20000));  // for the jobs that the store starts itself when it is opened
    done_count = 0;
    assert_int_equal(sqlite3_open(database, &writer), SQLITE_OK);
    assert_int_equal(sqlite3_exec(writer, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    grant_store_remove(store, &alice, 1, &blocked);
    for (size_t i = 0; i < MANY; i++) {
        requests[i] = (struct grant_request){.on_done = on_done};
        grant_store_find(store, &alice, &requests[i]);
    }
    assert_int_equal(done_count, 0);  // never from inside grant_store_find()
    assert_int_equal(sqlite3_exec(writer, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(writer);
    assert_true(grant_store_wait(store, 20000));
    assert_int_equal(done_count, MANY);
    assert_int_equal(blocked.answer, GRANT_STORE_ABSENT);
    for (size_t i = 0; i < MANY; i++) {
        failed += requests[i].answer == GRANT_STORE_FAILED;
        assert_true(requests[i].answer == GRANT_STORE_ABSENT || requests[i].err.code == ERR_TOO_MANY);
        grant_request_release(&requests[i]);
    }
    assert_in_range(failed, MANY - WAITING,
                    MANY - WAITING + 1);  // one less waits if the worker had not taken the first one yet
}

static void closing_the_store_finishes_started_requests(void **state)
{
    (void)state;
    struct grant_request request = {.on_done = on_done};
    start();
    done_count = 0;
    struct grant *grant = make(&alice, "one", "r");
    grant_store_save(store, grant, 0, &request);
    grant_unref(grant);
    stop();
    assert_int_equal(done_count, 1);
    grant_request_release(&request);
    start();
    assert_int_equal(find(&alice, "one"), GRANT_STORE_DONE);
}

// ---- the files ------------------------------------------------------------------------------

static bool file_has(const char *name, struct span secret)
{
    static char text[4 << 20];
    int fd = open(name, O_RDONLY);
    ssize_t len = read(fd, text, sizeof text);
    close(fd);
    return len > 0 && memmem(text, (size_t)len, secret.at, secret.len);
}

// Searches every file of the store (database, write-ahead log and its index) and counts them.
static bool disk_has(const char *secret, size_t *files)
{
    bool found = false;
    DIR *all = opendir(directory);
    *files = 0;
    for (struct dirent *one; (one = readdir(all));) {
        char name[400];
        snprintf(name, sizeof name, "%s/%s", directory, one->d_name);
        if (one->d_name[0] == '.' || strstr(one->d_name, "vault.key"))
            continue;
        ++*files;
        found = file_has(name, span_of(secret)) || found;
    }
    closedir(all);
    return found;
}

static int64_t wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static struct attempt *make_attempt(const char *user, const char *server)
{
    struct identity *identity = identity_new(IDENTITY_BEARER, "default", "bearer", user);
    identity_add_role(identity, SPAN("reader"));
    identity_add_role(identity, SPAN("wri,ter"));
    identity->token_id = mem_string("token-1");
    struct attempt *attempt = attempt_new(identity, server, RESOURCE);
    attempt->expires_ms = wall_ms() + 300000;
    identity_unref(identity);
    return attempt;
}

static void S6_the_files_of_the_store_contain_no_secret(void **state)
{
    (void)state;
    struct grant_request request = {0};
    size_t files;
    start();
    struct grant *grant = make(&alice, "ACCESS-0123456789", "REFRESH-0123456789");
    grant_store_save(store, grant, 0, &request);
    grant_unref(grant);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    struct registration_fields fields = {.client_id = mem_string("client-1")};
    secret_set(&fields.client_secret, SPAN("CLIENT-SECRET-0123456789"));
    secret_set(&fields.registration_token, SPAN("REGISTRATION-0123456789"));
    struct registration *registration =
        registration_new(&(struct registration_key){"default", ISSUER, "http://127.0.0.1/cb"}, &fields);
    grant_store_registration_save(store, registration, 0, &request);
    registration_unref(registration);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    struct attempt *attempt = make_attempt("alice", "files");
    secret_set(&attempt->login, SPAN("VERIFIER-0123456789"));
    grant_store_attempt_add(store, SPAN("STATE-0123456789"), attempt, &request);
    attempt_free(attempt);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    grant_request_release(&request);
    static const char *const secrets[] = {"ACCESS-0123456789",       "REFRESH-0123456789", "CLIENT-SECRET-0123456789",
                                          "REGISTRATION-0123456789", "STATE-0123456789",   "VERIFIER-0123456789"};
    for (int closed = 0; closed < 2; closed++) {
        for (size_t i = 0; i < COUNT(secrets); i++) {
            assert_row(!disk_has(secrets[i], &files), secrets[i]);
            assert_true(files >= (closed ? 1 : 3));
        }
        if (!closed)
            stop();
    }
    assert_true(disk_has(ISSUER, &files));  // the search finds text that is not secret
    start();
    assert_int_equal(find(&alice, "ACCESS-0123456789"), GRANT_STORE_DONE);
}

static struct record_store *other_side(void)
{
    struct err err = {0};
    struct record_store *records = record_open(&(struct record_config){0}, &err);
    assert_non_null(records);
    return records;
}

static void put_key(struct buf *out, const struct grant_key *key)
{
    buf_clear(out);
    grant_key_encode(key, out);
}

static void S6_tampered_and_swapped_records_are_errors_and_do_not_log_a_user_out(void **state)
{
    (void)state;
    struct err err = {0};
    struct buf key = {0}, value = {0};
    struct record record;
    static const struct grant_key bob = {"default", "bearer/bob", ISSUER, RESOURCE};
    start();
    save(&alice, "alices", 0);
    save(&bob, "bobs", 0);
    stop();
    struct record_store *records = other_side();
    put_key(&key, &alice);
    assert_int_equal(record_get(records, (struct record_name){VAULT_GRANTS, buf_span(&key)}, &record, &err),
                     RECORD_YES);
    buf_put_span(&value, record.value);
    put_key(&key, &bob);
    assert_int_equal(record_get(records, (struct record_name){VAULT_GRANTS, buf_span(&key)}, &record, &err),
                     RECORD_YES);
    int64_t generation = record.generation;
    assert_int_equal(
        record_put(records, (struct record_name){VAULT_GRANTS, buf_span(&key)}, buf_span(&value), &generation, &err),
        RECORD_YES);
    put_key(&key, &alice);
    value.at[value.len - 20] ^= 1;
    assert_int_equal(record_get(records, (struct record_name){VAULT_GRANTS, buf_span(&key)}, &record, &err),
                     RECORD_YES);
    generation = record.generation;
    assert_int_equal(
        record_put(records, (struct record_name){VAULT_GRANTS, buf_span(&key)}, buf_span(&value), &generation, &err),
        RECORD_YES);
    record_close(records);
    start();
    assert_int_equal(find(&bob, NULL), GRANT_STORE_FAILED);    // the record of alice, moved to bob's key
    assert_int_equal(find(&alice, NULL), GRANT_STORE_FAILED);  // one bit was changed
    struct grant_request request = {0};
    grant_store_list(store, &(struct grant_filter){.tenant = "default"}, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    assert_int_equal(request.count, 0);
    assert_contains(request.err.detail, "modified");
    grant_store_purge(store, &(struct grant_filter){.tenant = "default"}, &request);  // how an operator recovers
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    assert_int_equal(request.count, 2);
    grant_request_release(&request);
    buf_release(&key);
    buf_release(&value);
}

static void S7_a_store_with_another_key_does_not_open_and_keeps_its_records(void **state)
{
    (void)state;
    struct err err = {0};
    start();
    save(&alice, "one", 0);
    stop();
    setenv("POSTERN_VAULT_KEY", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", 1);
    assert_null(grant_store_open(loop, &(struct record_config){0}, &(struct vault_config){0}, &err));
    assert_contains(err.detail, "restore that key");
    unsetenv("POSTERN_VAULT_KEY");
    start();
    assert_int_equal(find(&alice, "one"), GRANT_STORE_DONE);
}

// ---- the cache ------------------------------------------------------------------------------

// The processor time of this thread, which other load of the machine does not affect.
static int64_t own_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void a_cached_grant_is_found_without_the_disk_in_microseconds(void **state)
{
    (void)state;
    enum { MANY = 20000 };
    start();
    assert_null(grant_store_cached(store, &alice));
    save(&alice, "one", 0);
    int64_t begin = own_us();
    for (int i = 0; i < MANY; i++)
        assert_non_null(grant_store_cached(store, &alice));
    int64_t us = own_us() - begin;
    print_message("%.2f us a lookup\n", (double)us / MANY);
    assert_true(us < (int64_t)MANY * 20 || under_valgrind());
    static const struct grant_key bob = {"default", "bearer/bob", ISSUER, RESOURCE};
    assert_null(grant_store_cached(store, &bob));
}

// Adds grants of the users u0, u1, … in one transaction, because one transaction for each would take long.
static void fill_with_users(int count)
{
    struct err err = {0};
    char user[32];
    struct grant_key key = {"default", user, ISSUER, RESOURCE};
    struct record_store *records = other_side();
    struct vault *vault = vault_open(&(struct vault_config){0}, records, &err);
    sqlite3 *writer;
    sqlite3_stmt *insert;
    assert_non_null(vault);
    assert_int_equal(sqlite3_open(database, &writer), SQLITE_OK);
    assert_int_equal(sqlite3_exec(writer, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_prepare_v2(writer, "INSERT INTO record VALUES('grant',?,1,0,?)", -1, &insert, NULL);
    for (int i = 0; i < count; i++) {
        struct buf name = {0}, plain = {0}, sealed = {0};
        snprintf(user, sizeof user, "bearer/u%d", i);
        struct grant *grant = make(&key, "t", "r");
        grant_key_encode(&key, &name);
        grant_encode(grant, &plain);
        assert_true(
            vault_seal(vault, (struct record_name){VAULT_GRANTS, buf_span(&name)}, buf_span(&plain), &sealed, &err));
        sqlite3_bind_blob(insert, 1, name.at, (int)name.len, SQLITE_STATIC);
        sqlite3_bind_blob(insert, 2, sealed.at, (int)sealed.len, SQLITE_STATIC);
        assert_int_equal(sqlite3_step(insert), SQLITE_DONE);
        sqlite3_reset(insert);
        grant_unref(grant);
        buf_release(&name);
        buf_wipe(&plain);
        buf_release(&sealed);
    }
    sqlite3_finalize(insert);
    assert_int_equal(sqlite3_exec(writer, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(writer);
    vault_free(vault);
    record_close(records);
}

static bool user_is_cached(int i)
{
    char user[32];
    snprintf(user, sizeof user, "bearer/u%d", i);
    return grant_store_cached(store, &(struct grant_key){"default", user, ISSUER, RESOURCE}) != NULL;
}

static void the_cache_is_bounded_and_keeps_recently_used_grants(void **state)
{
    (void)state;
    enum { MORE = 10 };
    start();
    fill_with_users(GRANT_STORE_CACHE + MORE);
    for (int i = 0; i < GRANT_STORE_CACHE + MORE; i++) {
        char user[32];
        snprintf(user, sizeof user, "bearer/u%d", i);
        assert_int_equal(find(&(struct grant_key){"default", user, ISSUER, RESOURCE}, "t"), GRANT_STORE_DONE);
        if (i == GRANT_STORE_CACHE - 1)
            assert_true(user_is_cached(0));  // used again, so that u1 is now the least recently used
    }
    int kept = 0;
    for (int i = 0; i < GRANT_STORE_CACHE + MORE; i++)
        kept += user_is_cached(i);
    assert_int_equal(kept, GRANT_STORE_CACHE);
    assert_true(user_is_cached(0));
    for (int i = 1; i <= MORE; i++)
        assert_false(user_is_cached(i));
}

static void remove_elsewhere(void)
{
    struct err err = {0};
    struct buf key = {0};
    struct record record;
    struct record_store *records = other_side();
    grant_key_encode(&alice, &key);
    struct record_name name = {VAULT_GRANTS, buf_span(&key)};
    assert_int_equal(record_get(records, name, &record, &err), RECORD_YES);
    assert_int_equal(record_delete(records, name, record.generation, &err), RECORD_YES);
    record_close(records);
    buf_release(&key);
}

static bool is_not_cached(void) { return !grant_store_cached(store, &alice); }

static void a_logout_in_another_process_takes_effect_within_a_second(void **state)
{
    (void)state;
    start();
    save(&alice, "one", 0);
    assert_false(is_not_cached());
    remove_elsewhere();
    int64_t begin = clock_now_ms();
    run_until(is_not_cached());
    assert_true(clock_now_ms() - begin < 1000);
    assert_int_equal(find(&alice, NULL), GRANT_STORE_ABSENT);
}

static int64_t stay_until;
static bool stayed(void) { return is_not_cached() || clock_now_ms() >= stay_until; }

static void the_cache_survives_its_checks_and_the_saves_of_its_own_process(void **state)
{
    (void)state;
    static const struct grant_key bob = {"default", "bearer/bob", ISSUER, RESOURCE};
    start();
    save(&alice, "one", 0);
    save(&bob, "two", 0);  // a change by this process does not clear the cache
    assert_non_null(grant_store_cached(store, &alice));
    stay_until = clock_now_ms() + 3 * GRANT_STORE_STALE_MS;  // long enough for several checks
    run_until(stayed());
    assert_false(is_not_cached());
}

// The write of another process blocks the worker, so the cache cannot be compared with the store.
static void a_cache_that_cannot_be_checked_is_not_used(void **state)
{
    (void)state;
    static const struct grant_key bob = {"default", "bearer/bob", ISSUER, RESOURCE};
    struct grant_request request = {0};
    sqlite3 *writer;
    start();
    save(&alice, "one", 0);
    assert_int_equal(sqlite3_open(database, &writer), SQLITE_OK);
    assert_int_equal(sqlite3_exec(writer, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    grant_store_remove(store, &bob, 1, &request);
    assert_false(is_not_cached());
    run_until(is_not_cached());
    assert_int_equal(sqlite3_exec(writer, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(writer);
    assert_int_equal(wait_for(&request), GRANT_STORE_ABSENT);
    assert_int_equal(find(&alice, "one"), GRANT_STORE_DONE);
    assert_false(is_not_cached());
    grant_request_release(&request);
}

// ---- registrations and attempts -------------------------------------------------------------

static void G7_G9_a_registration_is_found_by_its_issuer_and_redirect(void **state)
{
    (void)state;
    struct grant_request request = {0};
    struct registration_key key = {"default", ISSUER, "http://127.0.0.1:8085/callback"}, other = key, elsewhere = key;
    other.redirect = "http://127.0.0.1:8086/callback";
    elsewhere.issuer = "https://evil.example.com";
    struct registration_fields fields = {.client_id = mem_string("id"),
                                         .secret_expires_at = 1,
                                         .issued_at = 2,
                                         .auth_method = mem_string("client_secret_post"),
                                         .registration_uri = mem_string(ISSUER "/reg/id"),
                                         .redirect_uris = mem_string("http://127.0.0.1:8085/callback"),
                                         .scope = mem_string("read"),
                                         .suspect_at = 3};
    secret_set(&fields.client_secret, SPAN("s"));
    secret_set(&fields.registration_token, SPAN("t"));
    struct registration *made = registration_new(&key, &fields);
    start();
    grant_store_registration_find(store, &key, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_ABSENT);
    grant_store_registration_save(store, made, 0, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    int64_t generation = request.registration->generation;
    grant_store_registration_save(store, made, 0, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_CONFLICT);
    assert_int_equal(request.registration->generation, generation);
    registration_unref(made);
    grant_store_registration_find(store, &other, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_ABSENT);
    grant_store_registration_find(store, &elsewhere, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_ABSENT);
    grant_store_registration_find(store, &key, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    const struct registration_fields *is = &request.registration->is;
    assert_string_equal(is->client_id, "id");
    assert_span(secret_span(&is->client_secret), SPAN("s"), "secret");
    assert_span(secret_span(&is->registration_token), SPAN("t"), "token");
    assert_string_equal(is->auth_method, "client_secret_post");
    assert_string_equal(is->registration_uri, ISSUER "/reg/id");
    assert_string_equal(is->redirect_uris, "http://127.0.0.1:8085/callback");
    assert_string_equal(is->scope, "read");
    assert_int_equal(is->secret_expires_at, 1);
    assert_int_equal(is->issued_at, 2);
    assert_int_equal(is->suspect_at, 3);
    grant_store_registration_remove(store, &key, generation + 1, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_CONFLICT);
    grant_store_registration_remove(store, &key, generation, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    grant_store_registration_remove(store, &key, GRANT_STORE_ANY, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_ABSENT);
    grant_request_release(&request);
}

static void save_registration(const struct registration_key *key, const char *id, const char *previous)
{
    struct grant_request request = {0};
    struct registration_fields fields = {.client_id = mem_string(id), .previous_id = mem_string(previous)};
    secret_set(&fields.client_secret, SPAN("secret-now"));
    secret_set(&fields.previous_secret, SPAN("secret-before"));
    struct registration *made = registration_new(key, &fields);
    grant_store_registration_save(store, made, 0, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    registration_unref(made);
    grant_request_release(&request);
}

static void G9_the_previous_client_is_remembered_with_its_secret(void **state)
{
    (void)state;
    struct grant_request request = {0};
    struct registration_key key = {"default", ISSUER, "http://127.0.0.1:8085/callback"};
    start();
    save_registration(&key, "new", "old");
    grant_store_registration_find(store, &key, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    assert_string_equal(registration_secret(request.registration, "new")->bytes, "secret-now");
    assert_string_equal(registration_secret(request.registration, "old")->bytes, "secret-before");
    assert_null(registration_secret(request.registration, "other"));
    grant_request_release(&request);
}

static void G10_only_the_refused_client_becomes_suspect(void **state)
{
    (void)state;
    struct grant_request request = {0};
    struct registration_key key = {"default", ISSUER, "http://127.0.0.1:8085/callback"};
    start();
    grant_store_registration_suspect(store, &key, "id", &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_ABSENT);
    save_registration(&key, "id", NULL);
    grant_store_registration_suspect(store, &key, "the previous client", &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_ABSENT);
    grant_store_registration_find(store, &key, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    assert_int_equal(request.registration->is.suspect_at, 0);
    grant_store_registration_suspect(store, &key, "id", &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    grant_store_registration_find(store, &key, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    assert_true(request.registration->is.suspect_at > 0);
    assert_string_equal(request.registration->is.client_secret.bytes, "secret-now");
    grant_request_release(&request);
}

static int64_t minutes;
static int64_t clock_of_minutes(void) { return 1000000 + minutes * 60000; }

static void G13_each_issuer_and_tenant_allows_one_registration_a_minute(void **state)
{
    (void)state;
    struct grant_request request = {0};
    minutes = 0;
    for (int round = 0; round < 2; round++) {
        start_with((struct record_config){.clock_ms = clock_of_minutes});
        grant_store_registration_claim(store, "default", ISSUER, &request);
        assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
        stop();  // the limit outlives the process that registered
        start_with((struct record_config){.clock_ms = clock_of_minutes});
        grant_store_registration_claim(store, "default", ISSUER, &request);
        assert_int_equal(wait_for(&request), GRANT_STORE_CONFLICT);
        assert_contains(request.err.detail, "try again in 60 seconds");
        grant_store_registration_claim(store, "default", round ? "https://b.example" : "https://a.example", &request);
        assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
        grant_store_registration_claim(store, round ? "beta" : "alpha", ISSUER, &request);
        assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
        stop();
        minutes++;
    }
    grant_request_release(&request);
}

static enum grant_answer add_attempt(const char *state, const char *user, const char *server)
{
    struct grant_request request = {0};
    struct attempt *attempt = make_attempt(user, server);
    grant_store_attempt_add(store, span_of(state), attempt, &request);
    enum grant_answer answer = wait_for(&request);
    attempt_free(attempt);
    grant_request_release(&request);
    return answer;
}

static struct attempt *find_attempt(const char *state)
{
    struct grant_request request = {0};
    grant_store_attempt_find(store, span_of(state), &request);
    enum grant_answer answer = wait_for(&request);
    struct attempt *attempt = request.attempt;
    request.attempt = NULL;
    assert_int_equal(answer, attempt ? GRANT_STORE_DONE : GRANT_STORE_ABSENT);
    grant_request_release(&request);
    return attempt;
}

static bool has_attempt(const char *state)
{
    struct attempt *attempt = find_attempt(state);
    bool there = attempt != NULL;
    attempt_free(attempt);
    return there;
}

static void set_stage(const char *state, enum attempt_stage stage)
{
    struct grant_request request = {0};
    struct attempt *attempt = find_attempt(state);
    attempt->stage = stage;
    grant_store_attempt_save(store, span_of(state), attempt, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    assert_int_equal(request.attempt->stage, stage);
    assert_true(request.attempt->generation > attempt->generation);
    attempt_free(attempt);
    grant_request_release(&request);
}

static void D16_a_configured_client_belongs_to_the_first_issuer(void **state)
{
    (void)state;
    struct grant_request request = {0};
    static const struct {
        struct client_place place;
        const char *issuer;
        enum grant_answer answer;
    } rows[] = {
        {{"default", "https://mcp/a", "client"}, "https://one", GRANT_STORE_DONE},
        {{"default", "https://mcp/a", "client"}, "https://two", GRANT_STORE_CONFLICT},
        {{"default", "https://mcp/a", "client"}, "https://one", GRANT_STORE_DONE},
        {{"default", "https://mcp/a", "another"}, "https://two", GRANT_STORE_DONE},
        {{"default", "https://mcp/b", "client"}, "https://two", GRANT_STORE_DONE},
        {{"acme", "https://mcp/a", "client"}, "https://two", GRANT_STORE_DONE},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {  // each with a newly opened store, as in another process
        start();
        grant_store_client_bind(store, &rows[i].place, rows[i].issuer, &request);
        if (wait_for(&request) != rows[i].answer)
            fail_msg("row %zu", i);
        assert_string_equal(request.issuer, rows[i].answer == GRANT_STORE_DONE ? rows[i].issuer : "https://one");
        grant_request_release(&request);
        grant_store_close(store);
        store = NULL;
    }
    start();
}

static void H9_another_process_reads_an_attempt_as_it_was_stored(void **state)
{
    (void)state;
    struct grant_request request = {0};
    start();
    struct attempt *attempt = make_attempt("alice", "files");
    attempt->return_to = mem_string("https://app.example/");
    attempt->challenged = 1;
    attempt->challenge_scope = mem_string("a b");
    secret_set(&attempt->cookie, span_make("\0digest\0", 8));
    secret_set(&attempt->login, SPAN("login"));
    grant_store_attempt_add(store, SPAN("state"), attempt, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    attempt_free(attempt);
    grant_store_attempt_add(store, SPAN("state"), request.attempt, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);  // a write that names the stored generation
    grant_request_release(&request);
    stop();
    start();
    assert_false(has_attempt("stat"));
    attempt = find_attempt("state");
    assert_int_equal(attempt->stage, ATTEMPT_OFFERED);
    assert_string_equal(attempt->server, "files");
    assert_string_equal(attempt->server_url, RESOURCE);
    assert_string_equal(attempt->return_to, "https://app.example/");
    assert_string_equal(attempt->challenge_scope, "a b");
    assert_null(attempt->held_scope);
    assert_span(secret_span(&attempt->cookie), span_make("\0digest\0", 8), "cookie");
    assert_span(secret_span(&attempt->login), SPAN("login"), "login");
    struct identity *identity = attempt_identity(attempt);
    assert_int_equal(identity->proof, IDENTITY_BEARER);
    assert_string_equal(identity->subject, "alice");
    assert_string_equal(identity->token_id, "token-1");
    assert_int_equal(identity->role_count, 2);
    assert_string_equal(identity->roles[1], "wri,ter");
    identity_unref(identity);
    attempt_forget(attempt);
    assert_int_equal(attempt->stage, ATTEMPT_OVER);
    assert_int_equal(attempt->cookie.len + attempt->login.len, 0);
    attempt_free(attempt);
}

static void B7_H9_only_one_of_two_processes_takes_an_attempt(void **state)
{
    (void)state;
    struct err err = {0};
    struct grant_request first = {0}, second = {0};
    start();
    struct grant_store *other = grant_store_open(loop, &(struct record_config){0}, &(struct vault_config){0}, &err);
    assert_non_null(other);
    assert_memory_equal(grant_store_key(store), grant_store_key(other), 32);
    assert_int_equal(add_attempt("state", "alice", "files"), GRANT_STORE_DONE);
    struct attempt *attempt = find_attempt("state");
    attempt->stage = ATTEMPT_OVER;
    grant_store_attempt_save(store, SPAN("state"), attempt, &first);
    grant_store_attempt_save(other, SPAN("state"), attempt, &second);
    attempt_free(attempt);
    assert_true(grant_store_wait(store, 10000));
    assert_true(grant_store_wait(other, 10000));
    assert_int_equal((first.answer == GRANT_STORE_DONE) + (second.answer == GRANT_STORE_DONE), 1);
    assert_int_equal((first.answer == GRANT_STORE_CONFLICT) + (second.answer == GRANT_STORE_CONFLICT), 1);
    assert_null(first.answer == GRANT_STORE_CONFLICT ? first.attempt : second.attempt);
    grant_request_release(&first);
    grant_request_release(&second);
    grant_store_close(other);
    attempt = find_attempt("state");
    assert_int_equal(attempt->stage, ATTEMPT_OVER);
    attempt_free(attempt);
}

static void alter(const char *sql)
{
    sqlite3 *writer;
    assert_int_equal(sqlite3_open(database, &writer), SQLITE_OK);
    assert_int_equal(sqlite3_exec(writer, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(writer);
}

static int64_t count_attempts(void)
{
    sqlite3 *reader;
    sqlite3_stmt *statement;
    assert_int_equal(sqlite3_open(database, &reader), SQLITE_OK);
    sqlite3_prepare_v2(reader, "SELECT count(*) FROM record WHERE space='attempt'", -1, &statement, NULL);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    int64_t count = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(reader);
    return count;
}

static void H9_an_attempt_expires_after_ten_minutes_and_when_the_clock_goes_back(void **state)
{
    (void)state;
    static const struct {
        const char *label, *sql;
        int64_t expires_in_ms;
        bool there;
    } rows[] = {
        {"young", "UPDATE record SET updated=updated-590000 WHERE space='attempt'", 5000, true},
        {"old", "UPDATE record SET updated=updated-600000 WHERE space='attempt'", 5000, false},
        {"from the future", "UPDATE record SET updated=updated+3600000 WHERE space='attempt'", 5000, false},
        {"an expired attempt", "SELECT 1", 0, false},
        {"an expiry too far in the future", "SELECT 1", 3600000, false},
    };
    start();
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct grant_request request = {0};
        struct attempt *attempt = make_attempt("alice", "files");
        attempt->expires_ms = wall_ms() + rows[i].expires_in_ms;
        grant_store_attempt_add(store, span_of(rows[i].label), attempt, &request);
        assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
        attempt_free(attempt);
        grant_request_release(&request);
        alter(rows[i].sql);
        assert_row(has_attempt(rows[i].label) == rows[i].there, rows[i].label);
        alter("DELETE FROM record WHERE space='attempt'");
    }
    assert_int_equal(add_attempt("left alone", "alice", "files"), GRANT_STORE_DONE);
    alter("UPDATE record SET updated=updated-600001 WHERE space='attempt'");
    grant_store_attempt_expire(store);
    assert_true(grant_store_wait(store, 10000));
    assert_int_equal(count_attempts(), 0);
}

static void H9_a_user_has_five_open_attempts_at_a_server_and_a_sixth_replaces_the_oldest(void **state)
{
    (void)state;
    char name[32];
    start();
    assert_int_equal(add_attempt("of bob", "bob", "files"), GRANT_STORE_DONE);
    assert_int_equal(add_attempt("elsewhere", "alice", "mail"), GRANT_STORE_DONE);
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "alice %d", i);
        assert_int_equal(add_attempt(name, "alice", "files"), GRANT_STORE_DONE);
    }
    assert_true(has_attempt("alice 0"));
    set_stage("alice 0", ATTEMPT_AWAY);
    assert_int_equal(add_attempt("alice 5", "alice", "files"), GRANT_STORE_DONE);
    assert_true(has_attempt("alice 0"));  // the user has consented to it, so the others are dropped first
    assert_false(has_attempt("alice 1"));
    set_stage("alice 2", ATTEMPT_OVER);
    assert_int_equal(add_attempt("alice 6", "alice", "files"), GRANT_STORE_DONE);
    static const char *const there[] = {"alice 0", "alice 2", "alice 3", "alice 4",
                                        "alice 5", "alice 6", "of bob",  "elsewhere"};
    for (size_t i = 0; i < COUNT(there); i++)
        assert_row(has_attempt(there[i]), there[i]);
    for (int i = 3; i < 7; i++) {
        snprintf(name, sizeof name, "alice %d", i);
        set_stage(name, ATTEMPT_AWAY);
    }
    assert_int_equal(add_attempt("alice 7", "alice", "files"), GRANT_STORE_DONE);
    assert_false(has_attempt("alice 0"));  // the user has consented to all, so the oldest is dropped
    assert_true(has_attempt("alice 7"));
}

// Adds so many attempts as if they were new; their records cannot be opened, but count.
static void crowd(int count)
{
    char sql[400];
    snprintf(sql, sizeof sql,
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<%d)"
             "INSERT INTO record SELECT 'attempt',CAST(i AS BLOB),(SELECT last FROM counter)+i,(SELECT max(updated) "
             "FROM record),x'00' FROM n;UPDATE counter SET last=last+%d",
             count, count);
    alter(sql);
}

static void H9_the_store_holds_two_thousand_attempts_and_drops_the_least_recently_used(void **state)
{
    (void)state;
    start();
    assert_int_equal(add_attempt("first", "alice", "files"), GRANT_STORE_DONE);
    assert_int_equal(add_attempt("second", "bob", "files"), GRANT_STORE_DONE);
    crowd(1998);
    assert_int_equal(count_attempts(), 2000);
    set_stage("first", ATTEMPT_AWAY);
    assert_int_equal(add_attempt("one more", "carol", "files"), GRANT_STORE_DONE);
    assert_int_equal(count_attempts(), 2000);
    assert_true(has_attempt("first"));
    assert_false(has_attempt("second"));
    assert_true(has_attempt("one more"));
    alter("UPDATE record SET updated=updated-700000 WHERE space='attempt'");
    assert_int_equal(add_attempt("now", "dave", "files"), GRANT_STORE_DONE);
    assert_int_equal(count_attempts(), 1);
}

static void add_of_tenant(const char *state, const char *tenant)
{
    struct grant_request request = {0};
    struct attempt *attempt = make_attempt("eve", "files");
    free(attempt->tenant);
    attempt->tenant = mem_string(tenant);
    grant_store_attempt_add(store, span_of(state), attempt, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    attempt_free(attempt);
    grant_request_release(&request);
}

static void H9_a_full_store_drops_finished_attempts_first_and_then_attempts_of_the_same_tenant(void **state)
{
    (void)state;
    start();
    assert_int_equal(add_attempt("of another tenant", "alice", "files"), GRANT_STORE_DONE);
    add_of_tenant("of the same", "acme");
    assert_int_equal(add_attempt("over", "bob", "files"), GRANT_STORE_DONE);
    set_stage("over", ATTEMPT_OVER);
    crowd(GRANT_STORE_ATTEMPTS - 3);
    add_of_tenant("one more", "acme");
    assert_true(has_attempt("of another tenant"));
    assert_true(has_attempt("of the same"));
    assert_false(has_attempt("over"));
    add_of_tenant("and one more", "acme");
    assert_true(has_attempt("of another tenant"));
    assert_false(has_attempt("of the same"));
    assert_true(has_attempt("one more"));
    assert_int_equal(count_attempts(), GRANT_STORE_ATTEMPTS);
}

// ---- ended grants ---------------------------------------------------------------------------

// Saves a grant that ended this many seconds ago, its last change; 0: a grant that has not ended.
static void save_ended(const struct grant_key *key, int64_t ago_s)
{
    char sql[128];
    struct grant_request request = {0};
    struct grant *grant = make(key, "access", "refresh");
    grant->is.dead_at = ago_s ? (int64_t)time(NULL) - ago_s : 0;
    grant_store_save(store, grant, 0, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    snprintf(sql, sizeof sql, "UPDATE record SET updated=updated-%lld WHERE generation=%lld", 1000LL * ago_s,
             (long long)request.grant->generation);
    alter(sql);
    grant_request_release(&request);
    grant_unref(grant);
}

static enum grant_answer answer_for(const struct grant_key *key)
{
    struct grant_request request = {0};
    grant_store_find(store, key, &request);
    enum grant_answer answer = wait_for(&request);
    grant_request_release(&request);
    return answer;
}

static void F12_a_dead_grant_is_kept_for_a_day_and_then_removed(void **state)
{
    (void)state;
    static const struct grant_key today = {"default", "bearer/today", ISSUER, RESOURCE},
                                  yesterday = {"default", "bearer/yesterday", ISSUER, RESOURCE},
                                  idle = {"default", "bearer/idle", ISSUER, RESOURCE};
    start();
    save_ended(&today, GRANT_DEAD_S - 60);
    save_ended(&yesterday, GRANT_DEAD_S + 1);
    save_ended(&idle, 0);
    alter("UPDATE record SET updated=updated-864000000 WHERE space='grant' AND generation=(SELECT max(generation) FROM "
          "record WHERE space='grant')");
    assert_int_equal(answer_for(&yesterday), GRANT_STORE_DONE);  // removed only when the store is opened
    stop();
    start();
    assert_int_equal(answer_for(&yesterday), GRANT_STORE_ABSENT);
    assert_int_equal(answer_for(&today), GRANT_STORE_DONE);
    assert_int_equal(answer_for(&idle), GRANT_STORE_DONE);  // unused for long, but not ended
}

// ---- refreshing once ------------------------------------------------------------------------

static int ready_count;
static void on_ready(struct grant_lease *lease)
{
    (void)lease;
    ready_count++;
}
static int saved_count;
static void on_saved(struct grant_lease *lease)
{
    (void)lease;
    saved_count++;
}
static bool is_ready(void) { return ready_count > 0; }
static bool is_saved(void) { return saved_count > 0; }

static void take(struct grant_lease *lease, int64_t generation, enum grant_lease_state want)
{
    grant_lease_end(lease);
    *lease = (struct grant_lease){.on_ready = on_ready, .on_saved = on_saved, .wait_ms = lease->wait_ms};
    ready_count = 0;
    grant_lease_start(store, lease, &alice, generation);
    assert_int_equal(ready_count, 0);
    run_until(is_ready());
    if (lease->state != want)
        fail_msg("%d, not %d: %s", lease->state, want, lease->err.detail);
}

static enum grant_answer finish(struct grant_lease *lease, const char *access)
{
    struct grant *fresh = make(&alice, access, "rotated");
    saved_count = 0;
    grant_lease_save(lease, fresh);
    grant_unref(fresh);
    run_until(is_saved());
    return lease->answer;
}

static void F5_the_holder_of_the_lease_refreshes_and_a_later_process_gets_the_result(void **state)
{
    (void)state;
    struct grant_lease one = {0}, two = {0};
    start();
    int64_t old = save(&alice, "old", 0);
    take(&one, old, LEASE_HELD);
    assert_span(secret_span(&one.grant->is.access_token), SPAN("old"), "read under the lease");
    two.wait_ms = 200;
    take(&two, old, LEASE_LATE);  // F6: the wait is bounded
    assert_int_equal(finish(&one, "new"), GRANT_STORE_DONE);
    assert_span(secret_span(&one.grant->is.access_token), SPAN("new"), "as stored");
    take(&two, old, LEASE_CHANGED);
    assert_span(secret_span(&two.grant->is.access_token), SPAN("new"), "theirs");
    grant_lease_end(&two);
    take(&two, one.grant->generation, LEASE_HELD);  // the lease is free again
    grant_lease_end(&two);
    grant_lease_end(&one);
    assert_int_equal(find(&alice, "new"), GRANT_STORE_DONE);
}

static void F5_a_lease_that_ends_without_a_result_is_free_for_the_next_process(void **state)
{
    (void)state;
    struct grant_lease lease = {0};
    start();
    int64_t old = save(&alice, "old", 0);
    for (int i = 0; i < 3; i++) {
        take(&lease, old, LEASE_HELD);
        grant_lease_end(&lease);
    }
    assert_int_equal(find(&alice, "old"), GRANT_STORE_DONE);
}

static void a_lease_on_an_absent_grant_reports_that_the_grant_is_gone(void **state)
{
    (void)state;
    struct grant_lease lease = {0};
    start();
    take(&lease, 1, LEASE_GONE);
    assert_null(lease.grant);
    grant_lease_end(&lease);
}

enum { CALLERS = 50 };
static struct grant_lease callers[CALLERS];
static int held_count, changed_count;

static void on_caller_saved(struct grant_lease *lease) { grant_lease_end(lease); }

static void on_caller(struct grant_lease *lease)
{
    if (lease->state == LEASE_HELD) {
        held_count++;
        struct grant *fresh = make(&alice, "new", "rotated");
        grant_lease_save(lease, fresh);
        grant_unref(fresh);
        return;
    }
    changed_count += lease->state == LEASE_CHANGED && span_is(secret_span(&lease->grant->is.access_token), "new");
    grant_lease_end(lease);
}

static bool all_called(void) { return held_count + changed_count == CALLERS; }

static void F3_only_one_of_many_callers_in_a_process_refreshes(void **state)
{
    (void)state;
    start();
    int64_t old = save(&alice, "old", 0);
    held_count = changed_count = 0;
    int64_t begin = clock_now_ms();
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (struct grant_lease){.on_ready = on_caller, .on_saved = on_caller_saved};
        grant_lease_start(store, &callers[i], &alice, old);
    }
    run_until(all_called());
    assert_int_equal(held_count, 1);
    assert_true(clock_now_ms() - begin < 5000);  // the end of each lease wakes the next caller, without a timer
}

static void leases_may_be_ended_at_any_moment(void **state)
{
    (void)state;
    struct grant_lease one = {.on_ready = on_ready, .on_saved = on_saved}, two = one;
    start();
    int64_t old = save(&alice, "old", 0);
    ready_count = saved_count = 0;
    grant_lease_start(store, &one, &alice, old);
    grant_lease_start(store, &two, &alice, old);
    grant_lease_end(&one);  // its job is on the worker
    grant_lease_end(&two);  // it waits for `one`
    grant_lease_end(&two);
    assert_true(grant_store_wait(store, 10000));
    assert_int_equal(ready_count, 0);
    take(&one, old, LEASE_HELD);
    struct grant *fresh = make(&alice, "new", "rotated");
    saved_count = 0;
    grant_lease_save(&one, fresh);
    grant_unref(fresh);
    grant_lease_end(&one);  // during the save, which completes
    assert_true(grant_store_wait(store, 10000));
    assert_int_equal(saved_count, 0);
    assert_int_equal(find(&alice, "new"), GRANT_STORE_DONE);
    take(&one, old, LEASE_CHANGED);
    take(&two, one.grant->generation, LEASE_HELD);
    stop();  // releases the lease of `two`
    grant_lease_end(&one);
    grant_lease_end(&two);
    start();
    assert_int_equal(find(&alice, "new"), GRANT_STORE_DONE);
    take(&one, grant_store_cached(store, &alice)->generation, LEASE_HELD);
    grant_lease_end(&one);
}

static void F13_a_user_who_logs_out_during_a_refresh_stays_logged_out(void **state)
{
    (void)state;
    struct grant_lease lease = {0};
    struct grant_request request = {0};
    start();
    int64_t old = save(&alice, "old", 0);
    take(&lease, old, LEASE_HELD);
    grant_store_remove(store, &alice, GRANT_STORE_ANY, &request);
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    assert_int_equal(finish(&lease, "new"), GRANT_STORE_CONFLICT);
    assert_null(lease.grant);
    grant_lease_end(&lease);
    assert_int_equal(find(&alice, NULL), GRANT_STORE_ABSENT);
    grant_request_release(&request);
}

// A clock that only the tests move, so that leases do not expire on a slow machine.
static int64_t lease_clock_ms = 1000000;
static int64_t lease_clock(void) { return lease_clock_ms; }
static void start_with_lease_clock(void) { start_with((struct record_config){.clock_ms = lease_clock}); }

static void hold_and_wait(int fd)
{
    struct grant_lease lease = {.on_ready = on_ready};
    struct grant_request request = {0};
    loop = loop_new(&request.err);
    start_with_lease_clock();
    grant_store_find(store, &alice, &request);
    if (!grant_store_wait(store, 10000) || !request.grant)
        _exit(3);
    grant_lease_start(store, &lease, &alice, request.grant->generation);
    run_until(is_ready());
    if (lease.state != LEASE_HELD || write(fd, "h", 1) != 1)
        _exit(4);
    for (;;)
        pause();
}

static void F4_the_lease_of_a_killed_holder_expires_and_its_grant_stays(void **state)
{
    (void)state;
    struct grant_lease lease = {.wait_ms = 300};
    int ends[2];
    char byte;
    start_with_lease_clock();
    int64_t old = save(&alice, "old", 0);
    stop();
    assert_int_equal(pipe(ends), 0);
    ready_count = 0;
    pid_t child = fork();
    if (child == 0)
        hold_and_wait(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ends[0]);
    close(ends[1]);
    start_with_lease_clock();
    take(&lease, old, LEASE_LATE);
    grant_lease_end(&lease);
    stop();
    lease_clock_ms += GRANT_STORE_HOLD_MS;
    start_with_lease_clock();
    take(&lease, old, LEASE_HELD);
    assert_int_equal(finish(&lease, "new"), GRANT_STORE_DONE);
    grant_lease_end(&lease);
    assert_int_equal(find(&alice, "new"), GRANT_STORE_DONE);
}

// ---- processes that refresh one grant -------------------------------------------------------

enum { RACERS = 3, ROUNDS = 40 };

struct race {
    pthread_barrier_t line;
    atomic_int refreshed[ROUNDS], reused[ROUNDS], trouble;
};

static struct race *race;

// An authorization server that rotates refresh tokens: the token of a round works once, and a second use ends the
// grant.
static bool refresh_at_server(int round) { return atomic_fetch_add(&race->refreshed[round], 1) == 0; }

static int this_round;

static void on_racer(struct grant_lease *lease)
{
    char want[32];
    snprintf(want, sizeof want, "round%d", this_round);
    if (lease->state == LEASE_HELD) {
        if (!refresh_at_server(this_round))
            atomic_fetch_add(&race->trouble, 1);
        struct grant *fresh = make(&alice, want, "rotated");
        grant_lease_save(lease, fresh);
        grant_unref(fresh);
    } else {
        bool good = lease->state == LEASE_CHANGED && span_is(secret_span(&lease->grant->is.access_token), want);
        atomic_fetch_add(good ? &race->reused[this_round] : &race->trouble, 1);
        loop_stop(loop);
    }
}

static void on_racer_saved(struct grant_lease *lease)
{
    if (lease->answer != GRANT_STORE_DONE)
        atomic_fetch_add(&race->trouble, 1);
    loop_stop(loop);
}

static void racer(void)
{
    struct grant_request request = {0};
    inherited = loop;
    loop = loop_new(&request.err);
    start_with_lease_clock();
    for (this_round = 0; this_round < ROUNDS; this_round++) {
        pthread_barrier_wait(&race->line);
        grant_store_find(store, &alice, &request);
        if (!grant_store_wait(store, 20000) || !request.grant)
            _exit(3);
        pthread_barrier_wait(&race->line);  // now all have read the old grant
        struct grant_lease lease = {.on_ready = on_racer, .on_saved = on_racer_saved};
        grant_lease_start(store, &lease, &alice, request.grant->generation);
        loop_run(loop);
        grant_lease_end(&lease);
    }
    grant_request_release(&request);
    stop();
    _exit(0);
}

static void F4_F7_only_one_of_several_processes_asks_the_server_to_refresh_a_grant(void **state)
{
    (void)state;
    race = mmap(NULL, sizeof *race, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(race, MAP_FAILED);
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&race->line, &shared, RACERS);
    start_with_lease_clock();
    save(&alice, "old", 0);
    stop();
    pid_t children[RACERS];
    for (int i = 0; i < RACERS; i++)
        if ((children[i] = fork()) == 0)
            racer();
    for (int i = 0; i < RACERS; i++) {
        int status;
        waitpid(children[i], &status, 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    assert_int_equal(atomic_load(&race->trouble), 0);
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(atomic_load(&race->refreshed[i]), 1);
        assert_int_equal(atomic_load(&race->reused[i]), RACERS - 1);
    }
    munmap(race, sizeof *race);
}

// ---- a full disk ----------------------------------------------------------------------------

static bool is_all_saved(void) { return grant_store_unsaved(store, NULL) == 0; }

static void F10_a_refreshed_grant_that_cannot_be_written_is_kept_in_memory_and_written_later(void **state)
{
    (void)state;
    static char large[60000];
    static const struct grant_key ballast = {"default", "bearer/ballast", ISSUER, RESOURCE};
    struct grant_lease lease = {0}, other = {.wait_ms = 100};
    struct grant_request request = {0};
    memset(large, 'x', sizeof large - 1);
    start_with((struct record_config){.page_limit = 50});
    int64_t old = save(&alice, "old", 0);
    save(&ballast, large, 0);
    save(&(struct grant_key){"default", "bearer/second", ISSUER, RESOURCE}, large, 0);
    take(&lease, old, LEASE_HELD);
    memset(large, 'y', sizeof large - 1);
    assert_int_equal(finish(&lease, large), GRANT_STORE_FAILED);
    assert_contains(lease.err.detail, "free disk space");
    struct err why = {0};
    assert_int_equal(grant_store_unsaved(store, &why), 1);
    assert_contains(why.detail, "free disk space");
    assert_span(secret_span(&grant_store_cached(store, &alice)->is.access_token), span_of(large), "in memory");
    assert_int_equal(find(&alice, large), GRANT_STORE_DONE);  // this process uses the new grant
    take(&other, old, LEASE_LATE);                            // and no process uses the spent refresh token
    grant_lease_end(&lease);
    grant_lease_end(&other);
    grant_store_remove(store, &ballast, GRANT_STORE_ANY, &request);  // frees space
    assert_int_equal(wait_for(&request), GRANT_STORE_DONE);
    grant_request_release(&request);
    run_until(is_all_saved());
    stop();
    start();
    assert_int_equal(find(&alice, large), GRANT_STORE_DONE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(S1_a_grant_is_read_back_as_it_was_saved),
        TEST(S1_H1_a_grant_is_found_only_under_its_own_key),
        TEST(S1_equal_subjects_of_two_providers_are_different_users),
        TEST(F7_a_save_from_an_old_generation_is_a_conflict_and_returns_the_stored_grant),
        TEST(F13_a_removal_deletes_only_the_generation_that_was_refused),
        TEST(T9_a_grant_is_fresh_until_shortly_before_it_expires),
        TEST(T9_a_grant_stays_fresh_when_the_clock_goes_back),
        TEST(S5_damaged_keys_and_bytes_are_refused),
        TEST(H14_grants_are_listed_and_purged_by_tenant_user_and_issuer),
        TEST(a_cancelled_request_is_not_called_back_and_its_write_completes),
        TEST(requests_beyond_the_queue_fail_and_each_is_called_back_once),
        TEST(closing_the_store_finishes_started_requests),
        TEST(S6_the_files_of_the_store_contain_no_secret),
        TEST(S6_tampered_and_swapped_records_are_errors_and_do_not_log_a_user_out),
        TEST(S7_a_store_with_another_key_does_not_open_and_keeps_its_records),
        TEST(a_cached_grant_is_found_without_the_disk_in_microseconds),
        TEST(the_cache_is_bounded_and_keeps_recently_used_grants),
        TEST(a_logout_in_another_process_takes_effect_within_a_second),
        TEST(the_cache_survives_its_checks_and_the_saves_of_its_own_process),
        TEST(a_cache_that_cannot_be_checked_is_not_used),
        TEST(G7_G9_a_registration_is_found_by_its_issuer_and_redirect),
        TEST(G9_the_previous_client_is_remembered_with_its_secret),
        TEST(G10_only_the_refused_client_becomes_suspect),
        TEST(G13_each_issuer_and_tenant_allows_one_registration_a_minute),
        TEST(D16_a_configured_client_belongs_to_the_first_issuer),
        TEST(H9_another_process_reads_an_attempt_as_it_was_stored),
        TEST(H9_an_attempt_expires_after_ten_minutes_and_when_the_clock_goes_back),
        TEST(B7_H9_only_one_of_two_processes_takes_an_attempt),
        TEST(H9_a_user_has_five_open_attempts_at_a_server_and_a_sixth_replaces_the_oldest),
        TEST(H9_the_store_holds_two_thousand_attempts_and_drops_the_least_recently_used),
        TEST(H9_a_full_store_drops_finished_attempts_first_and_then_attempts_of_the_same_tenant),
        TEST(F12_a_dead_grant_is_kept_for_a_day_and_then_removed),
        TEST(F5_the_holder_of_the_lease_refreshes_and_a_later_process_gets_the_result),
        TEST(F5_a_lease_that_ends_without_a_result_is_free_for_the_next_process),
        TEST(a_lease_on_an_absent_grant_reports_that_the_grant_is_gone),
        TEST(F3_only_one_of_many_callers_in_a_process_refreshes),
        TEST(leases_may_be_ended_at_any_moment),
        TEST(F13_a_user_who_logs_out_during_a_refresh_stays_logged_out),
        TEST(F4_the_lease_of_a_killed_holder_expires_and_its_grant_stays),
        TEST(F4_F7_only_one_of_several_processes_asks_the_server_to_refresh_a_grant),
        TEST(F10_a_refreshed_grant_that_cannot_be_written_is_kept_in_memory_and_written_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
