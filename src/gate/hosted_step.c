// Owns the steps of a login: what one request of a browser does with an attempt, from finding it to the page.
//
//   OFFERED ──opened, authorization server found──► ASKING ──consent──► AWAY ──callback──► OVER ──granted──► CONNECTED
//      │                                              │                   │
//      └───────────── used by another user ───────────┴─── or declined ───┴──► OVER
//
// The attempt is in the token store, and any process that shares it may take the next step (H9). Every arrow is a
// compare-and-swap there: of two who try, in whatever processes, one goes on, and the other is told that the link was
// used. A step ends with its browser, but for a callback that was taken: that one goes on to its end.
#include "auth/grant.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/secret.h"
#include "hosted.h"
#include <stdlib.h>

struct step {
    struct hosted *hosted;
    struct list node;
    struct hosted_visit *visit;  // NULL: nobody waits for the page any more
    enum hosted_op op;
    struct arena arena;
    const char *state;  // what leads to the attempt
    struct span query;  // of a callback
    struct peer peer;   // its address alone: it is recorded also when the browser is gone
    struct token_request request;
    void (*next)(struct step *step);  // when the request is done
    struct attempt *attempt;
    struct identity *identity;  // whom it is for
    const struct server *server;
    struct oauth_flow *flow;
    struct hosted_page page;  // what is shown when it is saved
    bool taken;               // the callback was: the code is being exchanged
    bool again;               // another process was faster once
};

static void step_free(void *object)
{
    struct step *step = object;
    token_request_release(&step->request);
    attempt_free(step->attempt);
    identity_unref(step->identity);
    arena_release(&step->arena);
    secret_wipe(step->page.cookies, sizeof step->page.cookies);
    free(step);
}

static void step_end(struct step *step)
{
    if (step->visit)
        step->visit->step = NULL;
    step->visit = NULL;
    oauth_flow_free(step->flow);
    step->flow = NULL;
    token_request_cancel(&step->request);
    list_remove(&step->node);
    loop_reap(step->hosted->gate->loop, step, step_free);
}

void step_visit_gone(struct hosted_visit *visit)
{
    struct step *step = visit->step;
    visit->step = NULL;
    if (!step)
        return;
    step->visit = NULL;
    if (!step->taken)
        step_end(step);
}

void hosted_steps_drop(struct hosted *hosted)
{
    while (!list_empty(&hosted->steps))
        step_end(list_entry(hosted->steps.next, struct step, node));
}

static void on_done(struct token_request *request)
{
    struct step *step = request->arg;
    step->next(step);
}

static struct step *step_new(struct hosted_visit *visit, struct span state)
{
    struct step *step = mem_new(struct step);
    step->hosted = visit->gate->hosted;
    step->visit = visit;
    step->op = visit->op;
    step->state = arena_copy(&step->arena, state);
    step->query = arena_span(&step->arena, visit->query);
    hosted_keep_address(visit, &step->peer);
    step->request = (struct token_request){.on_done = on_done, .arg = step};
    visit->step = step;
    list_append(&step->hosted->steps, &step->node);
    return step;
}

// ---- pages and records ----------------------------------------------------------------------

static const char *issuer_of(const struct step *step)
{
    return step->flow ? oauth_flow_attempt(step->flow)->server.issuer : NULL;
}

static void record(const struct step *step, enum hosted_event event, const char *reason)
{
    hosted_audit(step->hosted->gate, &(struct hosted_record){.event = event,
                                                             .identity = step->identity,
                                                             .server = step->server,
                                                             .issuer = issuer_of(step),
                                                             .reason = reason,
                                                             .peer = &step->peer});
}

// Shows step->page, and that is the end of the step.
static void show_page(struct step *step)
{
    struct hosted_visit *visit = step->visit;
    step->visit = NULL;
    if (visit) {
        visit->step = NULL;
        visit_show(visit, &step->page);
    }
    step_end(step);
}

static void show(struct step *step, enum hosted_kind kind)
{
    step->page.kind = kind;
    show_page(step);
}

static void reject(struct step *step, enum hosted_kind kind, const char *reason)
{
    record(step, HOSTED_EVENT_REJECTED, reason);
    show(step, kind);
}

static void put_off(struct step *step, int64_t retry_ms)
{
    step->page.retry_ms = retry_ms;
    show(step, HOSTED_LIMITED);
}

