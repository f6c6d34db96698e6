// Owns the timer that looks for files that changed: policies (policies.c) and the files of providers.
#include "config/reload.h"
#include "base/log.h"
#include "base/mem.h"
#include "policies.h"
#include "store/audit/audit.h"
#include <stdlib.h>

struct reload {
    struct reload_spec spec;
    struct policies *policies;
    struct provider_chain *const *chains;
    size_t chain_count;
    struct loop_timer timer;
    char last_problem[sizeof((struct err *)0)->detail];
};

static void record_credentials(const struct reload *reload, const struct err *err)
{
    struct audit_record record = {.event = AUDIT_TOKEN,
                                  .method = span_of("reload"),
                                  .status = err->code ? AUDIT_ERROR : AUDIT_OK,
                                  .reason = span_of(err->detail)};
    if (reload->spec.audit)
        (void)audit_put(reload->spec.audit, &record);
}

static void poll_credentials(struct reload *reload)
{
    struct err err = {0};
    bool changed = false;
    for (size_t i = 0; i < reload->chain_count; i++)
        changed = (reload->chains[i] && provider_chain_poll(reload->chains[i], &err)) || changed;
    bool news = strcmp(err.detail, reload->last_problem) != 0;
    if (changed)
        log_info("credentials reloaded");
    else if (err.code && news)
        log_error("credentials not reloaded: those before stay in force", LOG_STR("detail", err.detail));
    if (changed || (err.code && news))
        record_credentials(reload, &err);
    memcpy(reload->last_problem, err.detail, sizeof reload->last_problem);
    reload->spec.events->credentials(reload->spec.arg, changed, err.code != ERR_NONE);
}

static void poll_all(struct reload *reload, bool asked)
{
    policies_poll(reload->policies, asked);
    poll_credentials(reload);
    reload->spec.events->polled(reload->spec.arg);
}

static void on_timer(struct loop_timer *timer)
{
    struct reload *reload = timer->arg;
    poll_all(reload, false);
    loop_timer_set(reload->spec.loop, timer, RELOAD_POLL_MS);
}

struct reload *reload_new(const struct reload_spec *spec, struct err *err)
{
    struct policies *policies = policies_new(spec, err);
    if (!policies)
        return NULL;
    struct reload *reload = mem_new(struct reload);
    reload->spec = *spec;
    reload->policies = policies;
    reload->timer = (struct loop_timer){.on_due = on_timer, .arg = reload, .name = "reload"};
    return reload;
}

struct policy *const *reload_policies(const struct reload *reload) { return policies_in_force(reload->policies); }

void reload_start(struct reload *reload, struct provider_chain *const *chains, size_t count)
{
    reload->chains = chains;
    reload->chain_count = count;
    loop_timer_set(reload->spec.loop, &reload->timer, RELOAD_POLL_MS);
}

void reload_now(struct reload *reload) { poll_all(reload, true); }

void reload_free(struct reload *reload)
{
    if (!reload)
        return;
    loop_timer_stop(reload->spec.loop, &reload->timer);
    policies_free(reload->policies);
    free(reload);
}
