// Tests that permissions are checked again (X15): subscriptions end when their rule expires or the roles of their caller change.
#include "auth/policy/policy.h"
#include "room.h"
#include "unit.h"
#include <time.h>
#include <unistd.h>

static time_t now = 4070908800;  // 2099-01-01

// Replaces the system's function, because rules expire at the end of a day.
time_t time(time_t *timer)
{
    if (timer)
        *timer = now;
    return now;
}

#define RULE(id, subject, more)                                                                            \
    "{\"id\":\"" id "\",\"effect\":\"allow\",\"description\":\"a rule of this test\",\"tenants\":[\"*\"]," \
    "\"subjects\":[\"" subject "\"],\"servers\":[\"s\"],\"kinds\":[\"resource\"]," more "}"

static const char text[] = "{\"version\":1,\"description\":\"A policy of a test\",\"rules\":[" RULE(
    "day", "authenticated",
    "\"names\":[\"x://day\"],\"expires\":\"2099-01-01\"") "," RULE("role", "role:clerk",
                                                                   "\"names\":[\"x://role\"]") "]}";

struct fixture {
    struct server server;
    struct tenant tenant;
    struct gate gate;
    struct link link;
    struct session session;
};

static struct policy *load(void)
{
    char path[] = "/tmp/postern-visibility-XXXXXX";
    struct err err = {0};
    struct policy_findings findings = {0};
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, sizeof text - 1) == (ssize_t)sizeof text - 1 && close(fd) == 0);
    struct policy *policy = policy_load(&(struct policy_load){.path = path, .now = now}, &findings, &err);
    assert_row(policy != NULL, err.detail);
    policy_findings_release(&findings);
    unlink(path);
    return policy;
}

static struct identity *clerk(void)
{
    struct identity *identity = identity_new(IDENTITY_JWT, "default", "corp", "ann");
    identity_add_role(identity, SPAN("clerk"));
    return identity;
}

static void set_up(struct fixture *f)
{
    struct err err;
    static const struct upstream_listener nobody;
    static char name[] = "default";
    *f = (struct fixture){.server = {.name = "s"}};
    f->gate = (struct gate){.loop = loop_new(&err)};
    f->tenant = (struct tenant){.name = name, .refs = 1};
    list_init(&f->gate.tenants);
    list_append(&f->gate.tenants, &f->tenant.node);
    struct policy *policy = load();
    tenant_set_policy(&f->tenant, policy);
    policy_unref(policy);
    f->tenant.recheck_at = policy_next_expiry(f->tenant.memo);
    f->link = (struct link){.gate = &f->gate, .tenant = &f->tenant};
    f->link.upstream = upstream_new(&(struct upstream_spec){
        .loop = f->gate.loop, .server = &f->server, .capabilities = "{}", .max_message = 1000, .listener = &nobody});
    f->session = (struct session){.gate = &f->gate, .tenant = &f->tenant, .identity = clerk()};
    map_put(&f->gate.sessions, SPAN("session"), &f->session);
    subscription_add(&f->session, &f->link, SPAN("x://day"));
    subscription_add(&f->session, &f->link, SPAN("x://role"));
}

static void tear_down(struct fixture *f)
{
    subscription_drop_session(&f->session);
    map_release(&f->session.subscribed);
    map_release(&f->link.watched);
    upstream_free(f->link.upstream);
    identity_unref(f->session.identity);
    map_release(&f->gate.sessions);
    tenant_set_policy(&f->tenant, NULL);
    loop_free(f->gate.loop);
}

static bool subscribed(struct fixture *f, const char *uri)
{
    void *value;
    for (size_t at = 0; map_next(&f->session.subscribed, &at, NULL, &value);)
        if (strcmp(((const struct subscription *)value)->uri, uri) == 0)
            return true;
    return false;
}

static void X15_a_subscription_ends_when_its_rule_expires(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    const struct policy_question other = {f.session.identity, "s", POLICY_RESOURCE, SPAN("x://role"), NULL};
    now += 86400 - 1;
    recheck_sweep(&f.gate);
    assert_true(subscribed(&f, "x://day") && subscribed(&f, "x://role"));
    now++;
    assert_int_equal(policy_decide(f.tenant.memo, &other).verdict,
                     VERDICT_ALLOW);  // the decision also updates the time of the memo
    recheck_sweep(&f.gate);
    assert_true(!subscribed(&f, "x://day") && subscribed(&f, "x://role"));
    assert_true(f.tenant.recheck_at == INT64_MAX);
    now = 4070908800;
    tear_down(&f);
}

static void X15_a_subscription_ends_with_the_role_that_allowed_it(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    struct identity *same = clerk(), *less = identity_new(IDENTITY_JWT, "default", "corp", "ann");
    recheck_identity(&f.session, same);
    assert_true(f.session.identity == same);
    assert_true(subscribed(&f, "x://day") && subscribed(&f, "x://role"));
    recheck_identity(&f.session, less);
    assert_true(f.session.identity == less);
    assert_true(subscribed(&f, "x://day") && !subscribed(&f, "x://role"));
    identity_unref(same);
    identity_unref(less);
    tear_down(&f);
}

// Visibility decides whether a server is started for a caller, and whether it gets the caller's log level and roots.
static void X10_a_server_is_visible_if_a_rule_allows_an_item_of_it(void **state)
{
    (void)state;
    struct policy *policy = load();
    struct policy_memo *memo = policy_memo_new(policy);
    struct identity *ann = clerk(), *nobody = identity_new(IDENTITY_ANONYMOUS, "default", "none", "");
    assert_true(policy_visible_server(memo, ann, "s"));
    assert_false(policy_visible_server(memo, ann, "t"));
    assert_false(policy_visible_server(memo, nobody, "s"));
    assert_false(policy_visible_server(memo, NULL, "s"));
    assert_false(policy_visible_server(NULL, ann, "s"));
    identity_unref(ann);
    identity_unref(nobody);
    policy_memo_free(memo);
    policy_unref(policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(X15_a_subscription_ends_when_its_rule_expires),
        cmocka_unit_test(X15_a_subscription_ends_with_the_role_that_allowed_it),
        cmocka_unit_test(X10_a_server_is_visible_if_a_rule_allows_an_item_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
