// Owns the keys that sign assertions: they are read once, when the gateway starts, and published as a JWK set.
#include "assertion_keys.h"
#include "auth/jose/jwk_export.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include <stdlib.h>

struct entry {
    struct list node;
    const struct assertion_options *options;
    struct assertion_key key;
    struct arena arena;
};

struct assertion_keys {
    unsigned refs;
    struct list entries;
    json_t *published;  // an array
    struct buf document;
};

struct assertion_keys *assertion_keys_new(void)
{
    struct assertion_keys *keys = mem_new(struct assertion_keys);
    keys->refs = 1;
    list_init(&keys->entries);
    keys->published = json_array();
    return keys;
}

struct assertion_keys *assertion_keys_ref(struct assertion_keys *keys)
{
    keys->refs++;
    return keys;
}

void assertion_keys_unref(struct assertion_keys *keys)
{
    if (!keys || --keys->refs)
        return;
    list_each(node, &keys->entries) {
        struct entry *entry = list_entry(node, struct entry, node);
        arena_release(&entry->arena);
        free(entry);
    }
    json_decref(keys->published);
    buf_release(&keys->document);
    free(keys);
}

// Adds a key to the published set. Servers may share a key. Returns false if another key has the same id, because
// servers could not tell the two apart.
static bool publish(struct assertion_keys *keys, json_t *jwk)
{
    const char *id = json_string_value(json_object_get(jwk, "kid"));
    for (size_t i = 0; i < json_array_size(keys->published); i++) {
        const json_t *other = json_array_get(keys->published, i);
        if (strcmp(id, json_string_value(json_object_get(other, "kid"))) == 0) {
            bool same = json_equal(other, jwk);
            json_decref(jwk);
            return same;
        }
    }
    json_array_append_new(keys->published, jwk);
    return true;
}

static void add_own(struct assertion_keys *keys, struct entry *entry)
{
    const struct assertion_options *options = entry->options;
    struct assertion_key *key = &entry->key;
    key->sign = (struct signing_key){NULL, options->algorithm, options->key_id};
    const char *pem = signing_key_read(options->key_file, &entry->arena, &key->unusable);
    json_t *jwk = pem ? jwk_export_pem(pem, options->key_id, options->algorithm) : NULL;
    if (pem && !jwk) {
        (void)err_set(&key->unusable, ERR_CONFIG, "%s: is not a PEM key for %s", options->key_file, options->algorithm);
        return;
    }
    if (!jwk)
        return;
    key->sign.id = arena_copy(&entry->arena, span_of(json_string_value(json_object_get(jwk, "kid"))));
    if (publish(keys, jwk))
        key->sign.pem = pem;
    else
        (void)err_set(&key->unusable, ERR_CONFIG, "%s: another key already has the key_id \"%s\"", options->key_file,
                      key->sign.id);
}

static void add_other(struct assertion_keys *keys, const char *id, const char *path)
{
    struct arena arena = {0};
    struct err err = {0};
    const char *pem = signing_key_read_public(path, &arena, &err);
    json_t *jwk = pem ? jwk_export_pem(pem, id, NULL) : NULL;
    if (pem && !jwk)
        (void)err_set(&err, ERR_CONFIG, "%s: is not a PEM key", path);
    if (jwk && !publish(keys, jwk))
        (void)err_set(&err, ERR_CONFIG, "%s: another key already has the id \"%s\"", path, id);
    if (err.code)
        log_error("cannot publish a key", LOG_STR("id", id), LOG_STR("detail", err.detail));
    arena_release(&arena);
}

void assertion_keys_add(struct assertion_keys *keys, const struct assertion_options *options)
{
    struct entry *entry = mem_new(struct entry);
    entry->options = options;
    add_own(keys, entry);
    list_append(&keys->entries, &entry->node);
    for (size_t i = 0; i < options->other_keys.count; i++)
        add_other(keys, options->other_keys.at[i].name, options->other_keys.at[i].value);
    json_t *set = json_pack("{s:O}", "keys", keys->published);
    char *text = json_dumps(set, JSON_COMPACT);
    buf_clear(&keys->document);
    buf_put_text(&keys->document, text);
    free(text);
    json_decref(set);
}

const struct assertion_key *assertion_keys_find(const struct assertion_keys *keys,
                                                const struct assertion_options *options)
{
    list_each(node, &keys->entries) {
        struct entry *entry = list_entry(node, struct entry, node);
        if (entry->options == options)
            return &entry->key;
    }
    return NULL;
}

struct span assertion_keys_document(const struct assertion_keys *keys) { return buf_span(&keys->document); }
