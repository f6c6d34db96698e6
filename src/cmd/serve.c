// Owns `postern serve`: putting loop, gate and faces together, signals, and the shutdown.
#include "base/log.h"
#include "base/mem.h"
#include "cmd/base/configuration.h"
#include "cmd/base/fail.h"
#include "cmd/base/gateway.h"
#include "cmd/base/grants.h"
#include "command_list.h"
#include "config/chains.h"
#include "config/reload.h"
#include "front/control/control.h"
#include "front/faces.h"
#include "front/stdio.h"
#include "gate/gate.h"
#include "loop/http_client.h"
#include "loop/inherited.h"
#include "loop/notify.h"
#include "loop/offload.h"
#include "preflight.h"
#include "store/audit/audit.h"
#include "store/catalogue.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

#define LINGER_MS 20
#define BACKGROUND_JOBS 1024

struct serve {
    const struct config *config;
    char *path;  // of the configuration; NULL: not from a file
    struct loop *loop;
    struct http_client *http;
    struct offload *background;  // for large messages
    struct gate *gate;
    struct config_chains *chains, *next_chains;
    struct audit *audit;
    struct grant_store *grants;   // NULL: not needed by any server
    struct catalogue *catalogue;  // NULL: none
    struct reload *reload;
    struct control *control;  // NULL: no control socket
    struct inherited inherited;
    int predecessor;  // connection to the gateway that is replaced; -1: none
    struct faces *faces;
    struct stdio_face *stdio;
    bool retiring, stopping;
    struct err refused;  // why it did not start, or why the caller on standard input was refused
    int64_t stop_by_ms;
    struct loop_timer linger;  // while connections are still open
    struct loop_watch log;
};

// The gate is closed; answers may still be on their way.
static void on_stopped(void *arg)
{
    struct serve *serve = arg;
    if (faces_busy(serve->faces) && loop_now(serve->loop) < serve->stop_by_ms)
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
    loop_timer_stop(serve->loop, &serve->linger);
    serve->stop_by_ms = loop_now(serve->loop) + serve->config->timeouts.shutdown_ms;
    serve->linger = (struct loop_timer){.on_due = on_linger, .arg = serve, .name = "shutdown"};
    log_info("stopping", LOG_STR("why", why));
    notify_stopping();
    if (notify_is_open()) {
        faces_leave_files(serve->faces);
        control_leave_file(serve->control);
    }
    faces_quiesce(serve->faces);
    gate_shutdown(serve->gate, on_stopped, serve);
}

// A successor accepts all new connections. Those that are open here are served until each has had an answer.
static void on_retiring(struct loop_timer *timer)
{
    struct serve *serve = timer->arg;
    if (faces_connected(serve->faces) && loop_now(serve->loop) < serve->stop_by_ms)
        loop_timer_set(serve->loop, timer, LINGER_MS);
    else
        stop(serve, "replaced");
}

