// Owns closing the grant store at the end of a command: refreshed tokens are stored first, with a time limit.
#include "saving.h"
#include "cmd/base/fail.h"
#include <stdio.h>

enum { SAVE_MS = 30000, LOOK_MS = 100 };

struct saving {
    const struct grant_store *store;
    struct loop *loop;
    struct loop_timer look;
    int64_t until_ms;
};

static void on_look(struct loop_timer *timer)
{
    struct saving *saving = timer->arg;
    if (grant_store_unsaved(saving->store, NULL) && loop_now(saving->loop) < saving->until_ms)
        loop_timer_set(saving->loop, timer, LOOK_MS);
    else
        loop_stop(saving->loop);
}

// The old refresh token is spent, so exiting now would lose the login. The store retries by itself.
static void wait_for_unsaved(const struct grant_store *store, struct loop *loop, struct err *why)
{
    struct saving saving = {store, loop, {.on_due = on_look}, loop_now(loop) + SAVE_MS};
    saving.look.arg = &saving;
    if (!grant_store_unsaved(store, why))
        return;
    fprintf(stderr, "postern: a refreshed token is not stored yet; retrying for %d seconds: %s\n", SAVE_MS / 1000,
            why->detail);
    loop_timer_set(loop, &saving.look, LOOK_MS);
    loop_run(loop);
}

int saving_close(struct grant_store *store, struct loop *loop)
{
    struct err why = {0};
    if (!store)
        return EXIT_OK;
    (void)!grant_store_wait(store, SAVE_MS);
    wait_for_unsaved(store, loop, &why);
    if (!grant_store_close(store))
        return EXIT_OK;
    return fail_with(EXIT_STORE,
                     "a refreshed token could not be stored, and the stored refresh token is spent: fix the store, "
                     "then log in again: %s",
                     why.detail);
}
