// Owns identities: making, counting and comparing them.
#include "auth/identity.h"
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

// The count is bookkeeping, not part of what the object says: const objects are counted too.
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
    free(mine);
}

bool identity_same(const struct identity *a, const struct identity *b)
{
    return a && b && strcmp(a->tenant, b->tenant) == 0 && strcmp(a->provider, b->provider) == 0 &&
           strcmp(a->subject, b->subject) == 0;
}

const char *identity_proof_text(enum identity_proof proof)
{
    static const char *const texts[] = {"none", "anonymous", "bearer", "forwarded", "jwt"};
    return texts[proof];
}
