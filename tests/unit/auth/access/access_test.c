// Tests the token of one server against a scripted token endpoint on the same loop, with a clock of its own.
#include "auth/access/access.h"
#include "auth/grant/store.h"
#include "auth/grant/vault.h"
#include "auth/login/flow.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "loop/address.h"
#include "store/record.h"
#include "unit.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define ISSUER "https://as.example.com"
#define SERVER "https://mcp.example.com/mcp"
#define START 1900000000
#define GRANTED "{\"access_token\":\"fresh\",\"token_type\":\"Bearer\",\"expires_in\":60}"

// What the token endpoint answers, one after the other.
struct step {
    int status;
    const char *body;
};

static char directory[64], endpoint[64];
static struct loop *loop;
static struct http_client *http;
static struct grant_store *store;
static struct loop_watch listener, peers[16];
static struct buf requests[16];
static const struct step *steps;
static void (*meanwhile)(void);  // happens before the next answer
static size_t asked;             // requests so far: each has a connection of its own
static struct access_options options;
static char *const *issuers;
static int64_t (*wait_for_issuer)(void *arg, const char *issuer);
static int64_t wall;

static int64_t clock_of_test(void) { return wall; }

// ---- the token endpoint ---------------------------------------------------------------------

static void on_peer(struct loop_watch *peer, unsigned events)
{
    (void)events;
    char bytes[8192];
    struct buf *request = &requests[peer - peers], answer = {0};
    ssize_t count = recv(peer->fd, bytes, sizeof bytes, 0);
    if (count > 0)
        buf_put(request, bytes, (size_t)count);
    const char *body = count > 0 ? strstr(buf_text(request), "\r\n\r\n") : NULL;
    const char *length = body ? strstr(buf_text(request), "Content-Length: ") : NULL;
    if (count > 0 && (!length || strlen(body + 4) < (size_t)atoi(length + 16)))
        return;
    if (count > 0) {
        const struct step *step = &steps[asked++];
        if (meanwhile)
            meanwhile();
        buf_printf(&answer, "HTTP/1.1 %d X\r\nContent-Type: application/json\r\nConnection: close\r\n", step->status);
        buf_printf(&answer, "Content-Length: %zu\r\n\r\n%s", strlen(step->body), step->body);
        assert_int_equal(send(peer->fd, answer.at, answer.len, 0), (ssize_t)answer.len);
        buf_release(&answer);
    }
    loop_unwatch(loop, peer);
    close(peer->fd);
}

static void on_listener(struct loop_watch *watch, unsigned events)
{
    (void)events;
    struct err err;
    struct loop_watch *peer = &peers[asked];
    *peer = (struct loop_watch){.fd = accept(watch->fd, NULL, NULL), .on_ready = on_peer};
    buf_clear(&requests[asked]);
    assert_true(loop_watch(loop, peer, LOOP_READ, &err));
}

// Does a parameter of this name and value stand in the request with this number?
static bool said(size_t request, const char *parameter)
{
    const char *body = strstr(buf_text(&requests[request]), "\r\n\r\n");
    return body && strstr(body, parameter);
}

// ---- setting up -----------------------------------------------------------------------------

static void open_store(void)
{
    struct err err = {0};
    store = grant_store_open(loop, &(struct record_config){0}, &(struct vault_config){0}, &err);
    if (!store)
        fail_msg("%s", err.detail);
}

