// Tests limits: which row of limits.rates applies to a call, slots of calls in flight, and failed authentication.
#include "base/log.h"
#include "room.h"
#include "unit.h"
#include <arpa/inet.h>
#include <netinet/in.h>

// ---- the row of a call ----------------------------------------------------------------------

#define ROWS_MAX 3

enum { NO_ROW, T, I };  // per tenant, per identity

// Rows, a call, and the row that applies for each `per`, or -1.
static const struct choice {
    const char *name;
    struct {
        const char *server, *tool, *subject;
        int per;
    } rows[ROWS_MAX];
    const char *server, *tool;
    int tenant, identity;
} choices[] = {
#define ANY NULL, NULL, NULL
#define USER "user:bearer:ana"
    // clang-format off
    {"no rows",                          {{0}}, "git", "push", -1, -1},
    {"a row without selectors",          {{ANY, T}}, "git", "push", 0, -1},
    {"one of each per",                  {{ANY, T}, {ANY, I}}, "git", "push", 0, 1},
    {"another server's row",             {{"hub", NULL, NULL, T}}, "git", "push", -1, -1},
    {"server beats tenant",              {{ANY, T}, {"git", NULL, NULL, T}}, "git", "push", 1, -1},
    {"server beats tenant, in any order", {{"git", NULL, NULL, T}, {ANY, T}}, "git", "push", 0, -1},
    {"subject beats tenant",             {{ANY, T}, {NULL, NULL, USER, T}}, "git", "push", 1, -1},
    {"server beats subject",             {{NULL, NULL, USER, T}, {"git", NULL, NULL, T}}, "git", "push", 1, -1},
    {"tool beats server",                {{"git", NULL, NULL, T}, {NULL, "push", NULL, T}}, "git", "push", 1, -1},
    {"tool beats server and subject",    {{"git", NULL, USER, T}, {NULL, "push", NULL, T}}, "git", "push", 1, -1},
    {"a pattern beats server",           {{"git", NULL, USER, T}, {NULL, "p*", NULL, T}}, "git", "push", 1, -1},
    {"a name beats a pattern",           {{"git", "p*", USER, T}, {NULL, "push", NULL, T}}, "git", "push", 1, -1},
    {"an escaped star is a name",        {{"git", "p*", NULL, T}, {NULL, "p\\*", NULL, T}}, "git", "p*", 1, -1},
    {"same tool: server decides",        {{NULL, "push", USER, T}, {"git", "push", NULL, T}}, "git", "push", 1, -1},
    {"same tool and server: subject",    {{"git", "push", NULL, T}, {"git", "push", USER, T}}, "git", "push", 1, -1},
    {"a user beats a role",              {{NULL, NULL, "role:dev", T}, {NULL, NULL, USER, T}}, "git", "push", 1, -1},
    {"a role beats no subject",          {{ANY, T}, {NULL, NULL, "role:dev", T}}, "git", "push", 1, -1},
    {"a role that she does not have",    {{ANY, T}, {NULL, NULL, "role:boss", T}}, "git", "push", 0, -1},
    {"another user",                     {{ANY, T}, {NULL, NULL, "user:bearer:bob", T}}, "git", "push", 0, -1},
    {"the same name of another provider", {{ANY, T}, {NULL, NULL, "user:jwt:ana", T}}, "git", "push", 0, -1},
    {"two roles: the earlier row",       {{NULL, NULL, "role:ops", T}, {NULL, NULL, "role:dev", T}}, "git", "push", 0, -1},
    {"two patterns: the earlier row",    {{NULL, "*h", NULL, T}, {NULL, "p*", NULL, T}}, "git", "push", 0, -1},
    {"no tool: rows for tools do not apply", {{NULL, "*", NULL, T}, {"git", NULL, NULL, T}}, "git", NULL, 1, -1},
    {"no tool and only rows for tools",  {{NULL, "*", NULL, T}}, "git", NULL, -1, -1},
    {"each per by itself",               {{"git", "push", NULL, T}, {ANY, I}, {"git", NULL, NULL, I}}, "git", "push", 0, 2},
    {"the other per does not matter",    {{ANY, T}, {"git", "push", USER, I}}, "git", "push", 0, 1},
    {"all selectors must match",         {{"git", "pull", USER, T}, {"hub", "push", USER, T}, {ANY, T}}, "git", "push", 2, -1},
    // clang-format on
};

static struct identity *ana_with_roles(void)
{
    struct identity *ana = identity_new(IDENTITY_BEARER, "default", "bearer", "ana");
    identity_add_role(ana, SPAN("dev"));
    identity_add_role(ana, SPAN("ops"));
    return ana;
}

