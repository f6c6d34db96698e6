// Owns offers: the connect links that callers of this process are told, and which session hears that one was used.
//
// A ticket is random; the state of the login is made of it, and one record is found by either. The store has digests only.
// A session is known to its own process alone, and the login may end in another one: so the offer stays here, and the
// store is asked how the attempt goes.
#include "auth/access.h"
#include "auth/grant.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/scan.h"
#include "call.h"
#include "hosted.h"
#include <stdlib.h>
#include <time.h>

#define OFFERS_MAX 2000
#define WATCHED_AT_ONCE 64
#define SECRET_BYTES 32

struct offer {
    struct hosted *hosted;
    struct list node;
    struct call *call;  // waits for it; NULL: it was told
    struct token_request request;
    struct buf ticket, state;
    struct identity *identity;
    const struct server *server;
    char session[SESSION_ID_LEN + 1];           // who is told when it is done
    char elicitation[SESSION_ID_LEN + 1];       // how that caller knows it; "": it was not asked that way
    bool ready;                                 // the server was, with a grant that did not do
    bool widens;                                // what the server wants is more scope than the grant has
    unsigned char operation[SECRET_MAC_BYTES];  // and this is what it wants it for
};

// A9: so often a user gives more scope for one operation; a server that is still not content never will be.
static const struct bucket_rate widen_rate = {3, 24 * 3600 * 1000, 3};

static void wipe(struct buf *buf)
{
    if (buf->at)
        secret_wipe(buf->at, buf->room);
    buf_release(buf);
}

static void offer_free(void *object)
{
    struct offer *offer = object;
    token_request_release(&offer->request);
    identity_unref(offer->identity);
    wipe(&offer->ticket);
    wipe(&offer->state);
    free(offer);
}

static void offer_drop(struct offer *offer)
{
    struct hosted *hosted = offer->hosted;
    if (hosted->watched == offer) {
        token_request_cancel(&hosted->watch);
        hosted->watched = NULL;
    }
    if (offer->call)
        offer->call->offer = NULL;
    token_request_cancel(&offer->request);
    list_remove(&offer->node);
    hosted->offer_count--;
    loop_reap(hosted->gate->loop, offer, offer_free);
}

void hosted_offers_drop(struct hosted *hosted)
{
    while (!list_empty(&hosted->offers))
        offer_drop(list_entry(hosted->offers.next, struct offer, node));
    token_request_release(&hosted->watch);
}

// ---- attempts -------------------------------------------------------------------------------

static void put_random(struct buf *out)
{
    unsigned char bytes[SECRET_BYTES];
    secret_random(bytes, sizeof bytes);
    secret_encode(out, span_make((const char *)bytes, sizeof bytes));
    secret_wipe(bytes, sizeof bytes);
}

// Whoever has the ticket can make the state; nobody makes the ticket of the state, which others see.
void hosted_put_state(struct span ticket, struct buf *out)
{
    unsigned char mac[SECRET_MAC_BYTES];
    secret_mac(ticket.at ? ticket.at : "", ticket.len, span_of("state"), mac);
    secret_encode(out, span_make((const char *)mac, sizeof mac));
    secret_wipe(mac, sizeof mac);
}

struct attempt *hosted_attempt_new(const struct hosted *hosted, const struct identity *identity,
                                   const struct server *server, struct buf *ticket, struct buf *state)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct attempt *attempt = attempt_new(identity, server->name, server->url);
    attempt->expires_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + hosted->gate->config->hosted.lifetime_ms;
    put_random(ticket);
    hosted_put_state(buf_span(ticket), state);
    return attempt;
}

// What the server said when it refused, for the scopes to ask for.
static void keep_cause(struct attempt *attempt, const struct access *access)
{
    const struct oauth_challenge *said = access_challenge(access);
    attempt->challenged = said->bearer;
    attempt->challenge_scope = mem_string(said->scope);
    attempt->challenge_metadata = mem_string(said->resource_metadata);
    attempt->held_scope = mem_string(access_scope(access));
}

// ---- telling callers ------------------------------------------------------------------------

static void put_member(struct buf *out, const char *name, const char *value)
{
    buf_printf(out, "%s\"%s\":", out->len && out->at[out->len - 1] != '{' ? "," : "", name);
    scan_encode_lossy(span_of(value), out);
}

// What the caller is to do, for people.
static void put_request(const struct offer *offer, const struct call *call, struct buf *out)
{
    if (call->unconnected)
        buf_printf(out, "No connected server has this; not connected yet: %s. ", call->unconnected);
    buf_printf(out, "Connect your account at \"%s\" to go on", offer->server->name);
}

