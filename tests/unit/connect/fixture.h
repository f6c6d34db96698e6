// Shared by the tests of the connect flow: a store, an authorization server on the same loop, browsers, and a fake gate that
// records its calls.
#ifndef CONNECT_FIXTURE_H
#define CONNECT_FIXTURE_H

#include "auth/grant/store.h"
#include "auth/grant/vault.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/config.h"
#include "connect/connect.h"
#include "connect/request.h"
#include "folder.h"
#include "listen.h"
#include "loop/http_client.h"
#include "run_until.h"
#include "store/record.h"
#include <sys/socket.h>
#include <unistd.h>

#define CLIENT "client-1"

static char origin[64];
static struct loop *loop;
static struct http_client *http;
static struct grant_store *store;
static struct config *config;
static struct connect *flow;

#define run_until(condition) run_loop_until(loop, condition)

// ---- the authorization server ---------------------------------------------------------------

// Each request arrives on its own connection.
static struct authority {
    struct loop_watch listener, peers[64];
    struct buf requests[64];
    size_t asked;
    size_t tokens, revoked;  // requests to the token and revocation endpoints
    bool down;               // answers 503
} authority;

static inline const char *authority_answer(const char *request, struct buf *body)
{
    if (authority.down)
        return "503 X";
    if (strncmp(request, "POST /mcp ", 10) == 0)
        return "401 X";
    if (strstr(request, "/.well-known/oauth-protected-resource"))
        buf_printf(body, "{\"resource\":\"%s/mcp\",\"authorization_servers\":[\"%s\"],\"scopes_supported\":[\"read\"]}",
                   origin, origin);
    else if (strstr(request, "/.well-known/oauth-authorization-server"))
        buf_printf(body,
                   "{\"issuer\":\"%s\",\"authorization_endpoint\":\"%s/authorize\",\"token_endpoint\":\"%s/token\","
                   "\"revocation_endpoint\":\"%s/revoke\",\"response_types_supported\":[\"code\"],"
                   "\"code_challenge_methods_supported\":[\"S256\"],"
                   "\"token_endpoint_auth_methods_supported\":[\"none\"]}",
                   origin, origin, origin, origin);
    else if (strncmp(request, "POST /token ", 12) == 0 && ++authority.tokens)
        buf_put_text(body, "{\"access_token\":\"access\",\"refresh_token\":\"refresh\",\"token_type\":\"Bearer\","
                           "\"expires_in\":3600,\"scope\":\"read\"}");
    else if (strncmp(request, "POST /revoke ", 13) == 0 && ++authority.revoked)
        buf_put_text(body, "{}");
    else
        return "404 X";
    return "200 X";
}

static inline void authority_on_peer(struct loop_watch *peer, unsigned events)
{
    (void)events;
    char bytes[8192];
    struct buf *request = &authority.requests[peer - authority.peers], body = {0}, answer = {0};
    ssize_t count = recv(peer->fd, bytes, sizeof bytes, 0);
    if (count > 0)
        buf_put(request, bytes, (size_t)count);
    const char *end = count > 0 ? strstr(buf_text(request), "\r\n\r\n") : NULL;
    const char *length = end ? strstr(buf_text(request), "Content-Length: ") : NULL;
    if (count > 0 && (!end || (length && strlen(end + 4) < strtoul(length + 16, NULL, 10))))
        return;
    if (count > 0) {
        const char *status = authority_answer(buf_text(request), &body);
        buf_printf(&answer,
                   "HTTP/1.1 %s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
                   status, body.len);
        buf_put_span(&answer, buf_span(&body));
        assert_int_equal(send(peer->fd, answer.at, answer.len, 0), (ssize_t)answer.len);
        buf_release(&body);
        buf_release(&answer);
    }
    loop_unwatch(loop, peer);
    close(peer->fd);
}

