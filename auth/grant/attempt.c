// Owns attempts: their members, their encoding, and the identity stored in them.
#include "auth/caller/identity.h"
#include "base/mem.h"
#include "encoding.h"
#include <stdlib.h>

#define AT(member) offsetof(struct attempt, member)
// clang-format off
static const struct field table[] = {
    {FIELD_TIME,    1, AT(stage)},
    {FIELD_TIME,    2, AT(expires_ms)},
    {FIELD_TIME,    3, AT(proof)},
    {FIELD_TIME,    4, AT(role_count)},
    {FIELD_TIME,    5, AT(identity_expires)},
    {FIELD_TEXT,    6, AT(tenant)},
    {FIELD_TEXT,    7, AT(provider)},
    {FIELD_TEXT,    8, AT(subject)},
    {FIELD_TEXT,    9, AT(roles)},
    {FIELD_TEXT,   10, AT(token_id)},
    {FIELD_TEXT,   11, AT(server)},
    {FIELD_TEXT,   12, AT(server_url)},
    {FIELD_TEXT,   13, AT(return_to)},
    {FIELD_TIME,   14, AT(challenged)},
    {FIELD_TEXT,   15, AT(challenge_scope)},
    {FIELD_TEXT,   16, AT(challenge_metadata)},
    {FIELD_TEXT,   17, AT(held_scope)},
    {FIELD_SECRET, 18, AT(cookie)},
    {FIELD_SECRET, 19, AT(login)},
    {FIELD_TEXT,   20, AT(client_issuer)},
    {FIELD_TEXT,   21, AT(client_redirect)},
    {FIELD_TEXT,   22, AT(client_id)},
    {0},
};
// clang-format on
#undef AT

struct attempt *attempt_new(const struct identity *identity, const char *server, const char *server_url)
{
    struct attempt *attempt = mem_new(struct attempt);
    struct buf roles = {0};
    fields_put_key(&roles, (const char *const *)identity->roles, identity->role_count);
    *attempt = (struct attempt){.stage = ATTEMPT_OFFERED,
                                .proof = (int64_t)identity->proof,
                                .role_count = (int64_t)identity->role_count,
                                .identity_expires = identity->expires,
                                .tenant = mem_string(identity->tenant),
                                .provider = mem_string(identity->provider),
                                .subject = mem_string(identity->subject),
                                .roles = roles.len ? buf_take(&roles, NULL) : NULL,
                                .token_id = mem_string(identity->token_id),
                                .server = mem_string(server),
                                .server_url = mem_string(server_url)};
    return attempt;
}

void attempt_free(struct attempt *attempt)
{
    if (!attempt)
        return;
    fields_release(table, attempt);
    free(attempt);
}

void attempt_forget(struct attempt *attempt)
{
    attempt->stage = ATTEMPT_OVER;
    secret_release(&attempt->cookie);
    secret_release(&attempt->login);
}

struct identity *attempt_identity(const struct attempt *attempt)
{
    struct identity *identity =
        identity_new((enum identity_proof)attempt->proof, attempt->tenant, attempt->provider, attempt->subject);
    size_t count = (size_t)attempt->role_count;
    char **roles = mem_alloc((count + 1) * sizeof *roles);
    if (count && fields_take_key(span_of(attempt->roles), roles, count))
        for (size_t i = 0; i < count; i++) {
            identity_add_role(identity, span_of(roles[i]));
            free(roles[i]);
        }
    free(roles);
    identity->token_id = mem_string(attempt->token_id);
    identity->expires = attempt->identity_expires;
    return identity;
}

void attempt_encode(const struct attempt *attempt, struct buf *out) { fields_encode(table, attempt, out); }

struct attempt *attempt_decode(struct span bytes, int64_t generation, struct err *err)
{
    struct attempt *attempt = mem_new(struct attempt);
    bool ok = fields_decode(table, bytes, attempt, err);
    attempt->generation = generation;
    if (ok && attempt->tenant && attempt->provider && attempt->subject && attempt->server && attempt->server_url &&
        attempt->role_count >= 0 && attempt->role_count <= (int64_t)bytes.len)
        return attempt;
    if (ok)
        (void)err_set(err, ERR_SYSTEM, "a stored login is damaged; log in again");
    attempt_free(attempt);
    return NULL;
}

void attempt_owner(const struct attempt *attempt, unsigned char out[ATTEMPT_OWNER_BYTES])
{
    unsigned char digest[SECRET_MAC_BYTES];
    struct buf key = {0};
    fields_put_key(&key, (const char *const[]){attempt->tenant, attempt->provider, attempt->subject, attempt->server},
                   4);
    secret_digest(buf_span(&key), digest);
    memcpy(out, digest, ATTEMPT_OWNER_BYTES);
    buf_release(&key);
}
