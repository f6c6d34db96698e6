// Owns a login while a request of a browser works on it: its life, how it is stored, and the page that ends it.
//
// The attempt is in the store, and any process that shares the store can continue it (H9). Every change of its stage is a
// compare-and-swap there: of two requests, in any processes, one continues, and the other gets a page that the link was
// used. The work ends with its browser, except for a callback that was accepted: that one is completed.
#include "login.h"
#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/secret.h"
#include <stdlib.h>

static void login_free(void *object)
{
    struct connect_login *login = object;
    grant_request_release(&login->stored);
    attempt_free(login->attempt);
    identity_unref(login->identity);
    arena_release(&login->arena);
    config_unref(login->config);
    secret_wipe(login->page.cookies, sizeof login->page.cookies);
    free(login);
}

static void login_end(struct connect_login *login)
{
    if (login->request)
        login->request->login = NULL;
    login->request = NULL;
    login_flow_free(login->flow);
    login->flow = NULL;
    grant_request_cancel(&login->stored);
    list_remove(&login->node);
    loop_reap(login->connect->parts.loop, login, login_free);
}

void connect_login_detach(struct connect_request *request)
{
    struct connect_login *login = request->login;
    request->login = NULL;
    if (!login)
        return;
    login->request = NULL;
    if (!login->exchanging)
        login_end(login);
}

void connect_login_drop_all(struct connect *connect)
{
    while (!list_empty(&connect->logins))
        login_end(list_entry(connect->logins.next, struct connect_login, node));
}

static void on_stored(struct grant_request *stored)
{
    struct connect_login *login = stored->arg;
    login->next(login);
}

struct connect_login *connect_login_new(struct connect_request *request)
{
    struct connect_login *login = mem_new(struct connect_login);
    login->connect = request->connect;
    login->config = config_ref(request->connect->parts.config);
    login->request = request;
    login->op = request->op;
    if (request->credentials.peer)
        login->peer.address = request->credentials.peer->address;
    login->stored = (struct grant_request){.on_done = on_stored, .arg = login};
    request->login = login;
    list_append(&login->connect->logins, &login->node);
    return login;
}

// ---- the audit log --------------------------------------------------------------------------

const char *connect_login_issuer(const struct connect_login *login)
{
    return login->flow ? login_flow_authorization(login->flow)->server.issuer : NULL;
}

void connect_login_record(const struct connect_login *login, enum connect_event event, const char *reason)
{
    connect_audit_put(login->connect->parts.audit, &(struct connect_audit_record){.event = event,
                                                                                  .identity = login->identity,
                                                                                  .server = login->server,
                                                                                  .issuer = connect_login_issuer(login),
                                                                                  .reason = reason,
                                                                                  .peer = &login->peer});
}

// ---- pages ----------------------------------------------------------------------------------

void connect_login_show_page(struct connect_login *login)
{
    struct connect_request *request = login->request;
    login->request = NULL;
    if (request) {
        request->login = NULL;
        connect_page_show(request, &login->page);
    }
    login_end(login);
}

void connect_login_show(struct connect_login *login, enum connect_page_kind kind)
{
    login->page.kind = kind;
    connect_login_show_page(login);
}

void connect_login_show_limited(struct connect_login *login, int64_t retry_ms)
{
    login->page.retry_ms = retry_ms;
    connect_login_show(login, CONNECT_PAGE_LIMITED);
}

void connect_login_reject(struct connect_login *login, enum connect_page_kind kind, const char *reason)
{
    connect_login_record(login, CONNECT_EVENT_REJECTED, reason);
    connect_login_show(login, kind);
}

void connect_login_show_not_saved(struct connect_login *login)
{
    if (login->stored.answer == GRANT_STORE_CONFLICT) {  // another request has changed it
        connect_login_reject(login, CONNECT_PAGE_USED, "used");
        return;
    }
    log_error("cannot store a login", LOG_STR("server", login->server->name),
              LOG_STR("detail", login->stored.err.detail));
    connect_login_show(login, CONNECT_PAGE_FAILED);
}

// ---- the store ------------------------------------------------------------------------------

void connect_login_find(struct connect_login *login)
{
    login->next = login->on_found;
    grant_store_attempt_find(login->connect->parts.store, span_of(login->state), &login->stored);
}

void connect_login_add(struct connect_login *login, const struct attempt *attempt,
                       void (*next)(struct connect_login *login))
{
    login->next = next;
    grant_store_attempt_add(login->connect->parts.store, span_of(login->state), attempt, &login->stored);
}

void connect_login_save(struct connect_login *login, void (*next)(struct connect_login *login))
{
    login->next = next;
    grant_store_attempt_save(login->connect->parts.store, span_of(login->state), login->attempt, &login->stored);
}

bool connect_login_is_saved(struct connect_login *login)
{
    if (login->stored.answer != GRANT_STORE_DONE)
        return false;
    attempt_free(login->attempt);
    login->attempt = login->stored.attempt;
    login->stored.attempt = NULL;
    return true;
}

// The caller has checked that the attempt is in stage `from`.
void connect_login_set_stage(struct connect_login *login, enum attempt_stage from, enum attempt_stage to)
{
    CHECK(login->attempt->stage == from);
    login->attempt->stage = to;
}

static void on_spent(struct connect_login *login)
{
    if (connect_login_is_saved(login))
        connect_login_show_page(login);
    else
        connect_login_show_not_saved(login);
}

void connect_login_spend(struct connect_login *login, enum connect_page_kind kind, const char *reason)
{
    connect_login_record(login, CONNECT_EVENT_REJECTED, reason);
    attempt_forget(login->attempt);
    login->page.kind = kind;
    connect_login_save(login, on_spent);
}
