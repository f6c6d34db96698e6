// Tests the connect flow from the link to the grant: which page each request of a browser gets, and whether it uses up the link.
#include "fixture.h"

static void an_account_is_connected(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"};
    const char *ticket = get_ticket(&ana);
    assert_int_equal(open_ticket(&ana, ticket), CONNECT_PAGE_CONSENT);
    assert_string_equal(ana.page.server, "files");
    assert_string_equal(ana.page.user, "ana");
    assert_string_equal(ana.page.issuer, origin);
    assert_string_equal(ana.page.scope, "read");
    assert_string_equal(ana.page.ticket, ticket);
    assert_false(ana.page.unbound);
    assert_int_equal(answer(&ana, ticket, ana.page.csrf, true), CONNECT_PAGE_AUTHORIZE);
    assert_contains(ana.page.url, "/authorize?");
    assert_contains(ana.page.url, "client_id=" CLIENT);
    const char *login = strstr(ana.page.url, "state=") + strlen("state=");
    assert_int_equal(authority.tokens, 0);
    assert_int_equal(come_back(&ana, query_of(&ana, "code=abc&state={}", login)), CONNECT_PAGE_CONNECTED);
    assert_string_equal(ana.page.server, "files");
    assert_int_equal(authority.tokens, 1);
    assert_int_equal(grants_of("ana"), 1);
    assert_int_equal(gate.changed, 1);
    assert_int_equal(ana.cookie_count, 1);  // the CSRF cookie; the cookie of the login was deleted
    browser_release(&ana);
}

// ---- tickets --------------------------------------------------------------------------------

static void a_ticket_that_is_not_stored_is_expired(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"};
    assert_int_equal(open_ticket(&ana, "unknown"), CONNECT_PAGE_EXPIRED);
    assert_int_equal(open_ticket(&ana, ""), CONNECT_PAGE_EXPIRED);
    config->hosted.lifetime_ms = -1000;
    assert_int_equal(open_ticket(&ana, get_ticket(&ana)), CONNECT_PAGE_EXPIRED);
    browser_release(&ana);
}

static void a_ticket_is_valid_for_one_login(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"};
    const char *ticket = get_ticket(&ana), *login = consent_to(&ana, ticket);
    assert_int_equal(open_ticket(&ana, ticket), CONNECT_PAGE_USED);  // the browser is at the authorization server
    const char *query = query_of(&ana, "code=abc&state={}", login);
    assert_int_equal(come_back(&ana, query), CONNECT_PAGE_CONNECTED);
    assert_int_equal(open_ticket(&ana, ticket), CONNECT_PAGE_USED);
    assert_int_equal(come_back(&ana, query), CONNECT_PAGE_USED);
    assert_int_equal(authority.tokens, 1);
    browser_release(&ana);
}

static void a_consent_page_may_be_opened_again(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"};
    const char *ticket = get_ticket(&ana);
    assert_int_equal(open_ticket(&ana, ticket), CONNECT_PAGE_CONSENT);
    size_t asked = authority.asked;
    assert_int_equal(open_ticket(&ana, ticket), CONNECT_PAGE_CONSENT);
    assert_int_equal(authority.asked, asked);  // the suspended login is continued, without new requests
    assert_string_equal(ana.page.issuer, origin);
    browser_release(&ana);
}

static void two_tabs_get_the_same_consent_page(void **state)
{
    (void)state;
    struct browser one = {.user = "ana"}, two = {.user = "ana"};
    const char *ticket = get_ticket(&one);
    struct connect_request asked = {.op = CONNECT_OP_OPEN, .ticket = span_of(ticket)};
    browser_send_to(flow, &one, &asked);
    browser_send_to(flow, &two, &asked);
    assert_int_equal(browser_wait(&one), CONNECT_PAGE_CONSENT);
    assert_int_equal(browser_wait(&two), CONNECT_PAGE_CONSENT);
    browser_release(&one);
    browser_release(&two);
}

