// Tests the access of one server: finding, refreshing and losing its token. The token endpoint is a script on the same loop, and
// the test sets the clock.
#include "access_state.h"
#include "auth/access/access.h"
#include "auth/grant/store.h"
#include "auth/grant/vault.h"
#include "auth/login/flow.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "folder.h"
#include "listen.h"
#include "loop/address.h"
#include "store/record.h"
#include <sys/socket.h>
#include <unistd.h>

#define ISSUER "https://as.example.com"
#define SERVER "https://mcp.example.com/mcp"
#define START 1900000000
#define GRANTED "{\"access_token\":\"fresh\",\"token_type\":\"Bearer\",\"expires_in\":60}"

// The answers of the token endpoint, one for each request.
struct step {
    int status;
    const char *body;
};

static char endpoint[64];
static struct loop *loop;
static struct http_client *http;
static struct grant_store *store;
static struct loop_watch listener, peers[16];
static struct buf requests[16];
static const struct step *steps;
static void (*meanwhile)(void);  // called before the next answer
static size_t asked;             // requests so far, each on its own connection
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

// True if the request with this number contains the parameter.
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
    struct err err;
    unsigned port;
    if (make_state_directory(state) != 0)
        return -1;
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
    listener = (struct loop_watch){.fd = listen_on_loopback(&port), .on_ready = on_listener};
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%u/token", port);
    return loop_watch(loop, &listener, LOOP_READ, &err) ? 0 : -1;
}

static int tear_down(void **state)
{
    grant_store_close(store);
    loop_unwatch(loop, &listener);
    close(listener.fd);
    http_client_free(http);
    loop_free(loop);
    for (size_t i = 0; i < COUNT(requests); i++)
        buf_release(&requests[i]);
    return remove_directory(state);
}

// ---- grants and requests for their tokens ---------------------------------------------------

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
                               .probe = "{}",
                               .server_name = "files",
                               .issuers = issuers,
                               .wait_for_issuer = wait_for_issuer,
                               .clock = clock_of_test};
    return access_new(&spec);
}

// Asks for a token and runs the loop until the access has answered.
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

// The same at another time and with a new access, as in another process: only the store carries state from call to call.
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

static void F12_three_vague_refusals_in_ten_minutes_end_a_grant(void **state)
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
    assert_string_equal(request.grant->is.refresh_token.bytes,
                        "refresh-1");  // kept, so that the error can give the reason
    grant_request_release(&request);
    assert_int_equal(get_elsewhere(START + GRANT_DOUBT_S + 60), ERR_LOGIN);
    assert_int_equal(asked, 5);  // the ended grant is not used any more
}

static void F12_a_successful_refresh_resets_the_count_of_vague_refusals(void **state)
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

static void F12_a_grant_ends_only_after_three_refusals_over_ten_minutes(void **state)
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

static void F12_a_refusal_noted_by_another_process_does_not_cause_a_retry(void **state)
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
    assert_int_equal(get(one), ERR_UNAVAILABLE);  // its back-off lasts, although the other access changed the grant
    assert_int_equal(asked, 2);
    access_free(one);
    access_free(other);
}

static void F5_a_process_uses_an_equal_token_that_another_process_refreshed(void **state)
{
    (void)state;
    static const struct step again[] = {{200, "{\"access_token\":\"stale\",\"expires_in\":3600}"}, {200, GRANTED}};
    steps = again;
    wall = START - 30;
    store_grant(expired());
    struct access *one = new_access(), *other = new_access();
    assert_int_equal(get(one), ERR_NONE);
    assert_int_equal(get(other), ERR_NONE);
    wall = START;  // the token of both has expired
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

static void F13_a_login_that_completes_while_the_old_grant_is_refused_is_used_at_once(void **state)
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

static void F14_all_processes_remember_an_issuer_that_rejects_the_resource_parameter(void **state)
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
    assert_int_equal(get_elsewhere(START + 31 * 86400), ERR_NONE);  // a month later the server may have been fixed
    assert_true(said(3, "&resource="));
    assert_int_equal(asked, 5);
}

static void F14_a_retry_without_the_resource_parameter_that_fails_is_not_remembered(void **state)
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

static void F8_a_late_request_with_a_retired_token_gets_the_new_one_without_a_refresh(void **state)
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

