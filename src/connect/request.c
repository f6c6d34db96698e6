// Owns a request of a browser: its authentication, that a form comes from a page of the gateway, and rates; then the stage of
// the login (stage.c) or the list of connections (connections.c) goes on with it.
#include "connect/request.h"
#include "base/mem.h"
#include "login.h"
#include "state.h"
#include <stdlib.h>

// ---- tickets and callbacks ------------------------------------------------------------------

// A browser that is not authenticated may go on only where the configuration allows it; before that, nothing is looked up.
static bool may_continue(struct connect_request *request)
{
    int64_t wait = 0;
    if (request->identity)
        return true;
    if (!request->connect->parts.config->hosted.allow_unbound_tickets)
        connect_page_show_kind(request, CONNECT_PAGE_UNAUTHENTICATED);
    else if ((wait = connect_limits_open_unbound(request)) > 0)
        connect_page_show_limited(request, wait);
    else
        return true;
    return false;
}

static void open_link(struct connect_request *request)
{
    if (!may_continue(request))
        return;
    if (request->ticket.len)
        connect_stage_open(request);
    else
        connect_page_show_kind(request, CONNECT_PAGE_EXPIRED);
}

static void consent(struct connect_request *request)
{
    if (connect_csrf_ok(request, request->ticket))
        open_link(request);
    else
        connect_page_show_kind(request, CONNECT_PAGE_FORGED);
}

static void callback(struct connect_request *request)
{
    int64_t wait = connect_limits_callback(request);
    if (wait)
        connect_page_show_limited(request, wait);
    else if (may_continue(request))
        connect_stage_callback(request);
}

// ---- requests of authenticated users --------------------------------------------------------

// H10: a browser may be sent back to an origin of the list, compared byte by byte.
static bool may_return(const struct connect_request *request)
{
    char *const *allowed = request->connect->parts.config->hosted.return_to;
    char *text = mem_span(request->return_to);
    struct oauth_url url;
    bool may = false;
    if (strlen(text) == request->return_to.len && oauth_url_parse(text, &url))
        for (; !may && allowed && *allowed; allowed++)
            may = span_is(url.origin, *allowed);
    free(text);
    return may;
}

static void start(struct connect_request *request, const struct server *server)
{
    int64_t wait;
    if (request->return_to.len && !may_return(request))
        connect_page_show_kind(request, CONNECT_PAGE_NO_RETURN);
    else if ((wait = connect_limits_open(request->connect, request->identity)) > 0)
        connect_page_show_limited(request, wait);
    else
        connect_stage_start(request, server);
}

static void serve_authenticated(struct connect_request *request)
{
    const struct config *config = request->connect->parts.config;
    const struct server *server = NULL;
    if (!request->identity)
        connect_page_show_kind(request, CONNECT_PAGE_UNAUTHENTICATED);
    else if (request->op == CONNECT_OP_LIST)
        connections_list(request);
    else if (!(server = connect_servers_find(config, request->identity->tenant, request->server)))
        connect_page_show_kind(request, CONNECT_PAGE_NO_SERVER);
    else if (request->op == CONNECT_OP_START)
        start(request, server);
    else if (connect_csrf_ok(request, span_of("disconnect")))
        connections_disconnect(request, server);
    else
        connect_page_show_kind(request, CONNECT_PAGE_FORGED);
}

// ---- authentication -------------------------------------------------------------------------

static void on_authenticated(void *arg);

static void show_refused(struct connect_request *request, const struct connect_admission *admission)
{
    switch (admission->code) {
    case ERR_AUTH_LIMITED: connect_page_show_limited(request, admission->retry_ms); break;
    case ERR_AUTH_UNAVAILABLE: connect_page_show_kind(request, CONNECT_PAGE_UNAVAILABLE); break;
    case ERR_SCOPE: connect_page_show_kind(request, CONNECT_PAGE_NO_SCOPE); break;
    default: connect_page_show_kind(request, CONNECT_PAGE_UNAUTHENTICATED);
    }
}

// True: the user is known, or the browser shows no credential. False: the page is shown, or will be.
static bool authenticate(struct connect_request *request)
{
    const struct connect_parts *parts = &request->connect->parts;
    struct connect_admission admission = {.credentials = &request->credentials, .wait = &request->auth_wait};
    request->auth_wait.resume = on_authenticated;
    request->auth_wait.arg = request;
    enum connect_verdict verdict = parts->ops->admit(parts->arg, &admission);
    request->identity = admission.identity;
    if (verdict == CONNECT_REFUSED)
        show_refused(request, &admission);
    return verdict == CONNECT_ADMITTED || verdict == CONNECT_NO_CREDENTIAL;
}

static void on_authenticated(void *arg)
{
    struct connect_request *request = arg;
    if (!authenticate(request))
        return;
    switch (request->op) {
    case CONNECT_OP_OPEN: open_link(request); break;
    case CONNECT_OP_CONSENT: consent(request); break;
    case CONNECT_OP_CALLBACK: callback(request); break;
    case CONNECT_OP_LIST:
    case CONNECT_OP_START:
    case CONNECT_OP_DISCONNECT: serve_authenticated(request); break;
    }
}

void connect_request_start(struct connect *connect, struct connect_request *request)
{
    request->connect = connect;
    on_authenticated(request);
}

void connect_request_cancel(struct connect_request *request)
{
    list_remove(&request->auth_wait.node);
    connect_login_detach(request);
    connections_detach(request);
    identity_unref(request->identity);
    request->identity = NULL;
}