static inline void authority_on_listener(struct loop_watch *watch, unsigned events)
{
    (void)events;
    struct err err;
    size_t i = authority.asked++ % COUNT(authority.peers);
    authority.peers[i] = (struct loop_watch){.fd = accept(watch->fd, NULL, NULL), .on_ready = authority_on_peer};
    buf_clear(&authority.requests[i]);
    assert_true(loop_watch(loop, &authority.peers[i], LOOP_READ, &err));
}

static inline void authority_open(void)
{
    struct err err;
    unsigned port;
    authority.listener = (struct loop_watch){.fd = listen_on_loopback(&port), .on_ready = authority_on_listener};
    snprintf(origin, sizeof origin, "http://127.0.0.1:%u", port);
    assert_true(loop_watch(loop, &authority.listener, LOOP_READ, &err));
}

static inline void authority_close(void)
{
    loop_unwatch(loop, &authority.listener);
    close(authority.listener.fd);
    for (size_t i = 0; i < COUNT(authority.requests); i++)
        buf_release(&authority.requests[i]);
    memset(&authority, 0, sizeof authority);
}

// ---- the gate -------------------------------------------------------------------------------

static struct fake_gate {
    enum connect_verdict verdict;  // for credentials other than "Bearer NAME"
    enum err_code code;
    int64_t retry_ms;
    bool waits;  // the next admission has to wait
    struct provider_wait *waiting;
    bool revoked;                      // no identity is valid any more
    void (*on_check)(void);            // called when the flow asks whether an identity is valid; may be NULL
    size_t added, changed, completed;  // how often the flow reported each
    char session[64], elicitation[64];
} gate;

// "Bearer NAME" authenticates the user NAME.
static inline enum connect_verdict gate_admit(void *arg, struct connect_admission *admission)
{
    struct fake_gate *self = arg;
    struct span name = credentials_bearer(admission->credentials);
    if (self->waits) {
        self->waits = false;
        self->waiting = admission->wait;
        return CONNECT_WAIT;
    }
    admission->code = self->code;
    admission->retry_ms = self->retry_ms;
    if (!name.at)
        return self->verdict;
    char *text = mem_span(name);
    admission->identity = identity_new(IDENTITY_BEARER, "default", "bearer", text);
    free(text);
    return CONNECT_ADMITTED;
}

static inline bool gate_identity_valid(void *arg, const struct identity *identity)
{
    struct fake_gate *self = arg;
    (void)identity;
    if (self->on_check)
        self->on_check();
    return !self->revoked;
}

static inline void gate_grant_added(void *arg, const struct identity *user, const struct server *server)
{
    (void)user;
    (void)server;
    ((struct fake_gate *)arg)->added++;
}

static inline void gate_grant_changed(void *arg, const struct identity *user, const struct server *server)
{
    (void)user;
    (void)server;
    ((struct fake_gate *)arg)->changed++;
}

static inline void gate_login_complete(void *arg, const char *session, const char *elicitation,
                                       const struct identity *user)
{
    struct fake_gate *self = arg;
    (void)user;
    self->completed++;
    snprintf(self->session, sizeof self->session, "%s", session);
    snprintf(self->elicitation, sizeof self->elicitation, "%s", elicitation);
}

static const struct connect_ops gate_ops = {gate_admit, gate_identity_valid, gate_grant_added, gate_grant_changed,
                                            gate_login_complete};

// ---- browsers -------------------------------------------------------------------------------

#define COOKIES_KEPT 16

struct browser {
    const char *user;  // NULL: sends no credential
    struct connect_cookie cookies[COOKIES_KEPT];
    size_t cookie_count;
    // the last page
    bool shown;
    struct connect_page page;  // its texts are copies in the arena
    struct arena arena;
    char authorization[64];
    struct connect_request request;
};

static inline void browser_take_cookie(struct browser *browser, const struct connect_cookie *cookie)
{
    size_t i = 0;
    while (i < browser->cookie_count && strcmp(browser->cookies[i].name, cookie->name) != 0)
        i++;
    if (cookie->max_age) {
        assert_true(i < COOKIES_KEPT);
        browser->cookies[i] = *cookie;
        browser->cookie_count += i == browser->cookie_count;
    } else if (i < browser->cookie_count) {
        browser->cookies[i] = browser->cookies[--browser->cookie_count];
    }
}

