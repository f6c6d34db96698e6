// Owns the control socket: its connections, their bounds, and the requests that they bring.
//
//   READING ── a whole line ──► (the operation) ──► WRITING ── all of it written ──► closed
//      │                            │  ▲
//      │                    reload  ▼  │ applied or refused
//      │                          WAITING
//      └── no whole line within DEADLINE_MS: an error is the reply, as after a line that is too long
//
// A successor's connection is READING once more after the reply to its handover, for HANDOVER_MS.
//
// Only root and the gateway's own user are answered. The file's mode keeps others out already; the credentials of the process are
// checked as well, for a file whose mode was changed. What a connection holds is bounded: LINE_MAX in, REPLY_MAX out, and
// CONNECTIONS_MAX of them. Guarded by tests/e2e/operations/control.test.mjs.
#include "front/control/control.h"
#include "base/buf.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/reload.h"
#include "front/faces.h"
#include "gate/control.h"
#include "loop/inherited.h"
#include "loop/unix_socket.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 16
#define LINE_MAX_BYTES ((size_t)64 << 10)
#define REPLY_MAX_BYTES ((size_t)8 << 20)
#define DEADLINE_MS 5000   // for a request, and for a reply to be read
#define HANDOVER_MS 60000  // for a successor to become ready
#define STARVED_MS 1000    // without a descriptor for another connection

struct control {
    struct control_spec spec;
    char *configuration;  // the whole path, however the gateway was started
    char *path;
    struct unix_socket_file file;
    struct loop_watch listener;            // its descriptor is -1 once a successor has it
    struct control_connection *successor;  // that has the listening sockets too; NULL: none
    struct loop_timer starved;
    struct list connections;
    size_t count;
};

struct control_connection {
    struct list node;
    struct control *control;
    struct loop_watch watch;
    struct loop_timer deadline;
    struct reload_waiter waiter;
    struct unix_socket_peer peer;
    struct buf in, out;
    bool too_long;  // the request line is, and its rest is not kept
    size_t written;
    bool hands_over;  // the reply carries the listening sockets, and another request follows
};

// ---- the end of a connection ----------------------------------------------------------------

static void connection_free(void *object)
{
    struct control_connection *connection = object;
    buf_release(&connection->in);
    buf_release(&connection->out);
    free(connection);
}

// Changes of the configuration were refused meanwhile, so it is read again.
static void abandon_handover(struct control_connection *connection)
{
    connection->control->successor = NULL;
    log_warn("gateway not replaced: its successor disconnected", LOG_INT("pid", connection->peer.pid));
    reload_now(connection->control->spec.reload, NULL);
}

static void hang_up(struct control_connection *connection)
{
    struct loop *loop = connection->control->spec.loop;
    if (connection == connection->control->successor)
        abandon_handover(connection);
    loop_unwatch(loop, &connection->watch);
    loop_timer_stop(loop, &connection->deadline);
    list_remove(&connection->waiter.node);
    list_remove(&connection->node);
    connection->control->count--;
    close(connection->watch.fd);
    loop_reap(loop, connection, connection_free);
}

// ---- replies --------------------------------------------------------------------------------

static void watch_for(struct control_connection *connection, unsigned events)
{
    struct err err;
    if (!loop_watch(connection->control->spec.loop, &connection->watch, events, &err))
        hang_up(connection);
}

static size_t list_sockets(const struct control *control, int fds[UNIX_SOCKET_FDS_MAX])
{
    fds[0] = control->listener.fd;
    return 1 + faces_sockets(control->spec.faces, fds + 1, UNIX_SOCKET_FDS_MAX - 1);
}

static ssize_t send_reply(const struct control_connection *connection)
{
    int fds[UNIX_SOCKET_FDS_MAX];
    bool first = connection->hands_over && connection->written == 0;
    return unix_socket_send(connection->watch.fd, span_after(buf_span(&connection->out), connection->written), fds,
                            first ? list_sockets(connection->control, fds) : 0);
}