static void show_question(struct step *step)
{
    struct buf user = {0}, token = {0};
    const struct oauth_attempt *asks = oauth_flow_attempt(step->flow);
    struct hosted_visit *visit = step->visit;
    buf_put_text(&user, step->identity->subject);
    if (step->identity->proof == IDENTITY_ANONYMOUS)
        buf_put_text(&user, " (everybody on this host)");
    step->page = (struct hosted_page){.server = step->server->name,
                                      .tenant = step->identity->tenant,
                                      .user = buf_text(&user),
                                      .issuer = asks->server.issuer,
                                      .scope = asks->scope,
                                      .unbound = !visit->identity,
                                      .ticket = arena_copy(&step->arena, visit->ticket)};
    hosted_put_csrf(visit, visit->ticket, &step->page, &token);
    record(step, HOSTED_EVENT_SHOWN, NULL);
    show(step, HOSTED_ASKS);
    buf_release(&user);
    buf_release(&token);
}

// ---- the store ------------------------------------------------------------------------------

static void save(struct step *step, void (*next)(struct step *step))
{
    step->next = next;
    token_store_attempt_save(step->hosted->gate->tokens, span_of(step->state), step->attempt, &step->request);
}

// Was it? Then the attempt is as it is stored now.
static bool is_saved(struct step *step)
{
    if (step->request.answer != TOKEN_DONE)
        return false;
    attempt_free(step->attempt);
    step->attempt = step->request.attempt;
    step->request.attempt = NULL;
    return true;
}

static void show_not_saved(struct step *step)
{
    if (step->request.answer == TOKEN_CONFLICT) {  // somebody else took this step
        reject(step, HOSTED_USED, "used");
        return;
    }
    log_error("a login could not be kept", LOG_STR("server", step->server->name),
              LOG_STR("detail", step->request.err.detail));
    show(step, HOSTED_FAILED);
}

static void on_saved(struct step *step)
{
    if (is_saved(step))
        show_page(step);
    else
        show_not_saved(step);
}

// Used up, and the page that says why.
static void burn(struct step *step, enum hosted_kind kind, const char *reason)
{
    record(step, HOSTED_EVENT_REJECTED, reason);
    attempt_forget(step->attempt);
    step->page.kind = kind;
    save(step, on_saved);
}

// ---- the login ------------------------------------------------------------------------------

static void on_browse(void *arg, const char *url);
static void on_end(void *arg, enum oauth_end end, const struct grant *grant, const struct err *err);

// The user's name is copied by the flow: the caller frees it.
static struct oauth_flow_spec flow_spec(struct step *step, const char *user)
{
    struct hosted *hosted = step->hosted;
    const struct attempt *attempt = step->attempt;
    return (struct oauth_flow_spec){.loop = hosted->gate->loop,
                                    .http = hosted->gate->http,
                                    .store = hosted->gate->tokens,
                                    .options = &step->server->auth,
                                    .tenant = step->identity->tenant,
                                    .user = user,
                                    .server_url = step->server->url,
                                    .issuers = hosted->gate->config->hosted.authorization_servers,
                                    .redirect_uri = hosted->redirect_uri,
                                    .document_url = hosted->secure ? hosted->document_url : NULL,
                                    .challenge = {.bearer = attempt->challenged,
                                                  .scope = attempt->challenge_scope,
                                                  .resource_metadata = attempt->challenge_metadata},
                                    .held_scope = attempt->held_scope,
                                    .shared_client = true,
                                    .state = step->state,
                                    .on_browse = on_browse,
                                    .on_end = on_end,
                                    .arg = step};
}

// The login as it was when the user was asked. False: it cannot go on, and the page is shown.
static bool thaw(struct step *step)
{
    struct err err = {0};
    char *user = grant_user(step->identity);
    struct oauth_flow_spec spec = flow_spec(step, user);
    step->flow = oauth_flow_thaw(&spec, secret_span(&step->attempt->login), &err);
    free(user);
    if (step->flow)
        return true;
    log_warn("a login cannot go on", LOG_STR("server", step->server->name), LOG_STR("detail", err.detail));
    show(step, HOSTED_EXPIRED);
    return false;
}

static void on_found(struct step *step);

static void find(struct step *step)
{
    step->next = on_found;
    token_store_attempt_find(step->hosted->gate->tokens, span_of(step->state), &step->request);
}

static void on_prepared(struct step *step)
{
    if (is_saved(step)) {
        show_question(step);
    } else if (step->request.answer == TOKEN_CONFLICT && !step->again) {  // in another tab: the question is there
        step->again = true;
        oauth_flow_free(step->flow);
        step->flow = NULL;
        find(step);
    } else {
        show_not_saved(step);
    }
}

static void keep_client(struct step *step)
{
    const struct oauth_attempt *login = oauth_flow_attempt(step->flow);
    if (step->server->auth.client_id)
        return;
    step->attempt->client_issuer = mem_string(login->server.issuer);
    step->attempt->client_redirect = mem_string(login->client.dynamic ? login->redirect_uri : NULL);
    step->attempt->client_id = mem_string(login->client.id);
}

