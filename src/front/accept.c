// Owns accepting connections: the listening socket in the loop, and the pause when no more connections can be opened.
//
//   ACCEPT_CLOSED   not listening (not yet, or no longer)
//   ACCEPT_OPEN     every connection is accepted
//   ACCEPT_FULL     limits.connections are open
//   ACCEPT_STARVED  the process or the system is out of descriptors
//
// ACCEPT_CLOSED never changes to ACCEPT_FULL or ACCEPT_STARVED. set_state() is the only function that changes the state,
// and it checks the transition.
//
// In the last two states, callers wait in the backlog of the socket. When a connection closes, accepting resumes at once.
// Descriptors are freed elsewhere too, so every sweep tries to resume. Resuming is logged only when connections and
// descriptors are well below their limits, so that a listener that stays close to a limit does not fill the log.
//
// libmicrohttpd 0.9.75 does not accept connections itself, for two reasons. It never accepts again after its connection
// limit or the descriptor limit was reached. And its buffer holds an IPv6 address, but it copies the full length of the
// caller's address, which is longer if the caller bound its own unix socket to a path.
#include "base/check.h"
#include "base/log.h"
#include "face.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS_A_TURN 64
#define SPARE_DESCRIPTORS 8
#define EVICTIONS_MS 10000

static const char *const hints[] = {
    [ACCEPT_FULL] = "raise limits.connections",
    [ACCEPT_STARVED] = "raise the limit on open files (LimitNOFILE= of a systemd unit, ulimit -Hn)",
};

#define TO(state) (1U << ACCEPT_##state)
#define PAUSED (TO(FULL) | TO(STARVED))

// A pause can follow a pause, if another connection takes the place that became free. accept_stop() may be called twice.
static const unsigned allowed[] = {
    [ACCEPT_CLOSED] = TO(CLOSED) | TO(OPEN),
    [ACCEPT_OPEN] = TO(CLOSED) | PAUSED,
    [ACCEPT_FULL] = TO(CLOSED) | TO(OPEN) | PAUSED,
    [ACCEPT_STARVED] = TO(CLOSED) | TO(OPEN) | PAUSED,
};

static size_t room(const struct http_face *face)
{
    size_t limit = (size_t)face->config.limits->connections;
    return limit > face->caller_count ? limit - face->caller_count : 0;
}

static void set_state(struct http_face *face, enum accept_state state, const char *why)
{
    enum accept_state before = face->accept.state;
    CHECK(allowed[before] & (1U << state));
    face->accept.state = state;
    if (state == before || state == ACCEPT_CLOSED || before == ACCEPT_CLOSED)
        return;
    if (state == ACCEPT_OPEN)
        log_info("accepting connections again", LOG_STR("url", face->listener.url),
                 LOG_INT("connections", (int64_t)face->caller_count));
    else
        log_warn("not accepting connections", LOG_STR("url", face->listener.url), LOG_STR("detail", why),
                 LOG_INT("connections", (int64_t)face->caller_count), LOG_STR("hint", hints[state]));
}

static void pause_accepting(struct http_face *face, enum accept_state state, const char *why)
{
    loop_unwatch(face->loop, &face->accept.watch);
    set_state(face, state, why);
}

static void go_on(struct http_face *face)
{
    struct err err;
    if (face->accept.state != ACCEPT_CLOSED && !loop_watch(face->loop, &face->accept.watch, LOOP_READ, &err))
        log_error("cannot watch a listener", LOG_STR("url", face->listener.url), LOG_STR("detail", err.detail));
}

static bool is_waiting(const struct http_face *face)
{
    struct pollfd waiting = {.fd = face->listener.fd, .events = POLLIN};
    return poll(&waiting, 1, 0) == 1;
}

// Closes another connection if a caller waits and the limit is reached. The library closes the evicted connection when it
// runs next, and accept_freed() resumes accepting.
static void make_room(struct http_face *face, enum accept_state state, const char *why)
{
    size_t before = face->caller_count;
    if (!is_waiting(face))
        return;
    if (!eviction_make_room(face))
        pause_accepting(face, state, why);
    else if (face->caller_count >= before)
        loop_unwatch(face->loop, &face->accept.watch);
}

// False: stop accepting in this turn.
static bool accept_one(struct http_face *face)
{
    struct sockaddr_storage address = {.ss_family = AF_UNIX};
    socklen_t len = sizeof address;
    if (!room(face)) {
        make_room(face, ACCEPT_FULL, "limits.connections is reached");
        return false;
    }
    int fd = accept4(face->listener.fd, (struct sockaddr *)&address, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        shard_add_connection(face, fd, (const struct sockaddr *)&address, len);
        return true;
    }
    switch (errno) {
    case EAGAIN: return false;
    case EMFILE:  // also returned if no caller waits
    case ENFILE:
    case ENOBUFS:
    case ENOMEM: make_room(face, ACCEPT_STARVED, strerror(errno)); return false;
    default: return true;  // this caller has disconnected already
    }
}

static void on_listener_ready(struct loop_watch *watch, unsigned events)
{
    (void)events;
    struct http_face *face = watch->arg;
    for (int i = 0; i < ACCEPTS_A_TURN && accept_one(face); i++)
        ;
}

bool accept_start(struct http_face *face, struct err *err)
{
    face->accept.watch =
        (struct loop_watch){.fd = face->listener.fd, .on_ready = on_listener_ready, .arg = face, .name = "accept"};
    set_state(face, ACCEPT_OPEN, NULL);
    return loop_watch(face->loop, &face->accept.watch, LOOP_READ, err);
}

void accept_freed(struct http_face *face) { go_on(face); }

// Can SPARE_DESCRIPTORS be opened?
static bool has_descriptors(const struct http_face *face)
{
    int some[SPARE_DESCRIPTORS], count = 0;
    while (count < SPARE_DESCRIPTORS && (some[count] = fcntl(face->listener.fd, F_DUPFD_CLOEXEC, 0)) >= 0)
        count++;
    for (int i = 0; i < count; i++)
        close(some[i]);
    return count == SPARE_DESCRIPTORS;
}

static void log_evictions(struct http_face *face)
{
    if (!face->evicted || loop_now(face->loop) < face->evicted_ms)
        return;
    log_warn("closed unauthenticated or idle connections to make room", LOG_STR("url", face->listener.url),
             LOG_INT("count", (int64_t)face->evicted), LOG_INT("connections", (int64_t)face->caller_count),
             LOG_STR("options", "limits.connections, limits.unauthenticated_connections"));
    face->evicted = 0;
    face->evicted_ms = loop_now(face->loop) + EVICTIONS_MS;
}

void accept_sweep(struct http_face *face)
{
    log_evictions(face);
    size_t spare = (size_t)face->config.limits->connections / 16 + 1;
    go_on(face);
    if (face->accept.state > ACCEPT_OPEN && room(face) >= spare && has_descriptors(face))
        set_state(face, ACCEPT_OPEN, NULL);
}

void accept_stop(struct http_face *face)
{
    loop_unwatch(face->loop, &face->accept.watch);
    set_state(face, ACCEPT_CLOSED, NULL);
}
