// Owns reloading: watching the files, and putting changes in force.
//
//   a file changed ─┬─► policies      read on a worker, each tenant by itself (policies.c)
//   SIGHUP, request │
//                   ├─► credentials   files of the providers, here
//                   ├─► others        certificates: events->looked
//                   └─► configuration read on a worker (candidate.c) ─► differs? ─► prepare ─► commit
//                                                    └── not valid ──────┴──► the previous one stays in force
//
// Between prepare and commit nothing else runs, and commit cannot fail. A problem is logged once, and the health report
// has it until the files are valid. Guarded by tests/e2e/operations/live-reload.test.mjs.
#include "config/reload.h"
#include "base/log.h"
#include "base/mem.h"
#include "candidate.h"
#include "config/chains.h"
#include "config/diff.h"
#include "loop/file_watch.h"
#include "policies.h"
#include "store/audit/audit.h"
#include "tables.h"
#include <stdlib.h>

#define AGAIN_MS 1000  // while a file cannot be read, or others may still change
#define JOBS_MAX 100000

struct reload {
    struct reload_spec spec;
    const struct config *config;  // in force
    struct offload *pool;
    struct policies *policies;
    struct config_chains *chains;
    struct file_watch *watch;
    struct loop_timer again;
    char credentials_problem[sizeof((struct err *)0)->detail];
    struct candidate candidate;
    bool reading;             // the candidate is in use: the worker has it, or its result is being put in force
    bool read_again;          // a change or a request came while the worker was reading
    uint64_t seen;            // fingerprint of the configuration's files when they were last read
    struct err problem;       // why the files could not be put in force
    struct list early, late;  // waiters for this candidate, and for the next one
    struct list closing;      // sets of policies that were replaced
};

// ---- credentials ----------------------------------------------------------------------------

static void record_credentials(const struct reload *reload, const struct err *err)
{
    struct audit_record record = {.event = AUDIT_TOKEN,
                                  .method = span_of("reload"),
                                  .status = err->code ? AUDIT_ERROR : AUDIT_OK,
                                  .reason = span_of(err->detail)};
    if (reload->spec.audit)
        (void)audit_put(reload->spec.audit, &record);
}

// True: some file cannot be used.
static bool look_at_credentials(struct reload *reload)
{
    struct err err = {0};
    bool changed = false;
    struct provider_chain *chain;
    for (size_t i = 0; (chain = config_chains_at(reload->chains, i)); i++)
        changed = provider_chain_poll(chain, &err) || changed;
    bool news = strcmp(err.detail, reload->credentials_problem) != 0;
    if (changed)
        log_info("credentials reloaded");
    else if (err.code && news)
        log_error("credentials not reloaded: the previous ones stay in force", LOG_STR("detail", err.detail));
    if (changed || (err.code && news))
        record_credentials(reload, &err);
    memcpy(reload->credentials_problem, err.detail, sizeof reload->credentials_problem);
    reload->spec.events->credentials(reload->spec.arg, changed, err.code != ERR_NONE);
    return err.code != ERR_NONE;
}

// ---- the end of a reload --------------------------------------------------------------------

static void answer_waiters(struct reload *reload, bool ok, const char *text)
{
    struct list all;
    list_move_all(&all, &reload->early);
    while (!list_empty(&all)) {
        struct reload_waiter *waiter = list_entry(all.next, struct reload_waiter, node);
        list_remove(&waiter->node);
        waiter->done(waiter, ok, text);
    }
}

static void record_reload(const struct reload *reload, const struct err *err)
{
    struct audit_record record = {.event = AUDIT_OPERATION,
                                  .method = span_of("reload"),
                                  .status = err ? AUDIT_ERROR : AUDIT_OK,
                                  .name = span_of(reload->spec.path),
                                  .reason = err ? span_of(err->detail) : (struct span){0}};
    if (reload->spec.audit)
        (void)audit_put(reload->spec.audit, &record);
}

static void fail(struct reload *reload, const struct err *err)
{
    if (strcmp(err->detail, reload->problem.detail) != 0) {
        log_error("configuration not reloaded: the previous one stays in force", LOG_STR("detail", err->detail));
        record_reload(reload, err);
    }
    reload->problem = *err;
    if (err->code == ERR_SYSTEM) {  // it may pass without a change of the files
        reload->seen = 0;
        loop_timer_set(reload->spec.loop, &reload->again, AGAIN_MS);
    }
    reload->spec.events->failing(reload->spec.arg, err);
    answer_waiters(reload, false, err->detail);
}

