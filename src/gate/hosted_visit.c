// Owns a browser's request for one of the connect pages: who sits there, that a form is ours (CSRF), which browser it is,
// and how often. What it does with an attempt is in hosted_step.c.
#include "admission.h"
#include "auth/grant.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/secret.h"
#include "hosted.h"
#include "refused.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BINDING "postern_oa_"
#define COOKIES_MAX 8  // logins of one browser at once (H7)
#define CSRF_SECONDS 3600

// H18; and pages for nobody in particular, whom only the address tells apart.
static const struct bucket_rate open_rate = {10, 60000, 10}, return_rate = {30, 60000, 30}, issuer_rate = {5, 1000, 5},
                                unbound_rate = {120, 60000, 120};

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
    secret_mac(token_store_key(gate->tokens), VAULT_KEY_BYTES, buf_span(&message), mac);
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
//
// Its name has eight digits of the state's digest; its value is random, and behind a dot until when it is good, so that the
// oldest can be told. A login whose cookie is gone can be ended by nobody.

static void binding_name(const struct hosted *hosted, struct span state, char *out, size_t room)
{
    unsigned char digest[SECRET_MAC_BYTES];
    secret_digest(state, digest);
    snprintf(out, room, "%s" BINDING "%02x%02x%02x%02x", prefix(hosted), digest[0], digest[1], digest[2], digest[3]);
}

bool hosted_is_that_browser(const struct hosted_visit *visit, struct span state, const struct attempt *attempt)
{
    char name[HOSTED_COOKIE_NAME];
    unsigned char digest[SECRET_MAC_BYTES];
    binding_name(visit->gate->hosted, state, name, sizeof name);
    const char *value = visit->cookie(visit->arg, name);
    if (!value || attempt->cookie.len != sizeof digest)
        return false;
    secret_digest(span_of(value), digest);
    return secret_equal(digest, attempt->cookie.bytes, sizeof digest);
}

struct binding_search {
    const char *prefix;
    size_t count;
    char name[HOSTED_COOKIE_NAME];
    int64_t until;
};

static void look_at_cookie(void *arg, const char *name, const char *value)
{
    struct binding_search *search = arg;
    size_t len = strlen(search->prefix);
    if (strncmp(name, search->prefix, len) != 0 || strncmp(name + len, BINDING, strlen(BINDING)) != 0 ||
        strspn(name + len + strlen(BINDING), "0123456789abcdef") != 8 || strlen(name) != len + strlen(BINDING) + 8)
        return;
    const char *dot = strchr(value, '.');
    int64_t until = dot ? strtoll(dot + 1, NULL, 10) : 0;
    if (search->count++ && until >= search->until)
        return;
    search->until = until;
    snprintf(search->name, sizeof search->name, "%s", name);
}

// The oldest of this browser's logins gives way when there are too many.
static void drop_oldest(const struct hosted_visit *visit, struct hosted_page *page)
{
    struct binding_search search = {.prefix = prefix(visit->gate->hosted)};
    visit->each_cookie(visit->arg, look_at_cookie, &search);
    if (search.count >= COOKIES_MAX)
        add_cookie(page, search.name, "", 0);
}

void hosted_bind_browser(const struct hosted_visit *visit, struct span state, struct attempt *attempt,
                         struct hosted_page *page)
{
    unsigned char random[32], digest[SECRET_MAC_BYTES];
    char name[HOSTED_COOKIE_NAME];
    struct buf value = {0};
    drop_oldest(visit, page);
    secret_random(random, sizeof random);
    secret_encode(&value, span_make((const char *)random, sizeof random));
    buf_printf(&value, ".%" PRId64, attempt->expires_ms);
    secret_digest(buf_span(&value), digest);
    secret_set(&attempt->cookie, span_make((const char *)digest, sizeof digest));
    binding_name(visit->gate->hosted, state, name, sizeof name);
    int64_t left = attempt->expires_ms / 1000 - (int64_t)time(NULL) + 1;
    add_cookie(page, name, buf_text(&value), left > 0 ? left : 1);
    secret_wipe(value.at, value.room);
    buf_release(&value);
}

void hosted_unbind_browser(const struct hosted_visit *visit, struct span state, struct hosted_page *page)
{
    char name[HOSTED_COOKIE_NAME];
    binding_name(visit->gate->hosted, state, name, sizeof name);
    add_cookie(page, name, "", 0);
}

// ---- bounds (H18) ---------------------------------------------------------------------------

int64_t hosted_wait_in(struct bucket_table *table, const struct bucket_rate *rate, struct span key, int64_t now)
{
    int64_t wait = 1000;
    struct bucket *bucket = bucket_hold(table, key, rate, now);
    if (bucket && (wait = bucket_wait(bucket, now)) == 0)
        bucket_take(bucket);
    if (bucket)
        bucket_leave(bucket);
    return wait;
}

static void show_limited(struct hosted_visit *visit, int64_t retry_ms)
{
    struct hosted_page page = {.kind = HOSTED_LIMITED, .retry_ms = retry_ms};
    visit_show(visit, &page);
}

int64_t hosted_wait_to_open(const struct hosted_visit *visit, const struct identity *user)
{
    struct buf key = {0};
    char *name = grant_user(user);
    buf_printf(&key, "%s/%s", user->tenant, name);
    int64_t wait =
        hosted_wait_in(&visit->gate->hosted->opened, &open_rate, buf_span(&key), loop_now(visit->gate->loop));
    free(name);
    buf_release(&key);
    return wait;
}

// What comes next is a token request. Where nobody connects accounts nobody counts.
int64_t hosted_wait_for_issuer(const struct gate *gate, const char *issuer)
{
    return gate->hosted ? hosted_wait_in(&gate->hosted->issuers, &issuer_rate, span_of(issuer), loop_now(gate->loop))
                        : 0;
}

