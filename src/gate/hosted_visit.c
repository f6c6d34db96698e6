// Owns what a browser may do on the connect pages: who sits there, and which page comes next.
//
// The order of the checks is the point: whoever has a link or an answer of an authorization server must be the user it is
// for (H6), in the browser that agreed (H7, H8), on a page of ours (CSRF), and in time, before anything is used up.
#include "base/log.h"
#include "base/mem.h"
#include "base/secret.h"
#include "hosted.h"
#include <stdio.h>
#include <stdlib.h>

#define COOKIES_MAX 8  // logins of one browser at once (H7)
#define CSRF_SECONDS 3600

// H18
static const struct bucket_rate open_rate = {10, 60000, 10}, return_rate = {30, 60000, 30}, issuer_rate = {5, 1000, 5};

// ---- pages ----------------------------------------------------------------------------------

void visit_show(struct hosted_visit *visit, struct hosted_page *page)
{
    struct identity *identity = visit->identity;
    visit->identity = NULL;
    page->secure = visit->gate->hosted->secure;
    visit->on_page(visit, page);
    identity_unref(identity);
}

static void visit_show_kind(struct hosted_visit *visit, enum hosted_kind kind)
{
    struct hosted_page page = {.kind = kind};
    visit_show(visit, &page);
}

static void add_cookie(struct hosted_page *page, const char *name, const char *value, int64_t max_age)
{
    struct hosted_cookie *cookie = &page->cookies[page->cookie_count++];
    snprintf(cookie->name, sizeof cookie->name, "%s", name);
    snprintf(cookie->value, sizeof cookie->value, "%s", value);
    cookie->max_age = max_age;
}

static const char *prefix(const struct hosted *hosted) { return hosted->secure ? "__Host-" : ""; }

// ---- CSRF: a cookie, and a value in the form that only we can make of it ------------------------

static void csrf_name(const struct hosted *hosted, char *out, size_t room)
{
    snprintf(out, room, "%spostern_csrf", prefix(hosted));
}

static void put_token(const struct gate *gate, struct span cookie, struct span about, struct buf *out)
{
    unsigned char mac[SECRET_MAC_BYTES];
    struct buf message = {0};
    buf_put_text(&message, "csrf");
    buf_put_char(&message, '\0');
    buf_put_span(&message, cookie);
    buf_put_char(&message, '\0');
    buf_put_span(&message, about);
    secret_mac(gate->key, sizeof gate->key, buf_span(&message), mac);
    secret_encode(out, span_make((const char *)mac, sizeof mac));
    buf_release(&message);
}

static const char *csrf_cookie(const struct hosted_visit *visit)
{
    char name[HOSTED_COOKIE_NAME];
    csrf_name(visit->gate->hosted, name, sizeof name);
    const char *value = visit->cookie(visit->arg, name);
    return value && strlen(value) == SESSION_ID_LEN ? value : NULL;
}

void hosted_put_csrf(struct hosted_visit *visit, struct span about, struct hosted_page *page, struct buf *token)
{
    const char *cookie = csrf_cookie(visit);
    struct buf made = {0};
    if (!cookie) {  // one that is there is kept, so that several tabs work
        unsigned char random[32];
        char name[HOSTED_COOKIE_NAME];
        secret_random(random, sizeof random);
        secret_encode(&made, span_make((const char *)random, sizeof random));
        cookie = buf_text(&made);
        csrf_name(visit->gate->hosted, name, sizeof name);
        add_cookie(page, name, cookie, CSRF_SECONDS);
    }
    put_token(visit->gate, span_of(cookie), about, token);
    page->csrf = buf_text(token);
    buf_release(&made);
}

bool hosted_csrf_ok(const struct hosted_visit *visit, struct span about)
{
    const char *cookie = csrf_cookie(visit);
    struct buf expected = {0};
    if (!cookie)
        return false;
    put_token(visit->gate, span_of(cookie), about, &expected);
    bool ok = visit->csrf.len == expected.len && secret_equal(visit->csrf.at, expected.at, expected.len);
    buf_release(&expected);
    return ok;
}

