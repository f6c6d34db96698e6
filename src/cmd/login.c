// Owns `postern login`: the listener, the browser, pasting back, and what is told to the person.
#include "login.h"
#include "auth/address.h"
#include "auth/oauth_flow.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/callback.h"
#include "loop/child.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define FIRST_PORT 8085
#define LAST_PORT 8099
#define TIMEOUT_MS 300000
#define HEADLESS_MS 30000
#define STORE_MS 5000
#define PASTE_MAX 16384
#define BROWSER_WORDS 16

struct login {
    struct loop *loop;
    struct http_client *http;
    struct token_store *store;
    const struct server *server;
    const struct flags *flags;
    bool device;  // a code is entered elsewhere: no listener
    char *user;   // whose grant it will be
    struct callback *callback;
    unsigned port;  // of it, as it was chosen; 0: any
    struct oauth_flow *flow;
    struct loop_timer deadline;
    int64_t timeout_ms;
    struct loop_watch terminal;
    struct buf pasted;
    // the built-in browser
    struct http_target *page;
    struct http_transfer *visit;
    int status;
    char *location;
    int code;
};

static void finish(struct login *login, int code)
{
    login->code = code;
    loop_stop(login->loop);
}

// ---- coming back ----------------------------------------------------------------------------

static bool on_query(void *arg, struct span query)
{
    struct login *login = arg;
    struct err err = {0};
    if (oauth_flow_callback(login->flow, query, &err) != OAUTH_CALLBACK_STRANGE)
        return true;
    fprintf(stderr, "postern: %s\n", err.detail);
    return false;
}

// A line that a person pasted: the whole URL the browser ended at, or its query.
static void on_line(struct login *login, struct span line)
{
    const char *query = line.len ? memchr(line.at, '?', line.len) : NULL;
    while (line.len && strchr(" \t\r", line.at[line.len - 1]))
        line.len--;
    if (!line.len)
        return;
    if (query)
        (void)on_query(login, span_after(line, (size_t)(query + 1 - line.at)));
    else
        fprintf(stderr, "postern: paste the whole address that the browser shows, with its \"?code=\"\n");
}

static void on_terminal(struct loop_watch *watch, unsigned events)
{
    struct login *login = watch->arg;
    char block[4096];
    (void)events;
    ssize_t got = read(watch->fd, block, sizeof block);
    if (got <= 0) {
        loop_unwatch(login->loop, watch);
        return;
    }
    buf_put(&login->pasted, block, (size_t)got);
    char *newline;
    while (login->pasted.len && (newline = memchr(login->pasted.at, '\n', login->pasted.len))) {
        size_t len = (size_t)(newline - login->pasted.at);
        on_line(login, span_make(login->pasted.at, len));
        buf_drop_front(&login->pasted, len + 1);
    }
    if (login->pasted.overflow || login->pasted.len > PASTE_MAX)
        buf_clear(&login->pasted);
}

static void watch_terminal(struct login *login)
{
    struct err ignored;
    if (!isatty(STDIN_FILENO) && !login->flags->no_browser)
        return;
    login->terminal = (struct loop_watch){.fd = STDIN_FILENO, .on_ready = on_terminal, .arg = login};
    (void)!loop_watch(login->loop, &login->terminal, LOOP_READ, &ignored);  // a file cannot be watched: no pasting then
}

// ---- the browser ----------------------------------------------------------------------------

static void on_page_head(void *arg, struct http_transfer *transfer, int status)
{
    struct login *login = arg;
    login->status = status;
    free(login->location);
    login->location = mem_string(http_transfer_header(transfer, "location"));
}

static bool on_page_data(void *arg, struct span bytes)
{
    (void)arg;
    (void)bytes;
    return true;
}

