// Owns key sets: importing a JWKS document, choosing one of its keys, and its lifetime.
#include "base/mem.h"
#include "jwk.h"
#include <openssl/err.h>
#include <stdlib.h>
#include <strings.h>

struct jwks {
    size_t count, skipped;
    char *problem;
    struct jwk keys[JWKS_KEYS_MAX];
};

static bool same_kid(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

// The same key with the same kid is imported only once, because a duplicate would make the choice ambiguous.
static bool listed_already(const struct jwks *keys, const struct jwk *jwk)
{
    for (size_t i = 0; i < keys->count; i++)
        if (same_kid(keys->keys[i].kid, jwk->kid) && keys->keys[i].kind == jwk->kind &&
            keys->keys[i].algorithms == jwk->algorithms && EVP_PKEY_eq(keys->keys[i].key, jwk->key) == 1)
            return true;
    return false;
}

static void add_key(struct jwks *keys, const json_t *member, size_t index)
{
    const char *problem;
    struct jwk jwk;
    bool ok = jwk_import(member, &jwk, &problem);
    if (ok && !listed_already(keys, &jwk)) {
        keys->keys[keys->count++] = jwk;
        return;
    }
    jwk_release(&jwk);
    keys->skipped++;
    if (problem && !ok && !keys->problem) {
        struct buf text = {0};
        buf_printf(&text, "key %zu: %s", index + 1, problem);
        keys->problem = buf_take(&text, NULL);
    }
}

struct jwks *jwks_parse(struct span text, struct err *err)
{
    if (text.len > JWKS_TEXT_MAX) {
        (void)err_set(err, ERR_PARSE, "key set: larger than %zu bytes", JWKS_TEXT_MAX);
        return NULL;
    }
    json_t *tree = jwk_json(text, "key set", ERR_PARSE, err);
    if (!tree)
        return NULL;
    struct jwks *keys = NULL;
    const json_t *list = json_object_get(tree, "keys");
    if (!json_is_array(list)) {
        (void)err_set(err, ERR_PARSE, "key set: \"keys\" is not an array");
    } else if (json_array_size(list) > JWKS_KEYS_MAX) {
        (void)err_set(err, ERR_PARSE, "key set: more than %d keys", JWKS_KEYS_MAX);
    } else {
        keys = mem_new(struct jwks);
        for (size_t i = 0; i < json_array_size(list); i++)
            add_key(keys, json_array_get(list, i), i);
        ERR_clear_error();
    }
    json_decref(tree);
    return keys;
}

void jwks_free(struct jwks *keys)
{
    if (!keys)
        return;
    for (size_t i = 0; i < keys->count; i++)
        jwk_release(&keys->keys[i]);
    free(keys->problem);
    free(keys);
}

size_t jwks_count(const struct jwks *keys) { return keys->count; }

size_t jwks_skipped(const struct jwks *keys) { return keys->skipped; }

const char *jwks_problem(const struct jwks *keys) { return keys->problem; }

const struct jwk *jwks_select(const struct jwks *keys, const char *kid, const struct jwk_algorithm *algorithm,
                              bool *unknown, struct err *err)
{
    const struct jwk *found = NULL;
    size_t named = 0, fit = 0;
    for (size_t i = 0; keys && i < keys->count; i++) {
        const struct jwk *jwk = &keys->keys[i];
        if (kid && !same_kid(kid, jwk->kid))
            continue;
        named++;
        if (jwk->algorithms & algorithm->bit) {
            found = jwk;
            fit++;
        }
    }
    *unknown = !keys || (kid && named == 0);
    if (fit == 1)
        return found;
    if (*unknown)
        (void)err_set(err, ERR_UNAUTHENTICATED, "token: %s",
                      keys ? "its kid does not match a key of the issuer"
                           : "the keys of the issuer were not fetched yet");
    else if (fit == 0)
        (void)err_set(err, ERR_UNAUTHENTICATED, "token: the issuer has no key%s for %s", kid ? " with its kid" : "",
                      algorithm->name);
    else
        (void)err_set(err, ERR_UNAUTHENTICATED, "token: %zu keys match %s", fit,
                      kid ? "and have the same kid" : "and the token has no kid");
    return NULL;
}

// An invalid value, no-store and no-cache give the minimum.
int64_t jwks_lifetime(const char *cache_control)
{
    const int64_t least = 300, most = 86400;
    int64_t seconds = 0;
    for (const char *at = cache_control; at && *at; at += strcspn(at, ",")) {
        at += strspn(at, ", \t");
        if (strncasecmp(at, "no-store", 8) == 0 || strncasecmp(at, "no-cache", 8) == 0)
            return least;
        if (strncasecmp(at, "max-age=", 8) != 0)
            continue;
        at += at[8] == '"' ? 9 : 8;
        for (seconds = 0; *at >= '0' && *at <= '9' && seconds < most; at++)
            seconds = seconds * 10 + (*at - '0');
    }
    return seconds < least ? least : seconds > most ? most : seconds;
}
