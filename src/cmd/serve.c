// Owns `postern serve`: loop, gate and faces put together, signals, and stopping.
#include "base/log.h"
#include "base/mem.h"
#include "cmd/base/configuration.h"
#include "cmd/base/fail.h"
#include "cmd/base/grants.h"
#include "command_list.h"
#include "config/reload.h"
#include "front/http.h"
#include "front/stdio.h"
#include "gate/gate.h"
#include "loop/http_client.h"
#include "loop/offload.h"
#include "preflight.h"
#include "store/audit/audit.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define LINGER_MS 20
#define SLOW_POLLS 2          // after how many polls certificates are looked at, and credentials that expired
#define SERVER_DESCRIPTORS 5  // of one process or connection
#define OWN_DESCRIPTORS 64
#define BACKGROUND_JOBS 1024

struct serve {
    struct config *config;
    struct loop *loop;
    struct http_client *http;
    struct offload *background;  // for large messages
    struct gate *gate;
    struct provider_chain **chains;  // the one at the top, then those of listeners, or NULL
    struct audit *audit;
    struct grant_store *tokens;  // NULL: no server needs it
    struct reload *reload;
    unsigned polls;
    struct http_face *faces[16];
    size_t face_count;
    struct stdio_face *stdio;
    bool stopping;
    struct err refused;  // why it did not start, or standard input was not let in
    int64_t stop_by_ms;
    struct loop_timer linger;
    struct loop_watch log;
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
    serve->linger = (struct loop_timer){.on_due = on_linger, .arg = serve, .name = "shutdown"};
    log_info("stopping", LOG_STR("why", why));
    for (size_t i = 0; i < serve->face_count; i++)
        http_face_quiesce(serve->faces[i]);
    gate_shutdown(serve->gate, on_stopped, serve);
}

static bool open_audit(struct serve *serve, const struct flags *flags, struct err *err)
{
    if (!config_audited(serve->config))
        return true;
    if (flags->stdio && serve->config->audit.jsonl && strcmp(serve->config->audit.jsonl, "-") == 0)
        return err_set(err, ERR_CONFIG,
                       "/audit/jsonl: with --stdio standard output belongs to the caller; name a file");
    return (serve->audit = audit_open(serve->loop, &serve->config->audit, err)) != NULL;
}

// ---- what the reload reports ----------------------------------------------------------------

static void on_policy(void *arg, size_t tenant, struct policy *policy)
{
    struct serve *serve = arg;
    if (policy)
        gate_set_policy(serve->gate, tenant, policy);
    else
        gate_health_policy_failed(serve->gate, tenant);
}

static void on_credentials(void *arg, bool changed, bool failing)
{
    struct serve *serve = arg;
    gate_health_credentials_failed(serve->gate, failing);
    if (changed)
        gate_recheck_identities(serve->gate);
}

static void on_polled(void *arg)
{
    struct serve *serve = arg;
    bool slow = ++serve->polls % SLOW_POLLS == 0, failing = false;
    for (size_t i = 0; i < serve->face_count; i++) {
        if (slow)
            http_face_poll(serve->faces[i]);
        failing = failing || http_face_failing(serve->faces[i]);
    }
    gate_health_certificates_failed(serve->gate, failing);
    if (slow)
        gate_recheck_identities(serve->gate);
    (void)log_flush();  // reports lines that were left out, when their window has ended
}

static const struct reload_events reload_events = {on_policy, on_credentials, on_polled};

static bool open_auth(struct serve *serve, struct err *err)
{
    struct provider_world world = {serve->loop, serve->http, serve->config->folder};
    struct reload_spec spec = {serve->loop, serve->config, serve->audit, &reload_events, serve};
    return (serve->reload = reload_new(&spec, err)) &&
           (serve->chains = preflight_chains(serve->config, &world, err)) != NULL;
}

// Only where some server needs it: a gateway without grants makes no files.
static bool open_tokens(struct serve *serve, struct err *err)
{
    bool needed = preflight_needs_store(serve->config);
    if (needed && serve->config->store.seed)
        log_warn("the store is a seed: tokens that are refreshed are kept in memory, and lost at the end",
                 LOG_STR("seed", serve->config->store.seed));
    return !needed || grants_open(serve->config, serve->loop, true, &serve->tokens, err);
}