static void on_page_done(void *arg, const struct err *err)
{
    struct login *login = arg;
    login->visit = NULL;
    size_t len = strlen(callback_uri(login->callback));
    bool back = !err && login->status >= 300 && login->status < 400 && login->location &&
                strncmp(login->location, callback_uri(login->callback), len) == 0 && login->location[len] == '?';
    if (back && on_query(login, span_of(login->location + len + 1)))
        return;
    if (!err)
        oauth_flow_abandon(login->flow);  // many say on a page like this that they do not know the client (G10)
    const char *why = err ? strstr(err->detail, ": ") : NULL;  // the address before it has the state in it
    if (err)
        finish(login, cmd_fail(EXIT_ANSWER, "the authorization endpoint%s", why ? why : " did not answer"));
    else
        finish(login, cmd_fail(EXIT_ANSWER,
                               "the authorization server wants a person: HTTP %d and no way back to us; log "
                               "in without --headless",
                               login->status));
}

static const struct http_events page_events = {on_page_head, on_page_data, on_page_done};

static void visit_page(struct login *login, const char *url)
{
    struct http_request request = {.method = HTTP_GET, .timeout_ms = HEADLESS_MS, .events = &page_events, .arg = login};
    http_target_free(login->page);
    login->page = http_target_new(login->http, url, HEADLESS_MS);
    http_target_guard(login->page, address_policy_allows, oauth_flow_policy(login->flow));
    login->visit = http_start(login->page, &request);
}

// $BROWSER as words; "" is an empty one. The URL comes last, or in the place of %s.
static void launch(const char *program, const char *url)
{
    char *words[BROWSER_WORDS + 2] = {NULL}, *text = mem_string(program);
    size_t count = 0;
    bool placed = false;
    struct err err;
    for (char *at = text; *at && count < BROWSER_WORDS;) {
        at += strspn(at, " ");
        size_t len = strcspn(at, " ");
        if (!len)
            break;
        bool more = at[len] != '\0';
        at[len] = '\0';
        placed |= strcmp(at, "%s") == 0;
        words[count++] = strcmp(at, "%s") == 0 ? (char *)(uintptr_t)url : strcmp(at, "\"\"") == 0 ? at + 2 : at;
        at += len + (more ? 1 : 0);
    }
    if (!placed)
        words[count] = (char *)(uintptr_t)url;
    if (count && !child_launch(words[0], words, &err))
        fprintf(stderr, "postern: %s; open the address yourself\n", err.detail);
    free(text);
}

// L6: no window would open here.
static bool is_remote(void)
{
    return getenv("SSH_CONNECTION") || getenv("SSH_TTY") || getenv("CI") ||
           (!getenv("DISPLAY") && !getenv("WAYLAND_DISPLAY"));
}

static void on_browse(void *arg, const char *url)
{
    struct login *login = arg;
    const char *browser = getenv("BROWSER");
    if (login->flags->headless) {
        visit_page(login, url);
        return;
    }
    fprintf(stderr, "To log in to %s, open\n%s\n", login->server->name, url);
    if (!login->flags->no_browser && browser && *browser) {
        launch(browser, url);
    } else if (!login->flags->no_browser && !is_remote()) {
        launch("xdg-open", url);
    } else {
        unsigned port = callback_port(login->callback);
        fprintf(stderr,
                "If the browser is on another computer, paste here the address it ends at, or forward the port:\n"
                "ssh -L %u:127.0.0.1:%u <this host>\n",
                port, port);
    }
}

static void on_device(void *arg, const char *url, const char *code, const char *whole_url)
{
    struct login *login = arg;
    fprintf(stderr, "To log in to %s, open\n%s\non any device and enter the code %s\n", login->server->name, url, code);
    if (whole_url)
        fprintf(stderr, "or open\n%s\n", whole_url);
}

// ---- the flow -------------------------------------------------------------------------------

static void on_note(void *arg, const char *note)
{
    (void)arg;
    fprintf(stderr, "postern: %s\n", note);
}

