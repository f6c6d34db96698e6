// Tests reloading: waiters that request another reload.
#include "config/chains.h"
#include "config/config.h"
#include "config/reload.h"
#include "folder.h"
#include "run_until.h"
#include <unistd.h>

#define POLICY(text) "{\"version\":1,\"description\":\"The " text " policy of a test\",\"rules\":[]}"

static char path[96], policy_path[96];
static struct loop *loop;
static const struct config *config;
static struct config_chains *chains;
static struct reload *reload;

static void on_policy(void *arg, const char *tenant, struct policy *policy)
{
    (void)arg, (void)policy;
    assert_string_equal(tenant, "default");
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
    (void)arg, (void)next, (void)policies;
    return chains;
}

static void on_drop(void *arg) { (void)arg; }

static void on_failing(void *arg, const struct err *why)
{
    (void)arg;
    if (why)
        fail_msg("%s", why->detail);
}

static const struct reload_events events = {on_policy, on_credentials, on_looked, on_prepare,
                                            on_commit, on_drop,        on_failing};

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
    loop = loop_new(&err);
    snprintf(path, sizeof path, "%s/postern.json", directory);
    snprintf(policy_path, sizeof policy_path, "%s/policy.json", directory);
    write_file(policy_path, POLICY("first"));
    put_configuration(policy_path, "");
    config = config_load(path, &err);
    assert_row(config != NULL, err.detail);
    chains = config_chains_new(config, &(struct provider_world){.loop = loop, .folder = config->folder}, &err);
    assert_row(chains != NULL, err.detail);
    reload = reload_new(&(struct reload_spec){loop, config, path, NULL, &events, NULL}, &err);
    assert_row(reload != NULL, err.detail);
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_waiter_may_request_another_reload),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
