// Owns offers: the connect links made for calls of this process, and watching whether they are used.
//
// A session is known to its own process only, and the login may be completed in another one. So the offer stays here, and
// the store is asked about the state of the attempt.
#include "connect/offer.h"
#include "auth/access/access.h"
#include "auth/grant/grant.h"
#include "auth/grant/vault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/secret.h"
#include "state.h"
#include <stdio.h>
#include <stdlib.h>

#define OFFERS_MAX 2000
#define WATCHED_AT_ONCE 64

struct connect_offer {
    struct connect *connect;
    struct list node;
    void (*on_stored)(void *arg, const char *url);  // NULL: it was called
    void *arg;
    struct grant_request request;
    struct buf ticket, state;
    struct identity *identity;
    const struct config *config;  // the configuration of `server`
    const struct server *server;
    char session[CONNECT_OFFER_ID + 1];
    char elicitation[CONNECT_OFFER_ID + 1];     // "": the session is not notified
    bool ready;                                 // the server was ready with a grant, which it then refused
    bool wants_scope;                           // the server requires more scope than the grant has
    unsigned char operation[SECRET_MAC_BYTES];  // the operation that requires the scope
};

static void offer_free(void *object)
{
    struct connect_offer *offer = object;
    grant_request_release(&offer->request);
    identity_unref(offer->identity);
    config_unref(offer->config);
    buf_wipe(&offer->ticket);
    buf_wipe(&offer->state);
    free(offer);
}

// The memory stays valid until the end of the turn.
void connect_offer_drop(struct connect_offer *offer)
{
    struct connect_offers *offers = &offer->connect->offers;
    if (offers->watched == offer) {
        grant_request_cancel(&offers->watch);
        offers->watched = NULL;
    }
    grant_request_cancel(&offer->request);
    list_remove(&offer->node);
    offers->count--;
    loop_reap(offer->connect->parts.loop, offer, offer_free);
}

void connect_offer_drop_all(struct connect *connect)
{
    while (!list_empty(&connect->offers.all))
        connect_offer_drop(list_entry(connect->offers.all.next, struct connect_offer, node));
    grant_request_release(&connect->offers.watch);
}

// ---- more scope (A9) ------------------------------------------------------------------------

static struct span operation_of(const struct connect_offer *offer)
{
    return span_make((const char *)offer->operation, sizeof offer->operation);
}

// The digest of user, server and operation.
static void digest_operation(const struct connect_offer_spec *spec, unsigned char out[SECRET_MAC_BYTES])
{
    struct buf key = {0};
    char *user = grant_user(spec->identity);
    const char *const parts[] = {spec->identity->tenant, user, spec->server->name, spec->method};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        buf_put(&key, parts[i], strlen(parts[i]) + 1);
    buf_put_span(&key, spec->target);
    secret_digest(buf_span(&key), out);
    buf_release(&key);
    free(user);
}

// The server received a grant, and requires more scope.
static bool wants_scope(const struct access *access)
{
    const char *error = access_challenge(access)->error;
    return access_header(access) && error && strcmp(error, "insufficient_scope") == 0;
}

// ---- making a link --------------------------------------------------------------------------

static void on_stored(struct grant_request *request)
{
    struct connect_offer *offer = request->arg;
    void (*told)(void *arg, const char *url) = offer->on_stored;
    void *arg = offer->arg;
    struct buf url = {0};
    bool stored = request->answer == GRANT_STORE_DONE;
    offer->on_stored = NULL;
    buf_printf(&url, "%s/oauth/connect?t=%s", offer->connect->base, buf_text(&offer->ticket));
    buf_wipe(&offer->ticket);
    if (!stored) {
        log_error("cannot send a connect link to a caller", LOG_STR("server", offer->server->name),
                  LOG_STR("detail", request->err.detail));
        connect_offer_drop(offer);
    }
    told(arg, stored ? buf_text(&url) : NULL);
    buf_wipe(&url);
}

// At the limit, drops a stored offer, whose session is then not notified of the end. False: all of them are being stored.
static bool make_room(struct connect *connect)
{
    if (connect->offers.count < OFFERS_MAX)
        return true;
    list_each(node, &connect->offers.all) {
        struct connect_offer *offer = list_entry(node, struct connect_offer, node);
        if (!offer->on_stored) {
            connect_offer_drop(offer);
            return true;
        }
    }
    return false;
}

static struct connect_offer *offer_new(struct connect *connect, const struct connect_offer_spec *spec)
{
    struct connect_offer *offer = mem_new(struct connect_offer);
    offer->connect = connect;
    offer->on_stored = spec->on_stored;
    offer->arg = spec->arg;
    offer->request = (struct grant_request){.on_done = on_stored, .arg = offer};
    offer->identity = identity_ref(spec->identity);
    offer->config = config_ref(spec->config);
    offer->server = spec->server;
    offer->ready = spec->ready;
    offer->wants_scope = wants_scope(spec->access);
    digest_operation(spec, offer->operation);
    snprintf(offer->session, sizeof offer->session, "%s", spec->session);
    snprintf(offer->elicitation, sizeof offer->elicitation, "%s", spec->elicitation);
    return offer;
}