static void tell_grant(const struct login *login, const struct grant *grant)
{
    char until[64] = "until it is refused";
    time_t expires = (time_t)grant->is.expires_at;
    struct tm parts;
    if (expires && gmtime_r(&expires, &parts))
        strftime(until, sizeof until, "until %Y-%m-%d %H:%M:%S UTC", &parts);
    fprintf(stderr, "Logged in to %s at %s\nscope: %s\ntoken: good %s%s\n", login->server->name, grant->issuer,
            grant->is.scope && *grant->is.scope ? grant->is.scope : "(not said)", until,
            grant->is.refresh_token.len ? ", then refreshed" : "; there is no refresh token: log in again then");
}

static void on_end(void *arg, enum oauth_end end, const struct grant *grant, const struct err *err)
{
    static const int codes[] = {
        [OAUTH_END_DISCOVERY] = EXIT_DISCOVERY,  [OAUTH_END_REGISTRATION] = EXIT_REGISTRATION,
        [OAUTH_END_AUTHORIZATION] = EXIT_ANSWER, [OAUTH_END_DENIED] = EXIT_DENIED,
        [OAUTH_END_EXPIRED] = EXIT_TIMEOUT,      [OAUTH_END_TOKEN] = EXIT_TOKEN,
        [OAUTH_END_STORE] = EXIT_STORE,          [OAUTH_END_FOUND] = EXIT_OK,
        [OAUTH_END_GRANTED] = EXIT_OK,
    };
    struct login *login = arg;
    if (grant)
        tell_grant(login, grant);
    else
        cmd_fail(codes[end], "%s", err->detail);
    if (login->callback)
        callback_finish(login->callback, grant != NULL);
    finish(login, codes[end]);
}

static void on_deadline(struct loop_timer *timer)
{
    struct login *login = timer->arg;
    oauth_flow_abandon(login->flow);
    finish(login, cmd_fail(EXIT_TIMEOUT, "nobody came back from the login within %lld seconds",
                           (long long)(login->timeout_ms / 1000)));
}

static void on_signal(void *arg, int signal)
{
    struct login *login = arg;
    oauth_flow_abandon(login->flow);
    finish(login, cmd_fail(128 + signal, "the login was given up"));
}

// ---- the command ----------------------------------------------------------------------------

// L1: the port of the client that has the grant now, so that it need not be registered anew; 0: there is none.
static unsigned usual_port(const struct login *login, const char *host)
{
    struct grant_filter filter = {login_tenant(login->flags), login->user, NULL};
    struct token_request request = {0};
    struct oauth_url uri = {0};
    const struct grant *grant = NULL;
    token_store_list(login->store, &filter, &request);
    if (token_store_wait(login->store, STORE_MS) && request.answer == TOKEN_DONE)
        grant = access_pick(request.grants, request.count, login->server->url);
    bool same = grant && oauth_url_parse(grant->is.client_redirect, &uri) &&
                span_is(uri.host, strcmp(host, "::1") == 0 ? "[::1]" : host);
    token_request_release(&request);
    return same ? uri.port : 0;
}

// L1: at the port that was chosen, that of the last login, the first that is free of ours, or any.
static bool listen_at(struct login *login, const char *host, unsigned port, struct err *err)
{
    struct callback_spec spec = {.loop = login->loop, .host = host, .on_query = on_query, .arg = login};
    spec.first_port = spec.last_port = port ? port : usual_port(login, host);
    if (spec.first_port)
        login->callback = callback_open(&spec, err);
    if (!login->callback && !port) {
        spec.first_port = FIRST_PORT;
        spec.last_port = LAST_PORT;
        login->callback = callback_open(&spec, err);
    }
    if (!login->callback && !port && !login->server->auth.client_id) {  // it will be registered, so any port will do
        spec.first_port = spec.last_port = 0;
        login->callback = callback_open(&spec, err);
    }
    return login->callback != NULL;
}

