// Owns the HTTP face: a listener with its connections, composed of the other files of this folder.
//
// These files do what libmicrohttpd does not: deadline.c has absolute deadlines and minimum rates (the timeout of the
// library is for silence only), shard.c runs a daemon again after a resume, and caller.c notices that the caller of a
// suspended connection has disconnected and suspends waiting TLS handshakes.
#include "front/http.h"
#include "base/log.h"
#include "base/mem.h"
#include "face.h"
#include <stdlib.h>
#include <sys/socket.h>

#define SWEEP_MS 100
#define GONE_MS 1000

// ---- listening ------------------------------------------------------------------------------

static const struct shard_events events = {
    .on_request = request_on_request,
    .on_completed = request_on_completed,
    .on_connection = connection_on_change,
    .on_request_line = connection_on_request_line,
    .on_ran = caller_park_starved,
    .suspend = http_exchange_suspend,
};

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

static bool open_face(struct http_face *face, const struct http_face_spec *spec, struct err *err)
{
    const struct config_listener *listener = spec->listener;
    if (listener->tls.certificate && !(face->tls = tls_new(spec->config, listener, err)))
        return false;
    bool open = spec->predecessor ? listener_share(&face->listener, &spec->predecessor->listener, listener, err)
                                  : listener_open(&face->listener, listener, spec->inherited, err);
    return open && shard_start_first(face, err) && accept_start(face, err);
}

bool http_face_check(const struct config *config, const struct config_listener *listener, struct err *err)
{
    struct tls *tls = listener->tls.certificate ? tls_new(config, listener, err) : NULL;
    bool ok = tls || !listener->tls.certificate;
    tls_free(tls);
    return ok;
}

struct http_face *http_face_new(const struct http_face_spec *spec, struct err *err)
{
    struct http_face *face = mem_new(struct http_face);
    face->loop = spec->loop;
    face->gate = spec->gate;
    face->snapshot = config_ref(spec->config);
    face->config = config_front(face->snapshot);
    face->listener.fd = -1;
    face->events = &events;
    face->sweep = (struct loop_timer){.on_due = on_sweep, .arg = face, .name = "http sweep"};
    face->heartbeat = (struct loop_timer){.on_due = http_stream_on_heartbeat, .arg = face, .name = "heartbeats"};
    face->accepted = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    list_init(&face->callers);
    list_init(&face->listening);
    list_init(&face->streams);
    list_init(&face->unauthenticated);
    list_init(&face->idle);
    if (open_face(face, spec, err))
        return face;
    http_face_free(face);
    return NULL;
}

static void announce(const struct http_face *face) { log_info("listening", LOG_STR("url", face->listener.url)); }

void http_face_configure(struct http_face *face, const struct config_listener *listener, struct http_face *predecessor)
{
    bool is_new = !face->chains;
    const struct config *before = face->snapshot;
    face->snapshot = config_ref(gate_config(face->gate));
    face->config = config_front(face->snapshot);
    config_unref(before);
    config_chains_unref(face->chains);
    face->chains = config_chains_ref(gate_chains(face->gate));
    face->chain =
        config_chains_of(face->chains, face->snapshot, config_listener_find(face->snapshot, listener->address));
    if (predecessor)
        listener_take_over(&face->listener, &predecessor->listener, listener);
    if (!is_new)
        return;
    loop_timer_set(face->loop, &face->sweep, SWEEP_MS);
    announce(face);
}

int64_t http_face_descriptors(int64_t connections) { return shard_descriptors(connections); }

void http_face_poll(struct http_face *face)
{
    if (face->tls)
        tls_check(face->tls);
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
        if (caller->exchange && caller->exchange->state >= EXCHANGE_ANSWERED)
            return true;
    }
    return false;
}

// libmicrohttpd must not have suspended connections when it stops.
static void end_callers(struct http_face *face)
{
    struct err err;
    (void)err_set(&err, ERR_SHUTTING_DOWN, "the gateway is shutting down");
    list_each(node, &face->callers) {
        struct caller *caller = list_entry(node, struct caller, node);
        if (caller->parked)
            shutdown(caller->fd, SHUT_RDWR);  // so that the handshake does not wait for more bytes
        caller_unpark(caller);
        if (!caller->exchange)
            continue;
        abandon_request(caller, &err);
        if (caller->exchange->stream)
            caller_close(caller);
        http_exchange_resume(caller->exchange);
    }
}

void http_face_free(struct http_face *face)
{
    if (!face)
        return;
    loop_timer_stop(face->loop, &face->sweep);
    loop_timer_stop(face->loop, &face->heartbeat);
    accept_stop(face);
    listener_release(&face->listener);
    end_callers(face);
    shard_stop_all(face);
    tls_free(face->tls);
    config_chains_unref(face->chains);
    config_unref(face->snapshot);
    MHD_destroy_response(face->accepted);
    map_release(&face->sources);
    free(face);
}