static void succeed(struct reload *reload, const char *text)
{
    if (reload->problem.code)
        log_info("the configuration files are valid again");
    reload->problem = (struct err){0};
    reload->spec.events->failing(reload->spec.arg, NULL);
    answer_waiters(reload, true, text);
}

// ---- watching -------------------------------------------------------------------------------

struct paths {
    const struct config *config;
    char **at;  // NULL at the end
    size_t count;
};

static void add_taken(struct paths *paths, char *path)
{
    paths->at = mem_resize(paths->at, (paths->count + 2) * sizeof *paths->at);
    paths->at[paths->count++] = path;
    paths->at[paths->count] = NULL;
}

static void add_path(void *arg, const char *path) { add_taken(arg, mem_string(path)); }

static void add_file(struct paths *paths, const char *path)
{
    if (path)
        add_taken(paths, config_file(paths->config, path));
}

static void add_providers(struct paths *paths, const struct auth_config *auth)
{
    const struct provider_config *providers = auth->providers.at;
    for (size_t i = 0; i < auth->providers.count; i++)
        add_file(paths, providers[i].tokens);
}

static void add_listeners(struct paths *paths)
{
    const struct config_listener *listeners = paths->config->listen.at;
    for (size_t i = 0; i < paths->config->listen.count; i++) {
        add_providers(paths, &listeners[i].auth);
        add_file(paths, listeners[i].tls.certificate);
        add_file(paths, listeners[i].tls.key);
        add_file(paths, listeners[i].tls.client_ca);
    }
}

static void watch_files(struct reload *reload)
{
    struct paths paths = {.config = reload->config, .at = mem_new(char *)};
    if (reload->spec.path) {
        add_path(&paths, reload->spec.path);
        add_file(&paths, "tenants.d");
    }
    policies_put_paths(reload->policies, add_path, &paths);
    add_providers(&paths, &reload->config->auth);
    add_listeners(&paths);
    file_watch_set(reload->watch, (const char *const *)paths.at);
    for (size_t i = 0; i < paths.count; i++)
        free(paths.at[i]);
    free(paths.at);
}

// ---- putting a configuration in force -------------------------------------------------------

static void log_changes(const char *text)
{
    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1)
        log_info("configuration changed", LOG_SPAN("change", span_make(line, (size_t)(end - line))));
}

static bool prepare(struct reload *reload, const struct config_diff *diff, struct err *err)
{
    const char *fixed = config_diff_fixed(diff);
    bool with_chains = config_diff_touches(diff, "/auth") || config_diff_touches(diff, "/listen");
    if (fixed)
        return err_set(err, ERR_CONFIG, "%s: %s: a running gateway cannot change this; restart it, or undo the change",
                       reload->spec.path, fixed);
    return reload->spec.events->prepare(reload->spec.arg, reload->candidate.config, with_chains, err);
}

static void commit(struct reload *reload)
{
    struct candidate *candidate = &reload->candidate;
    const struct config *old = reload->config;
    struct policies *old_policies = reload->policies;
    reload->config = config_ref(candidate->config);
    reload->policies = policies_of(&reload->spec, reload->config, reload->pool, candidate->policies, candidate->seen);
    policies_close(old_policies, &reload->closing);
    reload->chains = reload->spec.events->commit(reload->spec.arg, reload->config, candidate->policies);
    config_unref(old);
    watch_files(reload);
}

static void take_over(struct reload *reload)
{
    struct candidate *candidate = &reload->candidate;
    struct err err = {0};
    struct buf text = {0};
    struct config_diff *diff = config_diff_new(reload->config, candidate->config, true);
    config_diff_put(diff, &text);
    if (config_diff_is_empty(diff)) {
        succeed(reload, "no changes\n");
    } else if (prepare(reload, diff, &err)) {
        commit(reload);
        log_changes(buf_text(&text));
        log_info("configuration reloaded", LOG_STR("path", reload->spec.path));
        record_reload(reload, NULL);
        succeed(reload, buf_text(&text));
    } else {
        fail(reload, &err);
    }
    config_diff_free(diff);
    buf_release(&text);
}

// ---- reading --------------------------------------------------------------------------------