static void on_browse(void *arg, const char *url)
{
    struct step *step = arg;
    struct buf frozen = {0};
    (void)url;
    if (step->taken) {  // it wants to ask the user again (T13, G10): with a new link, then
        reject(step, HOSTED_FAILED, "ask_again");
        return;
    }
    oauth_flow_freeze(step->flow, &frozen);
    secret_set(&step->attempt->login, buf_span(&frozen));
    vault_wipe(&frozen);
    keep_client(step);
    step->attempt->stage = ATTEMPT_ASKING;
    save(step, on_prepared);
}

static void prepare(struct step *step)
{
    char *user = grant_user(step->identity);
    struct oauth_flow_spec spec = flow_spec(step, user);
    step->flow = oauth_flow_start(&spec);
    record(step, HOSTED_EVENT_STARTED, NULL);
    free(user);
}

static void on_kept_connected(struct step *step) { show_page(step); }  // the grant is stored, whatever became of this

static void on_granted(struct step *step)
{
    log_info("an account was connected", LOG_STR("server", step->server->name),
             LOG_STR("tenant", step->identity->tenant), LOG_STR("subject", step->identity->subject));
    record(step, HOSTED_EVENT_OK, NULL);
    hosted_grant_changed(step->hosted, step->identity, step->server);
    hosted_offer_done(step->hosted, span_of(step->state));
    step->page.kind = HOSTED_CONNECTED;
    if (step->attempt->return_to) {
        step->page.kind = HOSTED_RETURNS;
        step->page.url = arena_copy(&step->arena, span_of(step->attempt->return_to));
    }
    step->attempt->stage = ATTEMPT_CONNECTED;
    save(step, on_kept_connected);
}

static void on_end(void *arg, enum oauth_end end, const struct grant *grant, const struct err *err)
{
    struct step *step = arg;
    (void)grant;
    if (end == OAUTH_END_GRANTED) {
        on_granted(step);
        return;
    }
    log_warn("an account was not connected", LOG_STR("server", step->server->name),
             LOG_STR("subject", step->identity->subject), LOG_STR("detail", err ? err->detail : ""));
    if (end == OAUTH_END_DENIED)
        reject(step, HOSTED_DECLINED, "declined");
    else
        reject(step, HOSTED_FAILED,
               step->taken ? "not_granted" : "not_prepared");  // not prepared: it may be opened again
}

// ---- whose it is ----------------------------------------------------------------------------

// H6: is this the user it is for? If not, the page is shown and (another user) the attempt is burnt.
static bool is_that_user(struct step *step)
{
    const struct hosted_visit *visit = step->visit;
    const struct gate *gate = visit->gate;
    if (!gate_stands(gate, step->identity)) {  // let go of since the link was made
        show(step, HOSTED_EXPIRED);
        return false;
    }
    if (!visit->identity || identity_same(visit->identity, step->identity))  // NULL: allow_unbound_tickets
        return true;
    log_warn("a connect link was used by another user", LOG_STR("server", step->server->name),
             LOG_STR("subject", step->identity->subject), LOG_STR("by", visit->identity->subject));
    burn(step, HOSTED_WRONG_USER, "wrong_user");
    return false;
}

static bool is_over(const struct step *step)
{
    return step->attempt->stage == ATTEMPT_OVER || step->attempt->stage == ATTEMPT_CONNECTED;
}

// ---- the steps ------------------------------------------------------------------------------

static void open_link(struct step *step)
{
    int64_t wait;
    if (!is_over(step) && !is_that_user(step))
        return;
    if (is_over(step) || step->attempt->stage == ATTEMPT_AWAY)
        show(step, HOSTED_USED);
    else if (!step->again && (wait = hosted_wait_to_open(step->visit, step->identity)) > 0)
        put_off(step, wait);
    else if (step->attempt->stage == ATTEMPT_OFFERED)
        prepare(step);
    else if (thaw(step))
        show_question(step);
}

static void on_agreed(struct step *step)
{
    if (is_saved(step)) {
        record(step, HOSTED_EVENT_GIVEN, NULL);
        show_page(step);
    } else {
        show_not_saved(step);
    }
}

static void agree(struct step *step)
{
    struct buf url = {0};
    oauth_attempt_url(oauth_flow_attempt(step->flow), &url);
    step->page = (struct hosted_page){.kind = HOSTED_CONTINUES,
                                      .server = step->server->name,
                                      .url = arena_copy(&step->arena, buf_span(&url)),
                                      .issuer = issuer_of(step)};
    hosted_bind_browser(step->visit, span_of(step->state), step->attempt, &step->page);
    step->attempt->stage = ATTEMPT_AWAY;
    buf_release(&url);
    save(step, on_agreed);
}

