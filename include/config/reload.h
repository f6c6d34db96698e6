// The files that a running gateway reads again when they change: the configuration, policies, and files of providers.
//
// A change of the configuration is taken over whole or not at all. Policies, credentials and certificates are read
// independently of it, so that a configuration that is not valid never delays a revocation.
#ifndef CONFIG_RELOAD_H
#define CONFIG_RELOAD_H

#include "auth/caller/provider.h"
#include "base/err.h"
#include "base/list.h"
#include "loop/loop.h"

struct audit;
struct config;
struct config_chains;
struct policy;
struct reload;

// All are called on the loop's thread.
struct reload_events {
    // The policy of a tenant is in force from now on. NULL: it changed and is not valid, so the previous policy stays.
    void (*policy)(void *arg, const char *tenant, struct policy *policy);
    // The files of the providers were checked. `changed`: some were read again. `failing`: some cannot be used.
    void (*credentials)(void *arg, bool changed, bool failing);
    // Files that other rooms own may have changed. True: check again in a second.
    bool (*looked)(void *arg);
    // The configuration changed to `next`: does all work that can fail. `with_chains`: providers or listeners changed.
    // True: `commit` follows at once. False: nothing has changed.
    bool (*prepare)(void *arg, const struct config *next, bool with_chains, struct err *err);
    // `next` is in force, with these policies (of each tenant, in its order); returns the chains in force.
    struct config_chains *(*commit)(void *arg, const struct config *next, struct policy *const *policies);
    // A reload of the configuration failed (`why`), or the files are valid again (NULL).
    void (*failing)(void *arg, const struct err *why);
};

struct reload_spec {
    struct loop *loop;
    const struct config *config;
    const char *path;     // of the configuration; NULL: it is not in a file
    struct audit *audit;  // or NULL
    const struct reload_events *events;
    void *arg;
};

// A waiter for the end of a reload. Zeroed except for done and arg; removed with list_remove(&node).
struct reload_waiter {
    struct list node;
    // `text`: the changes, one on each line, or why nothing changed.
    void (*done)(struct reload_waiter *waiter, bool ok, const char *text);
    void *arg;
};

// Reads the policies of all tenants. NULL: one of them is not valid, or cannot be read.
struct reload *reload_new(const struct reload_spec *spec, struct err *err) MUST_CHECK;
struct policy *const *reload_policies(const struct reload *reload);  // in force: of `default`, then of each tenant
// Starts watching the files, those of the chains included.
void reload_start(struct reload *reload, struct config_chains *chains);
// Reads everything again, whether or not it has changed. `waiter` may be NULL.
void reload_now(struct reload *reload, struct reload_waiter *waiter);
const char *reload_problem(const struct reload *reload);  // why the configuration could not be taken over; "": it could
void reload_free(struct reload *reload);                  // no events follow

#endif