static void read_candidate(struct reload *reload)
{
    if (reload->reading) {
        reload->read_again = true;
        return;
    }
    while (!list_empty(&reload->late)) {
        struct list *node = reload->late.next;
        list_remove(node);
        list_append(&reload->early, node);
    }
    reload->read_again = false;
    reload->candidate.path = reload->spec.path;
    reload->reading = offload_put(reload->pool, &reload->candidate.job);
    if (reload->reading)
        return;
    struct err err;
    (void)err_set(&err, ERR_SYSTEM,
                  "cannot start a thread to read the configuration; check the limits TasksMax and ulimit -u");
    fail(reload, &err);
}

// A waiter may call reload_now(), which must not give the candidate to the worker until it is released.
static void on_read(struct offload_job *job)
{
    struct candidate *candidate = job->arg;
    struct reload *reload = (struct reload *)(void *)((char *)candidate - offsetof(struct reload, candidate));
    reload->seen = candidate->fingerprint;
    if (reload->watch && candidate->config)
        take_over(reload);
    else if (reload->watch)
        fail(reload, &candidate->err);
    candidate_release(candidate);
    reload->reading = false;
    if (reload->watch && reload->read_again)
        read_candidate(reload);
}

static void look_at_configuration(struct reload *reload)
{
    if (reload->spec.path && candidate_fingerprint(reload->spec.path) != reload->seen)
        read_candidate(reload);
}

static void look(struct reload *reload, bool asked)
{
    policies_poll(reload->policies, asked);
    bool unsettled = look_at_credentials(reload);
    unsettled = reload->spec.events->looked(reload->spec.arg) || unsettled;
    if (unsettled || policies_pending(reload->policies))
        loop_timer_set(reload->spec.loop, &reload->again, AGAIN_MS);
}

static void on_change(void *arg)
{
    look(arg, false);
    look_at_configuration(arg);
    loop_timer_set(((struct reload *)arg)->spec.loop, &((struct reload *)arg)->again, AGAIN_MS);
}

static void on_again(struct loop_timer *timer)
{
    look(timer->arg, false);
    look_at_configuration(timer->arg);
}

// ---- beginning and end ----------------------------------------------------------------------

struct reload *reload_new(const struct reload_spec *spec, struct err *err)
{
    struct offload *pool = offload_new(spec->loop, JOBS_MAX, err);
    struct policies *policies = pool ? policies_new(spec, pool, err) : NULL;
    if (!policies) {
        offload_free(pool);
        return NULL;
    }
    struct reload *reload = mem_new(struct reload);
    reload->spec = *spec;
    reload->config = config_ref(spec->config);
    reload->pool = pool;
    reload->policies = policies;
    reload->again = (struct loop_timer){.on_due = on_again, .arg = reload, .name = "reload"};
    reload->candidate.job = (struct offload_job){.run = candidate_read, .done = on_read, .arg = &reload->candidate};
    list_init(&reload->early);
    list_init(&reload->late);
    list_init(&reload->closing);
    return reload;
}

struct policy *const *reload_policies(const struct reload *reload) { return policies_in_force(reload->policies); }

void reload_start(struct reload *reload, struct config_chains *chains)
{
    reload->chains = chains;
    reload->watch = file_watch_new(reload->spec.loop, on_change, reload);
    watch_files(reload);
}

void reload_now(struct reload *reload, struct reload_waiter *waiter)
{
    if (waiter)
        list_append(&reload->late, &waiter->node);
    look(reload, true);
    if (reload->spec.path)
        read_candidate(reload);
    else if (waiter) {
        list_remove(&waiter->node);
        waiter->done(waiter, false, "the configuration is not in a file");
    }
}

const char *reload_problem(const struct reload *reload) { return reload->problem.detail; }

void reload_free(struct reload *reload)
{
    if (!reload)
        return;
    loop_timer_stop(reload->spec.loop, &reload->again);
    file_watch_free(reload->watch);
    reload->watch = NULL;
    list_each(node, &reload->early)
        list_remove(node);
    list_each(node, &reload->late)
        list_remove(node);
    policies_close(reload->policies, &reload->closing);
    offload_free(reload->pool);
    while (!list_empty(&reload->closing))
        policies_free(policies_at(reload->closing.next));
    config_unref(reload->config);
    free(reload);
}