// The other name of this host, unless a person chose this one for this login.
static const char *on_rehost(void *arg)
{
    struct login *login = arg;
    const char *host = login->server->auth.callback_host;
    struct err err;
    if (login->flags->callback_host || !login->callback || strcmp(host, "::1") == 0)
        return NULL;
    callback_free(login->callback);
    login->callback = NULL;
    bool ok = listen_at(login, strcmp(host, "localhost") == 0 ? "127.0.0.1" : "localhost", login->port, &err);
    return ok ? callback_uri(login->callback) : NULL;
}

// The listener is there before anything is registered or opened (A1).
static bool open_callback(struct login *login, int *code)
{
    const struct access_options *options = &login->server->auth;
    const char *host = login->flags->callback_host ? login->flags->callback_host : options->callback_host;
    uint64_t port = (uint64_t)options->callback_port;
    struct err err = {0};
    if (strcmp(host, "127.0.0.1") != 0 && strcmp(host, "localhost") != 0 && strcmp(host, "::1") != 0) {
        *code = cmd_fail(EXIT_USAGE, "--callback-host: 127.0.0.1, localhost or ::1");
        return false;
    }
    if (login->flags->callback_port &&
        (!span_to_u64(span_of(login->flags->callback_port), &port) || !port || port > 65535)) {
        *code = cmd_fail(EXIT_USAGE, "--callback-port: a port number");
        return false;
    }
    login->port = (unsigned)port;
    if (!listen_at(login, host, login->port, &err))
        *code = cmd_fail(EXIT_PORT, "%s; 'ss -ltnp' says who has it; --callback-port or callback_port chooses another",
                         err.detail);
    return login->callback != NULL;
}

static bool read_timeout(struct login *login, int *code)
{
    login->timeout_ms = TIMEOUT_MS;
    if (!login->flags->timeout)
        return true;
    bool ok = option_duration(login->flags->timeout, &login->timeout_ms) && login->timeout_ms > 0;
    if (!ok)
        *code = cmd_fail(EXIT_USAGE, "--timeout: a time like 120s or 5m");
    return ok;
}

static void start(struct login *login, const struct login_cause *cause)
{
    struct oauth_flow_spec spec = {.loop = login->loop,
                                   .http = login->http,
                                   .store = login->store,
                                   .options = &login->server->auth,
                                   .tenant = login_tenant(login->flags),
                                   .user = login->user,
                                   .server_url = login->server->url,
                                   .redirect_uri = login->callback ? callback_uri(login->callback) : OAUTH_DEVICE_URI,
                                   .device = login->device,
                                   .on_device = on_device,
                                   .register_anew = login->flags->reregister,
                                   .on_rehost = on_rehost,
                                   .on_browse = on_browse,
                                   .on_note = login->flags->verbose ? on_note : NULL,
                                   .on_end = on_end,
                                   .arg = login};
    if (cause) {
        spec.challenge = cause->challenge;
        spec.held_scope = cause->held_scope;
    }
    login->flow = oauth_flow_start(&spec);
    login->deadline = (struct loop_timer){.on_due = on_deadline, .arg = login};
    loop_timer_set(login->loop, &login->deadline, login->timeout_ms);
    if (login->callback)
        watch_terminal(login);
}

static void release(struct login *login)
{
    loop_timer_stop(login->loop, &login->deadline);
    loop_unwatch(login->loop, &login->terminal);
    oauth_flow_free(login->flow);
    if (login->visit)
        http_cancel(login->visit);
    http_target_free(login->page);
    callback_free(login->callback);
    if (login->store) {
        (void)!token_store_wait(login->store, STORE_MS);
        token_store_close(login->store);
    }
    http_client_free(login->http);
    loop_free(login->loop);
    buf_release(&login->pasted);
    free(login->location);
    free(login->user);
}