static void await_retire(struct control_connection *connection)
{
    connection->hands_over = false;
    connection->written = 0;
    buf_clear(&connection->in);
    buf_clear(&connection->out);
    loop_timer_set(connection->control->spec.loop, &connection->deadline, HANDOVER_MS);
    watch_for(connection, LOOP_READ);
}

static void write_reply(struct control_connection *connection)
{
    struct buf *out = &connection->out;
    ssize_t sent = send_reply(connection);
    if (sent > 0)
        connection->written += (size_t)sent;
    if (connection->written == out->len && connection->hands_over)
        await_retire(connection);
    else if (connection->written == out->len || (sent < 0 && errno != EAGAIN && errno != EINTR))
        hang_up(connection);
    else
        watch_for(connection, LOOP_WRITE);
}

static json_t *about(const struct control *control)
{
    return json_pack("{s:i,s:s,s:s?}", "pid", (int)getpid(), "version", POSTERN_VERSION, "configuration",
                     control->configuration);
}

// Takes over the reference.
static void reply(struct control_connection *connection, json_t *body)
{
    json_object_set_new(body, "gateway", about(connection->control));
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    if (!text || strlen(text) > REPLY_MAX_BYTES)
        buf_printf(&connection->out,
                   "{\"ok\":false,\"reason\":\"too_large\",\"error\":\"the reply is larger than %zu bytes\"}",
                   REPLY_MAX_BYTES);
    else
        buf_put_text(&connection->out, text);
    buf_put_char(&connection->out, '\n');
    free(text);
    loop_timer_set(connection->control->spec.loop, &connection->deadline, DEADLINE_MS);
    write_reply(connection);
}

static void reply_error(struct control_connection *connection, const struct err *err)
{
    // A detail may hold bytes of the request that are not UTF-8, which jansson does not print.
    json_t *text = json_string(err->detail);
    reply(connection, json_pack("{s:b,s:s,s:o}", "ok", 0, "reason", err_reason(err->code), "error",
                                text ? text : json_string(err_text(err->code))));
}

static void reply_result(struct control_connection *connection, json_t *result)
{
    reply(connection, json_pack("{s:b,s:o}", "ok", 1, "result", result));
}

// The result; NULL: the error.
static void reply_with(struct control_connection *connection, json_t *result, const struct err *err)
{
    if (result)
        reply_result(connection, result);
    else
        reply_error(connection, err);
}

// ---- operations -----------------------------------------------------------------------------

struct actor {
    struct gate_control_actor as;
    char subject[32], from[32];
};

static const struct gate_control_actor *actor_of(const struct control_connection *connection, struct actor *actor)
{
    snprintf(actor->subject, sizeof actor->subject, "uid:%lu", (unsigned long)connection->peer.uid);
    snprintf(actor->from, sizeof actor->from, "pid:%ld", (long)connection->peer.pid);
    actor->as = (struct gate_control_actor){"os", actor->subject, actor->from};
    return &actor->as;
}

static void run_status(struct control_connection *connection, const json_t *request)
{
    (void)request;
    const struct control_spec *spec = &connection->control->spec;
    const char *problem = reload_problem(spec->reload);
    json_t *status = gate_control_status(spec->gate), *listeners = json_array();
    json_t *configuration = json_object_get(status, "configuration");
    for (size_t i = 0; i < faces_count(spec->faces); i++)
        json_array_append_new(listeners, json_string(faces_url(spec->faces, i)));
    json_object_set_new(status, "listeners", listeners);
    json_object_set_new(configuration, "problem", *problem ? json_string(problem) : json_null());
    reply_result(connection, status);
}

// NULL: the request does not name a tenant.
static bool read_tenant(const json_t *request, const char **tenant, struct err *err)
{
    const json_t *given = json_object_get(request, "tenant");
    *tenant = json_string_value(given);
    return *tenant || !given || json_is_null(given) ||
           err_set(err, ERR_INVALID_REQUEST, "\"tenant\" must be the name of a tenant");
}

