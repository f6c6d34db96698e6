// Owns how commands ask a running gateway: finding its control socket, one request, and its reply.
#include "cmd/base/gateway.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cmd/base/fail.h"
#include "config/config.h"
#include "loop/unix_socket.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REPLY_MAX ((size_t)16 << 20)
#define PATIENCE_MS 60000  // a reload tests all policies

// ---- which socket ---------------------------------------------------------------------------

// The configuration as far as this shell knows it: the gateway has its variables, and a file that is being edited may be broken.
static struct config *read_configuration(const struct flags *flags, struct err *err)
{
    struct option_unset unset = {0};
    char *path = config_path(flags->config);
    struct config *config = path ? config_load_offline(path, &unset, NULL, err) : NULL;
    buf_release(&unset.names);
    free(path);
    return config;
}

// NULL: no socket is known, and `why_none` says why. `err` is set if the configuration cannot be read; then it is the default.
static char *find_socket(const struct flags *flags, const char **why_none, struct err *err)
{
    if (flags->control) {
        *why_none = "the path of --control is empty";
        return mem_string(*flags->control ? flags->control : NULL);
    }
    struct config *config = read_configuration(flags, err);
    char *path = config_control_path(config);
    *why_none = config && config->control
                    ? "it is switched off in the configuration (\"control\": \"\")"
                    : "the configuration does not set `control`, and $XDG_RUNTIME_DIR is not set; name the socket with "
                      "--control PATH";
    config_unref(config);
    return path;
}

// ---- one exchange ---------------------------------------------------------------------------

static bool wait_for(int fd, short events, int64_t until_ms, struct err *err)
{
    struct pollfd pollfd = {.fd = fd, .events = events};
    int64_t left = until_ms - clock_now_ms();
    int ready = poll(&pollfd, 1, left > 0 ? (int)left : 0);
    if (ready > 0 || (ready < 0 && errno == EINTR))
        return true;
    return err_set(err, ERR_UNAVAILABLE, "the gateway did not reply within %d s", PATIENCE_MS / 1000);
}

static bool send_all(int fd, struct span text, int64_t until_ms, struct err *err)
{
    while (text.len) {
        ssize_t sent = send(fd, text.at, text.len, MSG_NOSIGNAL);
        if (sent > 0)
            text = span_after(text, (size_t)sent);
        else if (errno == EPIPE || errno == ECONNRESET)
            return true;  // it has replied already, and why is in the reply
        else if (errno != EAGAIN && errno != EINTR)
            return err_set(err, ERR_UNAVAILABLE, "the request was not sent: %s", strerror(errno));
        else if (!wait_for(fd, POLLOUT, until_ms, err))
            return false;
    }
    return true;
}

static ssize_t receive(int fd, char *block, size_t room, struct inherited *inherited)
{
    int fds[UNIX_SOCKET_FDS_MAX];
    size_t count = 0;
    ssize_t got = inherited ? unix_socket_receive(fd, block, room, fds, &count) : recv(fd, block, room, 0);
    for (size_t i = 0; i < count; i++)
        inherited_add(inherited, fds[i]);
    return got;
}

static bool receive_line(int fd, int64_t until_ms, struct buf *line, struct inherited *inherited, struct err *err)
{
    char block[65536];
    for (;;) {
        ssize_t got = receive(fd, block, sizeof block, inherited);
        if (got > 0)
            buf_put(line, block, (size_t)got);
        if (line->overflow)
            return err_set(err, ERR_UNAVAILABLE, "the reply is larger than %zu bytes", REPLY_MAX);
        if (line->len && line->at[line->len - 1] == '\n')
            return true;
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
            return err_set(err, ERR_UNAVAILABLE, "the gateway ended the connection before it replied");
        if (got < 0 && !wait_for(fd, POLLIN, until_ms, err))
            return false;
    }
}

// With `inherited`, sockets may come with the reply.
static json_t *exchange(int fd, const json_t *request, struct inherited *inherited, struct err *err)
{
    struct buf line = {.max = REPLY_MAX};
    int64_t until_ms = clock_now_ms() + PATIENCE_MS;
    char *text = json_dumps(request, JSON_COMPACT);
    buf_put_text(&line, text);
    buf_put_char(&line, '\n');
    free(text);
    bool sent = send_all(fd, buf_span(&line), until_ms, err);
    buf_clear(&line);
    bool received = sent && receive_line(fd, until_ms, &line, inherited, err);
    json_t *reply = received ? json_parse(buf_span(&line), "the gateway's reply", err) : NULL;
    buf_release(&line);
    return reply;
}

static void introduce(const json_t *reply, const char *path)
{
    const json_t *gateway = json_object_get(reply, "gateway");
    const char *configuration = json_string_value(json_object_get(gateway, "configuration"));
    (void)fail_with(EXIT_OK, "gateway with pid %" JSON_INTEGER_FORMAT " at %s, configuration %s",
                    json_integer_value(json_object_get(gateway, "pid")), path,
                    configuration ? configuration : "unknown");
}

static json_t *take_result(json_t *reply, int *exit_code)
{
    json_t *result = json_incref(json_object_get(reply, "result"));
    const char *reason = json_string_value(json_object_get(reply, "reason"));
    const char *error = json_string_value(json_object_get(reply, "error"));
    if (!json_is_true(json_object_get(reply, "ok"))) {
        bool config = reason && strcmp(reason, err_reason(ERR_CONFIG)) == 0;
        *exit_code =
            fail_with(config ? EXIT_CONFIG : EXIT_UNAVAILABLE, "%s", error ? error : "the gateway refused the request");
        json_decref(result);
        result = NULL;
    }
    json_decref(reply);
    return result;
}