// ---- the cookie that binds a login to its browser (H7) --------------------------------------

static void attempt_cookie_name(const struct attempt *attempt, char *out, size_t room)
{
    const unsigned char *digest = attempt->oauth_state;
    snprintf(out, room, "%spostern_oa_%02x%02x%02x%02x", prefix(attempt->hosted), digest[0], digest[1], digest[2],
             digest[3]);
}

static bool is_that_browser(const struct hosted_visit *visit, const struct attempt *attempt)
{
    char name[HOSTED_COOKIE_NAME];
    unsigned char digest[SECRET_MAC_BYTES];
    attempt_cookie_name(attempt, name, sizeof name);
    const char *value = visit->cookie(visit->arg, name);
    if (!value)
        return false;
    secret_digest(span_of(value), digest);
    return secret_equal(digest, attempt->cookie, sizeof digest);
}

// The oldest of this browser's logins gives way when there are too many.
static void drop_oldest(const struct hosted_visit *visit, struct hosted_page *page)
{
    struct attempt *oldest = NULL;
    size_t count = 0;
    list_each(node, &visit->gate->hosted->attempts) {
        struct attempt *attempt = list_entry(node, struct attempt, node);
        if (attempt->state != ATTEMPT_AWAY || !is_that_browser(visit, attempt))
            continue;
        count++;
        oldest = oldest ? oldest : attempt;
    }
    if (count < COOKIES_MAX)
        return;
    char name[HOSTED_COOKIE_NAME];
    attempt_cookie_name(oldest, name, sizeof name);
    add_cookie(page, name, "", 0);
    attempt_end(oldest);
}

static void put_cookie(struct attempt *attempt, struct hosted_page *page)
{
    unsigned char random[32];
    char name[HOSTED_COOKIE_NAME];
    struct buf value = {0};
    secret_random(random, sizeof random);
    secret_encode(&value, span_make((const char *)random, sizeof random));
    secret_digest(buf_span(&value), attempt->cookie);
    attempt_cookie_name(attempt, name, sizeof name);
    int64_t left = attempt->expires_ms - loop_now(attempt->hosted->gate->loop);
    add_cookie(page, name, buf_text(&value), (left + 999) / 1000);
    secret_wipe(value.at, value.room);
    buf_release(&value);
}

// ---- what is recorded -----------------------------------------------------------------------

static void record(const struct hosted_visit *visit, const struct attempt *attempt, enum hosted_event event,
                   const char *reason)
{
    const char *issuer = attempt->flow ? oauth_flow_attempt(attempt->flow)->server.issuer : NULL;
    hosted_audit(visit->gate, &(struct hosted_record){.event = event,
                                                      .identity = attempt->identity,
                                                      .server = attempt->server,
                                                      .issuer = issuer,
                                                      .reason = reason,
                                                      .peer = visit->credentials.peer});
}

static void put_user(const struct identity *identity, struct buf *out)
{
    buf_put_text(out, identity->subject);
    if (identity->proof == IDENTITY_ANONYMOUS)
        buf_put_text(out, " (everybody on this host)");
}

void visit_show_attempt(struct hosted_visit *visit, const struct attempt *attempt, enum hosted_kind kind)
{
    struct buf user = {0}, token = {0};
    char name[HOSTED_COOKIE_NAME];
    struct hosted_page page = {.kind = kind, .server = attempt->server->name, .tenant = attempt->identity->tenant};
    put_user(attempt->identity, &user);
    page.user = buf_text(&user);
    if (kind == HOSTED_ASKS) {
        const struct oauth_attempt *asks = oauth_flow_attempt(attempt->flow);
        page.issuer = asks->server.issuer;
        page.scope = asks->scope;
        page.unbound = !visit->identity;
        page.ticket = mem_span(visit->ticket);
        hosted_put_csrf(visit, visit->ticket, &page, &token);
        record(visit, attempt, HOSTED_EVENT_SHOWN, NULL);
    } else if (visit->op == HOSTED_CALLBACK && attempt->has_state) {
        attempt_cookie_name(attempt, name, sizeof name);
        add_cookie(&page, name, "", 0);
    }
    char *ticket = (char *)(uintptr_t)page.ticket;
    visit_show(visit, &page);
    free(ticket);
    buf_release(&user);
    buf_release(&token);
}