static void put_address(const struct hosted_visit *visit, struct buf *out)
{
    const struct peer *peer = visit->credentials.peer;
    if (peer && peer->address.ss_family != AF_UNIX)
        throttle_put_address(peer, out);
}

// By address; behind a proxy that proved itself, by who it says is there.
static int64_t wait_to_return(const struct hosted_visit *visit)
{
    struct buf key = {0};
    if (visit->identity && provider_chain_relays(visit->credentials.chain, &visit->credentials))
        buf_printf(&key, "u%s/%s/%s", visit->identity->tenant, visit->identity->provider, visit->identity->subject);
    else
        put_address(visit, &key);
    int64_t wait =
        hosted_wait_in(&visit->gate->hosted->returned, &return_rate, buf_span(&key), loop_now(visit->gate->loop));
    buf_release(&key);
    return wait;
}

// ---- requests -------------------------------------------------------------------------------

// Who cannot be told may go on only where that is allowed; before that nothing is looked up for them.
static bool may_look(struct hosted_visit *visit)
{
    struct buf key = {0};
    if (visit->identity)
        return true;
    if (!visit->gate->config->hosted.allow_unbound_tickets) {
        visit_show_kind(visit, HOSTED_NOBODY);
        return false;
    }
    buf_put_char(&key, '\0');  // no user begins with that
    put_address(visit, &key);
    int64_t wait =
        hosted_wait_in(&visit->gate->hosted->opened, &unbound_rate, buf_span(&key), loop_now(visit->gate->loop));
    buf_release(&key);
    if (wait)
        show_limited(visit, wait);
    return wait == 0;
}

static void open_link(struct hosted_visit *visit)
{
    struct buf state = {0};
    if (!may_look(visit))
        return;
    if (!visit->ticket.len) {
        visit_show_kind(visit, HOSTED_EXPIRED);
        return;
    }
    hosted_put_state(visit->ticket, &state);
    hosted_step(visit, buf_span(&state));
    secret_wipe(state.at, state.room);
    buf_release(&state);
}

static void consent(struct hosted_visit *visit)
{
    if (hosted_csrf_ok(visit, visit->ticket))
        open_link(visit);
    else
        visit_show_kind(visit, HOSTED_FORGED);
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

static void callback(struct hosted_visit *visit)
{
    struct found_state found = {.value = {.max = OAUTH_VALUE_MAX}};
    int64_t wait = wait_to_return(visit);
    if (wait) {
        show_limited(visit, wait);
    } else if (!may_look(visit)) {
        return;
    } else if (oauth_form_walk(visit->query, take_state, &found) && found.count == 1 && !found.value.overflow &&
               found.value.len) {
        hosted_step(visit, buf_span(&found.value));
    } else {
        log_info("a callback names no login");
        visit_show_kind(visit, HOSTED_STRANGE);
    }
    buf_release(&found.value);
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

// H10: where a browser may be sent back to: an origin of the list, to the letter.
static bool may_return_to(const struct hosted_visit *visit)
{
    char *const *allowed = visit->gate->config->hosted.return_to;
    char *text = mem_span(visit->return_to);
    struct oauth_url url;
    bool may = false;
    if (strlen(text) == visit->return_to.len && oauth_url_parse(text, &url))
        for (; !may && allowed && *allowed; allowed++)
            may = span_is(url.origin, *allowed);
    free(text);
    return may;
}

static void start(struct hosted_visit *visit, const struct server *server)
{
    int64_t wait;
    if (visit->return_to.len && !may_return_to(visit))
        visit_show_kind(visit, HOSTED_NO_RETURN);
    else if ((wait = hosted_wait_to_open(visit, visit->identity)) > 0)
        show_limited(visit, wait);
    else
        hosted_begin(visit, server);
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
        start(visit, server);
    } else if (hosted_csrf_ok(visit, span_of("disconnect"))) {
        hosted_disconnect(visit, server);
    } else {
        visit_show_kind(visit, HOSTED_FORGED);
    }
}

// ---- who is there ---------------------------------------------------------------------------

static void on_identified(void *arg);

// A credential that is not accepted: an outage is not the user's fault, and a page says so.
static void show_refused(struct hosted_visit *visit, const struct admission *admission)
{
    refused_note(visit->gate, visit->credentials.peer, admission->err.code);
    switch (admission->err.code) {
    case ERR_AUTH_LIMITED: show_limited(visit, admission->retry_ms); break;
    case ERR_AUTH_UNAVAILABLE: visit_show_kind(visit, HOSTED_UNAVAILABLE); break;
    case ERR_SCOPE: visit_show_kind(visit, HOSTED_NO_SCOPE); break;
    default: visit_show_kind(visit, HOSTED_NOBODY);
    }
}

// True: the user is identified, or shows no credential. False: the page is shown, or will be.
static bool identify(struct hosted_visit *visit)
{
    struct admission admission = {.credentials = &visit->credentials, .wait = &visit->auth_wait};
    visit->auth_wait.resume = on_identified;
    visit->auth_wait.arg = visit;
    enum admission_verdict verdict = admission_ask(visit->gate, &admission);
    visit->identity = admission.identity;
    bool refused = verdict == ADMISSION_REFUSED && (credentials_shown(&visit->credentials) || visit->identity);
    if (refused)
        show_refused(visit, &admission);
    return !refused && verdict != ADMISSION_WAIT;
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
    step_visit_gone(visit);
    errand_visit_gone(visit);
    identity_unref(visit->identity);
    visit->identity = NULL;
}
