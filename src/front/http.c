// Owns the HTTP face: a listener, and the life of each request (a visit).
//
// A visit that waits for the gate is suspended if the answer does not come soon (shard.c). What libmicrohttpd does not do is
// done by other files: absolute deadlines and minimum rates (its timeout is for silence only) by deadline.c, running again after
// a resume by shard.c, noticing that the caller hung up while suspended and waiting in TLS handshakes by caller.c.
#include "front/http.h"
#include "base/log.h"
#include "base/mem.h"
#include "extract.h"
#include "face.h"
#include "guard.h"
#include "mcp/message.h"
#include "page.h"
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#define SWEEP_MS 100
#define GONE_MS 1000
#define TLS_CHECK_MS 1000

void visit_resume(struct visit *visit)
{
    struct shard *shard = visit->caller->shard;
    if (visit->suspended) {
        visit->suspended = false;
        if (visit->state == VISIT_STREAMING)
            deadline_send(visit->caller);
        shard_resume(shard, visit->connection);
    } else if (list_linked(&visit->node)) {
        list_remove(&visit->node);
        shard_touch(shard);
    }
}

void visit_suspend(struct visit *visit)
{
    visit->suspended = true;
    deadline_none(visit->caller);
    MHD_suspend_connection(visit->connection);
}

void visit_abandon(struct caller *caller, const struct err *err)
{
    struct visit *visit = caller->visit;
    if (!visit || visit->state != VISIT_WAITING)
        return;
    gate_gone(visit->face->gate, &visit->arrival);
    page_gone(visit);
    visit_set_error(visit, err);
    visit_resume(visit);
}

// ---- requests -------------------------------------------------------------------------------

static const struct arrival_ops arrival_ops = {visit_on_answer, visit_on_stream};

static bool read_target(struct visit *visit, const char *url, const char *method, const struct guard_headers *headers,
                        struct err *err)
{
    struct span path = visit_path(url);
    bool mcp = visit_is_endpoint(path, "/mcp", &visit->arrival.profile);
    bool sse = span_is(path, "/sse"), messages = span_is(path, "/messages");
    bool post = strcmp(method, "POST") == 0, get = strcmp(method, "GET") == 0, end = strcmp(method, "DELETE") == 0;
    struct arrival *arrival = &visit->arrival;
    if (!mcp && !sse && !messages)
        return err_set(err, span_starts(path, "/mcp/") ? ERR_NO_PROFILE : ERR_NOT_FOUND, "%s %.200s", method, url);
    if ((mcp && !post && !get && !end) || (sse && !get) || (messages && !post))
        return err_set(err, ERR_BAD_METHOD, "%.20s %.200s", method, url);
    const char *in_query = MHD_lookup_connection_value(visit->connection, MHD_GET_ARGUMENT_KIND, "sessionId");
    arrival->session_id = headers->session_id;
    arrival->version = headers->version;
    arrival->last_event_id = headers->last_event_id;
    arrival->credentials.authorization = headers->authorization;
    if (post && (messages || (in_query && !headers->session_id.at))) {
        arrival->pipe = true;
        arrival->session_id = in_query ? span_of(in_query) : (struct span){0};
    }
    arrival->op = post                             ? ARRIVAL_MESSAGE
                  : end                            ? ARRIVAL_END
                  : sse || !headers->session_id.at ? ARRIVAL_PIPE
                                                   : ARRIVAL_LISTEN;
    if (arrival->op == ARRIVAL_PIPE)
        visit->endpoint = sse ? ENDPOINT_MESSAGES : ENDPOINT_MCP;
    return true;
}

