// Owns the libmicrohttpd daemons of a listener: each has a part of its connections (a shard), and runs inside the loop.
//
// libmicrohttpd 0.9.75 walks all suspended connections of a daemon whenever one of them is resumed, so that one daemon
// with thousands of idle streams slows down every call. A shard has few connections. Shards are started as connections
// come and stopped when they are empty; the first one stays, so that a connection finds a shard when the descriptors
// have run out.
//
// A daemon is in external epoll mode: its epoll descriptor is one watch of the loop. After a resume it must be run
// again, or it would wait for the next event.
//
// Suspending and resuming a connection costs three system calls, so a waiting request is not suspended at first. The
// library then calls back for it in each run, and asks to be run again at once, which is ignored if a run did nothing
// else. Requests are suspended when their shard has been quiet for QUIET_MS, so that the useless callbacks end soon. (A
// run may also have read a part of a request's head without a callback: the rest of that head waits for QUIET_MS at
// worst.)
#include "base/log.h"
#include "base/mem.h"
#include "face.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/socket.h>

#define POOL_RESERVE \
    4096                // of a connection's memory, for the library's notes on each header and for the answer's headers
#define RUNS_A_TURN 64  // each run moves about as much as the memory of a connection
#define QUIET_MS 5

// ---- running --------------------------------------------------------------------------------

void shard_run(struct shard *shard)
{
    if (shard->running)
        return;
    loop_task_drop(&shard->run);
    shard->running = true;
    do {
        shard->resumed = shard->active = false;
        MHD_run(shard->daemon);
        shard->face->events->on_ran(shard);
    } while (shard->resumed);
    shard->running = false;
    MHD_UNSIGNED_LONG_LONG timeout;
    struct loop *loop = shard->face->loop;
    if (MHD_get_timeout(shard->daemon, &timeout) != MHD_YES || timeout != 0)
        shard->again = 0;
    else if (!shard->active && !list_empty(&shard->waiting))
        loop_timer_set(loop, &shard->run_later, QUIET_MS);
    else if (shard->again++ < RUNS_A_TURN)
        loop_task_put(loop, &shard->run);
    else
        loop_timer_set(loop, &shard->run_later, 1);  // other events must have their turn, too
}

static void on_ready(struct loop_watch *watch, unsigned events)
{
    (void)events;
    shard_run(watch->arg);
}

static void on_run(struct loop_task *task) { shard_run(task->arg); }

static void on_run_later(struct loop_timer *timer)
{
    struct shard *shard = timer->arg;
    shard->again = 0;
    while (!list_empty(&shard->waiting)) {
        struct http_exchange *exchange = list_entry(shard->waiting.next, struct http_exchange, node);
        list_remove(&exchange->node);
        shard->face->events->suspend(exchange);
    }
    shard_run(shard);
}

void shard_wait(struct http_exchange *exchange)
{
    struct shard *shard = exchange->caller->shard;
    if (shard->face->tls)
        shard->face->events->suspend(exchange);  // the library may have read bytes that it does not report
    else
        list_append(&shard->waiting, &exchange->node);
}

void shard_resume(struct shard *shard, struct MHD_Connection *connection)
{
    MHD_resume_connection(connection);
    shard_touch(shard);
}

void shard_touch(struct shard *shard)
{
    shard->resumed = true;
    loop_task_put(shard->face->loop, &shard->run);
}

// ---- starting and stopping ------------------------------------------------------------------

static void on_panic(void *arg, const char *file, unsigned line, const char *reason)
{
    (void)arg;
    log_error("libmicrohttpd panic", LOG_STR("file", file), LOG_INT("line", line), LOG_STR("reason", reason));
    log_finish();
    abort();
}

