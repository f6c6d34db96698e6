// Owns `postern serve`: loop, gate and faces put together, signals, and stopping.
#include "base/log.h"
#include "base/mem.h"
#include "cmd.h"
#include "front/http.h"
#include "front/stdio.h"
#include "login.h"
#include "preflight.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define LINGER_MS 20
#define RELOAD_MS 500
#define EXPIRY_RELOADS 2      // after how many of them sessions are looked at for credentials that expired
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
    struct token_store *tokens;  // NULL: no server needs it
    struct policy **policies;    // of `default`, then of each tenant
    struct policy_file_state {
        char *path;  // NULL: the built-in one
        uint64_t seen;
        bool unread;  // which may pass without a change of the file: no descriptor was free
        bool told;    // that it is still unread
    } * policy_files;
    size_t policy_count;
    struct loop_timer reload;
    unsigned reloads;
    struct http_face *faces[16];
    size_t face_count;
    struct stdio_face *stdio;
    bool stopping;
    struct err refused;  // why it did not start, or standard input was not let in
    int64_t stop_by_ms;
    struct loop_timer linger;
    struct loop_watch log;
    char last_problem[sizeof((struct err *)0)->detail];
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

// ---- policy and credentials, and their reload -----------------------------------------------

static bool open_audit(struct serve *serve, const struct flags *flags, struct err *err)
{
    if (!config_audited(serve->config))
        return true;
    if (flags->stdio && serve->config->audit.jsonl && strcmp(serve->config->audit.jsonl, "-") == 0)
        return err_set(err, ERR_CONFIG,
                       "/audit/jsonl: with --stdio standard output belongs to the caller; name a file");
    return (serve->audit = audit_open(serve->loop, &serve->config->audit, err)) != NULL;
}

static void audit_policy(struct serve *serve, const char *path, const struct policy *policy, const struct err *err)
{
    struct audit_record record = {.event = AUDIT_POLICY,
                                  .status = policy ? AUDIT_OK : AUDIT_ERROR,
                                  .name = span_of(path),
                                  .policy = policy ? span_of(policy_digest(policy)) : (struct span){0},
                                  .reason = policy ? (struct span){0} : span_of(err->detail)};
    if (serve->audit)
        (void)audit_put(serve->audit, &record);
}

// The providers' files were read again, or could not be.
static void audit_credentials(struct serve *serve, const struct err *err)
{
    struct audit_record record = {.event = AUDIT_TOKEN,
                                  .method = span_of("reload"),
                                  .status = err->code ? AUDIT_ERROR : AUDIT_OK,
                                  .reason = span_of(err->detail)};
    if (serve->audit)
        (void)audit_put(serve->audit, &record);
}

static void tell_findings(const struct policy_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++) {
        const struct policy_finding *at = &findings->at[i];
        log_at(at->code[0] == 'E' ? LOG_ERROR : LOG_WARN, "policy", LOG_STR("code", at->code),
               LOG_STR("file", at->file), LOG_INT("line", at->line), LOG_STR("rule", at->rule ? at->rule : "-"),
               LOG_STR("text", at->text));
    }
}

static struct policy *read_policy(struct serve *serve, size_t tenant, struct err *err)
{
    struct policy_file_state *state = &serve->policy_files[tenant];
    struct policy_findings findings = {0};
    uint64_t before = state->seen;
    state->seen = policy_fingerprint(state->path);
    struct policy *policy = preflight_policy(serve->config, state->path, &findings, err);
    state->told = state->unread && findings.unread && state->seen == before;
    state->unread = findings.unread;
    if (!state->told) {
        tell_findings(&findings);
        audit_policy(serve, state->path, policy, err);
    }
    policy_findings_release(&findings);
    if (policy)
        log_info("policy loaded", LOG_STR("path", state->path), LOG_INT("rules", policy_rule_count(policy)),
                 LOG_INT("tests", policy_test_count(policy)), LOG_STR("digest", policy_digest(policy)));
    return policy;
}

static void reload_policy(struct serve *serve, size_t tenant)
{
    struct err err = {0};
    struct policy *policy = read_policy(serve, tenant, &err);
    if (!policy && serve->policy_files[tenant].told)
        return;
    if (!policy) {
        log_error("policy not reloaded: the one before stays in force", LOG_STR("detail", err.detail));
        gate_policy_failed(serve->gate, tenant);
        return;
    }
    gate_set_policy(serve->gate, tenant, policy);
    policy_unref(serve->policies[tenant]);
    serve->policies[tenant] = policy;
}