static void run_servers(struct control_connection *connection, const json_t *request)
{
    struct err err = {0};
    const char *tenant;
    json_t *servers =
        read_tenant(request, &tenant, &err) ? gate_control_servers(connection->control->spec.gate, tenant, &err) : NULL;
    reply_with(connection, servers, &err);
}

static bool read_target(const json_t *request, struct gate_control_target *target, struct err *err)
{
    const char *tenant;
    if (!read_tenant(request, &tenant, err))
        return false;
    target->tenant = tenant ? tenant : "default";
    target->server = json_string_value(json_object_get(request, "server"));
    return target->server || err_set(err, ERR_INVALID_REQUEST, "\"server\" must be the name of a server");
}

static void run_logs(struct control_connection *connection, const json_t *request)
{
    struct err err = {0};
    struct gate_control_target target;
    json_t *logs =
        read_target(request, &target, &err) ? gate_control_logs(connection->control->spec.gate, &target, &err) : NULL;
    reply_with(connection, logs, &err);
}

static void run_change(struct control_connection *connection, const json_t *request, gate_control_change *change)
{
    struct err err = {0};
    struct actor actor;
    struct gate_control_target target;
    json_t *result = read_target(request, &target, &err)
                         ? change(connection->control->spec.gate, actor_of(connection, &actor), &target, &err)
                         : NULL;
    reply_with(connection, result, &err);
}

static void on_reloaded(struct reload_waiter *waiter, bool ok, const char *text)
{
    struct control_connection *connection = waiter->arg;
    struct actor actor;
    struct err err = {0};
    if (!ok)
        (void)err_set(&err, ERR_CONFIG, "%s", text);
    gate_control_record(connection->control->spec.gate, actor_of(connection, &actor), "reload", NULL, ok ? NULL : &err);
    reply_with(connection, ok ? json_pack("{s:s}", "changes", text) : NULL, &err);
}

// The connection is not watched meanwhile. A peer that has gone is detected when the reply is written.
static void run_reload(struct control_connection *connection, const json_t *request)
{
    (void)request;
    struct control *control = connection->control;
    connection->waiter.done = on_reloaded;
    connection->waiter.arg = connection;
    faces_reload(control->spec.faces);
    reload_now(control->spec.reload, &connection->waiter);
}

// The user must be the same: a gateway that root starts would serve the same callers with other rights.
static bool may_hand_over(const struct control_connection *connection, struct err *err)
{
    const struct control *control = connection->control;
    int fds[UNIX_SOCKET_FDS_MAX];
    size_t count = list_sockets(control, fds);
    if (control->spec.permanent)
        return err_set(err, ERR_INVALID_REQUEST, "%s", control->spec.permanent);
    if (connection->peer.uid != geteuid())
        return err_set(err, ERR_DENIED, "only a process of the user that the gateway runs as may replace it");
    if (control->successor)
        return err_set(err, ERR_TOO_MANY, "the process %ld is replacing this gateway already",
                       (long)control->successor->peer.pid);
    if (count == 1)
        return err_set(err, ERR_SHUTTING_DOWN, "the gateway is stopping");
    return count <= UNIX_SOCKET_FDS_MAX ||
           err_set(err, ERR_TOO_LARGE, "the gateway has more than %d listeners; stop it and start another one",
                   UNIX_SOCKET_FDS_MAX - 1);
}

static void run_handover(struct control_connection *connection, const json_t *request)
{
    (void)request;
    struct err err;
    if (!may_hand_over(connection, &err)) {
        reply_error(connection, &err);
        return;
    }
    log_info("another process is replacing this gateway", LOG_INT("pid", connection->peer.pid));
    connection->control->successor = connection;
    connection->hands_over = true;
    reply_result(connection, json_object());
}