static void the_most_specific_rate_row_applies(void **state)
{
    (void)state;
    struct identity *ana = ana_with_roles();
    for (size_t i = 0; i < COUNT(choices); i++) {
        const struct choice *choice = &choices[i];
        struct config_rate rates[ROWS_MAX] = {0};
        struct option_items items = {rates, 0};
        for (size_t k = 0; k < ROWS_MAX && choice->rows[k].per != NO_ROW; k++) {
            const char *texts[] = {choice->rows[k].server, choice->rows[k].tool, choice->rows[k].subject};
            rates[k] = (struct config_rate){.server = (char *)(uintptr_t)texts[0],
                                            .tool = (char *)(uintptr_t)texts[1],
                                            .subject = (char *)(uintptr_t)texts[2],
                                            .per = choice->rows[k].per == I ? CONFIG_PER_IDENTITY : CONFIG_PER_TENANT,
                                            .calls = 1,
                                            .window_ms = 1,
                                            .burst = 1};
            items.count++;
        }
        struct limit_call call = {ana, choice->server, span_of(choice->tool)};
        const struct config_rate *tenant = limit_find(&items, CONFIG_PER_TENANT, &call),
                                 *identity = limit_find(&items, CONFIG_PER_IDENTITY, &call);
        assert_row((tenant ? tenant - rates : -1) == choice->tenant, choice->name);
        assert_row((identity ? identity - rates : -1) == choice->identity, choice->name);
    }
    identity_unref(ana);
}

// ---- calls ----------------------------------------------------------------------------------

static struct config *parse(const char *rates)
{
    struct err err = {0};
    struct buf text = {0};
    buf_printf(&text, "{\"mcpServers\":{\"git\":{\"command\":\"x\"}},\"limits\":{\"rates\":%s}}", rates);
    json_t *tree = json_loads(buf_text(&text), JSON_REJECT_DUPLICATES, NULL);
    assert_row(tree != NULL, buf_text(&text));
    struct config *config = config_parse(tree, "p.json", &err);
    if (!config)
        fail_msg("%s", err.detail);
    json_decref(tree);
    buf_release(&text);
    return config;
}

struct entry {
    struct limit_hold hold;
    struct err err;
};

static bool enter(struct limit *limit, const struct identity *who, const char *tool, int64_t now, struct entry *entry)
{
    struct limit_call call = {who, "git", span_of(tool)};
    *entry = (struct entry){0};
    return limit_enter(limit, &call, now, &entry->hold, &entry->err);
}

static void a_gateway_without_rate_rows_does_not_limit_calls(void **state)
{
    (void)state;
    assert_null(limit_new(&(struct option_items){NULL, 0}));
    limit_unref(NULL);
}

static void a_slot_of_a_call_is_freed_once(void **state)
{
    (void)state;
    struct config *config = parse("[{\"concurrent\":2}]");
    struct limit *limit = limit_new(&config->limits.rates);
    struct identity *ana = ana_with_roles();
    struct entry one, two, three;
    assert_true(enter(limit, ana, "push", 0, &one));
    assert_true(enter(limit, ana, NULL, 0, &two));
    assert_false(enter(limit, ana, "push", 0, &three));
    assert_int_equal(three.err.code, ERR_LIMITED);
    assert_int_equal(three.hold.retry_ms, 1000);
    assert_contains(three.err.detail, "limits/rates/0: too many calls in flight");
    limit_leave(&three.hold);  // a refused call has no slot
    assert_false(enter(limit, ana, "push", 0, &three));
    limit_leave(&one.hold);
    limit_leave(&one.hold);  // a second release does nothing
    assert_true(enter(limit, ana, "push", 0, &three));
    assert_false(enter(limit, ana, "push", 0, &one));
    limit_leave(&two.hold);
    limit_leave(&three.hold);
    identity_unref(ana);
    limit_unref(limit);
    config_unref(config);
}

static void a_refused_call_does_not_count_towards_any_limit(void **state)
{
    (void)state;
    // The tenant has 1 call a second, and each identity 1 an hour. A call that one of the two refuses must not count for the other.
    struct config *config =
        parse("[{\"calls\":1,\"window\":\"1s\"},{\"per\":\"identity\",\"calls\":1,\"window\":\"1h\"}]");
    struct limit *limit = limit_new(&config->limits.rates);
    struct identity *ana = ana_with_roles(), *bob = identity_new(IDENTITY_BEARER, "default", "bearer", "bob");
    struct entry entry;
    assert_true(enter(limit, ana, "push", 0, &entry));
    limit_leave(&entry.hold);
    assert_false(enter(limit, bob, "push", 0, &entry));  // the tenant's second is used up
    assert_int_equal(entry.hold.retry_ms, 1000);
    assert_false(enter(limit, ana, "push", 1000, &entry));  // her hour is used up, and the longer wait counts
    assert_int_equal(entry.hold.retry_ms, 3600000 - 1000);
    assert_true(enter(limit, bob, "push", 1000, &entry));  // the refused calls were not counted
    limit_leave(&entry.hold);
    identity_unref(ana);
    identity_unref(bob);
    limit_unref(limit);
    config_unref(config);
}

