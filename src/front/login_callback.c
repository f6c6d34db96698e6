// Owns the loopback listener of a login: its sockets, the callback request, and its pages.
#include "front/login_callback.h"
#include "base/list.h"
#include "base/mem.h"
#include "guard.h"
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PATH "/callback"
#define POOL_BYTES (16 * 1024)
#define CONNECTIONS_MAX 16
#define REQUEST_MS 10000
#define SWEEP_MS 500
#define FLUSH_TRIES 40
#define FLUSH_PAUSE_NS 5000000L

enum callback_page { PAGE_STRANGE, PAGE_FAILED, PAGE_AGAIN, PAGE_GRANTED, PAGES };

#define PAGE(title, text)                                                                                         \
    "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>" title "</title><h1>" title "</h1><p>" text \
    "</p></html>\n"

static const struct {
    unsigned status;
    const char *text;
} pages[PAGES] = {
    [PAGE_STRANGE] = {400, PAGE("Unknown login", "This response belongs to another login, or has already been used.")},
    [PAGE_FAILED] = {403, PAGE("Not connected", "The login failed. The terminal shows the reason.")},
    [PAGE_AGAIN] = {200, PAGE("Log in again", "The authorization server requires the login to be repeated. Continue in "
                                              "the new tab, or with the new URL in the terminal.")},
    [PAGE_GRANTED] = {200, PAGE("Connected", "You can close this tab and return to the terminal.")},
};

// One listening socket and its daemon; `localhost` has two.
struct port {
    struct login_callback *callback;
    struct MHD_Daemon *daemon;
    struct loop_watch ready;
};

struct login_callback {
    struct login_callback_spec spec;
    struct port ports[2];
    size_t port_count;
    unsigned number;
    char *uri;
    struct list lines;  // open connections
    struct loop_timer sweep;
    struct browser_request *waiting;
};

struct line {
    struct list node;
    int fd;
    int64_t since_ms;
};

// One request.
struct browser_request {
    struct login_callback *callback;
    struct port *port;
    char *target;  // as written in the request line
    struct MHD_Connection *connection;
    bool seen, finished;
    enum callback_page outcome;  // valid once `finished` is set
};

// ---- requests -------------------------------------------------------------------------------

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, const char *text)
{
    static const char *const headers[][2] = {
        {"Content-Type", "text/html; charset=utf-8"},
        {"Cache-Control", "no-store"},
        {"Referrer-Policy", "no-referrer"},
        {"X-Frame-Options", "DENY"},
        {"X-Content-Type-Options", "nosniff"},
        {"Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"},
        {"Connection", "close"},
    };
    union {
        const char *text;
        void *bytes;
    } body = {text};
    struct MHD_Response *response = MHD_create_response_from_buffer(strlen(text), body.bytes, MHD_RESPMEM_PERSISTENT);
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        MHD_add_response_header(response, headers[i][0], headers[i][1]);
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result show(struct MHD_Connection *connection, enum callback_page page)
{
    return answer(connection, pages[page].status, pages[page].text);
}

// Against DNS rebinding (B9): a request that names another host is rejected.
static bool is_our_host(const struct login_callback *callback, struct span host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char want[64];
        int len = snprintf(want, sizeof want, "%s:%u", names[i], callback->number);
        if (host.len == (size_t)len && strncasecmp(host.at, want, host.len) == 0)
            return true;
    }
    return false;
}

static enum MHD_Result take_query(struct login_callback *callback, struct browser_request *request)
{
    const char *query = strchr(request->target, '?');
    if (callback->waiting || !callback->spec.on_query(callback->spec.arg, span_of(query ? query + 1 : "")))
        return show(request->connection, PAGE_STRANGE);
    callback->waiting = request;
    MHD_suspend_connection(request->connection);
    return MHD_YES;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_size, void **state)
{
    struct login_callback *callback = ((struct port *)arg)->callback;
    struct browser_request *request = *state;
    struct guard_line line = {method, url, version};
    struct guard_headers headers;
    struct err err;
    (void)upload;
    *upload_size = 0;
    if (request->finished)
        return show(connection, request->outcome);
    if (request->seen)
        return MHD_YES;
    request->seen = true;
    request->connection = connection;
    if (!guard_read(connection, &line, &headers, &err) || !is_our_host(callback, headers.host))
        return show(connection, PAGE_STRANGE);
    if (strcmp(method, "GET") != 0)
        return answer(connection, 405, "");
    if (strcmp(url, PATH) != 0)
        return answer(connection, 404, "");
    return take_query(callback, request);
}

