// Files that a running gateway reads again when they change: policies, and the files of providers. One timer looks for
// changes; events report them.
#ifndef CONFIG_RELOAD_H
#define CONFIG_RELOAD_H

#include "auth/caller/provider.h"
#include "base/err.h"
#include "loop/loop.h"

struct audit;
struct config;
struct policy;
struct reload;

// All are called on the loop's thread.
struct reload_events {
    // The policy of a tenant is in force from now on. NULL: it changed and is not valid, so the one before stays.
    void (*policy)(void *arg, size_t tenant, struct policy *policy);
    // The files of the providers were looked at: were some of them read again, and do some not work?
    void (*credentials)(void *arg, bool changed, bool failing);
    void (*polled)(void *arg);  // each time, at last: for files that other rooms own
};

struct reload_spec {
    struct loop *loop;
    const struct config *config;
    struct audit *audit;  // or NULL
    const struct reload_events *events;
    void *arg;
};

enum { RELOAD_POLL_MS = 500 };

// Reads the policies of all tenants. NULL: one of them is not valid, or cannot be read.
struct reload *reload_new(const struct reload_spec *spec, struct err *err) MUST_CHECK;
struct policy *const *reload_policies(const struct reload *reload);  // in force: of `default`, then of each tenant
// From now on files are polled: the policies, and those of `count` chains, of which some may be NULL.
void reload_start(struct reload *reload, struct provider_chain *const *chains, size_t count);
void reload_now(struct reload *reload);   // whether or not they have changed
void reload_free(struct reload *reload);  // reports nothing more

#endif
