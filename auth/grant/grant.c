// Owns the grant: its members, its key, its lifetime, and whether its token is fresh.
#include "auth/caller/identity.h"
#include "base/mem.h"
#include "encoding.h"
#include <stdlib.h>

#define AT(member) offsetof(struct grant_fields, member)
// clang-format off
static const struct field table[] = {
    {FIELD_SECRET,  1, AT(access_token)},
    {FIELD_SECRET,  2, AT(refresh_token)},
    {FIELD_TEXT,    3, AT(token_type)},
    {FIELD_TEXT,    4, AT(scope)},
    {FIELD_TEXT,    5, AT(scope_asked)},
    {FIELD_TIME,    6, AT(expires_at)},
    {FIELD_TIME,    7, AT(obtained_at)},
    {FIELD_TEXT,    8, AT(token_endpoint)},
    {FIELD_TEXT,    9, AT(revocation_endpoint)},
    {FIELD_TEXT,   10, AT(client_id)},
    {FIELD_TEXT,   11, AT(client_redirect)},
    {FIELD_TEXT,   12, AT(auth_method)},
    {FIELD_TEXT,   13, AT(account)},
    {FIELD_TIME,   14, AT(dead_at)},
    {FIELD_TEXT,   15, AT(dead_reason)},
    {FIELD_TIME,   16, AT(doubts)},
    {FIELD_TIME,   17, AT(doubted_at)},
    {FIELD_TIME,   18, AT(learned)},
    {FIELD_TIME,   19, AT(login)},
    {0},
};
// clang-format on
#undef AT

enum { KEY_TEXTS = 4 };

char *grant_user(const struct identity *identity)
{
    struct buf user = {0};
    for (const char *at = identity->provider; *at; at++)
        if (*at == '%' || *at == '/')
            buf_printf(&user, "%%%02X", (unsigned char)*at);
        else
            buf_put_char(&user, *at);
    buf_printf(&user, "/%s", identity->subject);
    return buf_take(&user, NULL);
}

int64_t grant_login_new(void)
{
    int64_t login;
    secret_random(&login, sizeof login);
    return login ? login : 1;
}

struct grant *grant_new(const struct grant_key *key, struct grant_fields *fields)
{
    struct grant *grant = mem_new(struct grant);
    *grant = (struct grant){.refs = 1,
                            .tenant = mem_string(key->tenant),
                            .user = mem_string(key->user),
                            .issuer = mem_string(key->issuer),
                            .resource = mem_string(key->resource ? key->resource : ""),
                            .is = *fields};
    *fields = (struct grant_fields){0};
    return grant;
}

struct grant *grant_ref(const struct grant *grant)
{
    struct grant *counted = (struct grant *)grant;
    if (counted)
        counted->refs++;
    return counted;
}

void grant_unref(const struct grant *grant)
{
    struct grant *counted = (struct grant *)grant;
    if (!counted || --counted->refs)
        return;
    fields_release(table, &counted->is);
    free(counted->tenant);
    free(counted->user);
    free(counted->issuer);
    free(counted->resource);
    free(counted);
}

void grant_fields_copy(const struct grant_fields *from, struct grant_fields *to) { fields_copy(table, from, to); }

void grant_fields_release(struct grant_fields *fields) { fields_release(table, fields); }

struct grant_key grant_key(const struct grant *grant)
{
    return (struct grant_key){grant->tenant, grant->user, grant->issuer, grant->resource};
}

bool grant_fresh(const struct grant *grant, int64_t now, int64_t margin)
{
    const struct grant_fields *is = &grant->is;
    if (!is->access_token.len || is->dead_at)
        return false;
    bool known = is->expires_at && now >= is->obtained_at;
    return !known || is->expires_at - margin > now;
}

void grant_damaged(const struct grant *grant, const struct err *problem, struct err *out)
{
    (void)err_set(out, ERR_SYSTEM,
                  "the grant of %.80s at %.120s cannot be opened: %.200s; remove it with 'postern connections --purge "
                  "--issuer %.120s'",
                  grant->user, grant->issuer, problem->detail, grant->issuer);
}

bool grant_doubt(struct grant_fields *fields, int64_t now)
{
    if (!fields->doubts || now < fields->doubted_at) {  // count from 0 if the clock was set back
        fields->doubts = 0;
        fields->doubted_at = now;
    }
    if (fields->doubts < GRANT_DOUBTS)
        fields->doubts++;
    return fields->doubts == GRANT_DOUBTS && now - fields->doubted_at >= GRANT_DOUBT_S;
}

void grant_encode(const struct grant *grant, struct buf *out) { fields_encode(table, &grant->is, out); }

struct grant *grant_decode(struct span key, struct span bytes, int64_t generation, struct err *err)
{
    char *texts[KEY_TEXTS];
    if (!fields_take_key(key, texts, KEY_TEXTS)) {
        (void)err_set(err, ERR_SYSTEM, "the key of a stored grant is damaged");
        return NULL;
    }
    struct grant *grant = mem_new(struct grant);
    *grant = (struct grant){.refs = 1,
                            .generation = generation,
                            .tenant = texts[0],
                            .user = texts[1],
                            .issuer = texts[2],
                            .resource = texts[3]};
    if (fields_decode(table, bytes, &grant->is, err))
        return grant;
    grant_unref(grant);
    return NULL;
}

void grant_key_encode(const struct grant_key *key, struct buf *out)
{
    fields_put_key(out, (const char *const[KEY_TEXTS]){key->tenant, key->user, key->issuer, key->resource}, KEY_TEXTS);
}

void grant_unref_all(struct grant **grants, size_t count)
{
    for (size_t i = 0; grants && i < count; i++)
        grant_unref(grants[i]);
    free(grants);
}
