// Tests reloading: waiters that request another reload, files that cannot be read, and policies that change while they are read.
//
// A policy that is a FIFO holds up the worker until the test has written it, so that the file can be replaced meanwhile.
#include "base/clock.h"
#include "config/chains.h"
#include "config/config.h"
#include "config/reload.h"
#include "folder.h"
#include "policies.h"
#include "run_until.h"
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define POLICY(text) "{\"version\":1,\"description\":\"The " text " policy of a test\",\"rules\":[]}"
#define SOON_MS 10000  // less than FILE_WATCH_IDLE_MS, after which everything is checked again

static char path[96], policy_path[96], other_path[96], fifo[96];
static struct loop *loop;
static const struct config *config;
static struct config_chains *chains;
static struct reload *reload;
static char in_force[72];  // digest of the policy
static bool may_fail;
static int failures, commits;

static void note_policy(const struct policy *policy)
{
    snprintf(in_force, sizeof in_force, "%s", policy ? policy_digest(policy) : "");
}

static void on_policy(void *arg, const char *tenant, struct policy *policy)
{
    (void)arg;
    assert_string_equal(tenant, "default");
    note_policy(policy);
}

static void on_credentials(void *arg, bool changed, bool failing)
{
    (void)arg;
    assert_false(changed || failing);
}

static bool on_looked(void *arg)
{
    (void)arg;
    return false;
}

static bool on_prepare(void *arg, const struct config *next, bool with_chains, struct err *err)
{
    (void)arg, (void)next, (void)with_chains, (void)err;
    return true;
}

static struct config_chains *on_commit(void *arg, const struct config *next, struct policy *const *policies)
{
    (void)arg, (void)next;
    commits++;
    note_policy(policies[0]);
    return chains;
}

static void on_failing(void *arg, const struct err *why)
{
    (void)arg;
    if (why && !may_fail)
        fail_msg("%s", why->detail);
    failures += why != NULL;
}

static const struct reload_events events = {on_policy, on_credentials, on_looked, on_prepare, on_commit, on_failing};

static void put_configuration(const char *policy, const char *more)
{
    char text[256];
    snprintf(text, sizeof text, "{\"policy\":\"%s\"%s}", policy, more);
    (void)write_in_directory("next", text);
    char next[96];
    snprintf(next, sizeof next, "%s/next", directory);
    assert_int_equal(rename(next, path), 0);
}

static int set_up(void **state)
{
    struct err err = {0};
    if (make_directory(state) != 0)
        return -1;
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    may_fail = false;
    failures = commits = 0;
    loop = loop_new(&err);
    snprintf(path, sizeof path, "%s/postern.json", directory);
    snprintf(policy_path, sizeof policy_path, "%s/policy.json", directory);
    snprintf(other_path, sizeof other_path, "%s/other.json", directory);
    write_file(policy_path, POLICY("first"));
    put_configuration(policy_path, "");
    config = config_load(path, NULL, &err);
    assert_row(config != NULL, err.detail);
    chains = config_chains_new(config, &(struct provider_world){.loop = loop, .folder = config->folder}, &err);
    assert_row(chains != NULL, err.detail);
    reload = reload_new(&(struct reload_spec){loop, config, path, NULL, &events, NULL}, &err);
    assert_row(reload != NULL, err.detail);
    note_policy(reload_policies(reload)[0]);
    reload_start(reload, chains);
    return 0;
}

static int tear_down(void **state)
{
    reload_free(reload);
    config_chains_unref(chains);
    config_unref(config);
    loop_free(loop);
    return remove_directory(state);
}

// ---- waiters --------------------------------------------------------------------------------

struct waiter {
    struct reload_waiter reload;
    struct waiter *next;  // for the reload that this one requests; NULL: none
    bool done, ok;
};

static void on_reloaded(struct reload_waiter *reloaded, bool ok, const char *text)
{
    struct waiter *waiter = reloaded->arg;
    assert_non_null(text);
    waiter->done = true;
    waiter->ok = ok;
    if (!waiter->next)
        return;
    reload_now(reload, &waiter->next->reload);
    usleep(200000);  // so that a worker would read the next configuration while this one is still in use
}