static bool check_headers(const struct visit *visit, const struct guard_headers *headers, struct err *err)
{
    struct span accept = headers->accept[0].at ? headers->accept[0] : (struct span){"", 0};
    bool events = guard_accepts(headers, "text/event-stream");
    switch (visit->arrival.op) {
    case ARRIVAL_MESSAGE:
        if (!visit->arrival.pipe && (!events || !guard_accepts(headers, "application/json")))
            return err_set(err, ERR_NOT_ACCEPTABLE, "Accept: %.*s", SPAN_ARG(accept));
        if (!headers->content_type.at || !guard_is_json(headers->content_type))
            return err_set(err, ERR_MEDIA_TYPE, "Content-Type: %.*s", SPAN_ARG(headers->content_type));
        break;
    case ARRIVAL_LISTEN:
    case ARRIVAL_PIPE:
        if (!events)
            return err_set(err, ERR_NOT_ACCEPTABLE_GET, "Accept: %.*s", SPAN_ARG(accept));
        break;
    case ARRIVAL_UNREAD:
    case ARRIVAL_END: break;
    }
    return true;
}

static void begin_visit(struct visit *visit, const struct guard_line *line)
{
    struct http_face *face = visit->face;
    struct guard_headers headers;
    struct err err = {0};
    int64_t retry_ms;
    bool keys = visit_is_keys(visit, line);
    visit->http_1_0 = strcmp(line->version, MHD_HTTP_VERSION_1_0) == 0;
    visit->anywhere = keys || visit_is_metadata(visit, line);
    if (!guard_size(visit->connection, face->config, &err) || !guard_read(visit->connection, line, &headers, &err) ||
        !guard_host(face->config, &headers, &err) ||
        (!visit->anywhere && !guard_origin(face->config, &headers, &err))) {
        if (err.code == ERR_BAD_FRAMING)
            gate_refused(face->gate, visit->arrival.credentials.peer, err.code);
        visit_set_error(visit, &err);
        return;
    }
    visit->origin = headers.origin;
    visit->host = headers.host;
    extract_headers(visit->connection, provider_chain_headers(face->chain), &visit->arrival.credentials);
    if (strcmp(line->method, "OPTIONS") == 0) {
        visit->state = VISIT_ANSWERED;
        visit->answer.status = 204;
    } else if (keys) {
        visit_set_keys(visit);
    } else if (visit_is_health(line)) {
        visit_set_health(visit);
    } else if (visit->anywhere) {
        visit_set_metadata(visit);
    } else if (page_begin(visit, line, &headers)) {
        return;
    } else if (!read_target(visit, line->url, line->method, &headers, &err) || !check_headers(visit, &headers, &err) ||
               !visit_measure_body(visit, &headers, &err)) {
        visit_set_error(visit, &err);
    } else if (!gate_admit(face->gate, &visit->arrival, &retry_ms, &err)) {
        visit_refuse(visit, &err, retry_ms);
    } else {
        visit_begin_body(visit, &headers);
    }
}

static enum MHD_Result send_preflight(struct visit *visit)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, POST, DELETE");
    MHD_add_response_header(response, "Access-Control-Allow-Headers",
                            "Accept, Authorization, Content-Type, Last-Event-ID, Mcp-Session-Id, MCP-Protocol-Version");
    MHD_add_response_header(response, "Access-Control-Max-Age", "600");
    visit_add_cors(visit, response);
    return visit_queue(visit, 204, response);
}

static enum MHD_Result next_step(struct visit *visit)
{
    if (visit->state != VISIT_BODY)
        list_remove(&visit->caller->listening);
    switch (visit->state) {
    case VISIT_ANSWERED:
        deadline_send(visit->caller);
        if (visit->page)
            return page_send(visit);
        return visit->answer.status == 204 ? send_preflight(visit) : visit_send_answer(visit);
    case VISIT_STREAMING: deadline_send(visit->caller); return visit_send_stream(visit);
    case VISIT_WAITING: shard_wait(visit); return MHD_YES;
    case VISIT_BODY: break;
    }
    return MHD_YES;
}