// ---- bounds (H18) ---------------------------------------------------------------------------

static bool within(struct bucket_table *table, const struct bucket_rate *rate, struct span key,
                   struct hosted_visit *visit)
{
    int64_t now = loop_now(visit->gate->loop), wait = 1000;
    struct bucket *bucket = bucket_hold(table, key, rate, now);
    if (bucket && (wait = bucket_wait(bucket, now)) == 0)
        bucket_take(bucket);
    if (bucket)
        bucket_leave(bucket);
    if (wait == 0)
        return true;
    struct hosted_page page = {.kind = HOSTED_LIMITED, .retry_ms = wait};
    visit_show(visit, &page);
    return false;
}

static bool may_open(struct hosted_visit *visit, const struct identity *user)
{
    struct buf key = {0};
    char *name = grant_user(user);
    buf_printf(&key, "%s/%s", user->tenant, name);
    bool ok = within(&visit->gate->hosted->opened, &open_rate, buf_span(&key), visit);
    free(name);
    buf_release(&key);
    return ok;
}

// By address; behind a proxy that proved itself, by who it says is there.
static bool may_return(struct hosted_visit *visit)
{
    struct buf key = {0};
    const struct peer *peer = visit->credentials.peer;
    if (visit->identity && provider_chain_relays(visit->gate->providers, &visit->credentials))
        buf_printf(&key, "u%s/%s/%s", visit->identity->tenant, visit->identity->provider, visit->identity->subject);
    else if (peer && peer->address.ss_family != AF_UNIX)
        door_put_address(peer, &key);
    bool ok = within(&visit->gate->hosted->returned, &return_rate, buf_span(&key), visit);
    buf_release(&key);
    return ok;
}

// What comes next is a token request.
static bool may_ask_issuer(struct hosted_visit *visit, const struct attempt *attempt)
{
    struct span issuer = span_of(oauth_flow_attempt(attempt->flow)->server.issuer);
    return within(&visit->gate->hosted->issuers, &issuer_rate, issuer, visit);
}

// ---- the pages' own checks ------------------------------------------------------------------

// H6: is this the user it is for? If not, the page is shown and (another user) the attempt is burnt.
static bool is_that_user(struct hosted_visit *visit, struct attempt *attempt)
{
    if (!provider_chain_stands(visit->gate->providers, attempt->identity)) {  // let go of since the link was made
        visit_show_kind(visit, HOSTED_EXPIRED);
        return false;
    }
    if (!visit->identity && visit->gate->config->hosted.allow_unbound_tickets)
        return true;
    if (!visit->identity) {
        visit_show_kind(visit, HOSTED_NOBODY);
        return false;
    }
    if (identity_same(visit->identity, attempt->identity))
        return true;
    log_warn("a connect link was used by another user", LOG_STR("server", attempt->server->name),
             LOG_STR("subject", attempt->identity->subject), LOG_STR("by", visit->identity->subject));
    record(visit, attempt, HOSTED_EVENT_REJECTED, "wrong_user");
    attempt_end(attempt);
    attempt_show(attempt, HOSTED_USED);
    visit_show_kind(visit, HOSTED_WRONG_USER);
    return false;
}

static struct attempt *find_by_ticket(struct hosted_visit *visit)
{
    struct attempt *attempt = attempt_find(&visit->gate->hosted->by_ticket, visit->ticket);
    if (!attempt || attempt->expires_ms <= loop_now(visit->gate->loop)) {
        visit_show_kind(visit, HOSTED_EXPIRED);
        return NULL;
    }
    if (!is_that_user(visit, attempt))
        return NULL;
    if (attempt->state != ATTEMPT_OFFERED && attempt->state != ATTEMPT_PREPARING && attempt->state != ATTEMPT_ASKING) {
        visit_show_kind(visit, HOSTED_USED);
        return NULL;
    }
    return attempt;
}

