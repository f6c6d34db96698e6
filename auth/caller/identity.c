// Owns identities: making, counting and comparing them.
#include "auth/caller/identity.h"
#include "base/mem.h"
#include <stdlib.h>

struct identity *identity_new(enum identity_proof proof, const char *tenant, const char *provider, const char *subject)
{
    struct identity *identity = mem_new(struct identity);
    identity->refs = 1;
    identity->proof = proof;
    identity->tenant = mem_string(tenant);
    identity->provider = mem_string(provider);
    identity->subject = mem_string(subject);
    return identity;
}

void identity_add_role(struct identity *identity, struct span role)
{
    identity->roles = mem_resize(identity->roles, (identity->role_count + 1) * sizeof *identity->roles);
    identity->roles[identity->role_count++] = mem_span(role);
}

// The reference count is not part of the value, so references to const objects are counted, too.
static struct identity *counted(const struct identity *identity) { return (struct identity *)(uintptr_t)identity; }

struct identity *identity_ref(const struct identity *identity)
{
    if (identity)
        counted(identity)->refs++;
    return counted(identity);
}

void identity_unref(const struct identity *identity)
{
    struct identity *mine = counted(identity);
    if (!mine || --mine->refs)
        return;
    for (size_t i = 0; i < mine->role_count; i++)
        free(mine->roles[i]);
    free(mine->roles);
    free(mine->tenant);
    free(mine->provider);
    free(mine->subject);
    free(mine->token_id);
    free(mine->audit_text);
    free(mine);
}

bool identity_same(const struct identity *a, const struct identity *b)
{
    return a && b && strcmp(a->tenant, b->tenant) == 0 && strcmp(a->provider, b->provider) == 0 &&
           strcmp(a->subject, b->subject) == 0;
}

bool identity_is(const struct identity *identity, const char *principal)
{
    bool anonymous = identity->proof == IDENTITY_ANONYMOUS;
    if (strcmp(principal, "*") == 0)
        return true;
    if (strcmp(principal, "anonymous") == 0 || strcmp(principal, "authenticated") == 0)
        return anonymous == (principal[1] == 'n');
    if (strncmp(principal, "role:", 5) == 0) {
        for (size_t i = 0; i < identity->role_count; i++)
            if (strcmp(identity->roles[i], principal + 5) == 0)
                return true;
        return false;
    }
    size_t len = strlen(identity->provider);
    return !anonymous && strncmp(principal, "user:", 5) == 0 && strncmp(principal + 5, identity->provider, len) == 0 &&
           principal[5 + len] == ':' && strcmp(principal + 6 + len, identity->subject) == 0;
}

const char *identity_proof_text(enum identity_proof proof)
{
    static const char *const texts[] = {"none", "anonymous", "bearer", "forwarded", "jwt"};
    return texts[proof];
}