static struct visit *visit_new(struct http_face *face, struct MHD_Connection *connection)
{
    struct visit *visit = mem_new(struct visit);
    struct caller *caller = caller_of(connection);
    if (face->tls && !caller->peer_known)
        tls_read_peer(connection, &caller->peer);
    caller->peer_known = true;
    caller->visit = visit;
    eviction_begin(caller);
    deadline_body(caller);
    visit->face = face;
    visit->connection = connection;
    visit->caller = caller;
    visit->arrival.ops = &arrival_ops;
    visit->arrival.arg = visit;
    visit->arrival.credentials.chain = face->chain;
    visit->arrival.credentials.local = face->listener.local;
    visit->arrival.credentials.peer = &caller->peer;
    return visit;
}

enum MHD_Result visit_on_request(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                                 const char *version, const char *upload, size_t *upload_size, void **state)
{
    struct visit *visit = *state;
    if (visit && list_linked(&visit->node))  // it still waits
        return MHD_YES;
    ((struct shard *)arg)->active = true;
    if (!visit) {
        *state = visit = visit_new(((struct shard *)arg)->face, connection);
        begin_visit(visit, &(struct guard_line){method, url, version});
        return visit->state == VISIT_ANSWERED ? next_step(visit) : MHD_YES;
    }
    if (visit->state == VISIT_BODY && *upload_size) {
        visit->received += *upload_size;
        visit_take_body(visit, span_make(upload, *upload_size));
        *upload_size = 0;
        return MHD_YES;
    }
    if (visit->state == VISIT_BODY) {
        deadline_none(visit->caller);
        if (visit->over) {
            visit->state = VISIT_ANSWERED;
        } else {
            visit->state = VISIT_WAITING;
            if (visit->page)
                page_arrive(visit);
            else
                gate_arrive(visit->face->gate, &visit->arrival);
        }
    }
    return next_step(visit);
}

static void visit_free(void *object)
{
    struct visit *visit = object;
    page_free(visit->page);
    buf_release(&visit->arrival.body);
    identity_unref(visit->arrival.who);
    buf_release(&visit->answer.body);
    blob_unref(visit->answer.large);
    buf_release(&visit->out);
    blob_unref(visit->large);
    free(visit);
}

void visit_on_completed(void *arg, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode why)
{
    (void)connection;
    (void)why;
    struct visit *visit = *state;
    ((struct shard *)arg)->active = true;
    if (!visit)
        return;
    struct http_face *face = visit->face;
    *state = NULL;
    list_remove(&visit->node);
    page_gone(visit);
    gate_gone(face->gate, &visit->arrival);
    budget_close(&visit->arrival.held);
    budget_close(&visit->held);
    if (visit->corked)
        caller_cork(visit->caller, false);
    list_remove(&visit->beat);
    if (visit->stream) {
        stream_detach(visit->stream, visit);
        loop_unwatch(face->loop, &visit->caller->hangup);
        stream_unref(visit->stream);
        if (visit->endpoint)  // an HTTP+SSE session lives as long as its stream
            gate_pipe_closed(face->gate, span_of(visit->session_id));
    }
    eviction_end(visit->caller);
    visit->caller->visit = NULL;
    deadline_idle(visit->caller);
    if (!list_linked(&visit->caller->listening))
        list_append(&face->listening, &visit->caller->listening);
    loop_reap(face->loop, visit, visit_free);
}

// ---- listening ------------------------------------------------------------------------------

static void on_sweep(struct loop_timer *timer)
{
    struct http_face *face = timer->arg;
    if (loop_now(face->loop) >= face->gone_ms) {
        caller_sweep_gone(face);
        shard_stop_empty(face);
        face->gone_ms = loop_now(face->loop) + GONE_MS;
    }
    accept_sweep(face);
    loop_timer_set(face->loop, timer, SWEEP_MS);
}

static void on_tls_check(struct loop_timer *timer)
{
    struct http_face *face = timer->arg;
    tls_check(face->tls);
    loop_timer_set(face->loop, timer, TLS_CHECK_MS);
}