static void a_link_whose_server_is_down_can_be_opened_later(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"};
    const char *ticket = get_ticket(&ana);
    authority.down = true;
    assert_int_equal(open_ticket(&ana, ticket), CONNECT_PAGE_FAILED);
    authority.down = false;
    assert_int_equal(open_ticket(&ana, ticket), CONNECT_PAGE_CONSENT);
    browser_release(&ana);
}

static void a_link_for_a_server_at_another_url_is_expired(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"};
    const char *ticket = get_ticket(&ana);
    struct server *servers = config->servers.at;
    servers[0].url[strlen(servers[0].url) - 1] = 'X';
    assert_int_equal(open_ticket(&ana, ticket), CONNECT_PAGE_EXPIRED);
    browser_release(&ana);
}

// The first reload comes while the attempt is looked up, and the second while the server is asked.
static void a_login_uses_the_configuration_that_it_began_with(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"};
    const char *ticket = get_ticket(&ana);
    struct connect_request asked = {.op = CONNECT_OP_OPEN, .ticket = span_of(ticket)};
    struct config *next = parse_config("http://127.0.0.1:8080/");
    next->hosted.authorization_servers = mem_alloc(2 * sizeof(char *));
    next->hosted.authorization_servers[0] = mem_string("127.0.0.1");
    browser_send_to(flow, &ana, &asked);
    connect_configure(flow, next);
    run_until(authority.asked > 0);
    connect_configure(flow, config);
    config_unref(next);
    assert_int_equal(browser_wait(&ana), CONNECT_PAGE_CONSENT);
    assert_string_equal(ana.page.issuer, origin);
    browser_release(&ana);
}

// ---- users ----------------------------------------------------------------------------------

static void H6_a_link_opened_by_another_user_becomes_invalid(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"}, bob = {.user = "bob"};
    const char *ticket = get_ticket(&ana);
    assert_int_equal(open_ticket(&bob, ticket), CONNECT_PAGE_WRONG_USER);
    assert_int_equal(open_ticket(&ana, ticket), CONNECT_PAGE_USED);
    browser_release(&ana);
    browser_release(&bob);
}

static void H6_another_user_in_the_same_browser_cannot_complete_a_login(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"};
    const char *login = consent_to(&ana, get_ticket(&ana));
    ana.user = "bob";
    assert_int_equal(come_back(&ana, query_of(&ana, "code=abc&state={}", login)), CONNECT_PAGE_WRONG_USER);
    assert_int_equal(authority.tokens, 0);
    browser_release(&ana);
}

static void a_link_of_an_identity_that_was_revoked_is_expired(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"};
    const char *ticket = get_ticket(&ana), *login = consent_to(&ana, ticket);
    gate.revoked = true;
    assert_int_equal(open_ticket(&ana, ticket), CONNECT_PAGE_EXPIRED);
    assert_int_equal(come_back(&ana, query_of(&ana, "code=abc&state={}", login)), CONNECT_PAGE_EXPIRED);
    assert_int_equal(authority.tokens, 0);
    browser_release(&ana);
}

static void a_browser_without_a_credential_sees_no_accounts(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"}, unknown = {0};
    const char *ticket = get_ticket(&ana);
    static const enum connect_op ops[] = {CONNECT_OP_LIST, CONNECT_OP_START, CONNECT_OP_OPEN, CONNECT_OP_CALLBACK,
                                          CONNECT_OP_DISCONNECT};
    for (size_t i = 0; i < COUNT(ops); i++) {
        struct connect_request asked = {.op = ops[i], .ticket = span_of(ticket), .server = SPAN("files")};
        assert_int_equal(browser_ask(&unknown, &asked), CONNECT_PAGE_UNAUTHENTICATED);
    }
    browser_release(&ana);
    browser_release(&unknown);
}

static void an_unbound_ticket_warns_the_user(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"}, unknown = {0};
    config->hosted.allow_unbound_tickets = true;
    const char *login = consent_to(&unknown, get_ticket(&ana));
    assert_int_equal(come_back(&unknown, query_of(&unknown, "code=abc&state={}", login)), CONNECT_PAGE_CONNECTED);
    assert_int_equal(grants_of("ana"), 1);
    const char *ticket = get_ticket(&ana);
    assert_int_equal(open_ticket(&unknown, ticket), CONNECT_PAGE_CONSENT);
    assert_true(unknown.page.unbound);
    assert_string_equal(unknown.page.user, "ana");
    browser_release(&ana);
    browser_release(&unknown);
}

