// Owns opening the grant store for a command, and finding the grant that its options name.
#include "cmd/base/grants.h"
#include "auth/access/access.h"
#include "base/mem.h"
#include "cmd/base/fail.h"
#include "find.h"
#include <stdlib.h>

bool grants_open(const struct config *config, struct loop *loop, bool make, struct grant_store **out, struct err *err)
{
    const struct record_config records = config ? config->store : (struct record_config){0};
    const struct vault_config vault = config ? config->vault : (struct vault_config){0};
    *out = NULL;
    return (!make && !record_is_there(&records)) || (*out = grant_store_open(loop, &records, &vault, err)) != NULL;
}

bool grants_lasts(const struct config *config, int *code)
{
    if (!config || !config->store.seed)
        return true;
    *code = fail_with(
        EXIT_STORE,
        "%s: the store is a seed, so changes would be lost at once; run this command where the seed is created",
        config->store.seed);
    return false;
}

const char *grants_tenant(const struct flags *flags) { return flags->tenant ? flags->tenant : ACCESS_TENANT; }

char *grants_user(const struct flags *flags)
{
    const char *subject = flags->subject, *colon = subject ? strchr(subject, ':') : NULL;
    if (!subject)
        return mem_string(ACCESS_SHARED_USER);
    if (!colon || colon == subject || !colon[1])
        return NULL;
    char *provider = mem_copy(subject, (size_t)(colon - subject));
    struct identity *who = identity_new(IDENTITY_NONE, grants_tenant(flags), provider, colon + 1);
    char *user = grant_user(who);
    identity_unref(who);
    free(provider);
    return user;
}

const struct server *grants_server(const struct config *config, const struct flags *flags, int *code)
{
    struct err err = {0};
    const struct server *server = find_server(config, grants_tenant(flags), flags->url ? "url" : flags->args[0], &err);
    if (!server)
        *code = fail_with(EXIT_CONFIG, "%s", err.detail);
    else if (!server->url)
        *code = fail_with(EXIT_CONFIG, "server \"%s\" is a local command, which needs no login", server->name);
    return server && server->url ? server : NULL;
}
