// Measures the time that a user's fresh token adds to a call: finding the grant in the store's cache, and the request to
// the access until the loop delivers its answer; prints a line of JSON.
#include "auth/access/access.h"
#include "auth/grant/store.h"
#include "auth/grant/vault.h"
#include "base/log.h"
#include "base/mem.h"
#include "rounds.h"
#include "store/record.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 9, USERS = 1000, TIMES = 20000, WAIT_MS = 60000 };

#define ISSUER "https://as.example"
#define SERVER "https://server.example/mcp"

struct bench {
    struct loop *loop;
    struct grant_store *store;
    struct access *access[USERS];
    char users[USERS][32];
    struct access_wait wait;
    int left;  // requests that remain
    bool ok;
};

static struct grant_key key_of(const struct bench *bench, int user)
{
    return (struct grant_key){"acme", bench->users[user], ISSUER, SERVER};
}

static bool fill(struct bench *bench)
{
    static struct grant_request requests[USERS];
    bool ok = true;
    for (int i = 0; i < USERS; i++) {
        snprintf(bench->users[i], sizeof bench->users[i], "jwt/user-%d", i);
        struct grant_key key = key_of(bench, i);
        struct grant_fields fields = {.token_type = mem_string("Bearer"),
                                      .obtained_at = (int64_t)time(NULL),
                                      .expires_at = (int64_t)time(NULL) + 86400};
        secret_set(&fields.access_token, span_of("a-token-of-the-usual-length-a-token-of-the-usual-length"));
        struct grant *grant = grant_new(&key, &fields);
        grant_store_save(bench->store, grant, 0, &requests[i]);
        grant_unref(grant);
    }
    ok = grant_store_wait(bench->store, WAIT_MS);
    for (int i = 0; i < USERS; i++) {
        ok = ok && requests[i].answer == GRANT_STORE_DONE;
        grant_request_release(&requests[i]);
    }
    return ok;
}

// The next user asks when the previous one has its answer.
static void ask(struct bench *bench) { access_get(bench->access[bench->left % USERS], &bench->wait); }

static void on_ready(struct access_wait *wait, const struct err *err)
{
    struct bench *bench = wait->arg;
    const struct access *access = bench->access[bench->left % USERS];
    bench->ok = bench->ok && !err && access_version(access) && access_header(access);
    if (--bench->left > 0 && bench->ok)
        ask(bench);
    else
        loop_stop(bench->loop);
}

static void ask_times(struct bench *bench, int times)
{
    bench->left = times;
    ask(bench);
    loop_run(bench->loop);
}

static int64_t median(int64_t *rounds) { return percentile(rounds, ROUNDS, 50); }

static int64_t measure_store(struct bench *bench)
{
    int64_t rounds[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start = now_ns();
        for (int i = 0; i < TIMES; i++) {
            struct grant_key key = key_of(bench, i % USERS);
            bench->ok = bench->ok && grant_store_cached(bench->store, &key);
        }
        rounds[round] = (now_ns() - start) / TIMES;
    }
    return median(rounds);
}

static int64_t measure_access(struct bench *bench)
{
    int64_t rounds[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start = now_ns();
        ask_times(bench, TIMES);
        rounds[round] = (now_ns() - start) / TIMES;
    }
    return median(rounds);
}

static bool run(struct bench *bench)
{
    static const struct access_options options = {.mode = ACCESS_USER};
    for (int i = 0; i < USERS; i++) {
        struct access_spec spec = {.loop = bench->loop,
                                   .store = bench->store,
                                   .mode = ACCESS_USER,
                                   .options = &options,
                                   .tenant = "acme",
                                   .user = bench->users[i],
                                   .server_url = SERVER,
                                   .probe = "{}",
                                   .server_name = "server"};
        bench->access[i] = access_new(&spec);
    }
    ask_times(bench, USERS);  // warm-up: each user's grant is loaded
    long long store = measure_store(bench), access = measure_access(bench);
    for (int i = 0; i < USERS; i++)
        access_free(bench->access[i]);
    if (bench->ok)
        printf("{\"users\":%d,\"store_ns\":%lld,\"access_ns\":%lld,\"ns\":%lld}\n", USERS, store, access,
               store + access);
    return bench->ok;
}

static void clear(const char *directory)
{
    DIR *all = opendir(directory);
    for (struct dirent *one; all && (one = readdir(all));) {
        char name[400];
        snprintf(name, sizeof name, "%s/%s", directory, one->d_name);
        (void)unlink(name);
    }
    if (all)
        closedir(all);
    rmdir(directory);
}

int main(void)
{
    static struct bench bench = {.ok = true};
    char directory[] = "/tmp/postern-bench-XXXXXX";
    struct err err = {0};
    if (!mkdtemp(directory))
        return 1;
    setenv("POSTERN_STATE", directory, 1);
    unsetenv("POSTERN_VAULT_KEY");
    unsetenv("CREDENTIALS_DIRECTORY");
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    bench.wait = (struct access_wait){.on_ready = on_ready, .arg = &bench};
    bench.loop = loop_new(&err);
    if (bench.loop)
        bench.store = grant_store_open(bench.loop, &(struct record_config){0}, &(struct vault_config){0}, &err);
    bool ok = bench.store && fill(&bench) && run(&bench);
    if (!ok)
        fprintf(stderr, "bench_token: %s\n", err.code ? err.detail : "a token was not found");
    grant_store_close(bench.store);
    if (bench.loop)
        loop_free(bench.loop);
    clear(directory);
    return ok ? 0 : 1;
}