static enum connect_offer_verdict judge(struct connect *connect, const struct connect_offer *offer)
{
    if (offer->wants_scope && !connect_limits_scope_left(connect, operation_of(offer)))
        return CONNECT_OFFER_SCOPE_REFUSED;
    return make_room(connect) ? CONNECT_OFFER_STARTED : CONNECT_OFFER_NONE;
}

// Keeps the server's challenge, which has the scopes to ask for.
static void keep_challenge(struct attempt *attempt, const struct access *access)
{
    const struct oauth_challenge *challenge = access_challenge(access);
    attempt->challenged = challenge->bearer;
    attempt->challenge_scope = mem_string(challenge->scope);
    attempt->challenge_metadata = mem_string(challenge->resource_metadata);
    attempt->held_scope = mem_string(access_scope(access));
}

enum connect_offer_verdict connect_offer_start(struct connect *connect, const struct connect_offer_spec *spec,
                                               struct connect_offer **out)
{
    struct connect_offer *offer = offer_new(connect, spec);
    enum connect_offer_verdict verdict = judge(connect, offer);
    if (verdict != CONNECT_OFFER_STARTED) {
        offer_free(offer);
        return verdict;
    }
    list_append(&connect->offers.all, &offer->node);
    connect->offers.count++;
    *out = offer;
    struct attempt *attempt = connect_ticket_new(connect, spec->identity, spec->server, &offer->ticket, &offer->state);
    keep_challenge(attempt, spec->access);
    grant_store_attempt_add(connect->parts.store, buf_span(&offer->state), attempt, &offer->request);
    attempt_free(attempt);
    return verdict;
}

// ---- completed logins (H16) -----------------------------------------------------------------

// The offer is dropped before the call: the notification may lead to another link.
static void on_used(const struct connect_offer *offer)
{
    const struct connect_parts *parts = &offer->connect->parts;
    if (offer->wants_scope)
        connect_limits_scope_count(offer->connect, operation_of(offer));
    if (*offer->elicitation)
        parts->ops->login_complete(parts->arg, offer->session, offer->elicitation, offer->identity);
}

void connect_offer_connected(struct connect *connect, struct span state)
{
    list_each(node, &connect->offers.all) {
        struct connect_offer *offer = list_entry(node, struct connect_offer, node);
        if (offer->on_stored || offer->state.len != state.len || !secret_equal(offer->state.at, state.at, state.len))
            continue;
        connect_offer_drop(offer);
        on_used(offer);
        return;
    }
}

// A server that had a grant now has the grant of another login.
static void connected_elsewhere(const struct connect_offer *offer)
{
    const struct connect_parts *parts = &offer->connect->parts;
    if (offer->ready)
        parts->ops->grant_changed(parts->arg, offer->identity, offer->server);
    else
        parts->ops->grant_added(parts->arg, offer->identity, offer->server);
    on_used(offer);
}

static void move_to_end(struct connect_offer *offer)
{
    list_remove(&offer->node);
    list_append(&offer->connect->offers.all, &offer->node);
}

static void watch_next(struct connect *connect);

static void on_watched(struct grant_request *request)
{
    struct connect *connect = request->arg;
    struct connect_offer *offer = connect->offers.watched;
    int64_t stage = request->attempt ? request->attempt->stage : ATTEMPT_OVER;
    bool used = request->answer == GRANT_STORE_DONE && stage == ATTEMPT_CONNECTED;
    connect->offers.watched = NULL;
    if (used || request->answer == GRANT_STORE_ABSENT)
        connect_offer_drop(offer);
    else
        move_to_end(offer);
    if (used)
        connected_elsewhere(offer);
    watch_next(connect);
}

static void watch_next(struct connect *connect)
{
    struct connect_offers *offers = &connect->offers;
    while (offers->watch_left && !list_empty(&offers->all)) {
        struct connect_offer *offer = list_entry(offers->all.next, struct connect_offer, node);
        offers->watch_left--;
        if (!offer->on_stored) {
            offers->watched = offer;
            offers->watch.on_done = on_watched;
            offers->watch.arg = connect;
            grant_store_attempt_find(connect->parts.store, buf_span(&offer->state), &offers->watch);
            return;
        }
        move_to_end(offer);
    }
    offers->watch_left = 0;
}

void connect_offer_watch(struct connect *connect)
{
    struct connect_offers *offers = &connect->offers;
    if (offers->watched)
        return;
    offers->watch_left = offers->count < WATCHED_AT_ONCE ? offers->count : WATCHED_AT_ONCE;
    watch_next(connect);
}