static void N3_N4_a_refresh_reaches_only_the_internal_network_of_the_server_at_login(void **state)
{
    (void)state;
    static const struct step yes[] = {{200, GRANTED}, {200, GRANTED}};
    struct grant_fields fields = expired();
    steps = yes;
    fields.learned = 1 << ADDRESS_PUBLIC;  // at login, the token endpoint had a public address
    store_grant(fields);
    assert_int_equal(get_elsewhere(START), ERR_UNAVAILABLE);
    assert_contains(outcome.detail, "connections to its address are not allowed");
    assert_int_equal(asked, 0);
    options.allow_addresses = (char **)open_here;
    assert_int_equal(get_elsewhere(START), ERR_NONE);
    assert_int_equal(asked, 1);
}

static void N3_N4_the_server_url_of_a_grant_without_a_recorded_network_decides_where_its_refresh_may_go(void **state)
{
    (void)state;
    static const struct step yes[] = {{200, GRANTED}, {200, GRANTED}};
    struct grant_fields fields = expired();
    steps = yes;
    fields.learned = 0;
    store_grant(fields);  // its server is https://mcp.example.com
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

static void N3_N4_a_revocation_endpoint_does_not_open_a_network_by_naming_it(void **state)
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

static void F15_G14_a_client_secret_is_sent_only_to_the_issuer_of_its_grant(void **state)
{
    (void)state;
    static const struct step yes[] = {{200, GRANTED}};
    struct grant_fields fields = expired();
    steps = yes;
    free(fields.auth_method);
    fields.auth_method = mem_string("client_secret_post");
    store_grant(fields);
    options.client_secret = "of-the-new-client";
    assert_int_equal(get_elsewhere(START), ERR_LOGIN);  // no client is configured any more
    options.client_id = "client-2";
    assert_int_equal(get_elsewhere(START), ERR_LOGIN);
    assert_contains(outcome.detail, "the client that the grant was issued to does not exist any more");
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

static void H18_a_refresh_waits_for_its_turn_but_not_forever(void **state)
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

static void H18_an_access_may_be_freed_while_it_waits_for_its_turn(void **state)
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

// ---- invariants -----------------------------------------------------------------------------

static void save_what_was_not_refreshed(void) { access_set_state(new_access(), STATE_SAVING); }
static void refresh_without_a_lease(void) { access_set_state(new_access(), STATE_REFRESHING); }

static void a_token_is_refreshed_under_a_lease_and_saved_after_it(void **state)
{
    (void)state;
    assert_aborts(save_what_was_not_refreshed);
    assert_aborts(refresh_without_a_lease);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(F12_three_vague_refusals_in_ten_minutes_end_a_grant),
        TEST(F12_a_successful_refresh_resets_the_count_of_vague_refusals),
        cmocka_unit_test(F12_a_grant_ends_only_after_three_refusals_over_ten_minutes),
        TEST(F12_a_refusal_noted_by_another_process_does_not_cause_a_retry),
        TEST(F5_a_process_uses_an_equal_token_that_another_process_refreshed),
        TEST(F13_a_login_that_completes_while_the_old_grant_is_refused_is_used_at_once),
        TEST(F14_all_processes_remember_an_issuer_that_rejects_the_resource_parameter),
        TEST(F14_a_retry_without_the_resource_parameter_that_fails_is_not_remembered),
        TEST(F8_a_late_request_with_a_retired_token_gets_the_new_one_without_a_refresh),
        TEST(N3_N4_a_refresh_reaches_only_the_internal_network_of_the_server_at_login),
        TEST(N3_N4_the_server_url_of_a_grant_without_a_recorded_network_decides_where_its_refresh_may_go),
        TEST(N3_N4_a_revocation_endpoint_does_not_open_a_network_by_naming_it),
        TEST(F15_G14_a_client_secret_is_sent_only_to_the_issuer_of_its_grant),
        TEST(H18_a_refresh_waits_for_its_turn_but_not_forever),
        TEST(H18_an_access_may_be_freed_while_it_waits_for_its_turn),
        TEST(a_request_that_waits_may_ask_again_and_is_answered_once),
        TEST(a_token_is_refreshed_under_a_lease_and_saved_after_it),
        TEST(N5_a_grant_of_an_issuer_that_is_not_allowed_any_more_is_not_refreshed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
