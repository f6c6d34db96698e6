// Owns `postern login`: the turn, the listener, the flow, and the messages to the user.
#include "cmd/login/login.h"
#include "auth/grant/store.h"
#include "auth/login/flow.h"
#include "base/log.h"
#include "base/mem.h"
#include "cmd/base/configuration.h"
#include "cmd/base/fail.h"
#include "cmd/base/grants.h"
#include "state.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define FIRST_PORT 8085
#define LAST_PORT 8099
#define TIMEOUT_MS 300000
#define TURN_MS 100

void login_finish(struct login *login, int code)
{
    login->code = code;
    loop_stop(login->loop);
}

bool login_take_query(struct login *login, struct span query)
{
    struct err err = {0};
    struct arena arena = {0};
    struct oauth_callback callback;
    oauth_callback_parse(query, &arena, &callback);
    enum oauth_callback_kind kind = login_flow_callback(login->flow, &callback, &err);
    arena_release(&arena);
    if (kind != OAUTH_CALLBACK_STRANGE) {
        loop_timer_stop(login->loop, &login->deadline);
        loop_timer_stop(login->loop, &login->tick);
        return true;
    }
    fprintf(stderr, "postern: %s\n", err.detail);
    return false;
}

static bool on_query(void *arg, struct span query) { return login_take_query(arg, query); }

static void on_browse(void *arg, const char *url)
{
    struct login *login = arg;
    if (login->callback)  // the browser that delivered the last answer is redirected (G3, G10, T13)
        login_callback_finish(login->callback, LOGIN_CALLBACK_AGAIN);
    if (login->flags->finish)
        login_finish(login,
                     fail_with(EXIT_TOKEN, "the authorization server did not accept the code; run the command again"));
    else if (login->flags->start)
        login_attempt_save(login, url);
    else
        login_browser_open(login, url);
}

static void on_device(void *arg, const char *url, const char *code, const char *whole_url)
{
    struct login *login = arg;
    fprintf(stderr, "To log in to %s, open\n%s\non any device and enter the code %s\n", login->server->name, url, code);
    if (whole_url)
        fprintf(stderr, "or open\n%s\n", whole_url);
    login_browser_await(login);
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
    char *store = record_place(&login->config->store);
    const char *account = grant->is.account && *grant->is.account ? grant->is.account : NULL;
    fprintf(stderr, "Logged in to %s at %s%s%s\nscope: %s\ntoken: valid %s%s\nstored: %s\n", login->server->name,
            grant->issuer, account ? " as " : "", account ? account : "",
            grant->is.scope && *grant->is.scope ? grant->is.scope : "(not stated)", until,
            grant->is.refresh_token.len
                ? ", then refreshed"
                : "; then log in again, because the authorization server did not issue a refresh token",
            store);
    free(store);
}

static void on_end(void *arg, enum login_end end, const struct grant *grant, const struct err *err)
{
    static const int codes[] = {
        [LOGIN_END_DISCOVERY] = EXIT_DISCOVERY,  [LOGIN_END_REGISTRATION] = EXIT_REGISTRATION,
        [LOGIN_END_AUTHORIZATION] = EXIT_ANSWER, [LOGIN_END_DENIED] = EXIT_DENIED,
        [LOGIN_END_EXPIRED] = EXIT_TIMEOUT,      [LOGIN_END_TOKEN] = EXIT_TOKEN,
        [LOGIN_END_STORE] = EXIT_STORE,          [LOGIN_END_FOUND] = EXIT_OK,
        [LOGIN_END_GRANTED] = EXIT_OK,
    };
    struct login *login = arg;
    if (grant)
        tell_grant(login, grant);
    else
        fail_with(codes[end], "%s", err->detail);
    if (end == LOGIN_END_DISCOVERY || end == LOGIN_END_REGISTRATION)
        login_hint_instead(login->server, login->flags->url);
    if (login->callback)
        login_callback_finish(login->callback, grant ? LOGIN_CALLBACK_GRANTED : LOGIN_CALLBACK_FAILED);
    login_finish(login, codes[end]);
}

