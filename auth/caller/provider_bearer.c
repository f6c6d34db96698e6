// Owns the provider `bearer`: tokens of the tokens file, which is read again when it changes.
#include "provider_bearer.h"
#include "base/clock.h"
#include "base/mem.h"
#include "tokens_read.h"
#include <stdlib.h>

struct bearer {
    const char *name;
    char *path;
    struct caller_tokens *file;
};

static struct caller_tokens *load(const struct bearer *bearer, struct err *err)
{
    struct caller_tokens *file = caller_tokens_load(bearer->path, err);
    if (file)
        caller_tokens_vouch(file, bearer->name);
    return file;
}

void *provider_bearer_open(const struct provider_config *config, const struct provider_world *world, struct err *err)
{
    struct buf path = {0};
    if (config->tokens[0] != '/' && world->folder && *world->folder)
        buf_printf(&path, "%s/", world->folder);
    buf_put_text(&path, config->tokens);
    struct bearer *bearer = mem_new(struct bearer);
    bearer->name = provider_name(config);
    bearer->path = buf_take(&path, NULL);
    if ((bearer->file = load(bearer, err)))
        return bearer;
    provider_bearer_close(bearer);
    return NULL;
}

void provider_bearer_close(void *state)
{
    struct bearer *bearer = state;
    caller_tokens_free(bearer->file);
    free(bearer->path);
    free(bearer);
}

enum provider_verdict provider_bearer(void *state, const struct credentials *credentials, struct provider_wait *wait,
                                      struct identity **out)
{
    (void)wait;
    const struct bearer *bearer = state;
    const struct caller_token *entry;
    struct span value = credentials_bearer(credentials);
    if (!value.at)
        return PROVIDER_PASS;
    enum provider_verdict verdict = caller_tokens_find(bearer->file, value, clock_wall_s(), &entry);
    if (verdict == PROVIDER_ACCEPT)
        *out = caller_tokens_identity(entry);
    return verdict;
}

bool provider_bearer_poll(void **state, struct err *err)
{
    struct bearer *bearer = *state;
    if (!caller_tokens_stale(bearer->file))
        return false;
    struct caller_tokens *file = load(bearer, err);
    if (!file)
        return false;  // the old tokens stay in force
    caller_tokens_free(bearer->file);
    bearer->file = file;
    return true;
}

// Is the token of this identity still in the file, with the same rights?
bool provider_bearer_stands(void *state, const struct identity *identity)
{
    const struct bearer *bearer = state;
    const struct caller_token *entry =
        identity->token_id ? caller_tokens_named(bearer->file, span_of(identity->token_id)) : NULL;
    if (!entry || caller_tokens_expired(entry, clock_wall_s()) || strcmp(entry->subject, identity->subject) != 0 ||
        strcmp(entry->tenant ? entry->tenant : "default", identity->tenant) != 0)
        return false;
    size_t count = 0;
    for (; entry->roles && entry->roles[count]; count++)
        if (count >= identity->role_count || strcmp(entry->roles[count], identity->roles[count]) != 0)
            return false;
    return count == identity->role_count;
}
