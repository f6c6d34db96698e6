// Owns the login at the authorization server: from discovery to the consent page, where it is suspended, and from the
// callback to the grant.
#include "auth/grant/grant.h"
#include "auth/grant/vault.h"
#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "login.h"
#include <stdlib.h>

static void suspend(void *arg, const char *url);
static void on_end(void *arg, enum login_end end, const struct grant *grant, const struct err *err);

// The flow copies the user's name: the caller frees it. It uses only the configuration of the login, which lasts as long.
static struct login_flow_spec flow_spec(struct connect_login *login, const char *user)
{
    const struct connect *connect = login->connect;
    const struct attempt *attempt = login->attempt;
    return (struct login_flow_spec){.loop = connect->parts.loop,
                                    .http = connect->parts.http,
                                    .store = connect->parts.store,
                                    .options = &login->server->auth,
                                    .tenant = login->identity->tenant,
                                    .user = user,
                                    .server_url = login->server->url,
                                    .probe = server_probe,
                                    .issuers = login->config->hosted.authorization_servers,
                                    .redirect_uri = connect->redirect_uri,
                                    .document_url = connect->secure ? connect->document_url : NULL,
                                    .challenge = {.bearer = attempt->challenged,
                                                  .scope = attempt->challenge_scope,
                                                  .resource_metadata = attempt->challenge_metadata},
                                    .held_scope = attempt->held_scope,
                                    .shared_client = true,
                                    .state = login->state,
                                    .on_browse = suspend,
                                    .on_end = on_end,
                                    .arg = login};
}

// ---- up to the consent page -----------------------------------------------------------------

void connect_authorize_prepare(struct connect_login *login)
{
    char *user = grant_user(login->identity);
    struct login_flow_spec spec = flow_spec(login, user);
    login->flow = login_flow_start(&spec);
    connect_login_record(login, CONNECT_EVENT_STARTED, NULL);
    free(user);
}

bool connect_authorize_restore(struct connect_login *login)
{
    struct err err = {0};
    char *user = grant_user(login->identity);
    struct login_flow_spec spec = flow_spec(login, user);
    login->flow = login_suspension_restore(&spec, secret_span(&login->attempt->login), &err);
    free(user);
    if (login->flow)
        return true;
    log_warn("cannot continue a login", LOG_STR("server", login->server->name), LOG_STR("detail", err.detail));
    connect_login_show(login, CONNECT_PAGE_EXPIRED);
    return false;
}

void connect_authorize_ask(struct connect_login *login)
{
    struct buf user = {0}, token = {0};
    const struct oauth_authorization *authorization = login_flow_authorization(login->flow);
    const struct connect_request *request = login->request;
    buf_put_text(&user, login->identity->subject);
    if (login->identity->proof == IDENTITY_ANONYMOUS)
        buf_put_text(&user, " (all users of this host)");
    login->page = (struct connect_page){.server = login->server->name,
                                        .tenant = login->identity->tenant,
                                        .user = buf_text(&user),
                                        .issuer = authorization->server.issuer,
                                        .scope = authorization->scope,
                                        .unbound = !request->identity,
                                        .ticket = arena_copy(&login->arena, request->ticket)};
    connect_csrf_put(request, request->ticket, &login->page, &token);
    connect_login_record(login, CONNECT_EVENT_SHOWN, NULL);
    connect_login_show(login, CONNECT_PAGE_CONSENT);
    buf_release(&user);
    buf_release(&token);
}

static void on_suspended(struct connect_login *login)
{
    if (connect_login_is_saved(login)) {
        connect_authorize_ask(login);
    } else if (login->stored.answer == GRANT_STORE_CONFLICT && !login->found_again) {  // also opened in another tab
        login->found_again = true;
        login_flow_free(login->flow);
        login->flow = NULL;
        connect_login_find(login);
    } else {
        connect_login_show_not_saved(login);
    }
}

// Remembers the client, which is doubted if no callback arrives (G3, G10).
static void keep_client(struct connect_login *login)
{
    const struct oauth_authorization *authorization = login_flow_authorization(login->flow);
    if (login->server->auth.client_id)
        return;
    login->attempt->client_issuer = mem_string(authorization->server.issuer);
    login->attempt->client_redirect = mem_string(authorization->client.dynamic ? authorization->redirect_uri : NULL);
    login->attempt->client_id = mem_string(authorization->client.id);
}