static void open_link(struct hosted_visit *visit)
{
    struct attempt *attempt = find_by_ticket(visit);
    if (!attempt || !may_open(visit, attempt->identity))
        return;
    if (attempt->state == ATTEMPT_ASKING) {
        visit_show_attempt(visit, attempt, HOSTED_ASKS);
        return;
    }
    list_append(&attempt->waiting, &visit->node);
    if (attempt->state == ATTEMPT_OFFERED)
        attempt_prepare(attempt);
}

static void consent(struct hosted_visit *visit)
{
    if (!hosted_csrf_ok(visit, visit->ticket)) {
        visit_show_kind(visit, HOSTED_FORGED);
        return;
    }
    struct attempt *attempt = find_by_ticket(visit);
    if (!attempt)
        return;
    if (attempt->state != ATTEMPT_ASKING) {
        visit_show_kind(visit, HOSTED_USED);
        return;
    }
    struct hosted_page page = {.kind = visit->agreed ? HOSTED_CONTINUES : HOSTED_DECLINED,
                               .server = attempt->server->name,
                               .url = attempt->url,
                               .issuer = oauth_flow_attempt(attempt->flow)->server.issuer};
    record(visit, attempt, visit->agreed ? HOSTED_EVENT_GIVEN : HOSTED_EVENT_REJECTED,
           visit->agreed ? NULL : "declined");
    if (visit->agreed) {
        drop_oldest(visit, &page);
        put_cookie(attempt, &page);
        attempt->state = ATTEMPT_AWAY;
    }
    visit_show(visit, &page);
    if (!visit->agreed)
        attempt_end(attempt);
}

struct found_state {
    struct buf value;
    unsigned count;
};

static bool take_state(void *arg, struct span name, struct span value)
{
    struct found_state *found = arg;
    if (span_is(name, "state") && found->count++ == 0)
        buf_put_span(&found->value, value);
    return true;
}

static struct attempt *find_by_state(const struct hosted_visit *visit)
{
    struct found_state found = {.value = {.max = OAUTH_VALUE_MAX}};
    bool sound = oauth_form_walk(visit->query, take_state, &found) && found.count == 1 && !found.value.overflow;
    struct attempt *attempt = sound ? attempt_find(&visit->gate->hosted->by_state, buf_span(&found.value)) : NULL;
    buf_release(&found.value);
    return attempt && attempt->expires_ms > loop_now(visit->gate->loop) ? attempt : NULL;
}

static void reject(struct hosted_visit *visit, const struct attempt *attempt, enum hosted_kind kind, const char *reason)
{
    record(visit, attempt, HOSTED_EVENT_REJECTED, reason);
    visit_show_kind(visit, kind);
}

static void callback(struct hosted_visit *visit)
{
    struct err err = {0};
    if (!may_return(visit))
        return;
    struct attempt *attempt = find_by_state(visit);
    if (!attempt) {
        log_info("a callback belongs to no login, or one whose time is over");
        visit_show_kind(visit, HOSTED_STRANGE);
    } else if (attempt->state == ATTEMPT_FINISHING || attempt->state == ATTEMPT_OVER) {
        reject(visit, attempt, HOSTED_USED, "used");
    } else if (attempt->state != ATTEMPT_AWAY || !is_that_browser(visit, attempt)) {  // H8: nothing is used up
        reject(visit, attempt, HOSTED_WRONG_BROWSER, "wrong_browser");
    } else if (!is_that_user(visit, attempt) || !may_ask_issuer(visit, attempt)) {
        return;
    } else if (oauth_flow_callback(attempt->flow, visit->query, &err) == OAUTH_CALLBACK_STRANGE) {
        reject(visit, attempt, HOSTED_STRANGE, "strange");
    } else {
        attempt->state = ATTEMPT_FINISHING;
        list_append(&attempt->waiting, &visit->node);
    }
}