static void identities_do_not_share_a_limit(void **state)
{
    (void)state;
    struct config *config = parse("[{\"per\":\"identity\",\"calls\":2,\"window\":\"1h\",\"concurrent\":1}]");
    struct limit *limit = limit_new(&config->limits.rates);
    static const char *const names[][2] = {{"bearer", "ana"}, {"bearer", "bob"}, {"jwt", "ana"}, {"jwt", ""}};
    struct entry entry, second;
    for (size_t i = 0; i < COUNT(names); i++) {
        struct identity *who = identity_new(IDENTITY_JWT, "default", names[i][0], names[i][1]);
        assert_true(enter(limit, who, "push", 0, &entry));
        assert_false(enter(limit, who, "push", 0, &second));
        limit_leave(&entry.hold);
        assert_true(enter(limit, who, "push", 0, &entry));
        limit_leave(&entry.hold);
        assert_false(enter(limit, who, "push", 0, &entry));
        identity_unref(who);
    }
    limit_unref(limit);
    config_unref(config);
}

static void identities_beyond_the_number_of_buckets_are_refused(void **state)
{
    (void)state;
    struct config *config = parse("[{\"per\":\"identity\",\"concurrent\":1}]");
    struct limit *limit = limit_new(&config->limits.rates);
    enum { MANY = 10000 };
    struct entry *entries = calloc(MANY, sizeof *entries), over;
    char name[16];
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "u%d", i);
        struct identity *who = identity_new(IDENTITY_JWT, "default", "jwt", name);
        assert_true(enter(limit, who, "push", 0, &entries[i]));
        identity_unref(who);
    }
    struct identity *who = identity_new(IDENTITY_JWT, "default", "jwt", "one more");
    assert_false(enter(limit, who, "push", 0, &over));
    assert_int_equal(over.err.code, ERR_LIMITED);
    limit_leave(&entries[MANY / 2].hold);
    assert_true(enter(limit, who, "push", 0, &over));
    limit_leave(&over.hold);
    for (int i = 0; i < MANY; i++)
        limit_leave(&entries[i].hold);
    identity_unref(who);
    free(entries);
    limit_unref(limit);
    config_unref(config);
}

// Invalid rows, and the error for each.
static void rate_rows_without_a_sensible_meaning_are_refused(void **state)
{
    (void)state;
    static const char *const wrongs[][2] = {
        {"{}", "/limits/rates/0: give \"calls\", \"concurrent\" or both"},
        {"{\"concurrent\":1,\"burst\":2}", "/limits/rates/0/burst: requires \"calls\""},
        {"{\"calls\":1,\"server\":\"hub\"}", "/limits/rates/0/server: server \"hub\" does not exist"},
        {"{\"calls\":1,\"tool\":\"a\\\\b\"}", "/limits/rates/0/tool: must be a name"},
        {"{\"calls\":1,\"tool\":\"\"}", "/limits/rates/0/tool: must be a name"},
        {"{\"calls\":1,\"subject\":\"ana\"}", "/limits/rates/0/subject: must be user:PROVIDER:NAME or role:ROLE"},
        {"{\"calls\":1,\"subject\":\"user:ana\"}", "/limits/rates/0/subject: must be"},
        {"{\"calls\":-1}", "/limits/rates/0/calls: must be between 0 and 1000000"},
        {"{\"calls\":1,\"window\":0}", "/limits/rates/0/window: must be between 1 and 86400000 ms"},
        {"{\"calls\":1,\"per\":\"user\"}", "/limits/rates/0/per: must be one of \"tenant\", \"identity\""},
        {"{\"calls\":1,\"tol\":\"x\"}", "did you mean \"tool\"?"},
        {"{\"calls\":1,\"tool\":\"x\"},{\"calls\":2},{\"concurrent\":1,\"tool\":\"x\"}",
         "/limits/rates/2: limits the same calls as rates/0"},
    };
    for (size_t i = 0; i < COUNT(wrongs); i++)
        for (int tenant = 0; tenant < 2; tenant++) {
            struct err err = {0};
            struct buf text = {0};
            buf_printf(&text, "{%s\"mcpServers\":{\"git\":{\"command\":\"x\"}},\"limits\":{\"rates\":[%s]}%s}",
                       tenant ? "\"tenants\":{\"acme\":{" : "", wrongs[i][0], tenant ? "}}" : "");
            json_t *tree = json_loads(buf_text(&text), JSON_REJECT_DUPLICATES, NULL);
            assert_row(tree != NULL, buf_text(&text));
            assert_row(!config_parse(tree, "p.json", &err), buf_text(&text));
            assert_contains(err.detail, tenant ? "p.json: /tenants/acme/limits" : "p.json: /limits");
            assert_contains(err.detail, wrongs[i][1]);
            json_decref(tree);
            buf_release(&text);
        }
}