static void reload(struct serve *serve, bool asked)
{
    struct err err = {0};
    for (size_t i = 0; i < serve->policy_count; i++) {
        const struct policy_file_state *state = &serve->policy_files[i];
        if (state->path && (asked || state->unread || policy_fingerprint(state->path) != state->seen))
            reload_policy(serve, i);
    }
    bool changed = false;
    for (size_t i = 0; i <= serve->config->listen.count; i++)
        changed = (serve->chains[i] && provider_chain_poll(serve->chains[i], &err)) || changed;
    bool news = strcmp(err.detail, serve->last_problem) != 0;
    if (changed)
        log_info("credentials reloaded");
    else if (err.code && news)
        log_error("credentials not reloaded: those before stay in force", LOG_STR("detail", err.detail));
    if (changed || (err.code && news))
        audit_credentials(serve, &err);
    memcpy(serve->last_problem, err.detail, sizeof serve->last_problem);
    gate_credentials_failed(serve->gate, err.code != ERR_NONE);
    bool failing = false;
    for (size_t i = 0; i < serve->face_count; i++)
        failing = failing || http_face_failing(serve->faces[i]);
    gate_certificates_failed(serve->gate, failing);
    if (changed || ++serve->reloads % EXPIRY_RELOADS == 0)
        gate_recheck_identities(serve->gate);
}

static void on_reload(struct loop_timer *timer)
{
    struct serve *serve = timer->arg;
    reload(serve, false);
    (void)log_flush();  // reports lines that were left out, when their window has ended
    loop_timer_set(serve->loop, timer, RELOAD_MS);
}

static bool open_auth(struct serve *serve, struct err *err)
{
    const struct config *config = serve->config;
    struct provider_world world = {serve->loop, serve->http, config->folder};
    size_t count = config->tenants.count + 1;
    serve->policies = mem_alloc(count * sizeof(struct policy *));
    serve->policy_files = mem_alloc(count * sizeof *serve->policy_files);
    for (; serve->policy_count < count; serve->policy_count++) {
        size_t i = serve->policy_count;
        char *path = serve->policy_files[i].path = preflight_policy_path(config, i);
        serve->policies[i] = path ? read_policy(serve, i, err) : policy_allow_all();
        if (!serve->policies[i])
            return false;
    }
    return (serve->chains = preflight_chains(config, &world, err)) != NULL;
}

static void close_auth(struct serve *serve)
{
    preflight_chains_free(serve->chains, serve->config);
    for (size_t i = 0; serve->policy_files && i <= serve->config->tenants.count; i++) {
        policy_unref(serve->policies[i]);
        free(serve->policy_files[i].path);
    }
    free(serve->policies);
    free(serve->policy_files);
}

// Only where some server needs it: a gateway without grants makes no files.
static bool open_tokens(struct serve *serve, struct err *err)
{
    bool needed = preflight_needs_store(serve->config);
    if (needed && serve->config->store.seed)
        log_warn("the store is a seed: tokens that are refreshed are kept in memory, and lost at the end",
                 LOG_STR("seed", serve->config->store.seed));
    return !needed || login_store_open(serve->config, serve->loop, true, &serve->tokens, err);
}

static void on_signal(void *arg, int signal)
{
    struct serve *serve = arg;
    if (signal == SIGHUP) {
        log_info("SIGHUP: policy, credentials and certificates are read again");
        for (size_t i = 0; i < serve->face_count; i++)
            http_face_reload(serve->faces[i]);
        reload(serve, true);
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
    bool may = config_may_listen(serve->config, address,
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
    struct gate_parts parts = {serve->loop,  serve->http,   serve->config,   serve->chains,
                               serve->audit, serve->tokens, serve->policies, serve->background};
    serve->reload = (struct loop_timer){.on_due = on_reload, .arg = serve, .name = "reload"};
    loop_timer_set(serve->loop, &serve->reload, RELOAD_MS);
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
        return cmd_fail(EXIT_USAGE, "serve: --profile goes with --stdio; over HTTP each profile is at /mcp/NAME");
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);  // S9: no core files, and nobody but root looks into our memory
    if (!(serve.config = cmd_config(flags, &code)))
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
    gate_free(serve.gate);
    offload_free(serve.background);
    if (serve.tokens)
        token_store_close(serve.tokens);
    close_auth(&serve);
    if (serve.audit)
        audit_close(serve.audit);
    http_client_free(serve.http);
    loop_free(serve.loop);
    config_free(serve.config);
    log_finish();
    return serve.refused.code ? cmd_fail_err(&serve.refused) : EXIT_OK;
}

static const struct flag flags_table[] = {
    FLAG_CONFIG,
    {"listen", "ADDR:PORT", FLAG(listen), "Listen here instead of where the configuration says; port 0 picks one"},
    {"stdio", NULL, FLAG(stdio), "Serve one caller on standard input and output (and HTTP, if it is configured)"},
    {"profile", "NAME", FLAG(profile), "With --stdio: the profile the caller has"},
    {0},
};

const struct command command_serve = {
    .name = "serve",
    .synopsis = "serve [--config FILE] [--listen ADDR:PORT] [--stdio [--profile NAME]]",
    .summary = "Run the gateway",
    .details = "SIGINT and SIGTERM stop it: calls in flight may finish, then servers are ended, all within\n"
               "timeouts.shutdown. The log goes to standard error.",
    .flags = flags_table,
    .starts_servers = true,
    .run = run,
};