static inline const char *browser_cookie(void *arg, const char *name)
{
    const struct browser *browser = arg;
    for (size_t i = 0; i < browser->cookie_count; i++)
        if (strcmp(browser->cookies[i].name, name) == 0)
            return browser->cookies[i].value;
    return NULL;
}

static inline void browser_each_cookie(void *arg, void (*on_cookie)(void *to, const char *name, const char *value),
                                       void *to)
{
    const struct browser *browser = arg;
    for (size_t i = 0; i < browser->cookie_count; i++)
        on_cookie(to, browser->cookies[i].name, browser->cookies[i].value);
}

static inline const char *browser_keep(struct browser *browser, const char *text)
{
    return text ? arena_copy(&browser->arena, span_of(text)) : NULL;
}

static inline void browser_on_page(struct connect_request *request, const struct connect_page *page)
{
    struct browser *browser = request->arg;
    struct connect_page *kept = &browser->page;
    *kept = *page;
    kept->server = browser_keep(browser, page->server);
    kept->user = browser_keep(browser, page->user);
    kept->issuer = browser_keep(browser, page->issuer);
    kept->scope = browser_keep(browser, page->scope);
    kept->ticket = browser_keep(browser, page->ticket);
    kept->csrf = browser_keep(browser, page->csrf);
    kept->url = browser_keep(browser, page->url);
    struct connection *list = arena_alloc(&browser->arena, (page->connection_count + 1) * sizeof *list);
    for (size_t i = 0; i < page->connection_count; i++) {
        list[i] = page->connections[i];
        list[i].scope = browser_keep(browser, list[i].scope);
        list[i].issuer = browser_keep(browser, list[i].issuer);
    }
    kept->connections = list;
    for (size_t i = 0; i < page->cookie_count; i++)
        browser_take_cookie(browser, &page->cookies[i]);
    browser->shown = true;
}

// Sends the request `asked`. The page arrives while the loop runs.
static inline void browser_send_to(struct connect *connect, struct browser *browser,
                                   const struct connect_request *asked)
{
    browser->shown = false;
    browser->request = *asked;
    browser->request.cookie = browser_cookie;
    browser->request.each_cookie = browser_each_cookie;
    browser->request.on_page = browser_on_page;
    browser->request.arg = browser;
    if (browser->user) {
        snprintf(browser->authorization, sizeof browser->authorization, "Bearer %s", browser->user);
        browser->request.credentials.authorization = span_of(browser->authorization);
    }
    connect_request_start(connect, &browser->request);
}

static inline enum connect_page_kind browser_wait(struct browser *browser)
{
    run_until(browser->shown);
    return browser->page.kind;
}

static inline enum connect_page_kind browser_ask(struct browser *browser, const struct connect_request *asked)
{
    browser_send_to(flow, browser, asked);
    return browser_wait(browser);
}

static inline void browser_release(struct browser *browser)
{
    arena_release(&browser->arena);
    memset(browser, 0, sizeof *browser);
}

// ---- the steps of a login -------------------------------------------------------------------

// Makes a link for the user of this browser; returns its ticket.
static inline const char *get_ticket(struct browser *browser)
{
    static const char path[] = "../connect?t=";
    enum connect_page_kind kind =
        browser_ask(browser, &(struct connect_request){.op = CONNECT_OP_START, .server = SPAN("files")});
    assert_int_equal(kind, CONNECT_PAGE_REDIRECT);
    assert_int_equal(strncmp(browser->page.url, path, sizeof path - 1), 0);
    return browser->page.url + sizeof path - 1;
}

static inline enum connect_page_kind open_ticket(struct browser *browser, const char *ticket)
{
    return browser_ask(browser, &(struct connect_request){.op = CONNECT_OP_OPEN, .ticket = span_of(ticket)});
}

static inline enum connect_page_kind answer(struct browser *browser, const char *ticket, const char *csrf, bool agreed)
{
    return browser_ask(
        browser, &(struct connect_request){
                     .op = CONNECT_OP_CONSENT, .ticket = span_of(ticket), .csrf = span_of(csrf), .agreed = agreed});
}

