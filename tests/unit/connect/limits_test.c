// Tests the limits of the connect flow: how often links are opened and callbacks arrive, and the logins of one browser.
#include "fixture.h"
#include "state.h"

static struct peer peer_at(const char *address)
{
    struct peer peer = {0};
    struct sockaddr_in four = {.sin_family = AF_INET};
    assert_int_equal(inet_pton(AF_INET, address, &four.sin_addr), 1);
    memcpy(&peer.address, &four, sizeof four);
    return peer;
}

// Asks until the limit is reached: after `burst` pages of this kind, and those that the limit refills meanwhile.
static void exhaust(struct browser *browser, const struct connect_request *asked, enum connect_page_kind kind,
                    int64_t burst)
{
    int64_t count = 0, started_ms = clock_now_ms();
    while (browser_ask(browser, asked) == kind)
        count++;
    assert_int_equal(browser->page.kind, CONNECT_PAGE_LIMITED);
    assert_in_range(browser->page.retry_ms, 1, 60000 / burst);
    assert_in_range(count, burst, burst + (clock_now_ms() - started_ms) * burst / 60000 + 1);
}

static void H18_a_user_may_open_ten_links_a_minute(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"}, bob = {.user = "bob"};
    struct connect_request asked = {.op = CONNECT_OP_START, .server = SPAN("files")};
    exhaust(&ana, &asked, CONNECT_PAGE_REDIRECT, 10);
    assert_int_equal(browser_ask(&bob, &asked), CONNECT_PAGE_REDIRECT);
    browser_release(&ana);
    browser_release(&bob);
}

static void H18_a_link_that_is_started_or_opened_counts_for_one_limit(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"};
    const char *ticket = get_ticket(&ana);
    struct connect_request asked = {.op = CONNECT_OP_OPEN, .ticket = span_of(ticket)};
    exhaust(&ana, &asked, CONNECT_PAGE_CONSENT, 9);
    browser_release(&ana);
}

static void H18_an_address_may_send_thirty_callbacks_a_minute(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"};
    struct peer near = peer_at("192.0.2.1"), far = peer_at("192.0.2.2");
    struct connect_request asked = {.op = CONNECT_OP_CALLBACK, .query = SPAN("a=b"), .credentials.peer = &near};
    exhaust(&ana, &asked, CONNECT_PAGE_UNKNOWN_LOGIN, 30);
    asked.credentials.peer = &far;
    assert_int_equal(browser_ask(&ana, &asked), CONNECT_PAGE_UNKNOWN_LOGIN);
    browser_release(&ana);
}

static void H18_browsers_without_a_credential_are_limited_by_address(void **state)
{
    (void)state;
    struct browser unknown = {0};
    struct peer near = peer_at("192.0.2.1"), far = peer_at("192.0.2.2");
    struct connect_request asked = {.op = CONNECT_OP_OPEN,
                                    .credentials.peer = &near};  // without a ticket, the store is not asked
    config->hosted.allow_unbound_tickets = true;
    exhaust(&unknown, &asked, CONNECT_PAGE_EXPIRED, 120);
    asked.credentials.peer = &far;
    assert_int_equal(browser_ask(&unknown, &asked), CONNECT_PAGE_EXPIRED);
    browser_release(&unknown);
}

static void exhaust_issuer(void)
{
    while (connect_limits_wait_for_issuer(flow, origin) == 0)
        ;
}

static void H18_a_login_that_waits_for_its_issuer_is_not_used_up(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"};
    const char *query = query_of(&ana, "code=abc&state={}", consent_to(&ana, get_ticket(&ana)));
    gate.on_check = exhaust_issuer;
    assert_int_equal(come_back(&ana, query), CONNECT_PAGE_LIMITED);
    assert_in_range(ana.page.retry_ms, 1, 1000);
    assert_int_equal(authority.tokens, 0);
    assert_int_equal(connect_limits_wait_for_issuer(flow, "https://other.example"), 0);
    gate.on_check = NULL;
    while (come_back(&ana, query) == CONNECT_PAGE_LIMITED)
        usleep((useconds_t)ana.page.retry_ms * 1000);
    assert_int_equal(ana.page.kind, CONNECT_PAGE_CONNECTED);
    browser_release(&ana);
}

static void A9_a_user_is_asked_for_more_scope_three_times_a_day_for_one_operation(void **state)
{
    (void)state;
    for (int i = 0; i < CONNECT_OFFER_SCOPE_REQUESTS; i++) {
        assert_true(connect_limits_scope_left(flow, SPAN("one")));
        connect_limits_scope_count(flow, SPAN("one"));
    }
    assert_false(connect_limits_scope_left(flow, SPAN("one")));
    assert_true(connect_limits_scope_left(flow, SPAN("two")));
}

static void H7_a_browser_keeps_its_eight_newest_logins(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"};
    struct connect_request request = {
        .connect = flow, .cookie = browser_cookie, .each_cookie = browser_each_cookie, .arg = &ana};
    struct identity *who = identity_new(IDENTITY_BEARER, "default", "bearer", "ana");
    struct attempt *attempts[10];
    char names[10][8];
    for (size_t i = 0; i < COUNT(attempts); i++) {
        struct connect_page page = {0};
        snprintf(names[i], sizeof names[i], "s%zu", i);
        attempts[i] = attempt_new(who, "files", "http://x");
        attempts[i]->expires_ms = clock_wall_ms() + 60000 + (int64_t)i;
        connect_browser_bind(&request, span_of(names[i]), attempts[i], &page);
        for (size_t k = 0; k < page.cookie_count; k++)
            browser_take_cookie(&ana, &page.cookies[k]);
    }
    assert_int_equal(ana.cookie_count, 8);
    for (size_t i = 0; i < COUNT(attempts); i++) {
        assert_int_equal(connect_browser_is_bound(&request, span_of(names[i]), attempts[i]), i >= 2);
        assert_false(connect_browser_is_bound(&request, span_of(names[i]), attempts[(i + 1) % COUNT(attempts)]));
    }
    for (size_t i = 0; i < COUNT(attempts); i++)
        attempt_free(attempts[i]);
    identity_unref(who);
    browser_release(&ana);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(H18_a_user_may_open_ten_links_a_minute),
        TEST(H18_a_link_that_is_started_or_opened_counts_for_one_limit),
        TEST(H18_an_address_may_send_thirty_callbacks_a_minute),
        TEST(H18_browsers_without_a_credential_are_limited_by_address),
        TEST(H18_a_login_that_waits_for_its_issuer_is_not_used_up),
        TEST(A9_a_user_is_asked_for_more_scope_three_times_a_day_for_one_operation),
        TEST(H7_a_browser_keeps_its_eight_newest_logins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
