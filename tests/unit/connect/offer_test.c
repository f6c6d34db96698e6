// Tests offers: the link that a call gets, and the notification of its session when the link was used, in this or another process.
#include "auth/access/access.h"
#include "connect/offer.h"
#include "fixture.h"

#define SESSION "sssssssssssssssssssssssssssssssssssssssssss"
#define ELICITATION "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee"

static char link_url[256];
static bool stored;
static struct identity *ana;
static struct access *access_of_ana;

static void on_stored(void *arg, const char *url)
{
    (void)arg;
    snprintf(link_url, sizeof link_url, "%s", url ? url : "");
    stored = true;
}

static bool is_stored(void) { return stored; }

static int set_up_offers(void **state)
{
    stored = false;
    int failed = set_up(state);
    const struct server *server = config->servers.at;
    ana = identity_new(IDENTITY_BEARER, "default", "bearer", "ana");
    access_of_ana = access_new(&(struct access_spec){.loop = loop,
                                                     .http = http,
                                                     .store = store,
                                                     .mode = ACCESS_USER,
                                                     .options = &server->auth,
                                                     .tenant = "default",
                                                     .user = "bearer/ana",
                                                     .server_url = server->url,
                                                     .probe = server_probe,
                                                     .server_name = server->name});
    return failed;
}

static int tear_down_offers(void **state)
{
    access_free(access_of_ana);
    identity_unref(ana);
    return tear_down(state);
}

static struct connect_offer *offer(bool ready, const char *elicitation)
{
    struct connect_offer *made = NULL;
    struct connect_offer_spec spec = {.identity = ana,
                                      .config = config,
                                      .server = config->servers.at,
                                      .access = access_of_ana,
                                      .ready = ready,
                                      .method = "tools/call",
                                      .target = SPAN("read"),
                                      .session = SESSION,
                                      .elicitation = elicitation,
                                      .on_stored = on_stored};
    assert_int_equal(connect_offer_start(flow, &spec, &made), CONNECT_OFFER_STARTED);
    assert_non_null(made);
    assert_false(stored);  // never reported from inside connect_offer_start()
    return made;
}

// Waits until an offer is stored; returns the ticket of its link.
static const char *ticket_of_link(void)
{
    static const char base[] = "http://127.0.0.1:8080/oauth/connect?t=";
    run_until(is_stored());
    assert_int_equal(strncmp(link_url, base, sizeof base - 1), 0);
    return link_url + sizeof base - 1;
}

static void complete(struct connect *where, const char *ticket)
{
    struct browser browser = {.user = "ana"};
    const char *login = consent_to(&browser, ticket);
    browser_send_to(where, &browser,
                    &(struct connect_request){.op = CONNECT_OP_CALLBACK,
                                              .query = span_of(query_of(&browser, "code=abc&state={}", login))});
    assert_int_equal(browser_wait(&browser), CONNECT_PAGE_CONNECTED);
    browser_release(&browser);
}

static bool is_complete(void) { return gate.completed > 0; }
static bool is_added(void) { return gate.added > 0; }

static void H16_the_session_is_notified_that_its_link_was_used(void **state)
{
    (void)state;
    (void)offer(false, ELICITATION);
    complete(flow, ticket_of_link());
    assert_int_equal(gate.completed, 1);
    assert_string_equal(gate.session, SESSION);
    assert_string_equal(gate.elicitation, ELICITATION);
    assert_int_equal(gate.changed, 1);
}

static void a_session_that_was_not_sent_the_link_is_not_notified(void **state)
{
    (void)state;
    (void)offer(false, "");
    complete(flow, ticket_of_link());
    assert_int_equal(gate.completed, 0);
    assert_int_equal(gate.changed, 1);
}

// The gate tries again to start a server that waited for the grant, and restarts a server that had another one.
static void H16_a_login_that_another_process_completes_is_noticed(void **state)
{
    (void)state;
    for (int ready = 0; ready < 2; ready++) {
        struct connect *other = new_flow();
        gate.completed = 0;
        stored = false;
        (void)offer(ready, ELICITATION);
        const char *ticket = ticket_of_link();
        complete(other, ticket);
        assert_int_equal(gate.completed, 0);
        gate.added = gate.changed = 0;  // `other` reports to the same fake gate
        run_until(is_complete());
        assert_int_equal(gate.added, !ready);
        assert_int_equal(gate.changed, ready);
        connect_free(other);
    }
}

static void H16_an_offer_without_a_session_to_notify_still_checks_for_the_grant(void **state)
{
    (void)state;
    struct connect *other = new_flow();
    (void)offer(false, "");
    complete(other, ticket_of_link());
    run_until(is_added());
    assert_int_equal(gate.completed, 0);
    connect_free(other);
}

static void a_finished_call_drops_its_offer(void **state)
{
    (void)state;
    connect_offer_drop(offer(false, ELICITATION));
    assert_true(grant_store_wait(store, 10000));
    struct browser browser = {.user = "ana"};
    (void)get_ticket(&browser);  // runs the loop
    assert_false(stored);
    browser_release(&browser);
}

static void the_connect_flow_can_be_freed_while_an_offer_is_stored(void **state)
{
    (void)state;
    (void)offer(false, ELICITATION);
    connect_free(flow);
    flow = NULL;
    assert_false(stored);
}

static void the_connect_url_of_a_server_is_that_of_its_connect_page(void **state)
{
    (void)state;
    struct buf url = {0};
    connect_put_url(flow, config->servers.at, &url);
    assert_string_equal(buf_text(&url), "http://127.0.0.1:8080/oauth/connect/files");
    buf_release(&url);
}

#define OFFER_TEST(function) cmocka_unit_test_setup_teardown(function, set_up_offers, tear_down_offers)

int main(void)
{
    const struct CMUnitTest tests[] = {
        OFFER_TEST(H16_the_session_is_notified_that_its_link_was_used),
        OFFER_TEST(a_session_that_was_not_sent_the_link_is_not_notified),
        OFFER_TEST(H16_a_login_that_another_process_completes_is_noticed),
        OFFER_TEST(H16_an_offer_without_a_session_to_notify_still_checks_for_the_grant),
        OFFER_TEST(a_finished_call_drops_its_offer),
        OFFER_TEST(the_connect_flow_can_be_freed_while_an_offer_is_stored),
        OFFER_TEST(the_connect_url_of_a_server_is_that_of_its_connect_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