static void a_refused_credential_gets_a_page_that_explains_the_reason(void **state)
{
    (void)state;
    static const struct {
        enum err_code code;
        enum connect_page_kind kind;
    } rows[] = {{ERR_UNAUTHENTICATED, CONNECT_PAGE_UNAUTHENTICATED},
                {ERR_SCOPE, CONNECT_PAGE_NO_SCOPE},
                {ERR_AUTH_UNAVAILABLE, CONNECT_PAGE_UNAVAILABLE},
                {ERR_AUTH_LIMITED, CONNECT_PAGE_LIMITED}};
    struct browser unknown = {0};
    gate.verdict = CONNECT_REFUSED;
    gate.retry_ms = 1234;
    for (size_t i = 0; i < COUNT(rows); i++) {
        gate.code = rows[i].code;
        assert_int_equal(browser_ask(&unknown, &(struct connect_request){.op = CONNECT_OP_LIST}), rows[i].kind);
    }
    assert_int_equal(unknown.page.retry_ms, 1234);
    browser_release(&unknown);
}

static void a_page_request_waits_for_its_authentication(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"};
    gate.waits = true;
    browser_send_to(flow, &ana, &(struct connect_request){.op = CONNECT_OP_LIST});
    assert_false(ana.shown);
    gate.waiting->resume(gate.waiting->arg);
    assert_int_equal(browser_wait(&ana), CONNECT_PAGE_LIST);
    browser_release(&ana);
}

// ---- forms ----------------------------------------------------------------------------------

static void a_forged_form_does_not_use_up_the_ticket(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"}, other = {.user = "ana"};
    const char *first = get_ticket(&ana), *second = get_ticket(&ana);
    assert_int_equal(open_ticket(&ana, second), CONNECT_PAGE_CONSENT);
    const char *of_second = ana.page.csrf;
    assert_int_equal(open_ticket(&ana, first), CONNECT_PAGE_CONSENT);
    const char *csrf = ana.page.csrf;
    assert_int_equal(answer(&ana, first, "", true), CONNECT_PAGE_FORGED);
    assert_int_equal(answer(&ana, first, of_second, true), CONNECT_PAGE_FORGED);
    assert_int_equal(answer(&other, first, csrf, true), CONNECT_PAGE_FORGED);  // without the CSRF cookie
    assert_int_equal(answer(&ana, first, csrf, true), CONNECT_PAGE_AUTHORIZE);
    browser_release(&ana);
    browser_release(&other);
}

static void a_user_may_decline_consent(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"};
    const char *ticket = get_ticket(&ana);
    assert_int_equal(open_ticket(&ana, ticket), CONNECT_PAGE_CONSENT);
    const char *csrf = ana.page.csrf;
    assert_int_equal(answer(&ana, ticket, csrf, false), CONNECT_PAGE_DECLINED);
    assert_int_equal(answer(&ana, ticket, csrf, true), CONNECT_PAGE_USED);
    assert_int_equal(open_ticket(&ana, ticket), CONNECT_PAGE_USED);
    browser_release(&ana);
}

static void a_consent_form_is_accepted_only_once(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"};
    const char *ticket = get_ticket(&ana);
    assert_int_equal(open_ticket(&ana, ticket), CONNECT_PAGE_CONSENT);
    const char *csrf = ana.page.csrf;
    assert_int_equal(answer(&ana, ticket, csrf, true), CONNECT_PAGE_AUTHORIZE);
    assert_int_equal(answer(&ana, ticket, csrf, true), CONNECT_PAGE_USED);
    browser_release(&ana);
}

// ---- callbacks ------------------------------------------------------------------------------