static void stop_listening(struct control *control)
{
    loop_unwatch(control->spec.loop, &control->listener);
    loop_timer_stop(control->spec.loop, &control->starved);
    unix_socket_remove(&control->file);
    if (control->listener.fd >= 0)
        close(control->listener.fd);
    control->listener.fd = -1;
}

static void run_retire(struct control_connection *connection, const json_t *request)
{
    (void)request;
    struct control *control = connection->control;
    struct actor actor;
    struct err err;
    int fds[UNIX_SOCKET_FDS_MAX];
    if (control->successor != connection || list_sockets(control, fds) == 1) {
        (void)err_set(&err, ERR_INVALID_REQUEST, "the gateway is stopping, or has not handed over its sockets");
        reply_error(connection, &err);
        return;
    }
    log_info("replaced", LOG_INT("pid", connection->peer.pid));
    gate_control_record(control->spec.gate, actor_of(connection, &actor), "replace", NULL, NULL);
    control->successor = NULL;
    control_leave_file(control);
    stop_listening(control);
    reply_result(connection, json_object());
    control->spec.replaced(control->spec.arg);
}

static const struct operation {
    const char *name;
    void (*run)(struct control_connection *connection, const json_t *request);  // replies, at once or later
    gate_control_change *change;                                                // instead: of one server
} operations[] = {
    {"status", run_status, NULL},
    {"servers", run_servers, NULL},
    {"logs", run_logs, NULL},
    {"reload", run_reload, NULL},
    {"restart", NULL, gate_control_restart},
    {"disable", NULL, gate_control_disable},
    {"enable", NULL, gate_control_enable},
    {"handover", run_handover, NULL},
    {"retire", run_retire, NULL},
};

static const struct operation *find_operation(const char *name)
{
    for (size_t i = 0; name && i < sizeof operations / sizeof *operations; i++)
        if (strcmp(operations[i].name, name) == 0)
            return &operations[i];
    return NULL;
}

static void run_request(struct control_connection *connection, struct span line)
{
    struct err err = {0};
    json_t *request = json_parse(line, "request", &err);
    const char *name = json_string_value(json_object_get(request, "op"));
    const struct operation *operation = find_operation(name);
    if (request && !operation)
        (void)err_set(&err, ERR_INVALID_REQUEST,
                      "\"op\" must be the name of an operation; this gateway has no \"%.64s\"", name ? name : "");
    if (!operation)
        reply_error(connection, &err);
    else if (operation->change)
        run_change(connection, request, operation->change);
    else
        operation->run(connection, request);
    json_decref(request);
}

// ---- requests -------------------------------------------------------------------------------

static void refuse(struct control_connection *connection, enum err_code code, const char *why)
{
    struct err err;
    (void)err_set(&err, code, "%s", why);
    reply_error(connection, &err);
}

static void on_request(struct control_connection *connection, const char *end)
{
    struct loop *loop = connection->control->spec.loop;
    loop_unwatch(loop, &connection->watch);
    loop_timer_stop(loop, &connection->deadline);
    if (connection->too_long)
        refuse(connection, ERR_TOO_LARGE, "a request is one line of at most 64 KiB");
    else
        run_request(connection, span_make(connection->in.at, (size_t)(end - connection->in.at)));
}

static void read_request(struct control_connection *connection)
{
    char block[4096];
    struct buf *in = &connection->in;
    ssize_t got = recv(connection->watch.fd, block, sizeof block, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        hang_up(connection);
        return;
    }
    buf_put(in, block, (size_t)got);
    const char *end = memchr(in->at, '\n', in->len);
    connection->too_long = connection->too_long || (end ? (size_t)(end - in->at) : in->len) > LINE_MAX_BYTES;
    if (end)
        on_request(connection, end);
    else if (connection->too_long)
        buf_clear(in);
}

static void on_ready(struct loop_watch *watch, unsigned events)
{
    (void)events;
    struct control_connection *connection = watch->arg;
    if (connection->out.len)
        write_reply(connection);
    else
        read_request(connection);
}