static void put_elicitation(struct offer *offer, const struct call *call, const char *url, struct buf *data)
{
    struct buf id = {0}, text = {0};
    put_random(&id);
    memcpy(offer->elicitation, buf_text(&id), sizeof offer->elicitation);
    put_request(offer, call, &text);
    buf_put_char(&text, '.');
    buf_put_text(data, "\"elicitations\":[{\"mode\":\"url\"");
    put_member(data, "elicitationId", offer->elicitation);
    put_member(data, "url", url);
    put_member(data, "message", buf_text(&text));
    buf_put_text(data, "}]");
    buf_release(&id);
    buf_release(&text);
}

static void put_link(struct offer *offer, struct call *call)
{
    struct buf url = {0}, text = {0}, *data = &call->error_data;
    buf_printf(&url, "%s/oauth/connect?t=%s", offer->hosted->base, buf_text(&offer->ticket));
    buf_clear(data);
    if (call->session->can.elicit_url && call->session->revision >= REVISION_2025_11_25) {
        call->err.code = ERR_LOGIN_URL;
        put_elicitation(offer, call, buf_text(&url), data);
    } else {
        put_request(offer, call, &text);
        buf_printf(&text, ", then try again: %s", buf_text(&url));
        put_member(data, "server", offer->server->name);
        put_member(data, "authorizationUrl", buf_text(&url));
        call->error_text = arena_copy(&call->arena, buf_span(&text));
    }
    wipe(&url);
    wipe(&text);
}

static void on_stored(struct token_request *request)
{
    struct offer *offer = request->arg;
    struct call *call = offer->call;
    offer->call = NULL;
    call->offer = NULL;
    if (request->answer == TOKEN_DONE) {
        put_link(offer, call);
        wipe(&offer->ticket);
    } else {
        log_error("a caller could not be told a connect link", LOG_STR("server", offer->server->name),
                  LOG_STR("detail", request->err.detail));
        offer_drop(offer);
    }
    call_resume(call);
}

// One that was told gives way: its session will not hear of the end. False: all of them are just being made.
static bool make_room(struct hosted *hosted)
{
    if (hosted->offer_count < OFFERS_MAX)
        return true;
    list_each(node, &hosted->offers) {
        struct offer *offer = list_entry(node, struct offer, node);
        if (!offer->call) {
            offer_drop(offer);
            return true;
        }
    }
    return false;
}

// ---- how often for more scope (A9) ----------------------------------------------------------

static struct span operation_of(const unsigned char *digest)
{
    return span_make((const char *)digest, SECRET_MAC_BYTES);
}

// (user, server, operation) in one.
static void digest_operation(const struct call *call, const struct server *server, unsigned char *out)
{
    struct buf key = {0};
    char *user = grant_user(call->identity);
    const char *const parts[] = {call->identity->tenant, user, server->name, method_text(call->method)};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        buf_put(&key, parts[i], strlen(parts[i]) + 1);
    buf_put_span(&key, call->target);
    secret_digest(buf_span(&key), out);
    buf_release(&key);
    free(user);
}

// The server was shown a grant, and wants one with more scope.
static bool wants_more(const struct access *access)
{
    const char *error = access_challenge(access)->error;
    return access_header(access) && error && strcmp(error, "insufficient_scope") == 0;
}

// For good: there is no link that would help.
static void put_refusal(struct call *call, const struct server *server)
{
    struct buf text = {0};
    buf_printf(&text,
               "Server \"%s\" asks for more access to your account, although it was given more %d times for this: "
               "connecting again does not help",
               server->name, (int)widen_rate.calls);
    log_warn("a server wants more scope again and again", LOG_STR("server", server->name),
             LOG_STR("subject", call->identity->subject));
    call->error_text = arena_copy(&call->arena, buf_span(&text));
    buf_clear(&call->error_data);
    put_member(&call->error_data, "server", server->name);
    buf_release(&text);
}

static bool may_widen(const struct hosted *hosted, const unsigned char *operation)
{
    struct bucket *bucket = bucket_find(&hosted->widened, operation_of(operation));
    return !bucket || bucket_wait(bucket, loop_now(hosted->gate->loop)) == 0;
}

bool hosted_tell(struct call *call)
{
    struct hosted *hosted = call->gate->hosted;
    const struct server *server = call->link ? upstream_server(call->link->upstream) : NULL;
    if (!hosted || !server || server->auth.mode != ACCESS_USER || !call->authorized || !call->session || call->offered)
        return false;
    unsigned char operation[SECRET_MAC_BYTES];
    bool widens = wants_more(call->link->access);
    digest_operation(call, server, operation);
    if (widens && !may_widen(hosted, operation)) {
        put_refusal(call, server);
        return false;
    }
    if (!make_room(hosted))
        return false;
    struct offer *offer = mem_new(struct offer);
    offer->widens = widens;
    memcpy(offer->operation, operation, sizeof operation);
    offer->hosted = hosted;
    offer->call = call;
    offer->identity = identity_ref(call->identity);
    offer->server = server;
    offer->ready = upstream_state(call->link->upstream) == UPSTREAM_READY;
    offer->request = (struct token_request){.on_done = on_stored, .arg = offer};
    memcpy(offer->session, call->session->id, sizeof offer->session);
    list_append(&hosted->offers, &offer->node);
    hosted->offer_count++;
    call->offer = offer;
    call->offered = true;
    struct attempt *attempt = hosted_attempt_new(hosted, call->identity, server, &offer->ticket, &offer->state);
    keep_cause(attempt, call->link->access);
    token_store_attempt_add(call->gate->tokens, buf_span(&offer->state), attempt, &offer->request);
    attempt_free(attempt);
    return true;
}

