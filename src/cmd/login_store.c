// Owns how commands get at the token store, and what they keep of a server's refusal.
#include "base/mem.h"
#include "client.h"
#include "login.h"
#include <stdio.h>
#include <stdlib.h>

enum { SAVE_MS = 30000, LOOK_MS = 100 };

bool login_store_open(const struct config *config, struct loop *loop, bool make, struct token_store **out,
                      struct err *err)
{
    const struct record_config records = config ? config->store : (struct record_config){0};
    const struct vault_config vault = config ? config->vault : (struct vault_config){0};
    *out = NULL;
    return (!make && !record_is_there(&records)) || (*out = token_store_open(loop, &records, &vault, err)) != NULL;
}

struct saving {
    const struct token_store *store;
    struct loop *loop;
    struct loop_timer look;
    int64_t until_ms;
};

static void on_look(struct loop_timer *timer)
{
    struct saving *saving = timer->arg;
    if (token_store_unsaved(saving->store, NULL) && loop_now(saving->loop) < saving->until_ms)
        loop_timer_set(saving->loop, timer, LOOK_MS);
    else
        loop_stop(saving->loop);
}

// The refresh token that was used is not good any more, so who ends now ends the login. The store tries again by itself.
static void wait_for_unsaved(const struct token_store *store, struct loop *loop, struct err *why)
{
    struct saving saving = {store, loop, {.on_due = on_look}, loop_now(loop) + SAVE_MS};
    saving.look.arg = &saving;
    if (!token_store_unsaved(store, why))
        return;
    fprintf(stderr, "postern: a refreshed token is not stored yet, trying for %d seconds: %s\n", SAVE_MS / 1000,
            why->detail);
    loop_timer_set(loop, &saving.look, LOOK_MS);
    loop_run(loop);
}

int login_store_close(struct token_store *store, struct loop *loop)
{
    struct err why = {0};
    if (!store)
        return EXIT_OK;
    (void)!token_store_wait(store, SAVE_MS);
    wait_for_unsaved(store, loop, &why);
    if (!token_store_close(store))
        return EXIT_OK;
    return cmd_fail(EXIT_STORE,
                    "a refreshed token could not be stored, and what is stored is used up: see to the store, "
                    "then log in again: %s",
                    why.detail);
}

bool login_store_lasts(const struct config *config, int *code)
{
    if (!config || !config->store.seed)
        return true;
    *code = cmd_fail(EXIT_STORE,
                     "%s: the store is a seed, and what changes would be forgotten at once; do this where "
                     "the seed is made",
                     config->store.seed);
    return false;
}

const char *login_tenant(const struct flags *flags) { return flags->tenant ? flags->tenant : ACCESS_TENANT; }

char *login_user(const struct flags *flags)
{
    const char *subject = flags->subject, *colon = subject ? strchr(subject, ':') : NULL;
    if (!subject)
        return mem_string(ACCESS_SHARED_USER);
    if (!colon || colon == subject || !colon[1])
        return NULL;
    char *provider = mem_copy(subject, (size_t)(colon - subject));
    struct identity *who = identity_new(IDENTITY_NONE, login_tenant(flags), provider, colon + 1);
    char *user = grant_user(who);
    identity_unref(who);
    free(provider);
    return user;
}

const struct server *login_server(const struct config *config, const struct flags *flags, int *code)
{
    struct err err = {0};
    const struct server *server = client_find(config, login_tenant(flags), flags->url ? "url" : flags->args[0], &err);
    if (!server)
        *code = cmd_fail(EXIT_CONFIG, "%s", err.detail);
    else if (!server->url)
        *code = cmd_fail(EXIT_CONFIG, "server \"%s\" is a command: there is nothing to log in to", server->name);
    return server && server->url ? server : NULL;
}

static const char *keep(struct login_cause *cause, const char *text)
{
    return text ? arena_copy(&cause->arena, span_of(text)) : NULL;
}

void login_cause_set(struct login_cause *cause, const struct access *access)
{
    const struct oauth_challenge *said = access_challenge(access);
    *cause = (struct login_cause){0};
    cause->challenge.bearer = said->bearer;
    cause->challenge.scope = keep(cause, said->scope);
    cause->challenge.resource_metadata = keep(cause, said->resource_metadata);
    cause->held_scope = keep(cause, access_scope(access));
}

void login_cause_release(struct login_cause *cause) { arena_release(&cause->arena); }