static void on_deadline(struct loop_timer *timer)
{
    struct login *login = timer->arg;
    login_flow_abandon(login->flow);
    login_finish(login,
                 fail_with(EXIT_TIMEOUT,
                           "the login was not completed in the browser within %lld seconds; run the command again",
                           (long long)(login->timeout_ms / 1000)));
}

static void on_signal(void *arg, int signal)
{
    struct login *login = arg;
    login_flow_abandon(login->flow);
    login_finish(login, fail_with(128 + signal, "login interrupted"));
}

// The grant that is stored for this server; NULL: none. The caller unrefs it.
static struct grant *find_held(const struct login *login)
{
    struct grant_filter filter = {grants_tenant(login->flags), login->user, NULL};
    struct grant_request request = {0};
    const struct grant *grant = NULL;
    grant_store_list(login->store, &filter, &request);
    if (grant_store_wait(login->store, LOGIN_STORE_MS) && request.answer == GRANT_STORE_DONE)
        grant = access_pick(request.grants, request.count, login->server->url);
    struct grant *held = grant ? grant_ref(grant) : NULL;
    grant_request_release(&request);
    return held;
}

// ---- the turn -------------------------------------------------------------------------------

static void on_again(struct loop_timer *timer)
{
    struct login *login = timer->arg;
    struct err err = {0};
    enum login_turn_answer answer = login_turn_take(&login->turn, &err);
    if (answer == LOGIN_TURN_BUSY) {
        loop_timer_set(login->loop, timer, TURN_MS);
        return;
    }
    login_finish(login, answer == LOGIN_TURN_MINE ? EXIT_OK : fail_with(EXIT_STORE, "%s", err.detail));
}

static void on_late(struct loop_timer *timer)
{
    struct login *login = timer->arg;
    login_finish(login, fail_with(EXIT_TIMEOUT,
                                  "the login in process %ld did not finish within %lld seconds; run the command again",
                                  login->turn.holder, (long long)(login->timeout_ms / 1000)));
}

// L10: true if this process must log in. False: the exit code is set, also if another process has logged in.
static bool take_turn(struct login *login)
{
    const char *key[3] = {grants_tenant(login->flags), login->user, login->server->url};
    struct err err = {0};
    login_turn_init(&login->turn, login->config, key);
    enum login_turn_answer answer = login_turn_take(&login->turn, &err);
    if (answer == LOGIN_TURN_FAILED)
        login->code = fail_with(EXIT_STORE, "%s", err.detail);
    if (answer != LOGIN_TURN_BUSY)
        return answer == LOGIN_TURN_MINE;
    fprintf(stderr, "postern: waiting for the login in process %ld\n", login->turn.holder);
    login->again = (struct loop_timer){.on_due = on_again, .arg = login};
    login->deadline = (struct loop_timer){.on_due = on_late, .arg = login};
    loop_timer_set(login->loop, &login->again, TURN_MS);
    loop_timer_set(login->loop, &login->deadline, login->timeout_ms);
    loop_run(login->loop);
    loop_timer_stop(login->loop, &login->again);
    loop_timer_stop(login->loop, &login->deadline);
    if (login->code != EXIT_OK)
        return false;
    struct grant *now = find_held(login);
    bool done = now && !now->is.dead_at && (!login->held || now->generation != login->held->generation);
    if (done)
        tell_grant(login, now);
    grant_unref(now);
    return !done;
}

// ---- the command ----------------------------------------------------------------------------

// L1: the port of the current grant's client, so that it need not be registered again; 0: not known.
static unsigned usual_port(const struct login *login, const char *host)
{
    struct oauth_url uri = {0};
    bool same = login->held && oauth_url_parse(login->held->is.client_redirect, &uri) &&
                span_is(uri.host, strcmp(host, "::1") == 0 ? "[::1]" : host);
    return same ? uri.port : 0;
}