int login_run(const struct config *config, const struct server *server, const struct flags *flags,
              const struct login_cause *cause)
{
    struct login login = {.server = server, .flags = flags, .terminal = {.fd = -1}, .pasted = {.max = 2 * PASTE_MAX}};
    struct err err = {0};
    login.device = flags->device || (server->auth.device && !flags->headless && !flags->no_browser);  // L14
    if (!(login.loop = loop_new(&err)))
        return cmd_fail_err(&err);
    if (!loop_on_signal(login.loop, on_signal, &login, &err) || !(login.http = http_client_new(login.loop, &err)))
        login.code = cmd_fail_err(&err);
    else if (!login_store_open(config, login.loop, true, &login.store, &err))
        login.code = cmd_fail(EXIT_STORE, "%s", err.detail);
    else if (!(login.user = login_user(flags)))
        login.code = cmd_fail(EXIT_USAGE, "--subject: PROVIDER:NAME, as in a policy");
    else if (read_timeout(&login, &login.code) && (login.device || open_callback(&login, &login.code))) {
        start(&login, cause);
        loop_run(login.loop);
    }
    release(&login);
    return login.code;
}

static int run_login(const struct flags *flags)
{
    int code = EXIT_OK;
    if (flags->url && flags->count)
        return cmd_fail(EXIT_USAGE, "with --url no SERVER is given");
    struct config *config = cmd_config(flags, &code);
    if (!config)
        return code;
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    const struct server *server = login_server(config, flags, &code);
    if (server && (server->auth.mode == ACCESS_STATIC || access_mode_asks((enum access_mode)server->auth.mode)))
        code = cmd_fail(EXIT_USAGE, "server \"%s\" has no use for a login: see its auth.mode", server->name);
    else if (server && server->auth.mode == ACCESS_USER && !flags->subject)
        code = cmd_fail(EXIT_USAGE, "server \"%s\" has mode per_user: --subject says whose grant it will be",
                        server->name);
    else if (server && flags->device && (flags->headless || flags->no_browser || flags->token_stdin))
        code = cmd_fail(EXIT_USAGE, "--device goes with neither --headless, --no-browser nor --token-stdin");
    else if (server && flags->token_stdin)
        code = login_with_token(config, server, flags);
    else if (server)
        code = login_run(config, server, flags, NULL);
    config_free(config);
    return code;
}

static const struct flag flags_table[] = {
    FLAG_CONFIG,
    FLAG_URL,
    {"callback-host", "HOST", FLAG(callback_host), "Host of the redirect URI: 127.0.0.1, localhost or ::1"},
    {"callback-port", "PORT", FLAG(callback_port),
     "Its port; else that of the last login, or the first free one of 8085 to 8099"},
    {"tenant", "NAME", FLAG(tenant), "The server is one of this tenant"},
    {"subject", "PROVIDER:NAME", FLAG(subject), "The grant is this caller's, for a server with mode per_user"},
    {"no-browser", NULL, FLAG(no_browser), "Only print the address; what the browser ends at may be pasted"},
    {"headless", NULL, FLAG(headless), "No browser: one GET, for servers that ask nobody"},
    {"device", NULL, FLAG(device), "No browser here: show a code to enter on another device (RFC 8628)"},
    {"token-stdin", NULL, FLAG(token_stdin), "No OAuth: store the token that is on standard input"},
    {"reregister", NULL, FLAG(reregister), "Register a new client even if one is known"},
    {"timeout", "TIME", FLAG(timeout), "How long to wait for the browser (300s)"},
    {"verbose", NULL, FLAG(verbose), "Show each address tried and what was decided"},
    {0},
};

const struct command command_login = {
    .name = "login",
    .synopsis = "login SERVER | login --url URL",
    .summary = "Log in to a server with OAuth",
    .details =
        "Exit status: 0 logged in, 10 declined, 11 nobody came back, 12 no port, 13 registration, 14 discovery,\n"
        "15 token endpoint, 16 store, 17 an answer that is not acceptable.",
    .flags = flags_table,
    .min_args = 1,
    .max_args = 1,
    .run = run_login,
};