static void on_replaced(void *arg)
{
    struct serve *serve = arg;
    serve->retiring = true;
    serve->stop_by_ms = loop_now(serve->loop) + serve->config->timeouts.shutdown_ms;
    serve->linger = (struct loop_timer){.on_due = on_retiring, .arg = serve, .name = "replaced"};
    gate_replaced(serve->gate);
    faces_leave_files(serve->faces);
    faces_quiesce(serve->faces);
    on_retiring(&serve->linger);
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

static void warn_of_server(void *arg, const char *place, const struct err *err)
{
    (void)arg;
    log_warn("server cannot work as configured", LOG_STR("place", place), LOG_STR("detail", err->detail));
}

// ---- events of the reload -------------------------------------------------------------------

static void on_policy(void *arg, const char *tenant, struct policy *policy)
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

static bool on_looked(void *arg)
{
    struct serve *serve = arg;
    faces_poll(serve->faces);
    bool failing = faces_failing(serve->faces);
    gate_health_certificates_failed(serve->gate, failing);
    return failing;
}

static void on_failing(void *arg, const struct err *why)
{
    struct serve *serve = arg;
    gate_health_configuration_failed(serve->gate, why != NULL);
}

static bool prepare_chains(struct serve *serve, const struct config *next, struct err *err)
{
    struct provider_world world = {serve->loop, serve->http, next->folder};
    serve->next_chains = config_chains_new(next, &world, err);
    return serve->next_chains != NULL;
}

// A gateway without servers that need grants does not have a store yet.
static bool prepare_grants(struct serve *serve, const struct config *next, struct err *err)
{
    return serve->grants || !preflight_needs_store(next) || grants_open(next, serve->loop, true, &serve->grants, err);
}

static bool prepare_audit(const struct serve *serve, const struct config *next, struct err *err)
{
    return serve->audit || !config_audited(next) ||
           err_set(
               err, ERR_CONFIG,
               "/auth: the first provider that authenticates callers needs an audit log, which only a restart opens");
}

static void drop_prepared(struct serve *serve)
{
    config_chains_unref(serve->next_chains);
    serve->next_chains = NULL;
    faces_drop(serve->faces);
}

static bool on_prepare(void *arg, const struct config *next, bool with_chains, struct err *err)
{
    struct serve *serve = arg;
    if (serve->stopping || serve->retiring)
        return err_set(err, ERR_SHUTTING_DOWN, "the gateway is stopping");
    // Both processes would open the listeners that are new.
    if (control_hands_over(serve->control))
        return err_set(err, ERR_CONFIG,
                       "another process is replacing the gateway; if it fails, the file is read again");
    if (prepare_audit(serve, next, err) && (!with_chains || prepare_chains(serve, next, err)) &&
        prepare_grants(serve, next, err) && faces_prepare(serve->faces, next, err))
        return true;
    drop_prepared(serve);
    return false;
}

// For the next process, if a service manager restarts the gateway.
static void store_sockets(const struct serve *serve)
{
    int fds[INHERITED_MAX];
    fds[0] = control_socket(serve->control);
    size_t count = 1 + faces_sockets(serve->faces, fds + 1, INHERITED_MAX - 1);
    for (size_t i = 0; i < count && i < INHERITED_MAX; i++)
        notify_store(fds[i]);
}

static struct config_chains *on_commit(void *arg, const struct config *next, struct policy *const *policies)
{
    struct serve *serve = arg;
    const struct config *old = serve->config;
    struct config_chains *old_chains = serve->next_chains ? serve->chains : NULL;
    serve->chains = serve->next_chains ? serve->next_chains : serve->chains;
    serve->next_chains = NULL;
    serve->config = config_ref(next);
    log_setup((enum log_level)next->log.level, (enum log_format)next->log.format);
    config_log_notes(next);
    preflight_servers(next, warn_of_server, NULL);
    preflight_raise_descriptors(next);
    gate_apply(serve->gate, &(struct gate_change){next, serve->chains, serve->grants, policies});
    faces_commit(serve->faces);
    store_sockets(serve);
    config_chains_unref(old_chains);
    config_unref(old);
    return serve->chains;
}

static const struct reload_events reload_events = {on_policy,  on_credentials, on_looked,
                                                   on_prepare, on_commit,      on_failing};

static bool open_auth(struct serve *serve, struct err *err)
{
    struct provider_world world = {serve->loop, serve->http, serve->config->folder};
    struct reload_spec spec = {serve->loop, serve->config, serve->path, serve->audit, &reload_events, serve};
    return (serve->reload = reload_new(&spec, err)) &&
           (serve->chains = config_chains_new(serve->config, &world, err)) != NULL;
}

// Only if some server needs it: a gateway without grants creates no files.
static bool open_grants(struct serve *serve, struct err *err)
{
    bool needed = preflight_needs_store(serve->config);
    if (needed && serve->config->store.seed)
        log_warn("the store is a seed: refreshed tokens are kept in memory only, and lost at the end",
                 LOG_STR("seed", serve->config->store.seed));
    return !needed || grants_open(serve->config, serve->loop, true, &serve->grants, err);
}

// A gateway without a catalogue cache starts its servers with the first session, so an error here is only logged.
static bool open_catalogue(struct serve *serve)
{
    const struct catalogue_config *config = &serve->config->catalogue;
    struct err err = {0};
    bool wanted = !config->path || *config->path;
    if (wanted && !(serve->catalogue = catalogue_open(serve->loop, config, &err)))
        log_warn("no catalogue cache", LOG_STR("detail", err.detail));
    return true;
}

static void on_signal(void *arg, int signal)
{
    struct serve *serve = arg;
    if (signal == SIGHUP) {
        log_info("SIGHUP: reading the configuration, policies, credentials and certificates again");
        faces_reload(serve->faces);
        reload_now(serve->reload, NULL);
    } else
        stop(arg, signal == SIGINT ? "SIGINT" : "SIGTERM");
}

static void on_stdio_end(void *arg)
{
    struct serve *serve = arg;
    if (faces_count(serve->faces) == 0)
        stop(serve, "end of input");
    else
        stdio_face_close(serve->stdio);  // the callers over HTTP go on
}

static void on_stdio_refused(void *arg, const struct err *err)
{
    struct serve *serve = arg;
    if (!serve->stopping)
        serve->refused = *err;
    stop(serve, "the caller on standard input was refused");
}

static bool check_address(const struct serve *serve, const char *address, struct err *err)
{
    struct buf flag = {0};
    buf_printf(&flag, "--listen %s", address);
    bool may = config_listener_may_listen(serve->config, address,
                                          &(struct option_place){.file = "serve", .path = buf_text(&flag)}, err);
    buf_release(&flag);
    return may;
}

static bool open_faces(struct serve *serve, const struct flags *flags, struct err *err)
{
    struct stdio_spec stdio = {flags->profile, on_stdio_end, on_stdio_refused, serve};
    serve->faces = faces_new(serve->loop, serve->gate, flags->listen, !flags->stdio, &serve->inherited);
    if (flags->stdio && !(serve->stdio = stdio_face_new(serve->loop, serve->gate, &stdio, err)))
        return false;
    if ((flags->listen && !check_address(serve, flags->listen, err)) ||
        !faces_prepare(serve->faces, serve->config, err))
        return false;
    faces_commit(serve->faces);
    return true;
}

static struct gate *make_gate(struct serve *serve)
{
    struct gate_parts parts = {serve->loop,
                               serve->http,
                               serve->config,
                               serve->chains,
                               serve->audit,
                               serve->grants,
                               reload_policies(serve->reload),
                               serve->catalogue,
                               serve->background};
    return gate_new(&parts);
}

static void on_log_writable(struct loop_watch *watch, unsigned events)
{
    (void)watch;
    (void)events;
    (void)log_flush();
}

// Edge-triggered: one event when the log's reader accepts lines again. A file cannot be watched, and does not block.
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

static bool start_reload(struct serve *serve)
{
    reload_start(serve->reload, serve->chains);
    return true;
}

// A socket that the configuration names must open. The default path may belong to another gateway of the same user.
static bool open_control(struct serve *serve, struct err *err)
{
    struct control_spec spec = {
        .loop = serve->loop,
        .gate = serve->gate,
        .reload = serve->reload,
        .faces = serve->faces,
        .configuration = serve->path,
        .inherited = &serve->inherited,
        .permanent = serve->stdio       ? "it serves a caller on its standard input"
                     : notify_is_open() ? "it runs under a service manager; restart its service instead"
                                        : NULL,
        .replaced = on_replaced,
        .arg = serve,
    };
    char *path = faces_count(serve->faces) ? config_control_path(serve->config) : NULL;
    serve->control = path ? control_new(&spec, path, err) : NULL;
    bool failed = path && !serve->control, required = serve->config->control != NULL;
    if (!path && !required && faces_count(serve->faces))
        log_info("running without a control socket",
                 LOG_STR("detail", "the configuration does not set control, and XDG_RUNTIME_DIR is not set"));
    free(path);
    if (failed && !required)
        log_warn("running without a control socket", LOG_STR("detail", err->detail));
    return !failed || !required;
}

static bool take_over(struct serve *serve, const struct flags *flags, struct err *err)
{
    return !flags->replace || (serve->predecessor = gateway_take_over(flags, &serve->inherited, err)) >= 0;
}

// The last step of the start: until here, a predecessor serves as before.
static bool settle(struct serve *serve, struct err *err)
{
    if (serve->predecessor >= 0 && !gateway_retire(serve->predecessor, err))
        return false;
    inherited_close(&serve->inherited);
    faces_own_files(serve->faces);
    control_own_file(serve->control);
    store_sockets(serve);
    notify_ready();
    return true;
}

static bool start(struct serve *serve, const struct flags *flags, struct err *err)
{
    if (!(serve->loop = loop_new(err)))
        return false;
    watch_log(serve);
    return loop_on_signal(serve->loop, on_signal, serve, err) && (serve->http = http_client_new(serve->loop, err)) &&
           open_background(serve, err) && open_audit(serve, flags, err) && open_auth(serve, err) &&
           open_grants(serve, err) && open_catalogue(serve) && (serve->gate = make_gate(serve)) &&
           take_over(serve, flags, err) && open_faces(serve, flags, err) && start_reload(serve) &&
           open_control(serve, err) && settle(serve, err);
}

static int run(const struct flags *flags)
{
    struct serve serve = {.predecessor = -1};
    struct err err = {0};
    int code = EXIT_OK;
    if (flags->profile && !flags->stdio)
        return fail_with(EXIT_USAGE, "serve: --profile requires --stdio; over HTTP each profile is at /mcp/NAME");
    if (flags->replace && flags->stdio)
        return fail_with(EXIT_USAGE, "serve: --replace cannot be used with --stdio: standard input is not handed over");
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);  // S9: no core files, and only root may read the memory
    if (!(serve.config = configuration_load(flags, &code)))
        return code;
    serve.path = config_path(flags->config);
    log_setup((enum log_level)serve.config->log.level, (enum log_format)serve.config->log.format);
    config_log_notes(serve.config);
    preflight_servers(serve.config, warn_of_server, NULL);
    preflight_raise_descriptors(serve.config);
    notify_open();
    inherited_from_environment(&serve.inherited);
    if (start(&serve, flags, &err)) {
        loop_run(serve.loop);
        log_info("stopped");
    } else {
        serve.refused = err;
    }
    control_free(serve.control);
    reload_free(serve.reload);
    faces_free(serve.faces);
    stdio_face_free(serve.stdio);
    gate_free(serve.gate);
    offload_free(serve.background);
    catalogue_close(serve.catalogue);
    if (serve.grants)
        grant_store_close(serve.grants);
    config_chains_unref(serve.chains);
    if (serve.audit)
        audit_close(serve.audit);
    http_client_free(serve.http);
    loop_free(serve.loop);
    config_unref(serve.config);
    free(serve.path);
    log_finish();
    return serve.refused.code ? fail_with_err(&serve.refused) : EXIT_OK;
}

static const struct flag flags_table[] = {
    FLAG_CONFIG,
    {"listen", "ADDR:PORT", FLAG(listen),
     "Listen on this address instead of the configured ones; port 0 selects a free port"},
    {"replace", NULL, FLAG(replace), "Take the place of the running gateway without refusing a connection"},
    {"stdio", NULL, FLAG(stdio), "Serve one caller on standard input and output (and HTTP, if it is configured)"},
    {"profile", "NAME", FLAG(profile), "With --stdio: the profile of the caller"},
    {0},
};

const struct command serve_command = {
    .name = "serve",
    .synopsis = "serve [--config FILE] [--listen ADDR:PORT] [--replace | --stdio [--profile NAME]]",
    .summary = "Run the gateway",
    .details =
        "SIGINT or SIGTERM shuts the gateway down: calls in flight may finish, then the servers are stopped. Both\n"
        "take at most timeouts.shutdown. The log goes to standard error.\n"
        "\n"
        "With --replace, the new gateway takes over the listening sockets of the gateway that runs with the same\n"
        "configuration, over its control socket. The old one finishes its calls and ends. If the new one cannot\n"
        "start, the old one continues as before.",
    .flags = flags_table,
    .starts_servers = true,
    .run = run,
};