static inline enum connect_page_kind come_back(struct browser *browser, const char *query)
{
    return browser_ask(browser, &(struct connect_request){.op = CONNECT_OP_CALLBACK, .query = span_of(query)});
}

// Opens the ticket and consents; returns the state that the authorization server gets.
static inline const char *consent_to(struct browser *browser, const char *ticket)
{
    assert_int_equal(open_ticket(browser, ticket), CONNECT_PAGE_CONSENT);
    assert_int_equal(answer(browser, ticket, browser->page.csrf, true), CONNECT_PAGE_AUTHORIZE);
    const char *state = strstr(browser->page.url, "state=");
    assert_non_null(state);
    state += strlen("state=");
    return arena_copy(&browser->arena, span_make(state, strcspn(state, "&")));
}

// Returns the query of a callback with this state.
static inline const char *query_of(struct browser *browser, const char *format, const char *state)
{
    char text[512];
    const char *mark = strstr(format, "{}");
    snprintf(text, sizeof text, "%.*s%s%s", (int)(mark - format), format, state, mark + 2);
    return browser_keep(browser, text);
}

static inline enum connect_page_kind connect_account(struct browser *browser)
{
    const char *state = consent_to(browser, get_ticket(browser));
    return come_back(browser, query_of(browser, "code=abc&state={}", state));
}

// Counts the grants of this user in the store.
static inline size_t grants_of(const char *user)
{
    struct grant_request request = {0};
    char name[64];
    snprintf(name, sizeof name, "bearer/%s", user);
    grant_store_list(store, &(struct grant_filter){"default", name, NULL}, &request);
    assert_true(grant_store_wait(store, 10000));
    size_t count = request.count;
    grant_request_release(&request);
    return count;
}

// ---- setting up -----------------------------------------------------------------------------

static inline struct connect *new_flow(void)
{
    struct connect *connect = connect_new(&(struct connect_parts){
        .loop = loop, .http = http, .config = config, .store = store, .ops = &gate_ops, .arg = &gate});
    assert_non_null(connect);
    return connect;
}

static inline struct config *parse_config(const char *public_url)
{
    struct err err = {0};
    struct buf text = {0};
    buf_printf(
        &text,
        "{\"public_url\":\"%s\",\"policy\":\"p\",\"auth\":{\"providers\":[{\"type\":\"forwarded-user\","
        "\"trusted_proxies\":[\"127.0.0.1\"]}]},\"hosted\":{\"return_to\":[\"https://app.example\"]},\"mcpServers\":{"
        "\"files\":{\"url\":\"%s/mcp\",\"auth\":{\"mode\":\"per_user\",\"client_id\":\"" CLIENT "\"}},"
        "\"plain\":{\"url\":\"%s/mcp\"}}}",
        public_url, origin, origin);
    json_t *tree = json_loads(buf_text(&text), JSON_REJECT_DUPLICATES, NULL);
    struct config *parsed = config_parse(tree, "p.json", &err);
    if (!parsed)
        fail_msg("%s", err.detail);
    json_decref(tree);
    buf_release(&text);
    return parsed;
}

static inline int set_up(void **state)
{
    struct err err = {0};
    if (make_state_directory(state) != 0)
        return -1;
    alarm(120);
    gate = (struct fake_gate){.verdict = CONNECT_NO_CREDENTIAL};
    loop = loop_new(&err);
    http = http_client_new(loop, &err);
    store = grant_store_open(loop, &(struct record_config){0}, &(struct vault_config){0}, &err);
    if (!store)
        fail_msg("%s", err.detail);
    authority_open();
    config = parse_config("http://127.0.0.1:8080/");
    flow = new_flow();
    return 0;
}

static inline int tear_down(void **state)
{
    connect_free(flow);
    grant_store_close(store);
    authority_close();
    http_client_free(http);
    loop_free(loop);
    config_unref(config);
    return remove_directory(state);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

#endif