static void H8_a_callback_in_another_browser_does_not_use_up_the_login(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"}, other = {.user = "ana"};
    const char *login = consent_to(&ana, get_ticket(&ana));
    const char *query = query_of(&ana, "code=abc&state={}", login);
    assert_int_equal(come_back(&other, query), CONNECT_PAGE_WRONG_BROWSER);
    assert_int_equal(come_back(&ana, query), CONNECT_PAGE_CONNECTED);
    browser_release(&ana);
    browser_release(&other);
}

static void H8_a_callback_before_consent_does_not_use_up_the_login(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"}, other = {.user = "ana"};
    const char *ticket = get_ticket(&ana);
    assert_int_equal(open_ticket(&ana, ticket), CONNECT_PAGE_CONSENT);
    const char *csrf = ana.page.csrf;
    struct buf login = {0};
    unsigned char mac[SECRET_MAC_BYTES];
    secret_mac(ticket, strlen(ticket), SPAN("state"), mac);  // the state is derived from the ticket
    secret_encode(&login, span_make((const char *)mac, sizeof mac));
    assert_int_equal(come_back(&other, query_of(&other, "code=abc&state={}", buf_text(&login))),
                     CONNECT_PAGE_WRONG_BROWSER);
    buf_release(&login);
    assert_int_equal(answer(&ana, ticket, csrf, true), CONNECT_PAGE_AUTHORIZE);
    browser_release(&ana);
    browser_release(&other);
}

static void B2_a_callback_with_an_unknown_state_does_not_use_up_the_login(void **state)
{
    (void)state;
    static const char *const queries[] = {
        "code=abc&state={}x",        "code=abc&other={}",
        "code=abc&state={}&state=x", "code=abc&state=x&state={}",
        "code=abc&state=&n={}",      "code=abc&code=def&state={}",
        "state={}&error=a&error=b",  "code=abc&state={}&iss=a&iss=b",
    };
    struct browser ana = {.user = "ana"};
    const char *login = consent_to(&ana, get_ticket(&ana));
    for (size_t i = 0; i < COUNT(queries); i++)
        assert_row(come_back(&ana, query_of(&ana, queries[i], login)) == CONNECT_PAGE_UNKNOWN_LOGIN, queries[i]);
    assert_int_equal(come_back(&ana, ""), CONNECT_PAGE_UNKNOWN_LOGIN);
    assert_int_equal(authority.tokens, 0);
    assert_int_equal(come_back(&ana, query_of(&ana, "code=abc&state={}", login)), CONNECT_PAGE_CONNECTED);
    browser_release(&ana);
}

static void a_callback_without_a_code_ends_the_login(void **state)
{
    (void)state;
    static const struct {
        const char *query;
        enum connect_page_kind kind;
    } rows[] = {{"state={}&error=access_denied", CONNECT_PAGE_DECLINED},
                {"state={}&error=server_error", CONNECT_PAGE_FAILED},
                {"state={}", CONNECT_PAGE_FAILED},
                {"state={}&code=abc&iss=https://other.example", CONNECT_PAGE_FAILED}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct browser ana = {.user = "ana"};
        const char *login = consent_to(&ana, get_ticket(&ana));
        assert_row(come_back(&ana, query_of(&ana, rows[i].query, login)) == rows[i].kind, rows[i].query);
        assert_int_equal(come_back(&ana, query_of(&ana, "code=abc&state={}", login)), CONNECT_PAGE_USED);
        browser_release(&ana);
    }
    assert_int_equal(authority.tokens, 0);
    assert_int_equal(gate.changed, 0);
}

static void only_one_of_two_concurrent_callbacks_is_accepted(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"}, twin = {.user = "ana"};
    const char *login = consent_to(&ana, get_ticket(&ana));
    struct connect_request asked = {.op = CONNECT_OP_CALLBACK,
                                    .query = span_of(query_of(&ana, "code=abc&state={}", login))};
    memcpy(twin.cookies, ana.cookies, sizeof twin.cookies);
    twin.cookie_count = ana.cookie_count;
    browser_send_to(flow, &ana, &asked);
    browser_send_to(flow, &twin, &asked);
    enum connect_page_kind one = browser_wait(&ana), two = browser_wait(&twin);
    assert_true((one == CONNECT_PAGE_CONNECTED && two == CONNECT_PAGE_USED) ||
                (one == CONNECT_PAGE_USED && two == CONNECT_PAGE_CONNECTED));
    assert_int_equal(authority.tokens, 1);
    browser_release(&ana);
    browser_release(&twin);
}