// The flow is ready to send the user to the authorization server: it is stored until the user consents.
static void suspend(void *arg, const char *url)
{
    struct connect_login *login = arg;
    struct buf bytes = {0};
    (void)url;
    if (login->exchanging) {  // the flow must ask the user again (T13, G10), which needs a new link
        connect_login_reject(login, CONNECT_PAGE_FAILED, "ask_again");
        return;
    }
    login_suspension_save(login->flow, &bytes);
    secret_set(&login->attempt->login, buf_span(&bytes));
    buf_wipe(&bytes);
    keep_client(login);
    connect_login_set_stage(login, ATTEMPT_OFFERED, ATTEMPT_ASKING);
    connect_login_save(login, on_suspended);
}

// ---- on to the authorization server ---------------------------------------------------------

static void on_consent_saved(struct connect_login *login)
{
    if (connect_login_is_saved(login)) {
        connect_login_record(login, CONNECT_EVENT_CONSENTED, NULL);
        connect_login_show_page(login);
    } else {
        connect_login_show_not_saved(login);
    }
}

void connect_authorize_consented(struct connect_login *login)
{
    struct buf url = {0};
    oauth_authorization_url(login_flow_authorization(login->flow), &url);
    login->page = (struct connect_page){.kind = CONNECT_PAGE_AUTHORIZE,
                                        .server = login->server->name,
                                        .url = arena_copy(&login->arena, buf_span(&url)),
                                        .issuer = connect_login_issuer(login)};
    connect_browser_bind(login->request, span_of(login->state), login->attempt, &login->page);
    connect_login_set_stage(login, ATTEMPT_ASKING, ATTEMPT_AWAY);
    buf_release(&url);
    connect_login_save(login, on_consent_saved);
}

// ---- and back -------------------------------------------------------------------------------

static void on_callback_saved(struct connect_login *login)
{
    struct err err = {0};
    if (!connect_login_is_saved(login)) {
        connect_login_show_not_saved(login);
        return;
    }
    enum oauth_callback_kind kind = login_flow_callback(login->flow, &login->callback, &err);
    CHECK(kind != OAUTH_CALLBACK_STRANGE);  // the attempt was found by this state, and was not spent
}

void connect_authorize_exchange(struct connect_login *login)
{
    connect_browser_unbind(login->request, span_of(login->state), &login->page);
    login->page.server = login->server->name;
    login->exchanging = true;
    CHECK(login->attempt->stage == ATTEMPT_AWAY);
    attempt_forget(login->attempt);
    connect_login_save(login, on_callback_saved);
}

static void on_granted(struct connect_login *login)
{
    const struct connect_parts *parts = &login->connect->parts;
    log_info("an account was connected", LOG_STR("server", login->server->name),
             LOG_STR("tenant", login->identity->tenant), LOG_STR("subject", login->identity->subject));
    connect_login_record(login, CONNECT_EVENT_CONNECTED, NULL);
    parts->ops->grant_changed(parts->arg, login->identity, login->server);
    connect_offer_connected(login->connect, span_of(login->state));
    login->page.kind = CONNECT_PAGE_CONNECTED;
    if (login->attempt->return_to) {
        login->page.kind = CONNECT_PAGE_RETURN;
        login->page.url = arena_copy(&login->arena, span_of(login->attempt->return_to));
    }
    connect_login_set_stage(login, ATTEMPT_OVER, ATTEMPT_CONNECTED);
    connect_login_save(login, connect_login_show_page);  // the grant is already stored, so a failure changes nothing
}

static void on_end(void *arg, enum login_end end, const struct grant *grant, const struct err *err)
{
    struct connect_login *login = arg;
    (void)grant;
    if (end == LOGIN_END_GRANTED) {
        on_granted(login);
        return;
    }
    log_warn("cannot connect an account", LOG_STR("server", login->server->name),
             LOG_STR("subject", login->identity->subject), LOG_STR("detail", err ? err->detail : ""));
    if (end == LOGIN_END_DENIED)
        connect_login_reject(login, CONNECT_PAGE_DECLINED, "declined");
    else  // not exchanging yet: the link can be opened again
        connect_login_reject(login, CONNECT_PAGE_FAILED, login->exchanging ? "not_granted" : "not_prepared");
}
