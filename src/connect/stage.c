// Owns what a request of a browser does with an attempt, by the stage the attempt is in.
//
//   OFFERED ──opened, authorization server found──► ASKING ──consent──► AWAY ──callback──► OVER ──granted──► CONNECTED
//      │                                              │                   │
//      └─────────── opened by another user ───────────┴─── or declined ───┴──► OVER
#include "auth/grant/vault.h"
#include "base/log.h"
#include "base/mem.h"
#include "login.h"

// ---- whose attempt it is --------------------------------------------------------------------

// H6: the browser's user must be the user of the attempt. If not, the page is shown, and the attempt of another user is
// spent.
static bool is_same_user(struct connect_login *login)
{
    const struct connect_request *request = login->request;
    const struct connect_parts *parts = &login->connect->parts;
    if (!parts->ops->identity_valid(parts->arg, login->identity)) {
        connect_login_show(login, CONNECT_PAGE_EXPIRED);
        return false;
    }
    if (!request->identity || identity_same(request->identity, login->identity))  // NULL: allow_unbound_tickets
        return true;
    log_warn("a connect link was used by another user", LOG_STR("server", login->server->name),
             LOG_STR("subject", login->identity->subject), LOG_STR("by", request->identity->subject));
    connect_login_spend(login, CONNECT_PAGE_WRONG_USER, "wrong_user");
    return false;
}

static bool is_over(const struct connect_login *login)
{
    return login->attempt->stage == ATTEMPT_OVER || login->attempt->stage == ATTEMPT_CONNECTED;
}

// ---- opening the link -----------------------------------------------------------------------

static void open_link(struct connect_login *login)
{
    int64_t wait;
    if (!is_over(login) && !is_same_user(login))
        return;
    if (is_over(login) || login->attempt->stage == ATTEMPT_AWAY)
        connect_login_show(login, CONNECT_PAGE_USED);
    else if (!login->found_again && (wait = connect_limits_open(login->connect, login->identity)) > 0)
        connect_login_show_limited(login, wait);
    else if (login->attempt->stage == ATTEMPT_OFFERED)
        connect_authorize_prepare(login);
    else if (connect_authorize_restore(login))
        connect_authorize_ask(login);
}

// ---- consent --------------------------------------------------------------------------------

static void consent(struct connect_login *login)
{
    if (!is_over(login) && !is_same_user(login))
        return;
    if (login->attempt->stage != ATTEMPT_ASKING)
        connect_login_show(login, CONNECT_PAGE_USED);
    else if (!connect_authorize_restore(login))
        return;
    else if (login->request->agreed)
        connect_authorize_consented(login);
    else
        connect_login_spend(login, CONNECT_PAGE_DECLINED, "declined");
}

// ---- the callback ---------------------------------------------------------------------------

static void callback(struct connect_login *login)
{
    int64_t wait;
    if (is_over(login))
        connect_login_reject(login, CONNECT_PAGE_USED, "used");
    else if (login->attempt->stage != ATTEMPT_AWAY ||
             !connect_browser_is_bound(login->request, span_of(login->state), login->attempt))  // H8: nothing is spent
        connect_login_reject(login, CONNECT_PAGE_WRONG_BROWSER, "wrong_browser");
    else if (!is_same_user(login) || !connect_authorize_restore(login))
        return;
    else if (login->callback.malformed)  // B2: nothing is spent
        connect_login_reject(login, CONNECT_PAGE_UNKNOWN_LOGIN, "strange");
    else if ((wait = connect_limits_wait_for_issuer(login->connect, connect_login_issuer(login))) > 0)
        connect_login_show_limited(login, wait);
    else
        connect_authorize_exchange(login);
}

// ---- finding the attempt --------------------------------------------------------------------

// Takes the attempt from the store. False: a page is shown, because the attempt or its server does not exist, the server has
// another URL now, or the attempt cannot be read.
static bool take_attempt(struct connect_login *login)
{
    if (login->stored.answer == GRANT_STORE_FAILED) {
        log_error("cannot look up a login", LOG_STR("detail", login->stored.err.detail));
        connect_login_show(login, CONNECT_PAGE_FAILED);
        return false;
    }
    attempt_free(login->attempt);
    identity_unref(login->identity);
    struct attempt *attempt = login->attempt = login->stored.attempt;
    login->stored.attempt = NULL;
    login->identity = attempt ? attempt_identity(attempt) : NULL;
    login->server = attempt ? connect_servers_find(login->config, attempt->tenant, span_of(attempt->server)) : NULL;
    if (login->server && strcmp(login->server->url, attempt->server_url) == 0)
        return true;
    bool is_callback = login->op == CONNECT_OP_CALLBACK;
    if (is_callback)
        log_info("rejected a callback: its login does not exist or has expired");
    connect_login_show(login, is_callback ? CONNECT_PAGE_UNKNOWN_LOGIN : CONNECT_PAGE_EXPIRED);
    return false;
}

static void on_found(struct connect_login *login)
{
    if (!take_attempt(login))
        return;
    switch (login->op) {
    case CONNECT_OP_OPEN: open_link(login); break;
    case CONNECT_OP_CONSENT: consent(login); break;
    default: callback(login); break;
    }
}

static void find_attempt(struct connect_login *login)
{
    login->on_found = on_found;
    connect_login_find(login);
}

void connect_stage_open(struct connect_request *request)
{
    struct connect_login *login = connect_login_new(request);
    struct buf state = {0};
    connect_ticket_put_state(request->ticket, &state);
    login->state = arena_copy(&login->arena, buf_span(&state));
    buf_wipe(&state);
    find_attempt(login);
}

void connect_stage_callback(struct connect_request *request)
{
    struct connect_login *login = connect_login_new(request);
    oauth_callback_parse(request->query, &login->arena, &login->callback);
    login->state = login->callback.state;
    if (login->state && *login->state) {
        find_attempt(login);
        return;
    }
    log_info("rejected a callback without a state");
    connect_login_show(login, CONNECT_PAGE_UNKNOWN_LOGIN);
}

// ---- a link for an authenticated user -------------------------------------------------------

static void on_added(struct connect_login *login)
{
    if (login->stored.answer == GRANT_STORE_DONE) {
        connect_login_show(login, CONNECT_PAGE_REDIRECT);
        return;
    }
    log_error("cannot make a connect link", LOG_STR("detail", login->stored.err.detail));
    connect_login_show(login, CONNECT_PAGE_FAILED);
}

void connect_stage_start(struct connect_request *request, const struct server *server)
{
    struct buf ticket = {0}, state = {0}, url = {0};
    struct attempt *attempt = connect_ticket_new(request->connect, request->identity, server, &ticket, &state);
    struct connect_login *login = connect_login_new(request);
    login->state = arena_copy(&login->arena, buf_span(&state));
    attempt->return_to = request->return_to.len ? mem_span(request->return_to) : NULL;
    buf_printf(&url, "../connect?t=%s", buf_text(&ticket));
    login->page.url = arena_copy(&login->arena, buf_span(&url));
    connect_login_add(login, attempt, on_added);
    attempt_free(attempt);
    buf_wipe(&ticket);
    buf_wipe(&state);
    buf_wipe(&url);
}