static int set_up(void **state)
{
    (void)state;
    struct err err;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    snprintf(directory, sizeof directory, "/tmp/postern-access-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    setenv("POSTERN_STATE", directory, 1);
    unsetenv("POSTERN_VAULT_KEY");
    unsetenv("CREDENTIALS_DIRECTORY");
    unsetenv("DBUS_SESSION_BUS_ADDRESS");
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    alarm(60);
    wall = START;
    asked = 0;
    meanwhile = NULL;
    options = (struct access_options){.mode = ACCESS_SHARED};
    issuers = NULL;
    wait_for_issuer = NULL;
    loop = loop_new(&err);
    http = http_client_new(loop, &err);
    open_store();
    listener = (struct loop_watch){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .on_ready = on_listener};
    assert_int_equal(bind(listener.fd, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(listener.fd, 8), 0);
    assert_int_equal(getsockname(listener.fd, (struct sockaddr *)&at, &size), 0);
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%u/token", ntohs(at.sin_port));
    return loop_watch(loop, &listener, LOOP_READ, &err) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    grant_store_close(store);
    loop_unwatch(loop, &listener);
    close(listener.fd);
    http_client_free(http);
    loop_free(loop);
    for (size_t i = 0; i < COUNT(requests); i++)
        buf_release(&requests[i]);
    return unit_remove_folder(directory);
}

// ---- grants and who wants them --------------------------------------------------------------

static const struct grant_key key = {ACCESS_TENANT, ACCESS_SHARED_USER, ISSUER, SERVER};

static struct grant_fields expired(void)
{
    struct grant_fields fields = {.scope = mem_string("read"),
                                  .expires_at = START - 1,
                                  .obtained_at = START - 61,
                                  .token_endpoint = mem_string(endpoint),
                                  .client_id = mem_string("client-1"),
                                  .auth_method = mem_string("none"),
                                  .learned = 1 << ADDRESS_LOOPBACK};
    secret_set(&fields.access_token, SPAN("stale"));
    secret_set(&fields.refresh_token, SPAN("refresh-1"));
    return fields;
}

static void store_grant(struct grant_fields fields)
{
    struct grant_request request = {0};
    struct grant *grant = grant_new(&key, &fields);
    grant_store_save(store, grant, 0, &request);
    assert_true(grant_store_wait(store, 10000));
    assert_int_equal(request.answer, GRANT_STORE_DONE);
    grant_request_release(&request);
    grant_unref(grant);
}

static struct grant *stored(struct grant_request *request)
{
    *request = (struct grant_request){0};
    grant_store_find(store, &key, request);
    assert_true(grant_store_wait(store, 10000));
    assert_int_equal(request->answer, GRANT_STORE_DONE);
    return request->grant;
}

static struct err outcome;
static bool told;

static void on_ready(struct access_wait *wait, const struct err *err)
{
    (void)wait;
    outcome = err ? *err : (struct err){0};
    told = true;
    loop_stop(loop);
}

static struct access *new_access(void)
{
    struct access_spec spec = {.loop = loop,
                               .http = http,
                               .store = store,
                               .mode = ACCESS_SHARED,
                               .options = &options,
                               .tenant = ACCESS_TENANT,
                               .user = ACCESS_SHARED_USER,
                               .server_url = SERVER,
                               .server_name = "files",
                               .issuers = issuers,
                               .wait_for_issuer = wait_for_issuer,
                               .clock = clock_of_test};
    return access_new(&spec);
}

// Asks for a token and runs until there is one, or none.
static enum err_code get(struct access *access)
{
    struct access_wait wait = {.on_ready = on_ready};
    list_init(&wait.node);
    told = false;
    access_get(access, &wait);
    loop_run(loop);
    assert_true(told);
    return outcome.code;
}

// The same in a process of its own, later: nothing is left of it but what is stored.
static enum err_code get_elsewhere(int64_t at)
{
    wall = at;
    grant_store_close(store);
    open_store();
    struct access *access = new_access();
    enum err_code code = get(access);
    access_free(access);
    return code;
}

// ---- F12 ------------------------------------------------------------------------------------

#define VAGUE                                  \
    {                                          \
        400, "{\"error\":\"invalid_request\"}" \
    }

static void F12_refusals_that_say_little_end_a_grant_when_they_are_three_in_ten_minutes(void **state)
{
    (void)state;
    static const struct step no[] = {VAGUE, VAGUE, VAGUE, VAGUE, VAGUE};
    struct grant_request request;
    steps = no;
    options.resource = "omit";
    store_grant(expired());
    assert_int_equal(get_elsewhere(START), ERR_UNAVAILABLE);
    assert_int_equal(get_elsewhere(START + 1), ERR_UNAVAILABLE);
    assert_int_equal(get_elsewhere(START + 2), ERR_UNAVAILABLE);
    assert_int_equal(get_elsewhere(START + GRANT_DOUBT_S - 1), ERR_UNAVAILABLE);
    assert_int_equal(stored(&request)->is.doubts, GRANT_DOUBTS);
    assert_int_equal(request.grant->is.dead_at, 0);
    grant_request_release(&request);
    assert_int_equal(get_elsewhere(START + GRANT_DOUBT_S), ERR_LOGIN);
    assert_contains(outcome.detail, "run 'postern login files'");
    assert_int_equal(asked, 5);
    assert_int_equal(stored(&request)->is.dead_at, START + GRANT_DOUBT_S);
    assert_string_equal(request.grant->is.refresh_token.bytes, "refresh-1");  // kept, to tell why
    grant_request_release(&request);
    assert_int_equal(get_elsewhere(START + GRANT_DOUBT_S + 60), ERR_LOGIN);
    assert_int_equal(asked, 5);  // and not used any more
}

static void F12_a_refresh_that_works_between_them_forgets_them(void **state)
{
    (void)state;
    static const struct step mixed[] = {VAGUE, VAGUE, {200, GRANTED}, VAGUE, VAGUE};
    steps = mixed;
    options.resource = "omit";
    store_grant(expired());
    assert_int_equal(get_elsewhere(START), ERR_UNAVAILABLE);
    assert_int_equal(get_elsewhere(START + 1), ERR_UNAVAILABLE);
    assert_int_equal(get_elsewhere(START + 2), ERR_NONE);
    assert_int_equal(get_elsewhere(START + 1000), ERR_UNAVAILABLE);
    assert_int_equal(get_elsewhere(START + 2000), ERR_UNAVAILABLE);
    assert_int_equal(asked, 5);
}

static void F12_only_three_over_ten_minutes_are_enough(void **state)
{
    (void)state;
    static const struct {
        int64_t at[5];
        bool dead;
    } rows[] = {
        {{START, START + 300, START + 600}, true},
        {{START, START + 300, START + 599}, false},
        {{START, START + 600}, false},
        {{START, START + 1, START + 2, START + 3, START + 700}, true},
        {{START, START + 600, START - 9000, START - 8999}, false},  // the clock went back
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct grant_fields fields = {0};
        bool dead = false;
        for (size_t j = 0; j < 5 && rows[i].at[j]; j++)
            dead = grant_doubt(&fields, rows[i].at[j]);
        if (dead != rows[i].dead)
            fail_msg("row %zu", i);
    }
}

static void F12_a_doubt_of_another_process_is_no_other_token(void **state)
{
    (void)state;
    static const struct step no[] = {VAGUE, VAGUE, {200, GRANTED}};
    steps = no;
    options.resource = "omit";
    store_grant(expired());
    struct access *one = new_access(), *other = new_access();
    assert_int_equal(get(one), ERR_UNAVAILABLE);
    assert_int_equal(get(other), ERR_UNAVAILABLE);
    assert_int_equal(asked, 2);
    assert_int_equal(get(one), ERR_UNAVAILABLE);  // it waits, whatever the other one noted
    assert_int_equal(asked, 2);
    access_free(one);
    access_free(other);
}

static void F5_the_same_token_given_anew_by_another_process_is_used(void **state)
{
    (void)state;
    static const struct step again[] = {{200, "{\"access_token\":\"stale\",\"expires_in\":3600}"}, {200, GRANTED}};
    steps = again;
    wall = START - 30;
    store_grant(expired());
    struct access *one = new_access(), *other = new_access();
    assert_int_equal(get(one), ERR_NONE);
    assert_int_equal(get(other), ERR_NONE);
    wall = START;  // both find that it has ended
    assert_int_equal(get(one), ERR_NONE);
    assert_int_equal(get(other), ERR_NONE);
    assert_int_equal(asked, 1);
    access_free(one);
    access_free(other);
}

static void log_in_again(void)
{
    struct grant_request request;
    struct grant_fields fields = expired();
    fields.expires_at = START + 3600;
    secret_set(&fields.access_token, SPAN("of-the-new-login"));
    secret_set(&fields.refresh_token, SPAN("refresh-of-the-new-login"));
    int64_t generation = stored(&request)->generation;
    struct grant *grant = grant_new(&key, &fields);
    grant_store_save(store, grant, generation, &request);
    assert_true(grant_store_wait(store, 10000));
    assert_int_equal(request.answer, GRANT_STORE_DONE);
    grant_request_release(&request);
    grant_unref(grant);
}

static void F13_a_login_while_the_old_grant_is_refused_is_used_at_once(void **state)
{
    (void)state;
    static const struct step no[] = {{400, "{\"error\":\"invalid_grant\"}"}};
    steps = no;
    store_grant(expired());
    meanwhile = log_in_again;
    struct access *access = new_access();
    assert_int_equal(get(access), ERR_NONE);
    assert_string_equal(access_header(access), "Bearer of-the-new-login");
    assert_int_equal(asked, 1);
    access_free(access);
}

// ---- F14 ------------------------------------------------------------------------------------

static void F14_an_issuer_that_wants_no_resource_is_remembered_by_all_processes(void **state)
{
    (void)state;
    static const struct step picky[] = {VAGUE, {200, GRANTED}, {200, GRANTED}, VAGUE, {200, GRANTED}};
    steps = picky;
    store_grant(expired());
    assert_int_equal(get_elsewhere(START), ERR_NONE);
    assert_true(said(0, "&resource="));
    assert_false(said(1, "&resource="));
    assert_int_equal(get_elsewhere(START + 100), ERR_NONE);
    assert_false(said(2, "&resource="));
    assert_int_equal(get_elsewhere(START + 31 * 86400), ERR_NONE);  // people mend their servers
    assert_true(said(3, "&resource="));
    assert_int_equal(asked, 5);
}

static void F14_what_helps_nothing_is_not_remembered(void **state)
{
    (void)state;
    static const struct step no[] = {
        {400, "{\"error\":\"invalid_target\"}"}, {400, "{\"error\":\"invalid_scope\"}"}, {200, GRANTED}};
    steps = no;
    store_grant(expired());
    assert_int_equal(get_elsewhere(START), ERR_UNAVAILABLE);
    assert_int_equal(get_elsewhere(START + 1), ERR_NONE);
    assert_true(said(2, "&resource="));
}

// ---- F8 -------------------------------------------------------------------------------------

static enum err_code renew(struct access *access, unsigned version)
{
    struct access_wait wait = {.on_ready = on_ready};
    list_init(&wait.node);
    told = false;
    access_renew(access, version, &wait);
    loop_run(loop);
    assert_true(told);
    return outcome.code;
}

static void F8_a_late_request_with_a_retired_token_gets_the_new_one_and_sends_nothing(void **state)
{
    (void)state;
    static const struct step rotated[] = {{200, "{\"access_token\":\"fresh\",\"refresh_token\":\"refresh-2\"}"},
                                          {200, GRANTED}};
    steps = rotated;
    wall = START - 30;  // when the token was still good
    store_grant(expired());
    struct access *winner = new_access(), *late = new_access();
    assert_int_equal(get(winner), ERR_NONE);
    assert_int_equal(get(late), ERR_NONE);
    unsigned version = access_version(late);
    assert_int_equal(renew(winner, access_version(winner)), ERR_NONE);
    assert_int_equal(asked, 1);
    wall += 3600;
    assert_int_equal(renew(late, version), ERR_NONE);
    assert_int_equal(asked, 1);
    assert_string_equal(access_header(late), "Bearer fresh");
    assert_int_equal(renew(late, access_version(late)), ERR_NONE);
    assert_int_equal(asked, 2);
    assert_true(said(1, "refresh_token=refresh-2"));
    access_free(winner);
    access_free(late);
}

// ---- N3, N4 ---------------------------------------------------------------------------------

static char *const open_here[] = {"127.0.0.0/8", NULL};

static void N3_N4_a_refresh_goes_where_the_server_of_the_login_was_and_nowhere_else_inside(void **state)
{
    (void)state;
    static const struct step yes[] = {{200, GRANTED}, {200, GRANTED}};
    struct grant_fields fields = expired();
    steps = yes;
    fields.learned = 1 << ADDRESS_PUBLIC;  // the name of the token endpoint leads here since
    store_grant(fields);
    assert_int_equal(get_elsewhere(START), ERR_UNAVAILABLE);
    assert_contains(outcome.detail, "may not be connected to");
    assert_int_equal(asked, 0);
    options.allow_addresses = (char **)open_here;
    assert_int_equal(get_elsewhere(START), ERR_NONE);
    assert_int_equal(asked, 1);
}

static void N3_N4_of_an_older_grant_the_text_of_the_servers_url_says_where(void **state)
{
    (void)state;
    static const struct step yes[] = {{200, GRANTED}, {200, GRANTED}};
    struct grant_fields fields = expired();
    steps = yes;
    fields.learned = 0;
    store_grant(fields);  // https://mcp.example.com
    assert_int_equal(get_elsewhere(START), ERR_UNAVAILABLE);
    assert_int_equal(asked, 0);
}

static void on_revoked(void *arg, const struct err *why)
{
    (void)arg;
    (void)why;
    loop_stop(loop);
}

static void revoke_at(int64_t learned)
{
    struct grant_fields fields = expired();
    fields.learned = learned;
    fields.revocation_endpoint = mem_string(endpoint);
    struct grant *grant = grant_new(&key, &fields);
    struct login_revocation *revocation = login_revocation_start(&(struct login_revocation_spec){
        .loop = loop, .http = http, .store = store, .grant = grant, .options = &options, .on_done = on_revoked});
    loop_run(loop);
    login_revocation_free(revocation);
    grant_unref(grant);
}

static void N3_N4_a_revocation_endpoint_opens_no_network_by_naming_it(void **state)
{
    (void)state;
    static const struct step yes[] = {{200, ""}, {200, ""}, {200, ""}, {200, ""}};
    steps = yes;
    revoke_at(1 << ADDRESS_PUBLIC);
    revoke_at(0);
    assert_int_equal(asked, 0);
    revoke_at(1 << ADDRESS_LOOPBACK);
    assert_int_equal(asked, 2);
    options.allow_addresses = (char **)open_here;
    revoke_at(1 << ADDRESS_PUBLIC);
    assert_int_equal(asked, 4);
}

// ---- F15 ------------------------------------------------------------------------------------

static void F15_G14_a_secret_is_shown_only_where_the_grant_of_its_client_came_from(void **state)
{
    (void)state;
    static const struct step yes[] = {{200, GRANTED}};
    struct grant_fields fields = expired();
    steps = yes;
    free(fields.auth_method);
    fields.auth_method = mem_string("client_secret_post");
    store_grant(fields);
    options.client_secret = "of-the-new-client";
    assert_int_equal(get_elsewhere(START), ERR_LOGIN);  // there is no client any more
    options.client_id = "client-2";
    assert_int_equal(get_elsewhere(START), ERR_LOGIN);
    assert_contains(outcome.detail, "the client it was given to is gone");
    options.client_id = "client-1";
    options.issuer = "https://another.example.com";
    assert_int_equal(get_elsewhere(START), ERR_LOGIN);
    assert_int_equal(asked, 0);
    options.issuer = ISSUER "/";
    assert_int_equal(get_elsewhere(START), ERR_NONE);
    assert_true(said(0, "client_secret=of-the-new-client"));
}

// ---- waiting --------------------------------------------------------------------------------

static void a_request_that_waits_may_ask_again_and_is_answered_once(void **state)
{
    (void)state;
    static const struct step yes[] = {{200, GRANTED}};
    struct access_wait wait = {.on_ready = on_ready};
    steps = yes;
    store_grant(expired());
    struct access *access = new_access();
    told = false;
    access_get(access, &wait);
    access_get(access, &wait);
    access_renew(access, access_version(access), &wait);
    loop_run(loop);
    assert_true(told);
    assert_int_equal(outcome.code, ERR_NONE);
    assert_false(list_linked(&wait.node));
    access_free(access);
}

// ---- N5 -------------------------------------------------------------------------------------

static void N5_a_grant_of_an_issuer_that_is_not_allowed_any_more_is_not_refreshed(void **state)
{
    (void)state;
    static char *const others[] = {"other.example.com", NULL}, *const ours[] = {"*.example.com", NULL};
    static const struct step yes[] = {{200, GRANTED}};
    steps = yes;
    store_grant(expired());
    issuers = others;
    assert_int_equal(get_elsewhere(START), ERR_LOGIN);
    assert_contains(outcome.detail, "hosted.authorization_servers");
    assert_int_equal(asked, 0);
    issuers = ours;
    assert_int_equal(get_elsewhere(START), ERR_NONE);
    assert_int_equal(asked, 1);
}

// ---- H18 ------------------------------------------------------------------------------------

static unsigned turns;

static int64_t third_time(void *arg, const char *issuer)
{
    (void)arg;
    assert_string_equal(issuer, ISSUER);
    return ++turns < 3 ? 20 : 0;
}

static int64_t never(void *arg, const char *issuer)
{
    (void)arg;
    (void)issuer;
    turns++;
    return 3600000;
}

static int64_t stop_there(void *arg, const char *issuer)
{
    loop_stop(loop);
    return never(arg, issuer);
}

static void H18_a_refresh_waits_for_its_turn_and_not_for_ever(void **state)
{
    (void)state;
    static const struct step yes[] = {{200, GRANTED}, {200, GRANTED}};
    steps = yes;
    store_grant(expired());
    wait_for_issuer = third_time;
    turns = 0;
    assert_int_equal(get_elsewhere(START), ERR_NONE);
    assert_int_equal(turns, 3);
    wait_for_issuer = never;
    turns = 0;
    assert_int_equal(get_elsewhere(START + 3600), ERR_NONE);
    assert_int_equal(turns, 1);
    assert_int_equal(asked, 2);
}

static void H18_an_access_may_go_while_it_waits_for_its_turn(void **state)
{
    (void)state;
    wait_for_issuer = stop_there;
    store_grant(expired());
    struct access *access = new_access();
    struct access_wait wait = {.on_ready = on_ready};
    list_init(&wait.node);
    access_get(access, &wait);
    loop_run(loop);
    access_free(access);
    assert_int_equal(asked, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(F12_refusals_that_say_little_end_a_grant_when_they_are_three_in_ten_minutes),
        TEST(F12_a_refresh_that_works_between_them_forgets_them),
        cmocka_unit_test(F12_only_three_over_ten_minutes_are_enough),
        TEST(F12_a_doubt_of_another_process_is_no_other_token),
        TEST(F5_the_same_token_given_anew_by_another_process_is_used),
        TEST(F13_a_login_while_the_old_grant_is_refused_is_used_at_once),
        TEST(F14_an_issuer_that_wants_no_resource_is_remembered_by_all_processes),
        TEST(F14_what_helps_nothing_is_not_remembered),
        TEST(F8_a_late_request_with_a_retired_token_gets_the_new_one_and_sends_nothing),
        TEST(N3_N4_a_refresh_goes_where_the_server_of_the_login_was_and_nowhere_else_inside),
        TEST(N3_N4_of_an_older_grant_the_text_of_the_servers_url_says_where),
        TEST(N3_N4_a_revocation_endpoint_opens_no_network_by_naming_it),
        TEST(F15_G14_a_secret_is_shown_only_where_the_grant_of_its_client_came_from),
        TEST(H18_a_refresh_waits_for_its_turn_and_not_for_ever),
        TEST(H18_an_access_may_go_while_it_waits_for_its_turn),
        TEST(a_request_that_waits_may_ask_again_and_is_answered_once),
        TEST(N5_a_grant_of_an_issuer_that_is_not_allowed_any_more_is_not_refreshed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
