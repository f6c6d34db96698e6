// Owns `postern serve`: loop, gate and faces put together, signals, and stopping.
#include "base/log.h"
#include "base/mem.h"
#include "cmd.h"
#include "front/http.h"
#include "front/stdio.h"
#include <signal.h>
#include <stdlib.h>

#define LINGER_MS 20

struct serve {
    struct config *config;
    struct loop *loop;
    struct http_client *http;
    struct gate *gate;
    struct http_face *faces[16];
    size_t face_count;
    struct stdio_face *stdio;
    bool stopping;
    int64_t stop_by_ms;
    struct loop_timer linger;
};

// The gate is closed; answers that are on their way may still arrive.
static void on_stopped(void *arg)
{
    struct serve *serve = arg;
    bool busy = false;
    for (size_t i = 0; i < serve->face_count; i++)
        busy = busy || http_face_busy(serve->faces[i]);
    if (busy && loop_now(serve->loop) < serve->stop_by_ms)
        loop_timer_set(serve->loop, &serve->linger, LINGER_MS);
    else
        loop_stop(serve->loop);
}

static void on_linger(struct loop_timer *timer) { on_stopped(timer->arg); }

static void stop(struct serve *serve, const char *why)
{
    if (serve->stopping)
        return;
    serve->stopping = true;
    serve->stop_by_ms = loop_now(serve->loop) + serve->config->timeouts.shutdown_ms;
    serve->linger = (struct loop_timer){.on_due = on_linger, .arg = serve};
    log_info("stopping", LOG_STR("why", why));
    for (size_t i = 0; i < serve->face_count; i++)
        http_face_quiesce(serve->faces[i]);
    gate_shutdown(serve->gate, on_stopped, serve);
}

static void on_signal(void *arg, int signal)
{
    if (signal == SIGHUP)
        log_info("SIGHUP: nothing to reload");
    else
        stop(arg, signal == SIGINT ? "SIGINT" : "SIGTERM");
}

static void on_stdio_end(void *arg)
{
    struct serve *serve = arg;
    if (serve->face_count == 0)
        stop(serve, "end of input");
    else
        stdio_face_close(serve->stdio);  // the callers over HTTP go on
}

static bool add_face(struct serve *serve, const char *address, struct err *err)
{
    if (serve->face_count == sizeof serve->faces / sizeof *serve->faces)
        return err_set(err, ERR_CONFIG, "more than %zu listeners", serve->face_count);
    struct buf flag = {0};
    buf_printf(&flag, "--listen %s", address);
    bool may = config_may_listen(serve->config, address, &(struct option_place){"serve", buf_text(&flag), true}, err);
    buf_release(&flag);
    if (!may)
        return false;
    struct http_face *face = http_face_new(serve->loop, serve->gate, address, err);
    if (face)
        serve->faces[serve->face_count++] = face;
    return face != NULL;
}

static bool open_faces(struct serve *serve, const struct flags *flags, struct err *err)
{
    const struct config_listener *listeners = serve->config->listen.at;
    if (flags->stdio && !(serve->stdio = stdio_face_new(serve->loop, serve->gate, on_stdio_end, serve, err)))
        return false;
    if (flags->listen)
        return add_face(serve, flags->listen, err);
    for (size_t i = 0; i < serve->config->listen.count; i++)
        if (!add_face(serve, listeners[i].address, err))
            return false;
    return serve->config->listen.count || flags->stdio || add_face(serve, "127.0.0.1:8080", err);
}

static bool start(struct serve *serve, const struct flags *flags, struct err *err)
{
    return (serve->loop = loop_new(err)) && loop_on_signal(serve->loop, on_signal, serve, err) &&
           (serve->http = http_client_new(serve->loop, err)) &&
           (serve->gate = gate_new(serve->loop, serve->http, serve->config)) && open_faces(serve, flags, err);
}

static int run(const struct flags *flags)
{
    struct serve serve = {0};
    struct err err = {0};
    int code = EXIT_OK;
    if (!(serve.config = cmd_config(flags, &code)))
        return code;
    log_setup((enum log_level)serve.config->log.level, (enum log_format)serve.config->log.format);
    if (start(&serve, flags, &err)) {
        loop_run(serve.loop);
        log_info("stopped");
    } else {
        code = cmd_fail_err(&err);
    }
    for (size_t i = 0; i < serve.face_count; i++)
        http_face_free(serve.faces[i]);
    stdio_face_free(serve.stdio);
    gate_free(serve.gate);
    http_client_free(serve.http);
    loop_free(serve.loop);
    config_free(serve.config);
    return code;
}

static const struct flag flags_table[] = {
    FLAG_CONFIG,
    {"listen", "ADDR:PORT", FLAG(listen), "Listen here instead of where the configuration says; port 0 picks one"},
    {"stdio", NULL, FLAG(stdio), "Serve one caller on standard input and output (and HTTP, if it is configured)"},
    {0},
};

const struct command command_serve = {
    .name = "serve",
    .synopsis = "serve [--config FILE] [--listen ADDR:PORT] [--stdio]",
    .summary = "Run the gateway",
    .details = "SIGINT and SIGTERM stop it: calls in flight may finish, then servers are ended, all within\n"
               "timeouts.shutdown. The log goes to standard error.",
    .flags = flags_table,
    .run = run,
};