static void on_deadline(struct loop_timer *timer)
{
    struct control_connection *connection = timer->arg;
    if (connection->out.len)
        hang_up(connection);
    else
        refuse(connection, ERR_INVALID_REQUEST, "no complete request line arrived in time");
}

// ---- connections ----------------------------------------------------------------------------

static struct control_connection *connection_new(struct control *control, int fd)
{
    struct control_connection *connection = mem_new(struct control_connection);
    connection->control = control;
    connection->watch = (struct loop_watch){.fd = fd, .on_ready = on_ready, .arg = connection, .name = "control"};
    connection->deadline = (struct loop_timer){.on_due = on_deadline, .arg = connection, .name = "control"};
    list_append(&control->connections, &connection->node);
    control->count++;
    return connection;
}

static void welcome(struct control_connection *connection)
{
    if (!unix_socket_peer(connection->watch.fd, &connection->peer) ||
        (connection->peer.uid != 0 && connection->peer.uid != geteuid())) {
        log_warn("control connection refused: its process runs as another user", LOG_INT("uid", connection->peer.uid),
                 LOG_INT("pid", connection->peer.pid));
        refuse(connection, ERR_DENIED, "only root and the user that the gateway runs as may use its control socket");
    } else if (connection->control->count > CONNECTIONS_MAX) {
        refuse(connection, ERR_TOO_MANY, "too many connections to the control socket are open; try again in 5 s");
    } else {
        loop_timer_set(connection->control->spec.loop, &connection->deadline, DEADLINE_MS);
        watch_for(connection, LOOP_READ);
    }
}

static void on_accept(struct loop_watch *watch, unsigned events)
{
    (void)events;
    struct control *control = watch->arg;
    int fd = accept4(watch->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        welcome(connection_new(control, fd));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        loop_unwatch(control->spec.loop, watch);
        loop_timer_set(control->spec.loop, &control->starved, STARVED_MS);
    }
}

static void on_starved(struct loop_timer *timer)
{
    struct control *control = timer->arg;
    struct err err;
    if (!loop_watch(control->spec.loop, &control->listener, LOOP_READ, &err))
        log_error("control socket not watched", LOG_STR("detail", err.detail));
}

struct control *control_new(const struct control_spec *spec, const char *path, struct err *err)
{
    struct unix_socket_file file = {0};
    int fd = inherited_take_path(spec->inherited, path);
    if (fd < 0 && (fd = unix_socket_listen(&file, path, 0600, err)) < 0)
        return NULL;
    struct control *control = mem_new(struct control);
    control->spec = *spec;
    control->configuration = spec->configuration ? realpath(spec->configuration, NULL) : NULL;
    control->path = mem_string(path);
    control->file = file;
    control->listener = (struct loop_watch){.fd = fd, .on_ready = on_accept, .arg = control, .name = "control"};
    control->starved = (struct loop_timer){.on_due = on_starved, .arg = control, .name = "control"};
    list_init(&control->connections);
    if (!loop_watch(spec->loop, &control->listener, LOOP_READ, err)) {
        control_free(control);
        return NULL;
    }
    log_info("control socket open", LOG_STR("path", path));
    return control;
}

void control_own_file(struct control *control)
{
    if (control && !control->file.path && !unix_socket_adopt(&control->file, control->listener.fd, control->path))
        log_warn("control socket removed by another process", LOG_STR("path", control->path));
}

void control_leave_file(struct control *control)
{
    if (control)
        unix_socket_leave(&control->file);
}

bool control_hands_over(const struct control *control) { return control && control->successor; }
int control_socket(const struct control *control) { return control ? control->listener.fd : -1; }

void control_free(struct control *control)
{
    if (!control)
        return;
    stop_listening(control);
    control->successor = NULL;
    while (!list_empty(&control->connections))
        hang_up(list_entry(control->connections.next, struct control_connection, node));
    free(control->configuration);
    free(control->path);
    free(control);
}