static bool open_face(struct http_face *face, const struct config_listener *config, struct err *err)
{
    if (config->tls.certificate && !(face->tls = tls_new(face->config, config, err)))
        return false;
    return listener_open(&face->listener, config, err) && shard_start_first(face, err) && accept_start(face, err);
}

bool http_face_check(const struct config *config, struct err *err)
{
    const struct config_listener *listeners = config->listen.at;
    bool ok = true;
    for (size_t i = 0; ok && i < config->listen.count; i++) {
        struct tls *tls = listeners[i].tls.certificate ? tls_new(config, &listeners[i], err) : NULL;
        ok = tls || !listeners[i].tls.certificate;
        tls_free(tls);
    }
    return ok;
}

struct http_face *http_face_new(struct loop *loop, struct gate *gate, const char *address, struct err *err)
{
    struct http_face *face = mem_new(struct http_face);
    face->loop = loop;
    face->gate = gate;
    face->config = gate_config(gate);
    face->listener.fd = -1;
    face->sweep = (struct loop_timer){.on_due = on_sweep, .arg = face, .name = "http sweep"};
    face->tls_check = (struct loop_timer){.on_due = on_tls_check, .arg = face, .name = "certificate check"};
    face->heartbeat = (struct loop_timer){.on_due = visit_on_heartbeat, .arg = face, .name = "heartbeats"};
    face->accepted = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    list_init(&face->callers);
    list_init(&face->listening);
    list_init(&face->streams);
    list_init(&face->unauthenticated);
    list_init(&face->idle);
    const struct config_listener plain = {.address = (char *)(uintptr_t)address};
    const struct config_listener *config = config_listener(face->config, address);
    face->chain = gate_chain(gate, config);
    if (!open_face(face, config ? config : &plain, err)) {
        http_face_free(face);
        return NULL;
    }
    loop_timer_set(loop, &face->sweep, SWEEP_MS);
    if (face->tls)
        loop_timer_set(loop, &face->tls_check, TLS_CHECK_MS);
    log_info("listening", LOG_STR("url", face->listener.url));
    return face;
}

void http_face_reload(struct http_face *face)
{
    if (face->tls)
        tls_reload(face->tls);
}

bool http_face_failing(const struct http_face *face) { return face->tls && tls_failing(face->tls); }

void http_face_quiesce(struct http_face *face)
{
    face->quiesced = true;
    accept_stop(face);
    listener_release(&face->listener);
}

bool http_face_busy(const struct http_face *face)
{
    list_each(node, &face->callers) {
        const struct caller *caller = list_entry(node, struct caller, node);
        if (caller->visit && caller->visit->state >= VISIT_ANSWERED)
            return true;
    }
    return false;
}

// The library wants no suspended connection when it stops.
static void end_callers(struct http_face *face)
{
    struct err err;
    (void)err_set(&err, ERR_SHUTTING_DOWN, "stopped");
    list_each(node, &face->callers) {
        struct caller *caller = list_entry(node, struct caller, node);
        if (caller->parked)
            shutdown(caller->fd, SHUT_RDWR);  // so that it does not wait for more
        caller_unpark(caller);
        if (!caller->visit)
            continue;
        visit_abandon(caller, &err);
        if (caller->visit->stream)
            caller_close(caller);
        visit_resume(caller->visit);
    }
}

void http_face_free(struct http_face *face)
{
    if (!face)
        return;
    loop_timer_stop(face->loop, &face->sweep);
    loop_timer_stop(face->loop, &face->tls_check);
    loop_timer_stop(face->loop, &face->heartbeat);
    accept_stop(face);
    listener_release(&face->listener);
    end_callers(face);
    shard_stop_all(face);
    tls_free(face->tls);
    MHD_destroy_response(face->accepted);
    map_release(&face->sources);
    free(face);
}