// L1: listens at the chosen port, that of the last login, the first free one of the range, or any.
static bool listen_at(struct login *login, const char *host, unsigned port, struct err *err)
{
    struct login_callback_spec spec = {.loop = login->loop, .host = host, .on_query = on_query, .arg = login};
    spec.first_port = spec.last_port = port ? port : usual_port(login, host);
    if (spec.first_port)
        login->callback = login_callback_open(&spec, err);
    if (!login->callback && !port) {
        spec.first_port = FIRST_PORT;
        spec.last_port = LAST_PORT;
        login->callback = login_callback_open(&spec, err);
    }
    if (!login->callback && !port &&
        !login->server->auth.client_id) {  // the client will be registered, so any port will do
        spec.first_port = spec.last_port = 0;
        login->callback = login_callback_open(&spec, err);
    }
    return login->callback != NULL;
}

const char *login_redirect(const struct login *login)
{
    return login->callback ? login_callback_uri(login->callback) : login->redirect_uri;
}

// Whether a browser delivers the answer. With --start the caller of the command delivers it, and with --headless it is
// read from the Location of the authorization server: no port is bound then.
static bool listens(const struct login *login) { return !login->flags->start && !login->flags->headless; }

// Listens for the answer, or only sets the redirect URI.
static bool open_at(struct login *login, const char *host, struct err *err)
{
    if (listens(login))
        return listen_at(login, host, login->port, err);
    unsigned usual = usual_port(login, host);
    login->redirect_uri = login_callback_uri_at(host, login->port ? login->port : usual ? usual : FIRST_PORT);
    return true;
}

// Switches to the other name of this host, unless the user chose the name for this login.
static const char *on_rehost(void *arg)
{
    struct login *login = arg;
    const char *host = login->server->auth.callback_host;
    struct err err;
    if (login->flags->callback_host || !login_redirect(login) || strcmp(host, "::1") == 0)
        return NULL;
    if (login->callback)
        login_callback_finish(login->callback, LOGIN_CALLBACK_AGAIN);
    login_callback_free(login->callback);
    login->callback = NULL;
    free(login->redirect_uri);
    login->redirect_uri = NULL;
    return open_at(login, strcmp(host, "localhost") == 0 ? "127.0.0.1" : "localhost", &err) ? login_redirect(login)
                                                                                            : NULL;
}

// The listener is open before a client is registered or a browser is started (A1).
static bool open_callback(struct login *login, int *code)
{
    const struct access_options *options = &login->server->auth;
    const char *host = login->flags->callback_host ? login->flags->callback_host : options->callback_host;
    uint64_t port = (uint64_t)options->callback_port;
    struct err err = {0};
    if (strcmp(host, "127.0.0.1") != 0 && strcmp(host, "localhost") != 0 && strcmp(host, "::1") != 0) {
        *code = fail_with(EXIT_USAGE, "--callback-host: must be 127.0.0.1, localhost or ::1");
        return false;
    }
    if (login->flags->callback_port &&
        (!span_to_u64(span_of(login->flags->callback_port), &port) || !port || port > 65535)) {
        *code = fail_with(EXIT_USAGE, "--callback-port: must be a port number");
        return false;
    }
    login->port = (unsigned)port;
    bool ok = open_at(login, host, &err);
    if (!ok)
        *code = fail_with(EXIT_PORT,
                          "%s; find the process that uses it with 'ss -ltnp', or choose another port with "
                          "--callback-port or callback_port",
                          err.detail);
    return ok;
}

static bool read_timeout(struct login *login, int *code)
{
    login->timeout_ms = TIMEOUT_MS;
    if (!login->flags->timeout)
        return true;
    bool ok = option_duration(login->flags->timeout, &login->timeout_ms) && login->timeout_ms > 0;
    if (!ok)
        *code = fail_with(EXIT_USAGE, "--timeout: must be a time such as 120s or 5m");
    return ok;
}

struct login_flow_spec login_spec(struct login *login)
{
    const struct access_options *options = &login->server->auth;
    bool bound = options->client_id && !options->issuer && login->held;  // D16
    return (struct login_flow_spec){.loop = login->loop,
                                    .http = login->http,
                                    .store = login->store,
                                    .options = options,
                                    .tenant = grants_tenant(login->flags),
                                    .user = login->user,
                                    .server_url = login->server->url,
                                    .probe = server_probe,
                                    .known_issuer = bound ? login->held->issuer : NULL,
                                    .redirect_uri = login->device ? LOGIN_DEVICE_URI : login_redirect(login),
                                    .device = login->device,
                                    .on_device = on_device,
                                    .register_anew = login->flags->reregister,
                                    .on_rehost = on_rehost,
                                    .state = *login->id ? login->id : NULL,
                                    .on_browse = on_browse,
                                    .on_note = login->flags->verbose ? on_note : NULL,
                                    .on_end = on_end,
                                    .arg = login};
}

