// Owns the registration of a client: its members, its key and its lifetime.
#include "base/mem.h"
#include "encoding.h"
#include <stdlib.h>

#define AT(member) offsetof(struct registration_fields, member)
// clang-format off
static const struct field table[] = {
    {FIELD_TEXT,    1, AT(client_id)},
    {FIELD_SECRET,  2, AT(client_secret)},
    {FIELD_TIME,    3, AT(secret_expires_at)},
    {FIELD_TIME,    4, AT(issued_at)},
    {FIELD_TEXT,    5, AT(auth_method)},
    {FIELD_SECRET,  6, AT(registration_token)},
    {FIELD_TEXT,    7, AT(registration_uri)},
    {FIELD_TEXT,    8, AT(redirect_uris)},
    {FIELD_TEXT,    9, AT(scope)},
    {FIELD_TIME,   10, AT(suspect_at)},
    {FIELD_TEXT,   11, AT(previous_id)},
    {FIELD_SECRET, 12, AT(previous_secret)},
    {FIELD_TIME,   13, AT(learned)},
    {0},
};
// clang-format on
#undef AT

enum { KEY_TEXTS = 3 };

struct registration *registration_new(const struct registration_key *key, struct registration_fields *fields)
{
    struct registration *registration = mem_new(struct registration);
    *registration = (struct registration){.refs = 1,
                                          .tenant = mem_string(key->tenant),
                                          .issuer = mem_string(key->issuer),
                                          .redirect = mem_string(key->redirect),
                                          .is = *fields};
    *fields = (struct registration_fields){0};
    return registration;
}

struct registration *registration_ref(const struct registration *registration)
{
    struct registration *counted = (struct registration *)registration;
    if (counted)
        counted->refs++;
    return counted;
}

void registration_unref(const struct registration *registration)
{
    struct registration *counted = (struct registration *)registration;
    if (!counted || --counted->refs)
        return;
    fields_release(table, &counted->is);
    free(counted->tenant);
    free(counted->issuer);
    free(counted->redirect);
    free(counted);
}

void registration_fields_copy(const struct registration_fields *from, struct registration_fields *to)
{
    fields_copy(table, from, to);
}

const struct secret *registration_secret(const struct registration *registration, const char *client_id)
{
    const struct registration_fields *is = &registration->is;
    const struct secret *found = NULL;
    if (strcmp(is->client_id, client_id) == 0)
        found = &is->client_secret;
    else if (is->previous_id && strcmp(is->previous_id, client_id) == 0)
        found = &is->previous_secret;
    return found && found->len ? found : NULL;
}

void registration_encode(const struct registration *registration, struct buf *out)
{
    fields_encode(table, &registration->is, out);
}

struct registration *registration_decode(struct span key, struct span bytes, int64_t generation, struct err *err)
{
    char *texts[KEY_TEXTS];
    if (!fields_take_key(key, texts, KEY_TEXTS)) {
        (void)err_set(err, ERR_SYSTEM, "the key of a stored registration is damaged");
        return NULL;
    }
    struct registration *registration = mem_new(struct registration);
    *registration = (struct registration){
        .refs = 1, .generation = generation, .tenant = texts[0], .issuer = texts[1], .redirect = texts[2]};
    if (fields_decode(table, bytes, &registration->is, err))
        return registration;
    registration_unref(registration);
    return NULL;
}

void registration_key_encode(const struct registration_key *key, struct buf *out)
{
    fields_put_key(out, (const char *const[KEY_TEXTS]){key->tenant, key->issuer, key->redirect}, KEY_TEXTS);
}