void hosted_untell(struct call *call)
{
    if (call->offer)
        offer_drop(call->offer);
}

void hosted_put_hint(const struct link *link, struct buf *out)
{
    const struct hosted *hosted = link->gate->hosted;
    const struct server *server = upstream_server(link->upstream);
    if (!hosted || server->auth.mode != ACCESS_USER || source_loaded(link->source))
        return;
    buf_printf(out,
               "%sServer \"%s\" works with the user's own account there. If it shows no tools, the user connects it at "
               "%s/oauth/connect/%s",
               out->len ? "\n\n" : "", server->name, hosted->base, server->name);
}

// ---- who hears of the end (H16) -------------------------------------------------------------

static void tell_session(const struct offer *offer)
{
    struct session *session = session_find(offer->hosted->gate, span_of(offer->session));
    if (!session || !*offer->elicitation || !identity_same(session->identity, offer->identity))
        return;
    struct buf params = {0}, text = {0};
    buf_printf(&params, "{\"elicitationId\":\"%s\"}", offer->elicitation);
    message_put_notification(&text, method_text(METHOD_ELICIT_COMPLETE), buf_span(&params));
    session_tell(session, blob_take(&text));
    buf_release(&params);
}

// The link was. An offer is dropped before this, and is there until the end of the turn: what it sets off may make room for
// another link, at the cost of one that is in the list.
static void offer_used(const struct offer *offer)
{
    struct hosted *hosted = offer->hosted;
    if (offer->widens)
        (void)hosted_wait_in(&hosted->widened, &widen_rate, operation_of(offer->operation),
                             loop_now(hosted->gate->loop));
    tell_session(offer);
}

void hosted_offer_done(struct hosted *hosted, struct span state)
{
    list_each(node, &hosted->offers) {
        struct offer *offer = list_entry(node, struct offer, node);
        if (offer->call || offer->state.len != state.len || !secret_equal(offer->state.at, state.at, state.len))
            continue;
        offer_drop(offer);
        offer_used(offer);
        return;
    }
}

// It was connected at another process. A server that waited for a login looks again; one that had a grant is not the same
// user's account any more.
static void connected_elsewhere(const struct offer *offer)
{
    void *value;
    if (offer->ready)
        hosted_grant_changed(offer->hosted, offer->identity, offer->server);
    for (size_t at = 0; !offer->ready && map_next(&offer->hosted->gate->links, &at, NULL, &value);) {
        struct link *link = value;
        if (link->user && upstream_server(link->upstream) == offer->server &&
            identity_same(link->user, offer->identity)) {
            source_look_again(link->source);
            source_load(link->source);
        }
    }
    offer_used(offer);
}

static void watch_next(struct hosted *hosted);

static void on_watched(struct token_request *request)
{
    struct hosted *hosted = request->arg;
    struct offer *offer = hosted->watched;
    int64_t stage = request->attempt ? request->attempt->stage : ATTEMPT_OVER;
    hosted->watched = NULL;
    bool used = request->answer == TOKEN_DONE && stage == ATTEMPT_CONNECTED;
    if (used || request->answer == TOKEN_ABSENT) {
        offer_drop(offer);
    } else {  // it is asked about again when all others were
        list_remove(&offer->node);
        list_append(&hosted->offers, &offer->node);
    }
    if (used)
        connected_elsewhere(offer);
    watch_next(hosted);
}

static void watch_next(struct hosted *hosted)
{
    while (hosted->watch_left && !list_empty(&hosted->offers)) {
        struct offer *offer = list_entry(hosted->offers.next, struct offer, node);
        hosted->watch_left--;
        if (!offer->call) {
            hosted->watched = offer;
            hosted->watch.on_done = on_watched;
            hosted->watch.arg = hosted;
            token_store_attempt_find(hosted->gate->tokens, buf_span(&offer->state), &hosted->watch);
            return;
        }
        list_remove(&offer->node);
        list_append(&hosted->offers, &offer->node);
    }
    hosted->watch_left = 0;
}

void hosted_offers_watch(struct hosted *hosted)
{
    if (hosted->watched)
        return;
    hosted->watch_left = hosted->offer_count < WATCHED_AT_ONCE ? hosted->offer_count : WATCHED_AT_ONCE;
    watch_next(hosted);
}