static struct MHD_Daemon *start_daemon(struct shard *shard)
{
    struct MHD_OptionItem nothing[] = {{MHD_OPTION_END, 0, NULL}};
    bool tls = shard->face->tls != NULL;
    const struct shard_events *events = shard->face->events;
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET | (tls ? MHD_USE_TLS : 0U);
    MHD_set_panic_func(on_panic, NULL);
    return MHD_start_daemon(flags, 0, NULL, NULL, events->on_request, shard, MHD_OPTION_ARRAY,
                            tls ? tls_options : nothing, MHD_OPTION_NOTIFY_COMPLETED, events->on_completed, shard,
                            MHD_OPTION_NOTIFY_CONNECTION, events->on_connection, shard, MHD_OPTION_URI_LOG_CALLBACK,
                            events->on_request_line, shard, MHD_OPTION_CONNECTION_LIMIT, UINT_MAX,
                            MHD_OPTION_CONNECTION_TIMEOUT, 0U, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                            (size_t)shard->face->config.limits->max_header + POOL_RESERVE, MHD_OPTION_END);
}

static void stop(struct shard *shard)
{
    struct http_face *face = shard->face;
    face->shards[shard->index] = NULL;
    loop_unwatch(face->loop, &shard->ready);
    MHD_stop_daemon(shard->daemon);
    loop_task_drop(&shard->run);
    loop_timer_stop(face->loop, &shard->run_later);
    loop_reap(face->loop, shard, free);
}

static bool start(struct http_face *face, size_t index, struct err *err)
{
    struct shard *shard = mem_new(struct shard);
    shard->face = face;
    shard->index = index;
    shard->run = (struct loop_task){.run = on_run, .arg = shard, .name = "http connections"};
    shard->run_later = (struct loop_timer){.on_due = on_run_later, .arg = shard, .name = "http connections"};
    list_init(&shard->starved);
    list_init(&shard->waiting);
    shard->daemon = start_daemon(shard);
    if (!shard->daemon) {
        free(shard);
        return err_set(err, ERR_SYSTEM, "cannot start the HTTP server: %s", strerror(errno));
    }
    face->shards[index] = shard;
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(shard->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    shard->ready =
        (struct loop_watch){.fd = info->epoll_fd, .on_ready = on_ready, .arg = shard, .name = "http connections"};
    if (loop_watch(face->loop, &shard->ready, LOOP_READ, err))
        return true;
    stop(shard);
    return false;
}

bool shard_start_first(struct http_face *face, struct err *err) { return start(face, 0, err); }

void shard_stop_empty(struct http_face *face)
{
    for (size_t i = 1; i < SHARDS_MAX; i++)
        if (face->shards[i] && face->loads[i] == 0)
            stop(face->shards[i]);
}

void shard_stop_all(struct http_face *face)
{
    for (size_t i = 0; i < SHARDS_MAX; i++)
        if (face->shards[i])
            shard_run(face->shards[i]);
    for (size_t i = 0; i < SHARDS_MAX; i++)
        if (face->shards[i])
            stop(face->shards[i]);
}

int64_t shard_descriptors(int64_t connections)
{
    int64_t shards = connections / SHARD_FILL + 1;
    return connections + (shards < SHARDS_MAX ? shards : SHARDS_MAX);
}

// ---- choosing -------------------------------------------------------------------------------

// The first shard that is not full, so that few are in use; else a new one; else the one with the fewest connections.
static struct shard *choose(struct http_face *face)
{
    struct err err;
    size_t vacant = SHARDS_MAX, least = 0;
    for (size_t i = 0; i < SHARDS_MAX; i++) {
        if (!face->shards[i]) {
            vacant = vacant < i ? vacant : i;
            continue;
        }
        if (face->loads[i] < SHARD_FILL)
            return face->shards[i];
        if (face->loads[i] < face->loads[least])
            least = i;
    }
    return face->shards[vacant < SHARDS_MAX && start(face, vacant, &err) ? vacant : least];
}

// A refused descriptor is closed by the library.
void shard_add_connection(struct http_face *face, int fd, const struct sockaddr *address, socklen_t len)
{
    const struct sockaddr nameless = {.sa_family = AF_UNIX};
    bool named = address->sa_family != AF_UNIX;
    struct shard *shard = choose(face);
    if (MHD_add_connection(shard->daemon, fd, named ? address : &nameless, named ? len : sizeof nameless.sa_family) !=
        MHD_YES)
        log_warn("connection lost: the HTTP server refused it", LOG_STR("url", face->listener.url),
                 LOG_STR("detail", strerror(errno)));
    loop_task_put(face->loop, &shard->run);
}