static void a_waiter_may_request_another_reload(void **state)
{
    (void)state;
    struct waiter last = {.reload = {.done = on_reloaded}}, first = {.reload = {.done = on_reloaded}, .next = &last};
    first.reload.arg = &first;
    last.reload.arg = &last;
    put_configuration(policy_path, ",\"limits\":{\"sessions\":7}");
    reload_now(reload, &first.reload);
    run_loop_until(loop, last.done);
    assert_true(first.done && first.ok && last.ok);
}

// ---- files that cannot be read --------------------------------------------------------------

static void a_configuration_for_which_no_descriptor_is_free_is_in_force_soon_after_one_is(void **state)
{
    (void)state;
    struct rlimit before, none;
    int64_t end = clock_now_ms() + 1500;  // nothing changes any more
    run_loop_until(loop, clock_now_ms() >= end);
    put_configuration(policy_path, ",\"limits\":{\"sessions\":7}");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    may_fail = true;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    run_loop_until(loop, failures > 0);
    end = clock_now_ms() + 1500;
    run_loop_until(loop, clock_now_ms() >= end);
    assert_int_equal(commits, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    end = clock_now_ms() + SOON_MS;
    run_loop_until(loop, commits || clock_now_ms() > end);
    assert_int_equal(commits, 1);
}

// ---- policies that change while they are read -----------------------------------------------

static void digest_of(const char *text, char digest[sizeof in_force])
{
    struct err err = {0};
    struct policy_findings findings = {0};
    const char *where = write_in_directory("wanted.json", text);
    struct policy *policy = config_policies_read(config, where, &findings, &err);
    assert_row(policy != NULL, err.detail);
    snprintf(digest, sizeof in_force, "%s", policy_digest(policy));
    policy_unref(policy);
    policy_findings_release(&findings);
    unlink(where);
}

// Puts a link to a FIFO there. The FIFO is in another folder, because closing it would count as a change of the folder.
static void put_fifo(const char *where)
{
    char link[96];
    snprintf(fifo, sizeof fifo, "%s.fifo", directory);
    snprintf(link, sizeof link, "%s/link", directory);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(symlink(fifo, link), 0);
    assert_int_equal(rename(link, where), 0);
}

static void put_policy(const char *where, const char *text)
{
    char next[96];
    snprintf(next, sizeof next, "%s", write_in_directory("next", text));
    assert_int_equal(rename(next, where), 0);
}

// Writes a policy to the FIFO, which the worker reads, and puts a file with another policy in its place.
static void replace_while_read(const char *where, const char *read, const char *now)
{
    int fd = -1;
    run_loop_until(loop, (fd = open(fifo, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) >= 0);
    assert_int_equal(write(fd, read, strlen(read)), strlen(read));
    put_policy(where, now);
    unlink(fifo);
    int64_t end = clock_now_ms() + 1500;  // longer than the pause before files are checked again
    run_loop_until(loop, clock_now_ms() >= end);
    close(fd);
}

static void assert_soon_in_force(const char *text)
{
    char wanted[sizeof in_force];
    digest_of(text, wanted);
    int64_t end = clock_now_ms() + SOON_MS;
    run_loop_until(loop, strcmp(in_force, wanted) == 0 || clock_now_ms() > end);
    assert_string_equal(in_force, wanted);
}

static void a_policy_that_changes_while_its_configuration_is_read_is_in_force_soon(void **state)
{
    (void)state;
    put_fifo(other_path);
    put_configuration(other_path, "");
    replace_while_read(other_path, POLICY("second"), POLICY("third"));
    assert_soon_in_force(POLICY("third"));
}

static void a_policy_that_changes_while_it_is_read_is_in_force_soon(void **state)
{
    (void)state;
    put_fifo(policy_path);
    replace_while_read(policy_path, POLICY("second"), POLICY("third"));
    assert_soon_in_force(POLICY("third"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_waiter_may_request_another_reload),
        TEST(a_configuration_for_which_no_descriptor_is_free_is_in_force_soon_after_one_is),
        TEST(a_policy_that_changes_while_its_configuration_is_read_is_in_force_soon),
        TEST(a_policy_that_changes_while_it_is_read_is_in_force_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