const struct server *hosted_server(const struct gate *gate, const struct identity *identity, struct span name)
{
    const struct tenant *tenant = gate_tenant(gate, identity->tenant);
    const struct server *servers = tenant ? tenant->servers->at : NULL;
    for (size_t i = 0; servers && i < tenant->servers->count; i++)
        if (span_is(name, servers[i].name) && servers[i].auth.mode == ACCESS_USER && !servers[i].disabled)
            return &servers[i];
    return NULL;
}

// A ticket for somebody we know, and on to the page of that.
static void start(struct hosted_visit *visit, const struct server *server)
{
    struct buf ticket = {0}, url = {0};
    (void)attempt_new(visit->gate->hosted, visit->identity, server, &ticket);
    buf_printf(&url, "../connect?t=%s", buf_text(&ticket));
    struct hosted_page page = {.kind = HOSTED_MOVED, .url = buf_text(&url)};
    visit_show(visit, &page);
    secret_wipe(ticket.at, ticket.room);
    secret_wipe(url.at, url.room);
    buf_release(&ticket);
    buf_release(&url);
}

// What only somebody we know may do.
static void serve_known(struct hosted_visit *visit)
{
    const struct server *server = NULL;
    if (!visit->identity) {
        visit_show_kind(visit, HOSTED_NOBODY);
    } else if (visit->op == HOSTED_CONNECTIONS) {
        hosted_list(visit);
    } else if (!(server = hosted_server(visit->gate, visit->identity, visit->server))) {
        visit_show_kind(visit, HOSTED_NO_SERVER);
    } else if (visit->op == HOSTED_START) {
        if (may_open(visit, visit->identity))
            start(visit, server);
    } else if (hosted_csrf_ok(visit, span_of("disconnect"))) {
        hosted_disconnect(visit, server);
    } else {
        visit_show_kind(visit, HOSTED_FORGED);
    }
}

// ---- who is there ---------------------------------------------------------------------------

static void on_identified(void *arg);

// True when it is known who sits there, or that it cannot be told; false: the page is shown, or will be.
static bool identify(struct hosted_visit *visit)
{
    struct gate *gate = visit->gate;
    struct err err = {0};
    int64_t retry_ms;
    if (!gate_hears(gate, &visit->credentials, (struct span){0}, &retry_ms, &err)) {
        struct hosted_page page = {.kind = HOSTED_LIMITED, .retry_ms = retry_ms};
        visit_show(visit, &page);
        return false;
    }
    visit->auth_wait.resume = on_identified;
    visit->auth_wait.arg = visit;
    enum provider_verdict verdict =
        provider_chain_authenticate(gate->providers, &visit->credentials, &visit->auth_wait, &visit->identity, &err);
    if (verdict == PROVIDER_WAIT)
        return false;
    bool stray = verdict == PROVIDER_ACCEPT && !gate_tenant(gate, visit->identity->tenant);
    if (!stray && (verdict == PROVIDER_ACCEPT || !credentials_shown(&visit->credentials)))
        return true;
    if (verdict != PROVIDER_ACCEPT && !provider_chain_relays(gate->providers, &visit->credentials))
        door_failed(&gate->door, visit->credentials.peer, loop_now(gate->loop));
    visit_show_kind(visit, HOSTED_NOBODY);
    return false;
}

static void on_identified(void *arg)
{
    struct hosted_visit *visit = arg;
    if (!identify(visit))
        return;
    switch (visit->op) {
    case HOSTED_CONNECT: open_link(visit); break;
    case HOSTED_CONSENT: consent(visit); break;
    case HOSTED_CALLBACK: callback(visit); break;
    case HOSTED_CONNECTIONS:
    case HOSTED_START:
    case HOSTED_DISCONNECT: serve_known(visit); break;
    }
}

void hosted_arrive(struct gate *gate, struct hosted_visit *visit)
{
    visit->gate = gate;
    on_identified(visit);
}

void hosted_gone(struct hosted_visit *visit)
{
    list_remove(&visit->auth_wait.node);
    list_remove(&visit->node);
    errand_visit_gone(visit);
    identity_unref(visit->identity);
    visit->identity = NULL;
}
