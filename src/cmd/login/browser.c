// Owns the ways to the authorization server and back: the browser, the built-in replacement, and pasting.
#include "base/mem.h"
#include "cmd/base/fail.h"
#include "loop/address.h"
#include "loop/child.h"
#include "state.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HEADLESS_MS 30000
#define BROWSER_WORDS 16
#define TICK_MS 1000

// ---- pasting --------------------------------------------------------------------------------

// The code alone, if the user allowed it: then only PKCE binds it to this login (L7).
static void take_code(struct login *login, struct span code)
{
    const struct oauth_authorization *attempt = login_flow_authorization(login->flow);
    char *text = mem_span(code);
    struct buf query = {0};
    oauth_form_put(&query, "code", text);
    oauth_form_put(&query, "state", attempt->state);
    if (attempt->server.answers_iss)
        oauth_form_put(&query, "iss", attempt->server.issuer);
    (void)login_take_query(login, buf_span(&query));
    buf_release(&query);
    free(text);
}

// A line that the user pasted: the whole final URL of the browser, or its query.
static void on_line(struct login *login, struct span line)
{
    const char *query = line.len ? memchr(line.at, '?', line.len) : NULL;
    while (line.len && strchr(" \t\r", line.at[line.len - 1]))
        line.len--;
    if (!line.len)
        return;
    if (query)
        (void)login_take_query(login, span_after(line, (size_t)(query + 1 - line.at)));
    else if (login->flags->paste_code)
        take_code(login, line);
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
    if (login->pasted.overflow || login->pasted.len > LOGIN_PASTE_MAX)
        buf_clear(&login->pasted);
}

static bool may_paste(const struct login *login) { return isatty(STDIN_FILENO) || login->flags->no_browser; }

void login_browser_watch_terminal(struct login *login)
{
    struct err ignored;
    if (!may_paste(login))
        return;
    login->terminal = (struct loop_watch){.fd = STDIN_FILENO, .on_ready = on_terminal, .arg = login};
    (void)!loop_watch(login->loop, &login->terminal, LOOP_READ,
                      &ignored);  // a file cannot be watched: pasting is not possible then
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
    login->transfer = NULL;
    size_t len = strlen(login_redirect(login));
    bool back = !err && login->status >= 300 && login->status < 400 && login->location &&
                strncmp(login->location, login_redirect(login), len) == 0 && login->location[len] == '?';
    if (back && login_take_query(login, span_of(login->location + len + 1)))
        return;
    if (!err)
        login_flow_abandon(login->flow);  // many servers report an unknown client on such a page (G10)
    const char *why = err ? strstr(err->detail, ": ") : NULL;  // without the address, which contains the state
    if (err)
        login_finish(login, fail_with(EXIT_ANSWER, "the authorization endpoint%s", why ? why : " did not answer"));
    else
        login_finish(login, fail_with(EXIT_ANSWER,
                                      "the authorization server requires user interaction: HTTP %d without a redirect "
                                      "to the callback address; log in without --headless",
                                      login->status));
}

static const struct http_events page_events = {on_page_head, on_page_data, on_page_done, NULL, NULL};

static void visit_page(struct login *login, const char *url)
{
    struct http_request request = {.method = HTTP_GET, .timeout_ms = HEADLESS_MS, .events = &page_events, .arg = login};
    http_target_free(login->page);
    login->page = http_target_new(login->http, url, HEADLESS_MS);
    http_target_guard(login->page, address_policy_allows, login_flow_policy(login->flow));
    http_target_trust(login->page, login->server->auth.ca_file);
    login->transfer = http_transfer_start(login->page, &request);
}

// Splits a command into words; "" is an empty word. The URL is the last word, or replaces %s.
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

static bool is_below(const char *root, const char *path)
{
    struct buf whole = {0};
    buf_printf(&whole, "%s%s", root, path);
    bool there = access(buf_text(&whole), F_OK) == 0;
    buf_release(&whole);
    return there;
}

// L6: true if a window cannot open here.
static bool is_remote(const char *root)
{
    static const char *const variables[] = {"SSH_CONNECTION", "SSH_TTY", "CI", "container", "KUBERNETES_SERVICE_HOST"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        if (getenv(variables[i]))
            return true;
    return is_below(root, "/.dockerenv") || is_below(root, "/run/.containerenv") ||
           (!getenv("DISPLAY") && !getenv("WAYLAND_DISPLAY"));
}

const char *login_browser_program(const char *chosen, const char *root)
{
    const char *usual = getenv("BROWSER");
    return chosen ? chosen : usual && *usual ? usual : is_remote(root) ? NULL : "xdg-open";
}

// L10: users close repeated tabs for one login unread, so one process in ten minutes starts a browser for it. Further tabs of
// that process are not limited.
static void open_tab(struct login *login, const char *program, const char *url)
{
    int64_t ago;
    if (!login->opened && !login->flags->force && !login_turn_may_open(&login->turn, &ago)) {
        fprintf(stderr,
                "A browser was started for this login %lld seconds ago; open the address yourself, or use --force\n",
                (long long)ago);
        return;
    }
    login->opened = true;
    login_turn_opened(&login->turn);
    launch(program, url);
}

// The cursor stays at the beginning of the line, so that the next message overwrites it.
static void on_tick(struct loop_timer *timer)
{
    struct login *login = timer->arg;
    int64_t left = (login->ends_ms - loop_now(login->loop) + 999) / 1000;
    fprintf(stderr, "waiting: %lld s \r", (long long)left);
    if (left > 0)
        loop_timer_set(login->loop, timer, TICK_MS);
}

void login_browser_await(struct login *login)
{
    login->ends_ms = loop_now(login->loop) + login->timeout_ms;
    loop_timer_set(login->loop, &login->deadline, login->timeout_ms);
    if (!isatty(STDERR_FILENO))
        return;
    login->tick.on_due = on_tick;  // it may run already
    login->tick.arg = login;
    loop_timer_set(login->loop, &login->tick, 0);
}

static void tell_ways(const struct login *login)
{
    unsigned port = login_callback_port(login->callback);
    if (may_paste(login))
        fprintf(stderr, "Then paste the final address of the browser here, even if the browser shows an error.\n");
    fprintf(stderr, "If the browser is on another computer, %s forward the port:\nssh -L %u:127.0.0.1:%u <this host>\n",
            may_paste(login) ? "you can also" : "first", port, port);
}

void login_browser_open(struct login *login, const char *url)
{
    const char *browser = login->flags->no_browser ? NULL : login_browser_program(login->flags->browser_cmd, "");
    if (login->flags->headless) {
        visit_page(login, url);
        return;
    }
    fprintf(stderr, "To log in to %s, open\n%s\n", login->server->name, url);
    if (browser)
        open_tab(login, browser, url);
    else
        tell_ways(login);
    login_browser_await(login);
}