static void *on_request_line(void *arg, const char *uri, struct MHD_Connection *connection)
{
    struct port *port = arg;
    (void)connection;
    struct browser_request *request = mem_new(struct browser_request);
    request->callback = port->callback;
    request->port = port;
    request->target = mem_string(uri);
    return request;
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode why)
{
    (void)arg;
    (void)connection;
    (void)why;
    struct browser_request *request = *state;
    if (!request)
        return;
    *state = NULL;
    if (request->callback->waiting == request)
        request->callback->waiting = NULL;
    explicit_bzero(request->target, strlen(request->target));  // it contains the authorization code
    free(request->target);
    free(request);
}

// ---- connections ----------------------------------------------------------------------------

static void on_connection(void *arg, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode what)
{
    struct login_callback *callback = ((struct port *)arg)->callback;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        struct line *line = mem_new(struct line);
        line->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        line->since_ms = loop_now(callback->spec.loop);
        list_append(&callback->lines, &line->node);
        *state = line;
    } else if (*state) {
        struct line *line = *state;
        list_remove(&line->node);
        free(line);
        *state = NULL;
    }
}

// Closes connections that take too long: browsers open connections in advance and never use them, and another local program
// may send its request byte by byte.
static void on_sweep(struct loop_timer *timer)
{
    struct login_callback *callback = timer->arg;
    int64_t now = loop_now(callback->spec.loop);
    list_each(node, &callback->lines) {
        struct line *line = list_entry(node, struct line, node);
        if (!callback->waiting && now - line->since_ms > REQUEST_MS)
            shutdown(line->fd, SHUT_RDWR);
    }
    for (size_t i = 0; i < callback->port_count; i++)
        MHD_run(callback->ports[i].daemon);
    loop_timer_set(callback->spec.loop, timer, SWEEP_MS);
}

static void on_ready(struct loop_watch *watch, unsigned events)
{
    (void)events;
    struct port *port = watch->arg;
    MHD_run(port->daemon);
}

// ---- listening ------------------------------------------------------------------------------

static int listen_on(bool six, unsigned port)
{
    struct sockaddr_in6 addr6 = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_loopback};
    struct sockaddr_in addr4 = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_storage address = {0};
    socklen_t len = six ? sizeof addr6 : sizeof addr4;
    int on = 1, fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    memcpy(&address, six ? (const void *)&addr6 : (const void *)&addr4, len);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // never SO_REUSEPORT: others could share it (L2)
    if (six)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, (const struct sockaddr *)&address, len) < 0 || listen(fd, CONNECTIONS_MAX) < 0) {
        int code = errno;
        close(fd);
        errno = code;
        return -1;
    }
    return fd;
}

static unsigned port_of(int fd)
{
    struct sockaddr_storage name;
    socklen_t len = sizeof name;
    struct sockaddr_in6 six;  // the port is at the same place in both
    if (getsockname(fd, (struct sockaddr *)&name, &len) < 0)
        return 0;
    memcpy(&six, &name, sizeof six);
    return ntohs(six.sin6_port);
}

static bool start_daemon(struct login_callback *callback, int fd, struct err *err)
{
    struct port *port = &callback->ports[callback->port_count];
    port->callback = callback;
    port->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, port,
                                    MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed, port,
                                    MHD_OPTION_NOTIFY_CONNECTION, on_connection, port, MHD_OPTION_URI_LOG_CALLBACK,
                                    on_request_line, port, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
                                    MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_BYTES, MHD_OPTION_END);
    if (!port->daemon) {
        close(fd);
        return err_set(err, ERR_SYSTEM, "cannot start the HTTP server: %s", strerror(errno));
    }
    callback->port_count++;
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(port->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    port->ready = (struct loop_watch){.fd = info->epoll_fd, .on_ready = on_ready, .arg = port, .name = "login page"};
    return loop_watch(callback->spec.loop, &port->ready, LOOP_READ, err);
}