// `path` may be NULL: no socket is known. Drops the reference to the request.
static json_t *ask_at(const char *path, json_t *request, struct err *err)
{
    int fd = path ? unix_socket_connect(path, err) : -1;
    json_t *reply = fd >= 0 ? exchange(fd, request, NULL, err) : NULL;
    if (fd >= 0)
        close(fd);
    json_decref(request);
    return reply;
}

json_t *gateway_ask(const struct flags *flags, json_t *request, int *exit_code)
{
    struct err err = {0};
    const char *why_none = NULL;
    char *path = find_socket(flags, &why_none, &err);
    if (err.code)
        (void)fail_with(EXIT_OK, "cannot read `control` in the configuration: %s; trying the default socket",
                        err.detail);
    json_t *reply = ask_at(path, request, &err);
    if (!path)
        *exit_code = fail_with(EXIT_UNAVAILABLE, "no control socket: %s", why_none);
    else if (!reply)
        *exit_code = fail_with(EXIT_UNAVAILABLE,
                               "no gateway answers at the control socket: %s; start one with 'postern serve', or name "
                               "another socket with --control PATH",
                               err.detail);
    else
        introduce(reply, path);
    free(path);
    return reply ? take_result(reply, exit_code) : NULL;
}

static bool has_configuration_of(const json_t *reply, const struct flags *flags)
{
    const char *theirs = json_string_value(json_object_get(json_object_get(reply, "gateway"), "configuration"));
    char *path = config_path(flags->config), *ours = path ? realpath(path, NULL) : NULL;
    bool same = theirs && ours && strcmp(theirs, ours) == 0;
    free(path);
    free(ours);
    return same;
}

json_t *gateway_ask_own(const struct flags *flags, json_t *request, int *exit_code)
{
    struct err err = {0};
    const char *why_none = NULL;
    char *path = find_socket(flags, &why_none, &err);
    json_t *reply = ask_at(path, request, &err);
    bool own = reply && has_configuration_of(reply, flags);
    if (own)
        introduce(reply, path);
    else
        json_decref(reply);
    free(path);
    return own ? take_result(reply, exit_code) : NULL;
}

// ---- replacing it ---------------------------------------------------------------------------

static json_t *ask_for(int fd, const char *operation, struct inherited *inherited, struct err *err)
{
    json_t *request = json_pack("{s:s}", "op", operation), *reply = exchange(fd, request, inherited, err);
    json_decref(request);
    return reply;
}

// Sockets of a process of another user are refused.
static bool is_ours(int fd, const char *path, struct err *err)
{
    struct unix_socket_peer peer;
    return (unix_socket_peer(fd, &peer) && peer.uid == geteuid()) ||
           err_set(err, ERR_CONFIG, "the gateway at %s runs as another user; replace it as that user", path);
}

static bool check_handover(const json_t *reply, const struct flags *flags, const char *path, struct err *err)
{
    const char *error = json_string_value(json_object_get(reply, "error"));
    if (!json_is_true(json_object_get(reply, "ok")))
        return err_set(err, ERR_UNAVAILABLE, "the running gateway cannot be replaced: %s",
                       error ? error : "it refused the request");
    return has_configuration_of(reply, flags) ||
           err_set(err, ERR_CONFIG,
                   "the gateway at %s runs with another configuration file; give --config that file to replace it",
                   path);
}

static bool take_over_at(const char *path, int fd, const struct flags *flags, struct inherited *inherited,
                         struct err *err)
{
    json_t *reply = is_ours(fd, path, err) ? ask_for(fd, "handover", inherited, err) : NULL;
    bool ok = reply && check_handover(reply, flags, path, err);
    json_decref(reply);
    return ok;
}

int gateway_take_over(const struct flags *flags, struct inherited *inherited, struct err *err)
{
    struct err why = {0};
    const char *why_none = NULL;
    char *path = find_socket(flags, &why_none, &why);
    int fd = path ? unix_socket_connect(path, &why) : -1;
    if (fd < 0 && !path)
        (void)err_set(err, ERR_UNAVAILABLE, "no gateway to replace, as no control socket is known: %s", why_none);
    else if (fd < 0)
        (void)err_set(err, ERR_UNAVAILABLE, "no gateway to replace at the control socket: %s; start without --replace",
                      why.detail);
    else if (!take_over_at(path, fd, flags, inherited, err)) {
        close(fd);
        fd = -1;
    }
    free(path);
    return fd;
}

// A gateway that does not reply has ended, or hangs. In both cases this process can serve its callers, so it goes on.
bool gateway_retire(int connection, struct err *err)
{
    struct err why = {0};
    json_t *reply = ask_for(connection, "retire", NULL, &why);
    const char *error = json_string_value(json_object_get(reply, "error"));
    bool refused = reply && !json_is_true(json_object_get(reply, "ok"));
    if (!reply)
        log_warn("the replaced gateway did not confirm", LOG_STR("detail", why.detail));
    if (refused)
        (void)err_set(err, ERR_UNAVAILABLE, "the running gateway was not replaced: %s",
                      error ? error : "it refused the request");
    json_decref(reply);
    close(connection);
    return !refused;
}
