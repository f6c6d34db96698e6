// Owns the offer of a connect link to a caller whose call failed for lack of a grant. The link is put into the error of the call, in
// the form that the client understands.
#include "base/log.h"
#include "base/scan.h"
#include "base/secret.h"
#include "connect/connect.h"
#include "connect/offer.h"
#include "rows.h"

struct login_offer {
    struct call *call;
    struct connect_offer *offer;
    char elicitation[SESSION_ID_LEN + 1];  // "": the client does not support elicitation by URL
};

static void put_member(struct buf *out, const char *name, const char *value)
{
    buf_printf(out, "%s\"%s\":", out->len && out->at[out->len - 1] != '{' ? "," : "", name);
    scan_encode_lossy(span_of(value), out);
}

static const struct server *server_of(const struct call *call) { return upstream_server(call->link->upstream); }

// Puts the request to connect the account, as text for the user.
static void put_request(const struct call *call, struct buf *out)
{
    if (call->unconnected)
        buf_printf(out, "No connected server has this item; not connected yet: %s. ", call->unconnected);
    buf_printf(out, "Connect your account at \"%s\" to continue", server_of(call)->name);
}

static void put_elicitation(struct call *call, const char *url)
{
    struct buf text = {0}, *data = &call->error_data;
    put_request(call, &text);
    buf_put_char(&text, '.');
    buf_put_text(data, "\"elicitations\":[{\"mode\":\"url\"");
    put_member(data, "elicitationId", call->offer->elicitation);
    put_member(data, "url", url);
    put_member(data, "message", buf_text(&text));
    buf_put_text(data, "}]");
    buf_release(&text);
}

static void put_link(struct call *call, const char *url)
{
    struct buf text = {0};
    put_request(call, &text);
    buf_printf(&text, ", then try again: %s", url);
    put_member(&call->error_data, "server", server_of(call)->name);
    put_member(&call->error_data, "authorizationUrl", url);
    call->error_text = arena_copy(&call->arena, buf_span(&text));
    buf_wipe(&text);
}

static void on_stored(void *arg, const char *url)
{
    struct login_offer *offer = arg;
    struct call *call = offer->call;
    if (url) {
        buf_clear(&call->error_data);
        if (*offer->elicitation) {
            call->err.code = ERR_LOGIN_URL;
            put_elicitation(call, url);
        } else {
            put_link(call, url);
        }
    }
    call->offer = NULL;
    call_resume(call);
}

// The error for a server that refuses every scope; a connect link would not help.
static void put_scope_refused(struct call *call)
{
    struct buf text = {0};
    const char *server = server_of(call)->name;
    buf_printf(&text,
               "Server \"%s\" requires more access to your account, although more was granted %d times; connecting "
               "again does not help, so ask your administrator",
               server, CONNECT_OFFER_SCOPE_REQUESTS);
    log_warn("server repeatedly requires more scope", LOG_STR("server", server),
             LOG_STR("subject", call->identity->subject));
    call->error_text = arena_copy(&call->arena, buf_span(&text));
    buf_clear(&call->error_data);
    put_member(&call->error_data, "server", server);
    buf_release(&text);
}

static void set_elicitation(struct login_offer *offer, const struct session *session)
{
    if (session->can.elicit_url && session->revision >= REVISION_2025_11_25)
        secret_random_text(offer->elicitation, SESSION_ID_BYTES);
}

bool login_offer_start(struct call *call)
{
    struct connect *connect = call->gate->connect;
    if (!connect || !call->link || server_of(call)->auth.mode != ACCESS_USER || !call_is_allowed(call) ||
        !call->session || call->state >= CALL_OFFERED)
        return false;
    struct login_offer *offer = arena_alloc(&call->arena, sizeof *offer);
    *offer = (struct login_offer){.call = call};
    set_elicitation(offer, call->session);
    enum connect_offer_verdict verdict =
        connect_offer_start(connect,
                            &(struct connect_offer_spec){
                                .identity = call->identity,
                                .config = call->link->config,
                                .server = server_of(call),
                                .access = call->link->access,
                                .ready = upstream_state(call->link->upstream) == UPSTREAM_READY,
                                .method = method_text(call->method),
                                .target = call->target,
                                .session = call->session->id,
                                .elicitation = offer->elicitation,
                                .on_stored = on_stored,
                                .arg = offer,
                            },
                            &offer->offer);
    if (verdict == CONNECT_OFFER_SCOPE_REFUSED)
        put_scope_refused(call);
    if (verdict != CONNECT_OFFER_STARTED)
        return false;
    call->offer = offer;
    call_set_state(call, CALL_OFFERED);
    return true;
}

void login_offer_drop(struct call *call)
{
    if (call->offer)
        connect_offer_drop(call->offer->offer);
    call->offer = NULL;
}

void login_offer_put_hint(const struct link *link, struct buf *out)
{
    const struct connect *connect = link->gate->connect;
    const struct server *server = upstream_server(link->upstream);
    if (!connect || server->auth.mode != ACCESS_USER || source_loaded(link->source))
        return;
    buf_printf(
        out,
        "%sServer \"%s\" requires the user's own account. If it lists no tools, the user must connect the account at ",
        out->len ? "\n\n" : "", server->name);
    connect_put_url(connect, server, out);
}