static void start(struct login *login, const struct login_cause *cause)
{
    if (login->flags->start)
        login_attempt_new_id(login);
    struct login_flow_spec spec = login_spec(login);
    if (cause) {
        spec.challenge = cause->challenge;
        spec.held_scope = cause->held_scope;
    }
    login->flow = login_flow_start(&spec);
    if (login->callback)
        login_browser_watch_terminal(login);
}

static void run(struct login *login)
{
    login->deadline = (struct loop_timer){.on_due = on_deadline, .arg = login};
    loop_run(login->loop);
}

static void release(struct login *login)
{
    loop_timer_stop(login->loop, &login->deadline);
    loop_timer_stop(login->loop, &login->tick);
    loop_unwatch(login->loop, &login->terminal);
    login_flow_free(login->flow);
    grant_request_release(&login->request);
    if (login->transfer)
        http_transfer_cancel(login->transfer);
    http_target_free(login->page);
    login_callback_free(login->callback);
    grant_unref(login->held);
    if (login->store) {
        (void)!grant_store_wait(login->store, LOGIN_STORE_MS);
        grant_store_close(login->store);
    }
    login_turn_release(&login->turn);  // processes that wait find the stored grant
    http_client_free(login->http);
    loop_free(login->loop);
    buf_release(&login->pasted);
    free(login->location);
    free(login->redirect_uri);
    free(login->url);
    free(login->user);
}

static void go(struct login *login, const struct login_cause *cause)
{
    const struct flags *flags = login->flags;
    if (!read_timeout(login, &login->code))
        return;
    if (flags->finish) {
        if (login_attempt_resume(login))
            run(login);
        return;
    }
    grant_store_attempt_expire(
        login->store);  // G10: an abandoned attempt makes its client suspect, also for this login
    login->held = find_held(login);
    if (!flags->start && !take_turn(login))
        return;
    if (login->device || open_callback(login, &login->code)) {
        start(login, cause);
        run(login);
    }
}

int login_run(const struct config *config, const struct server *server, const struct flags *flags,
              const struct login_cause *cause)
{
    struct login login = {.config = config,
                          .server = server,
                          .flags = flags,
                          .turn = {.fd = -1},
                          .terminal = {.fd = -1},
                          .pasted = {.max = 2 * LOGIN_PASTE_MAX}};
    struct err err = {0};
    if (!grants_lasts(config, &login.code))
        return login.code;
    login.device = flags->device || (server->auth.device && !flags->headless && !flags->no_browser && !flags->start &&
                                     !flags->finish);  // L14
    if (!(login.loop = loop_new(&err)))
        return fail_with_err(&err);
    if (!loop_on_signal(login.loop, on_signal, &login, &err) || !(login.http = http_client_new(login.loop, &err)))
        login.code = fail_with_err(&err);
    else if (!grants_open(config, login.loop, true, &login.store, &err))
        login.code = fail_with(EXIT_STORE, "%s", err.detail);
    else if (!(login.user = grants_user(flags)))
        login.code = fail_with(EXIT_USAGE, "--subject: must be PROVIDER:NAME, as in a policy");
    else
        go(&login, cause);
    release(&login);
    return login.code;
}

bool login_allowed(const struct flags *flags)
{
    return flags->headless || (flags->interactive && isatty(STDERR_FILENO));
}

// Why the flags contradict each other; NULL: they do not.
static const char *contradiction(const struct flags *flags)
{
    int ways = flags->device + flags->headless + flags->token_stdin + flags->start + (flags->finish != NULL);
    if (flags->browser_cmd && (ways || flags->no_browser))
        return "--browser-cmd cannot be combined with another way to log in";
    if (ways > 1 || (flags->device && flags->no_browser))
        return "use only one of --device, --headless, --token-stdin, --start and --finish, and not --no-browser with "
               "--device";
    if (!flags->finish != !flags->redirect)
        return "--finish ID and --redirect URL must be used together";
    return NULL;
}