static void on_signal(void *arg, int signal)
{
    struct serve *serve = arg;
    if (signal == SIGHUP) {
        log_info("SIGHUP: policy, credentials and certificates are read again");
        for (size_t i = 0; i < serve->face_count; i++)
            http_face_reload(serve->faces[i]);
        reload_now(serve->reload);
    } else
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

static void on_stdio_refused(void *arg, const struct err *err)
{
    struct serve *serve = arg;
    if (!serve->stopping)
        serve->refused = *err;
    stop(serve, "standard input is not let in");
}

static bool add_face(struct serve *serve, const char *address, struct err *err)
{
    if (serve->face_count == sizeof serve->faces / sizeof *serve->faces)
        return err_set(err, ERR_CONFIG, "more than %zu listeners", serve->face_count);
    struct buf flag = {0};
    buf_printf(&flag, "--listen %s", address);
    bool may = config_listener_may_listen(serve->config, address,
                                          &(struct option_place){.file = "serve", .path = buf_text(&flag)}, err);
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
    struct stdio_spec stdio = {flags->profile, on_stdio_end, on_stdio_refused, serve};
    if (flags->stdio && !(serve->stdio = stdio_face_new(serve->loop, serve->gate, &stdio, err)))
        return false;
    if (flags->listen)
        return add_face(serve, flags->listen, err);
    for (size_t i = 0; i < serve->config->listen.count; i++)
        if (!add_face(serve, listeners[i].address, err))
            return false;
    return serve->config->listen.count || flags->stdio || add_face(serve, "127.0.0.1:8080", err);
}

static struct gate *make_gate(struct serve *serve)
{
    struct gate_parts parts = {serve->loop,
                               serve->http,
                               serve->config,
                               serve->chains,
                               serve->audit,
                               serve->tokens,
                               reload_policies(serve->reload),
                               serve->background};
    reload_start(serve->reload, serve->chains, serve->config->listen.count + 1);
    return gate_new(&parts);
}

static void warn_of_server(void *arg, const char *place, const struct err *err)
{
    (void)arg;
    log_warn("a server cannot work as it is configured", LOG_STR("place", place), LOG_STR("detail", err->detail));
}

// Each connection takes a descriptor, and the usual soft limit of 1024 is for programs that use select().
static void raise_descriptors(const struct config *config)
{
    struct rlimit limit;
    size_t listeners = config->listen.count ? config->listen.count : 1;
    int64_t needed = (int64_t)listeners * http_face_descriptors(config->limits.connections) +
                     (int64_t)config->servers.count * SERVER_DESCRIPTORS + OWN_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    if (before != limit.rlim_max && setrlimit(RLIMIT_NOFILE, &limit) == 0)
        log_debug("descriptor limit raised", LOG_INT("from", (int64_t)before), LOG_INT("to", (int64_t)limit.rlim_max));
    if (limit.rlim_max != RLIM_INFINITY && (int64_t)limit.rlim_max < needed)
        log_warn("the descriptor limit is too low for limits.connections: lower that, or raise the hard limit "
                 "(LimitNOFILE= of a systemd unit, ulimit -Hn)",
                 LOG_INT("hard_limit", (int64_t)limit.rlim_max), LOG_INT("needed", needed));
}

static void on_log_writable(struct loop_watch *watch, unsigned events)
{
    (void)watch;
    (void)events;
    (void)log_flush();
}

// Edge-triggered: one event when the log's reader takes lines again. A file cannot be watched, and need not be.
static void watch_log(struct serve *serve)
{
    struct err ignored;
    serve->log = (struct loop_watch){.fd = log_start_queue(), .on_ready = on_log_writable, .name = "log"};
    (void)!loop_watch(serve->loop, &serve->log, LOOP_WRITE | LOOP_ONCE, &ignored);
}

static bool open_background(struct serve *serve, struct err *err)
{
    if (!(serve->background = offload_new(serve->loop, BACKGROUND_JOBS, err)))
        return false;
    offload_set_background(serve->background);
    return true;
}

static bool start(struct serve *serve, const struct flags *flags, struct err *err)
{
    if (!(serve->loop = loop_new(err)))
        return false;
    watch_log(serve);
    return loop_on_signal(serve->loop, on_signal, serve, err) && (serve->http = http_client_new(serve->loop, err)) &&
           open_background(serve, err) && open_audit(serve, flags, err) && open_auth(serve, err) &&
           open_tokens(serve, err) && (serve->gate = make_gate(serve)) && open_faces(serve, flags, err);
}

static int run(const struct flags *flags)
{
    struct serve serve = {0};
    struct err err = {0};
    int code = EXIT_OK;
    if (flags->profile && !flags->stdio)
        return fail_with(EXIT_USAGE, "serve: --profile goes with --stdio; over HTTP each profile is at /mcp/NAME");
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);  // S9: no core files, and nobody but root looks into our memory
    if (!(serve.config = configuration_load(flags, &code)))
        return code;
    log_setup((enum log_level)serve.config->log.level, (enum log_format)serve.config->log.format);
    preflight_servers(serve.config, warn_of_server, NULL);
    raise_descriptors(serve.config);
    if (start(&serve, flags, &err)) {
        loop_run(serve.loop);
        log_info("stopped");
    } else {
        serve.refused = err;
    }
    for (size_t i = 0; i < serve.face_count; i++)
        http_face_free(serve.faces[i]);
    stdio_face_free(serve.stdio);
    reload_free(serve.reload);
    gate_free(serve.gate);
    offload_free(serve.background);
    if (serve.tokens)
        grant_store_close(serve.tokens);
    preflight_chains_free(serve.chains, serve.config);
    if (serve.audit)
        audit_close(serve.audit);
    http_client_free(serve.http);
    loop_free(serve.loop);
    config_free(serve.config);
    log_finish();
    return serve.refused.code ? fail_with_err(&serve.refused) : EXIT_OK;
}

static const struct flag flags_table[] = {
    FLAG_CONFIG,
    {"listen", "ADDR:PORT", FLAG(listen), "Listen here instead of where the configuration says; port 0 picks one"},
    {"stdio", NULL, FLAG(stdio), "Serve one caller on standard input and output (and HTTP, if it is configured)"},
    {"profile", "NAME", FLAG(profile), "With --stdio: the profile the caller has"},
    {0},
};

const struct command serve_command = {
    .name = "serve",
    .synopsis = "serve [--config FILE] [--listen ADDR:PORT] [--stdio [--profile NAME]]",
    .summary = "Run the gateway",
    .details = "SIGINT and SIGTERM stop it: calls in flight may finish, then servers are ended, all within\n"
               "timeouts.shutdown. The log goes to standard error.",
    .flags = flags_table,
    .starts_servers = true,
    .run = run,
};