// ---- failed authentication ------------------------------------------------------------------

static struct peer peer_of(const char *address)
{
    struct peer peer = {0};
    if (strchr(address, ':')) {
        struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(1234)};
        assert_int_equal(inet_pton(AF_INET6, address, &six.sin6_addr), 1);
        memcpy(&peer.address, &six, sizeof six);
    } else {
        struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(1234)};
        assert_int_equal(inet_pton(AF_INET, address, &four.sin_addr), 1);
        memcpy(&peer.address, &four, sizeof four);
    }
    return peer;
}

static void P6_an_address_may_fail_authentication_a_limited_number_of_times(void **state)
{
    (void)state;
    // An address that fails, a second address, and whether the second may still authenticate.
    static const struct {
        const char *fails, *other;
        bool allowed;
    } rows[] = {
        {"192.0.2.1", "192.0.2.1", false},
        {"192.0.2.1", "192.0.2.2", true},
        {"2001:db8::1", "2001:db8::ffff:1", false},  // the same /64
        {"2001:db8:0:1::1", "2001:db8:0:2::1", true},
        {"192.0.2.1", "c000:201::", true},  // the same bytes in another family
    };
    struct config_limits limits = {.auth_failures = 3, .auth_window_ms = 30000};
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct throttle throttle;
        struct peer fails = peer_of(rows[i].fails), other = peer_of(rows[i].other);
        throttle_init(&throttle, &limits);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(throttle_wait(&throttle, &fails, 0), 0);
            throttle_failed(&throttle, &fails, 0);
        }
        assert_int_equal(throttle_wait(&throttle, &fails, 0), 10000);
        assert_row((throttle_wait(&throttle, &other, 0) == 0) == rows[i].allowed, rows[i].other);
        throttle_failed(&throttle, &fails, 0);  // a further failure does not extend the wait
        assert_int_equal(throttle_wait(&throttle, &fails, 9999), 1);
        assert_int_equal(throttle_wait(&throttle, &fails, 10000), 0);
        throttle_failed(&throttle, &fails, 10000);
        assert_int_equal(throttle_wait(&throttle, &fails, 10000), 10000);
        throttle_release(&throttle);
    }
}

static void P6_the_table_of_addresses_is_bounded(void **state)
{
    (void)state;
    struct config_limits limits = {.auth_failures = 1, .auth_window_ms = 3600000};
    struct throttle throttle;
    char text[32];
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    throttle_init(&throttle, &limits);
    for (unsigned i = 0; i < 20000; i++) {
        snprintf(text, sizeof text, "10.0.%u.%u", i >> 8, i & 255);
        struct peer peer = peer_of(text);
        throttle_failed(&throttle, &peer, 0);
        assert_true(throttle_wait(&throttle, &peer, 0) > 0);
    }
    assert_int_equal(throttle.failures.buckets.count, 16384);
    throttle_release(&throttle);
}

static void P6_a_caller_without_an_address_is_not_counted(void **state)
{
    (void)state;
    struct config_limits limits = {.auth_failures = 1, .auth_window_ms = 1000};
    struct peer local = {.address.ss_family = AF_UNIX}, unknown = {0};
    struct throttle throttle;
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    throttle_init(&throttle, &limits);
    for (int i = 0; i < 3; i++) {
        throttle_failed(&throttle, NULL, 0);
        throttle_failed(&throttle, &local, 0);
        throttle_failed(&throttle, &unknown, 0);
    }
    assert_int_equal(throttle_wait(&throttle, NULL, 0), 0);
    assert_int_equal(throttle_wait(&throttle, &local, 0), 0);
    assert_int_equal(throttle_wait(&throttle, &unknown, 0), 1000);  // all unknown addresses count as one
    throttle_release(&throttle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_most_specific_rate_row_applies),
        cmocka_unit_test(a_gateway_without_rate_rows_does_not_limit_calls),
        cmocka_unit_test(a_slot_of_a_call_is_freed_once),
        cmocka_unit_test(a_refused_call_does_not_count_towards_any_limit),
        cmocka_unit_test(identities_do_not_share_a_limit),
        cmocka_unit_test(identities_beyond_the_number_of_buckets_are_refused),
        cmocka_unit_test(rate_rows_without_a_sensible_meaning_are_refused),
        cmocka_unit_test(P6_an_address_may_fail_authentication_a_limited_number_of_times),
        cmocka_unit_test(P6_the_table_of_addresses_is_bounded),
        cmocka_unit_test(P6_a_caller_without_an_address_is_not_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