static int run_login(const struct flags *flags)
{
    int code = EXIT_OK;
    if (flags->url && flags->count)
        return fail_with(EXIT_USAGE, "use either --url or SERVER, not both");
    if (contradiction(flags))
        return fail_with(EXIT_USAGE, "login: %s", contradiction(flags));
    struct config *config = configuration_load(flags, &code);
    if (!config)
        return code;
    log_setup(LOG_WARN, LOG_FORMAT_TEXT);  // logs a new key of the vault (S6)
    const struct server *server = grants_lasts(config, &code) ? grants_server(config, flags, &code) : NULL;
    if (server && (server->auth.mode == ACCESS_STATIC || access_options_mode_asks((enum access_mode)server->auth.mode)))
        code = fail_with(EXIT_USAGE, "server \"%s\" does not use a login: see its auth.mode", server->name);
    else if (server && server->auth.mode == ACCESS_USER && !flags->subject)
        code = fail_with(EXIT_USAGE, "server \"%s\" has mode per_user: name the owner of the grant with --subject",
                         server->name);
    else if (server && flags->token_stdin)
        code = login_token_store(config, server, flags);
    else if (server)
        code = login_run(config, server, flags, NULL);
    config_unref(config);
    return code;
}

static const struct flag flags_table[] = {
    FLAG_CONFIG,
    FLAG_URL,
    {"callback-host", "HOST", FLAG(callback_host), "Host of the redirect URI: 127.0.0.1, localhost or ::1"},
    {"callback-port", "PORT", FLAG(callback_port),
     "Port of the redirect URI; default: the port of the last login, or the first free port from 8085 to 8099"},
    FLAG_SERVER_TENANT,
    {"subject", "PROVIDER:NAME", FLAG(subject), "The caller that owns the grant, for a server with mode per_user"},
    {"no-browser", NULL, FLAG(no_browser),
     "Do not start a browser: print the address, and read the final address of the browser as pasted text"},
    {"browser-cmd", "PROGRAM", FLAG(browser_cmd),
     "The browser to start; default: $BROWSER, or xdg-open if a display is available"},
    {"headless", NULL, FLAG(headless),
     "Send one GET request instead of starting a browser: for servers that grant access without user "
     "interaction"},
    {"device", NULL, FLAG(device), "Show a code to enter on another device, instead of starting a browser (RFC 8628)"},
    {"token-stdin", NULL, FLAG(token_stdin), "Store a token that is read from standard input, without OAuth"},
    {"paste-code", NULL, FLAG(paste_code),
     "Also accept a pasted code without its state; then only PKCE binds the code to this login"},
    {"start", NULL, FLAG(start),
     "First of two steps, for scripts: print the address and the attempt_id as JSON, and exit"},
    {"finish", "ID", FLAG(finish), "Second step, within ten minutes: complete the login with this attempt_id"},
    {"redirect", "URL", FLAG(redirect),
     "With --finish: the final address of the browser; - reads it from standard input"},
    {"force", NULL, FLAG(force), "Start a browser even if one was started for this login in the last ten minutes"},
    {"reregister", NULL, FLAG(reregister), "Register a new client even if the store has a registration"},
    {"timeout", "TIME", FLAG(timeout),
     "How long to wait for the browser after the address was opened or printed; default: 300s"},
    {"verbose", NULL, FLAG(verbose), "Print each address that is tried and each decision"},
    {0},
};

const struct command login_command = {
    .name = "login",
    .synopsis = "login SERVER [OPTIONS] | login --url URL [OPTIONS]",
    .summary = "Log in to a server with OAuth",
    .details =
        "Exit status: 0 logged in, 10 declined, 11 timed out, 12 no callback port available, 13 registration failed,\n"
        "14 discovery failed, 15 token request failed, 16 grant store failed, 17 invalid\n"
        "authorization response.",
    .flags = flags_table,
    .min_args = 1,
    .max_args = 1,
    .run = run_login,
};