static void consent(struct step *step)
{
    if (!is_over(step) && !is_that_user(step))
        return;
    if (step->attempt->stage != ATTEMPT_ASKING)
        show(step, HOSTED_USED);
    else if (!thaw(step))
        return;
    else if (step->visit->agreed)
        agree(step);
    else
        burn(step, HOSTED_DECLINED, "declined");
}

// Is the answer one that belongs to this login at all? Nothing is used up by one that does not (B2).
static bool is_strange(const struct step *step)
{
    struct arena arena = {0};
    struct oauth_attempt scratch = *oauth_flow_attempt(step->flow);
    const char *code;
    struct err ignored;
    bool strange = oauth_callback(&scratch, step->query, &arena, &code, &ignored) == OAUTH_CALLBACK_STRANGE;
    secret_wipe(&scratch, sizeof scratch);
    arena_release(&arena);
    return strange;
}

static void on_taken(struct step *step)
{
    struct err err = {0};
    if (!is_saved(step))
        show_not_saved(step);
    else if (oauth_flow_callback(step->flow, step->query, &err) == OAUTH_CALLBACK_STRANGE)
        reject(step, HOSTED_STRANGE, "strange");
}

static void come_back(struct step *step)
{
    struct hosted_visit *visit = step->visit;
    int64_t wait;
    if (is_over(step)) {
        reject(step, HOSTED_USED, "used");
    } else if (step->attempt->stage != ATTEMPT_AWAY ||
               !hosted_is_that_browser(visit, span_of(step->state), step->attempt)) {  // H8: nothing is used up
        reject(step, HOSTED_WRONG_BROWSER, "wrong_browser");
    } else if (!is_that_user(step) || !thaw(step)) {
        return;
    } else if (is_strange(step)) {
        reject(step, HOSTED_STRANGE, "strange");
    } else if ((wait = hosted_wait_for_issuer(visit->gate, issuer_of(step))) > 0) {
        put_off(step, wait);
    } else {
        hosted_unbind_browser(visit, span_of(step->state), &step->page);
        step->page.server = step->server->name;
        step->taken = true;
        attempt_forget(step->attempt);
        save(step, on_taken);
    }
}

// What is not there, was for a server that is gone or elsewhere now, or cannot be read.
static bool is_there(struct step *step)
{
    if (step->request.answer == TOKEN_FAILED) {
        log_error("a login could not be looked up", LOG_STR("detail", step->request.err.detail));
        show(step, HOSTED_FAILED);
        return false;
    }
    attempt_free(step->attempt);
    identity_unref(step->identity);
    step->attempt = step->request.attempt;
    step->request.attempt = NULL;
    step->identity = step->attempt ? attempt_identity(step->attempt) : NULL;
    step->server =
        step->attempt ? hosted_server(step->hosted->gate, step->identity, span_of(step->attempt->server)) : NULL;
    if (step->server && strcmp(step->server->url, step->attempt->server_url) == 0)
        return true;
    if (step->op == HOSTED_CALLBACK)
        log_info("a callback belongs to no login, or one whose time is over");
    show(step, step->op == HOSTED_CALLBACK ? HOSTED_STRANGE : HOSTED_EXPIRED);
    return false;
}

static void on_found(struct step *step)
{
    if (!is_there(step))
        return;
    switch (step->op) {
    case HOSTED_CONNECT: open_link(step); break;
    case HOSTED_CONSENT: consent(step); break;
    default: come_back(step); break;
    }
}

void hosted_step(struct hosted_visit *visit, struct span state) { find(step_new(visit, state)); }

// ---- a link for somebody we know ------------------------------------------------------------

static void on_begun(struct step *step)
{
    if (step->request.answer == TOKEN_DONE) {
        show(step, HOSTED_MOVED);
        return;
    }
    log_error("a connect link could not be made", LOG_STR("detail", step->request.err.detail));
    show(step, HOSTED_FAILED);
}

void hosted_begin(struct hosted_visit *visit, const struct server *server)
{
    struct buf ticket = {0}, state = {0}, url = {0};
    struct attempt *attempt = hosted_attempt_new(visit->gate->hosted, visit->identity, server, &ticket, &state);
    struct step *step = step_new(visit, buf_span(&state));
    attempt->return_to = visit->return_to.len ? mem_span(visit->return_to) : NULL;
    buf_printf(&url, "../connect?t=%s", buf_text(&ticket));
    step->page.url = arena_copy(&step->arena, buf_span(&url));
    step->next = on_begun;
    token_store_attempt_add(visit->gate->tokens, span_of(step->state), attempt, &step->request);
    attempt_free(attempt);
    vault_wipe(&ticket);
    vault_wipe(&state);
    vault_wipe(&url);
}