static void H9_another_process_continues_the_login(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"};
    const char *login = consent_to(&ana, get_ticket(&ana));
    struct connect *other = new_flow();
    browser_send_to(other, &ana,
                    &(struct connect_request){.op = CONNECT_OP_CALLBACK,
                                              .query = span_of(query_of(&ana, "code=abc&state={}", login))});
    assert_int_equal(browser_wait(&ana), CONNECT_PAGE_CONNECTED);
    connect_free(other);
    browser_release(&ana);
}

// ---- browsers that do not wait --------------------------------------------------------------

static bool is_granted(void) { return gate.changed > 0; }
static bool was_asked(void) { return authority.asked > 0; }

static void a_browser_that_disconnects_ends_its_request(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"};
    const char *ticket = get_ticket(&ana);
    browser_send_to(flow, &ana, &(struct connect_request){.op = CONNECT_OP_OPEN, .ticket = span_of(ticket)});
    run_until(was_asked());
    connect_request_cancel(&ana.request);
    assert_false(ana.shown);
    assert_int_equal(open_ticket(&ana, ticket), CONNECT_PAGE_CONSENT);
    gate.waits = true;
    browser_send_to(flow, &ana, &(struct connect_request){.op = CONNECT_OP_LIST});
    connect_request_cancel(&ana.request);
    assert_false(ana.shown);
    browser_release(&ana);
}

static bool is_exchanging(void) { return authority.tokens > 0; }

static void a_login_whose_code_is_being_exchanged_continues_without_its_browser(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"};
    const char *login = consent_to(&ana, get_ticket(&ana));
    browser_send_to(flow, &ana,
                    &(struct connect_request){.op = CONNECT_OP_CALLBACK,
                                              .query = span_of(query_of(&ana, "code=abc&state={}", login))});
    run_until(is_exchanging());
    connect_request_cancel(&ana.request);
    run_until(is_granted());
    assert_false(ana.shown);
    assert_int_equal(grants_of("ana"), 1);
    browser_release(&ana);
}

static void the_connect_flow_can_be_freed_with_requests_in_progress(void **state)
{
    (void)state;
    struct browser one = {.user = "ana"}, two = {.user = "ana"}, three = {.user = "ana"};
    const char *ticket = get_ticket(&one);
    browser_send_to(flow, &one, &(struct connect_request){.op = CONNECT_OP_OPEN, .ticket = span_of(ticket)});
    run_until(was_asked());
    browser_send_to(flow, &two, &(struct connect_request){.op = CONNECT_OP_LIST});
    browser_send_to(flow, &three, &(struct connect_request){.op = CONNECT_OP_START, .server = SPAN("files")});
    connect_free(flow);
    flow = NULL;
    struct browser *all[] = {&one, &two, &three};
    for (size_t i = 0; i < COUNT(all); i++) {
        assert_false(all[i]->shown);
        identity_unref(all[i]->request.identity);
        browser_release(all[i]);
    }
}

// ---- the return to the application ----------------------------------------------------------

static void H10_a_browser_returns_only_to_allowed_origins(void **state)
{
    (void)state;
    static const char *const refused[] = {"https://evil.example/",    "http://app.example/",
                                          "https://app.example:444/", "https://app.example.evil.example/",
                                          "//app.example/",           "app.example"};
    struct browser ana = {.user = "ana"};
    for (size_t i = 0; i < COUNT(refused); i++) {
        struct connect_request asked = {
            .op = CONNECT_OP_START, .server = SPAN("files"), .return_to = span_of(refused[i])};
        assert_row(browser_ask(&ana, &asked) == CONNECT_PAGE_NO_RETURN, refused[i]);
    }
    struct connect_request asked = {
        .op = CONNECT_OP_START, .server = SPAN("files"), .return_to = SPAN("https://app.example/done")};
    assert_int_equal(browser_ask(&ana, &asked), CONNECT_PAGE_REDIRECT);
    const char *login = consent_to(&ana, strchr(ana.page.url, '=') + 1);
    assert_int_equal(come_back(&ana, query_of(&ana, "code=abc&state={}", login)), CONNECT_PAGE_RETURN);
    assert_string_equal(ana.page.url, "https://app.example/done");
    browser_release(&ana);
}