// One port, in one family or in both: all or nothing (B10).
static bool try_port(struct login_callback *callback, unsigned number, struct err *err)
{
    bool both = strcmp(callback->spec.host, "localhost") == 0, six = strcmp(callback->spec.host, "::1") == 0;
    int first = listen_on(six, number), second = -1, code = errno;
    if (first >= 0 && both && (second = listen_on(true, port_of(first))) < 0 && errno != EAFNOSUPPORT &&
        errno != EADDRNOTAVAIL) {
        code = errno;
        close(first);
        first = -1;
    }
    if (first < 0)
        return err_set(err, ERR_SYSTEM, "cannot listen on port %u of %s: %s", number, callback->spec.host,
                       strerror(code));
    callback->number = port_of(first);
    bool ok = start_daemon(callback, first, err);
    if (second >= 0 && ok)
        return start_daemon(callback, second, err);
    if (second >= 0)
        close(second);
    return ok;
}

struct login_callback *login_callback_open(const struct login_callback_spec *spec, struct err *err)
{
    struct login_callback *callback = mem_new(struct login_callback);
    bool open = false;
    callback->spec = *spec;
    callback->sweep = (struct loop_timer){.on_due = on_sweep, .arg = callback, .name = "login page"};
    list_init(&callback->lines);
    for (unsigned port = spec->first_port; !open && port <= spec->last_port; port++)
        open = try_port(callback, port, err);
    if (!open) {
        login_callback_free(callback);
        return NULL;
    }
    callback->uri = login_callback_uri_at(spec->host, callback->number);
    loop_timer_set(spec->loop, &callback->sweep, SWEEP_MS);
    return callback;
}

char *login_callback_uri_at(const char *host, unsigned port)
{
    bool six = strcmp(host, "::1") == 0;
    struct buf uri = {0};
    buf_printf(&uri, "http://%s%s%s:%u" PATH, six ? "[" : "", host, six ? "]" : "", port);
    return buf_take(&uri, NULL);
}

const char *login_callback_uri(const struct login_callback *callback) { return callback->uri; }
unsigned login_callback_port(const struct login_callback *callback) { return callback->number; }

void login_callback_finish(struct login_callback *callback, enum login_callback_end end)
{
    static const enum callback_page of[] = {[LOGIN_CALLBACK_FAILED] = PAGE_FAILED,
                                            [LOGIN_CALLBACK_AGAIN] = PAGE_AGAIN,
                                            [LOGIN_CALLBACK_GRANTED] = PAGE_GRANTED};
    struct browser_request *request = callback->waiting;
    if (!request)
        return;
    callback->waiting = NULL;
    request->outcome = of[end];
    request->finished = true;
    struct port *port = request->port;
    MHD_resume_connection(request->connection);
    MHD_run(port->daemon);
}

void login_callback_free(struct login_callback *callback)
{
    if (!callback)
        return;
    login_callback_finish(callback, LOGIN_CALLBACK_FAILED);
    // Gives the page time to reach the browser. The command is at its end, so a short blocking wait is harmless.
    for (int i = 0; i < FLUSH_TRIES && !list_empty(&callback->lines); i++) {
        for (size_t k = 0; k < callback->port_count; k++)
            MHD_run(callback->ports[k].daemon);
        nanosleep(&(struct timespec){0, FLUSH_PAUSE_NS}, NULL);
    }
    for (size_t i = 0; i < callback->port_count; i++) {
        loop_unwatch(callback->spec.loop, &callback->ports[i].ready);
        MHD_stop_daemon(callback->ports[i].daemon);
    }
    loop_timer_stop(callback->spec.loop, &callback->sweep);
    free(callback->uri);
    free(callback);
}