static void only_servers_with_per_user_grants_can_be_connected(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"};
    static const char *const names[] = {"plain", "none", ""};
    for (size_t i = 0; i < COUNT(names); i++) {
        struct connect_request asked = {.op = CONNECT_OP_START, .server = span_of(names[i])};
        assert_row(browser_ask(&ana, &asked) == CONNECT_PAGE_NO_SERVER, names[i]);
    }
    browser_release(&ana);
}

// ---- connections ----------------------------------------------------------------------------

static enum connection_state list_state(struct browser *browser)
{
    assert_int_equal(browser_ask(browser, &(struct connect_request){.op = CONNECT_OP_LIST}), CONNECT_PAGE_LIST);
    assert_int_equal(browser->page.connection_count, 1);
    assert_string_equal(browser->page.connections[0].server, "files");
    return browser->page.connections[0].state;
}

static void a_user_disconnects_an_account(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"}, bob = {.user = "bob"};
    assert_int_equal(list_state(&ana), CONNECTION_NONE);
    assert_int_equal(connect_account(&ana), CONNECT_PAGE_CONNECTED);
    assert_int_equal(connect_account(&bob), CONNECT_PAGE_CONNECTED);
    assert_int_equal(list_state(&ana), CONNECTION_GOOD);
    assert_string_equal(ana.page.connections[0].issuer, origin);
    assert_string_equal(ana.page.connections[0].scope, "read");
    const char *csrf = ana.page.csrf;
    struct connect_request asked = {.op = CONNECT_OP_DISCONNECT, .server = SPAN("files"), .csrf = SPAN("x")};
    assert_int_equal(browser_ask(&ana, &asked), CONNECT_PAGE_FORGED);
    assert_int_equal(grants_of("ana"), 1);
    asked.csrf = span_of(csrf);
    gate.changed = 0;
    assert_int_equal(browser_ask(&ana, &asked), CONNECT_PAGE_REDIRECT);
    assert_string_equal(ana.page.url, "connections");
    assert_int_equal(authority.revoked, 2);  // the refresh token and the access token
    assert_int_equal(gate.changed, 1);
    assert_int_equal(grants_of("ana"), 0);
    assert_int_equal(grants_of("bob"), 1);
    assert_int_equal(list_state(&ana), CONNECTION_NONE);
    browser_release(&ana);
    browser_release(&bob);
}

static void a_grant_that_cannot_be_revoked_is_deleted(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"};
    assert_int_equal(connect_account(&ana), CONNECT_PAGE_CONNECTED);
    assert_int_equal(list_state(&ana), CONNECTION_GOOD);
    authority.down = true;
    struct connect_request asked = {
        .op = CONNECT_OP_DISCONNECT, .server = SPAN("files"), .csrf = span_of(ana.page.csrf)};
    assert_int_equal(browser_ask(&ana, &asked), CONNECT_PAGE_REDIRECT);
    assert_int_equal(grants_of("ana"), 0);
    browser_release(&ana);
}

static bool is_disconnected(void) { return gate.changed > 1; }

static void a_disconnect_continues_without_its_browser(void **state)
{
    (void)state;
    struct browser ana = {.user = "ana"};
    assert_int_equal(connect_account(&ana), CONNECT_PAGE_CONNECTED);
    assert_int_equal(list_state(&ana), CONNECTION_GOOD);
    struct connect_request asked = {
        .op = CONNECT_OP_DISCONNECT, .server = SPAN("files"), .csrf = span_of(ana.page.csrf)};
    browser_send_to(flow, &ana, &asked);
    connect_request_cancel(&ana.request);
    run_until(is_disconnected());
    assert_false(ana.shown);
    assert_int_equal(grants_of("ana"), 0);
    browser_release(&ana);
}

// ---- the flow as a whole --------------------------------------------------------------------

static void the_connect_flow_exists_only_with_per_user_servers(void **state)
{
    (void)state;
    struct connect_parts parts = {.loop = loop, .http = http, .config = config, .ops = &gate_ops, .arg = &gate};
    assert_null(connect_new(&parts));  // `parts` has no store
    parts.store = store;
    struct server *servers = config->servers.at;
    servers[0].disabled = true;
    assert_null(connect_new(&parts));
    servers[0].disabled = false;
    char *url = config->public_url;
    config->public_url = NULL;
    assert_null(connect_new(&parts));
    config->public_url = url;
    connect_free(NULL);
}

static void G2_client_metadata_are_served_at_https_only(void **state)
{
    (void)state;
    struct buf out = {0};
    assert_false(connect_document(flow, SPAN("/oauth/client-metadata.json"), &out));
    connect_free(flow);
    config_unref(config);
    config = parse_config("https://gate.example/");
    flow = new_flow();
    assert_true(connect_document(flow, SPAN("/oauth/client-metadata.json"), &out));
    assert_contains(buf_text(&out), "\"https://gate.example/oauth/callback\"");
    assert_contains(buf_text(&out), "\"https://gate.example/oauth/client-metadata.json\"");
    buf_clear(&out);
    assert_true(connect_document(flow, SPAN("/oauth/cli-metadata.json"), &out));
    assert_contains(buf_text(&out), "\"http://127.0.0.1/callback\"");
    buf_clear(&out);
    assert_false(connect_document(flow, SPAN("/oauth/connections"), &out));
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_account_is_connected),
        TEST(a_ticket_that_is_not_stored_is_expired),
        TEST(a_ticket_is_valid_for_one_login),
        TEST(a_consent_page_may_be_opened_again),
        TEST(two_tabs_get_the_same_consent_page),
        TEST(a_link_whose_server_is_down_can_be_opened_later),
        TEST(a_link_for_a_server_at_another_url_is_expired),
        TEST(a_login_uses_the_configuration_that_it_began_with),
        TEST(H6_a_link_opened_by_another_user_becomes_invalid),
        TEST(H6_another_user_in_the_same_browser_cannot_complete_a_login),
        TEST(a_link_of_an_identity_that_was_revoked_is_expired),
        TEST(a_browser_without_a_credential_sees_no_accounts),
        TEST(an_unbound_ticket_warns_the_user),
        TEST(a_refused_credential_gets_a_page_that_explains_the_reason),
        TEST(a_page_request_waits_for_its_authentication),
        TEST(a_forged_form_does_not_use_up_the_ticket),
        TEST(a_user_may_decline_consent),
        TEST(a_consent_form_is_accepted_only_once),
        TEST(H8_a_callback_in_another_browser_does_not_use_up_the_login),
        TEST(H8_a_callback_before_consent_does_not_use_up_the_login),
        TEST(B2_a_callback_with_an_unknown_state_does_not_use_up_the_login),
        TEST(a_callback_without_a_code_ends_the_login),
        TEST(only_one_of_two_concurrent_callbacks_is_accepted),
        TEST(H9_another_process_continues_the_login),
        TEST(a_browser_that_disconnects_ends_its_request),
        TEST(a_login_whose_code_is_being_exchanged_continues_without_its_browser),
        TEST(the_connect_flow_can_be_freed_with_requests_in_progress),
        TEST(H10_a_browser_returns_only_to_allowed_origins),
        TEST(only_servers_with_per_user_grants_can_be_connected),
        TEST(a_user_disconnects_an_account),
        TEST(a_grant_that_cannot_be_revoked_is_deleted),
        TEST(a_disconnect_continues_without_its_browser),
        TEST(the_connect_flow_exists_only_with_per_user_servers),
        TEST(G2_client_metadata_are_served_at_https_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
