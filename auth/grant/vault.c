// Owns sealing and opening records with the ring of keys, and verifying that the ring fits the records.
//
// The record (vault, check) is sealed like all others and opened at every start: with the wrong ring the gateway
// refuses to start, instead of reporting a missing token to each user.
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/secret.h"
#include "sealing.h"
#include "vault_ring.h"
#include <openssl/evp.h>
#include <stdlib.h>

enum { FORMAT = 1, NONCE_BYTES = 12, TAG_BYTES = 16, NONCE_AT = 1 + VAULT_ID_BYTES, TEXT_AT = NONCE_AT + NONCE_BYTES };
_Static_assert(TEXT_AT + TAG_BYTES == VAULT_OVERHEAD, "the format in auth/grant/vault.h");
#define CHECK_TEXT "postern"
#define ROTATION_LEASE "vault rotation"

enum { ROTATION_MS = 60000, RENEW_EVERY = 256, PASSES = 16, FRESH_S = 60 };

static const char *const spaces[] = {VAULT_CHECK, VAULT_GRANTS, VAULT_CLIENTS, VAULT_ATTEMPTS, VAULT_ISSUERS};
enum { SPACES = sizeof spaces / sizeof *spaces };

struct vault {
    struct vault_ring *ring;
    struct vault_ring_place place;
    bool complained;
};

#define AT(member) offsetof(struct vault_config, member)
static const struct option rows[] = {
    {.name = "key_file",
     .type = OPTION_STRING,
     .offset = AT(key_file),
     .help = "The file with the keys that seal users' tokens, 32 bytes in base64 on each line. The first key seals; "
             "all keys open. \"fd:3\" is an inherited file descriptor. If absent, the first of these is used: "
             "`$POSTERN_VAULT_KEY`, the systemd credential `postern-vault-key`, vault.key in the state folder if it "
             "exists, the desktop's keyring (with `secret-tool`), and vault.key, created at the first use. Keep a copy "
             "of the keys: without them, the tokens are lost."},
    {0},
};
#undef AT
const struct option_table vault_options = {"Vault (vault)", sizeof(struct vault_config), rows, NULL};

const char *vault_source(const struct vault *vault) { return vault->place.name; }

static void put_id(const unsigned char id[VAULT_ID_BYTES], char out[VAULT_ID_CHARS + 1])
{
    for (size_t i = 0; i < VAULT_ID_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02x", id[i]);
}

// ---- sealing --------------------------------------------------------------------------------

// Reads the ring again after a rotation by another process. If the file cannot be read, the keys in memory stay in use,
// and the problem is logged once.
static void refresh(struct vault *vault)
{
    struct err err = {0};
    if (!vault_ring_changed(&vault->place))
        return;
    struct vault_ring *ring = vault_ring_new();
    if (vault_ring_read(&vault->place, ring, &err)) {
        vault_ring_free(vault->ring);
        vault->ring = ring;
        vault->complained = false;
        return;
    }
    vault_ring_free(ring);
    if (!vault->complained)
        log_error("cannot reload the vault's keys; the previous keys stay in use", LOG_STR("problem", err.detail));
    vault->complained = true;
}

static bool failed(struct err *err) { return err_set(err, ERR_INTERNAL, "AES-256-GCM failed in OpenSSL"); }

// version · key id · space · 0 · key
static void put_associated(struct buf *out, const unsigned char *header, struct record_name name)
{
    buf_put(out, header, NONCE_AT);
    buf_put(out, name.space, strlen(name.space) + 1);
    buf_put_span(out, name.key);
}

static bool encrypt(EVP_CIPHER_CTX *cipher, const struct vault_ring_key *key, struct span associated, struct span plain,
                    unsigned char *out)
{
    int len;
    unsigned char *text = out + TEXT_AT;
    return EVP_EncryptInit_ex(cipher, EVP_aes_256_gcm(), NULL, key->bytes, out + NONCE_AT) == 1 &&
           EVP_EncryptUpdate(cipher, NULL, &len, (const unsigned char *)associated.at, (int)associated.len) == 1 &&
           EVP_EncryptUpdate(cipher, text, &len, (const unsigned char *)plain.at, (int)plain.len) == 1 &&
           EVP_EncryptFinal_ex(cipher, text + plain.len, &len) == 1 &&
           EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_GET_TAG, TAG_BYTES, text + plain.len) == 1;
}

static bool seal(const struct vault_ring_key *key, struct record_name name, struct span plain, struct buf *out,
                 struct err *err)
{
    struct buf associated = {0};
    buf_clear(out);
    buf_reserve(out, plain.len + VAULT_OVERHEAD);
    unsigned char *bytes = (unsigned char *)out->at;
    bytes[0] = FORMAT;
    memcpy(bytes + 1, key->id, VAULT_ID_BYTES);
    secret_random(bytes + NONCE_AT, NONCE_BYTES);
    put_associated(&associated, bytes, name);
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    bool ok = cipher && encrypt(cipher, key, buf_span(&associated), plain, bytes);
    EVP_CIPHER_CTX_free(cipher);
    buf_release(&associated);
    out->len = ok ? plain.len + VAULT_OVERHEAD : 0;
    return ok || failed(err);
}

bool vault_seal(struct vault *vault, struct record_name name, struct span plain, struct buf *out, struct err *err)
{
    refresh(vault);
    if (plain.len > RECORD_VALUE_MAX - VAULT_OVERHEAD)
        return err_set(err, ERR_TOO_LARGE, "%zu bytes are too many to seal", plain.len);
    return seal(&vault->ring->keys[0], name, plain, out, err);
}

static bool decrypt(EVP_CIPHER_CTX *cipher, const struct vault_ring_key *key, struct span associated,
                    struct span sealed, unsigned char *out)
{
    int len;
    const unsigned char *bytes = (const unsigned char *)sealed.at;
    size_t text = sealed.len - VAULT_OVERHEAD;
    unsigned char tag[TAG_BYTES];
    memcpy(tag, bytes + TEXT_AT + text, TAG_BYTES);
    return EVP_DecryptInit_ex(cipher, EVP_aes_256_gcm(), NULL, key->bytes, bytes + NONCE_AT) == 1 &&
           EVP_DecryptUpdate(cipher, NULL, &len, (const unsigned char *)associated.at, (int)associated.len) == 1 &&
           EVP_DecryptUpdate(cipher, out, &len, bytes + TEXT_AT, (int)text) == 1 &&
           EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_SET_TAG, TAG_BYTES, tag) == 1 &&
           EVP_DecryptFinal_ex(cipher, out + text, &len) == 1;
}

static const struct vault_ring_key *find_key(struct vault *vault, const unsigned char *id, struct err *err)
{
    char text[VAULT_ID_CHARS + 1];
    const struct vault_ring_key *key = vault_ring_find(vault->ring, id);
    if (!key)
        refresh(vault);
    if (!key && !(key = vault_ring_find(vault->ring, id))) {
        put_id(id, text);
        (void)err_set(err, ERR_CONFIG,
                      "sealed with key %s, which is not in %s: restore that key from a backup, on a line of its own "
                      "after the first key; nothing was changed",
                      text, vault->place.name);
    }
    return key;
}

static bool unseal(const struct vault_ring_key *key, struct record_name name, struct span sealed, struct buf *out)
{
    struct buf associated = {0};
    buf_clear(out);
    buf_reserve(out, sealed.len);
    put_associated(&associated, (const unsigned char *)sealed.at, name);
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    bool ok = cipher && decrypt(cipher, key, buf_span(&associated), sealed, (unsigned char *)out->at);
    EVP_CIPHER_CTX_free(cipher);
    buf_release(&associated);
    if (!ok)
        secret_wipe(out->at, out->room);
    out->len = ok ? sealed.len - VAULT_OVERHEAD : 0;
    return ok;
}

static bool has_format(struct span sealed) { return sealed.len >= VAULT_OVERHEAD && sealed.at[0] == FORMAT; }

bool vault_unseal(struct vault *vault, struct record_name name, struct span sealed, struct buf *out, struct err *err)
{
    if (!has_format(sealed) || sealed.len > RECORD_VALUE_MAX)
        return err_set(err, ERR_SYSTEM, "a sealed record is truncated, or was written by a later version");
    const struct vault_ring_key *key = find_key(vault, (const unsigned char *)sealed.at + 1, err);
    if (!key)
        return false;
    return unseal(key, name, sealed, out) ||
           err_set(err, ERR_SYSTEM, "a sealed record is not authentic: it was modified, or moved from another key");
}

// A key without an id.
static struct vault_ring_key bare_key(const unsigned char bytes[VAULT_KEY_BYTES])
{
    struct vault_ring_key key = {0};
    memcpy(key.bytes, bytes, VAULT_KEY_BYTES);
    return key;
}

bool vault_seal_with(const unsigned char bytes[VAULT_KEY_BYTES], struct record_name name, struct span plain,
                     struct buf *out)
{
    struct err err;
    struct vault_ring_key key = bare_key(bytes);
    bool ok = seal(&key, name, plain, out, &err);
    secret_wipe(&key, sizeof key);
    return ok;
}

bool vault_unseal_with(const unsigned char bytes[VAULT_KEY_BYTES], struct record_name name, struct span sealed,
                       struct buf *out)
{
    struct vault_ring_key key = bare_key(bytes);
    bool ok = has_format(sealed) && unseal(&key, name, sealed, out);
    secret_wipe(&key, sizeof key);
    return ok;
}

// ---- opening --------------------------------------------------------------------------------

static bool note_one(void *arg, const struct record *record)
{
    (void)record;
    *(bool *)arg = true;
    return false;
}

static bool has_records(struct record_store *records, bool *any, struct err *err)
{
    *any = false;
    for (size_t i = 0; i < SPACES && !*any; i++)
        if (!record_scan(records, (struct record_name){spaces[i], {0}}, note_one, any, err))
            return false;
    return true;
}

// A new ring is generated only for a store without sealed records.
static bool make_ring(struct vault *vault, struct record_store *records, struct err *err)
{
    bool any;
    if (!has_records(records, &any, err))
        return false;
    if (any)
        return err_set(
            err, ERR_CONFIG,
            "%s: does not exist, but %s contains records that were sealed with its keys: restore it from a "
            "backup, set vault.key_file to the location of the keys, or run this command in the desktop session whose "
            "keyring contains them; nothing was changed",
            vault->place.name, record_path(records));
    if (!vault_ring_make(&vault->place, err))
        return false;
    log_warn("generated a new key for the users' tokens: keep a copy of it, because the tokens are lost without it",
             LOG_STR(vault->place.source == VAULT_RING_KEYRING ? "keyring" : "file", vault->place.name));
    return true;
}

static bool check(struct vault *vault, const struct record *record, struct err *err)
{
    struct buf plain = {0};
    struct record_name name = {VAULT_CHECK, span_of("check")};
    bool ok = vault_unseal(vault, name, record->value, &plain, err);
    if (ok && !span_is(buf_span(&plain), CHECK_TEXT))
        ok = err_set(err, ERR_SYSTEM, "the vault's check record does not have the expected content");
    buf_wipe(&plain);
    return ok;
}

// Reads a record. If it does not exist, it is created with the content `first`.
static enum record_answer get_or_make(struct vault *vault, struct record_store *records, struct record_name name,
                                      struct span first, struct record *record, struct err *err)
{
    struct buf sealed = {0};
    int64_t generation = 0;
    enum record_answer got = record_get(records, name, record, err);
    if (got != RECORD_NO)
        return got;
    got = vault_seal(vault, name, first, &sealed, err) ? record_put(records, name, buf_span(&sealed), &generation, err)
                                                       : RECORD_FAILED;
    buf_release(&sealed);
    return got == RECORD_FAILED ? got : record_get(records, name, record, err);  // NO: another process created it first
}

static bool prove(struct vault *vault, struct record_store *records, struct err *err)
{
    struct record record;
    struct record_name name = {VAULT_CHECK, span_of("check")};
    struct err problem = {0};
    if (get_or_make(vault, records, name, span_of(CHECK_TEXT), &record, &problem) == RECORD_YES &&
        check(vault, &record, &problem))
        return true;
    return err_set(err, problem.code ? problem.code : ERR_SYSTEM, "%s: %s", record_path(records), problem.detail);
}

bool vault_shared_key(struct vault *vault, struct record_store *records, unsigned char out[VAULT_KEY_BYTES],
                      struct err *err)
{
    struct record record;
    struct record_name name = {VAULT_CHECK, span_of("shared")};
    struct buf plain = {0};
    secret_random(out, VAULT_KEY_BYTES);
    bool ok =
        get_or_make(vault, records, name, span_make((const char *)out, VAULT_KEY_BYTES), &record, err) == RECORD_YES &&
        vault_unseal(vault, name, record.value, &plain, err);
    if (ok && plain.at && plain.len == VAULT_KEY_BYTES)
        memcpy(out, plain.at, VAULT_KEY_BYTES);
    else if (ok)
        ok = err_set(err, ERR_SYSTEM, "%s: the shared key of the processes is damaged", record_path(records));
    buf_wipe(&plain);
    return ok;
}

struct vault *vault_open(const struct vault_config *config, struct record_store *records, struct err *err)
{
    struct vault *vault = mem_new(struct vault);
    vault->ring = vault_ring_new();
    if (vault_ring_locate(config, &vault->place, err) &&
        (vault->place.source != VAULT_RING_NONE || make_ring(vault, records, err)) &&
        vault_ring_read(&vault->place, vault->ring, err) && prove(vault, records, err))
        return vault;
    vault_free(vault);
    return NULL;
}

void vault_free(struct vault *vault)
{
    if (!vault)
        return;
    vault_ring_free(vault->ring);
    vault_ring_place_release(&vault->place);
    free(vault);
}

// ---- status ---------------------------------------------------------------------------------

static struct vault_key *status_key(struct vault_status *status, const unsigned char *id)
{
    char text[VAULT_ID_CHARS + 1];
    put_id(id, text);
    for (size_t i = 0; i < status->count; i++)
        if (strcmp(status->keys[i].id, text) == 0)
            return &status->keys[i];
    if (status->count == sizeof status->keys / sizeof *status->keys)
        return NULL;
    struct vault_key *key = &status->keys[status->count++];
    memcpy(key->id, text, sizeof text);
    return key;
}

struct census {
    struct vault *vault;
    const char *space;
    struct vault_status *status;
};

static bool opens(struct census *census, const struct record *record)
{
    struct buf plain = {0};
    struct err ignored;
    bool ok =
        vault_unseal(census->vault, (struct record_name){census->space, record->key}, record->value, &plain, &ignored);
    buf_wipe(&plain);
    return ok;
}

static bool count_record(void *arg, const struct record *record)
{
    struct census *census = arg;
    struct vault_status *status = census->status;
    bool known = record->value.len >= VAULT_OVERHEAD && record->value.at[0] == FORMAT;
    struct vault_key *key = known ? status_key(status, (const unsigned char *)record->value.at + 1) : NULL;
    if (!key)
        status->foreign++;
    else if (key->in_ring && !opens(census, record))
        status->damaged++;
    else
        key->records++;
    return true;
}

bool vault_status(struct vault *vault, struct record_store *records, struct vault_status *out, struct err *err)
{
    *out = (struct vault_status){0};
    refresh(vault);
    for (size_t i = 0; i < vault->ring->count; i++) {
        struct vault_key *key = status_key(out, vault->ring->keys[i].id);
        key->in_ring = true;
        key->current = i == 0;
    }
    for (size_t i = 0; i < SPACES; i++) {
        struct census census = {vault, spaces[i], out};
        if (!record_scan(records, (struct record_name){spaces[i], {0}}, count_record, &census, err))
            return false;
    }
    return true;
}

// ---- rotation -------------------------------------------------------------------------------

struct resealing {
    struct vault *vault;
    struct record_store *records;
    const char *space;
    struct record_lease lease;
    size_t seen, resealed, left;  // left: changed by another process during the scan
    struct err *err;
    bool failed;
};

static bool keep_lease(struct resealing *resealing)
{
    enum record_answer ours =
        record_lease_renew(resealing->records, span_of(ROTATION_LEASE), &resealing->lease, resealing->err);
    if (ours == RECORD_NO)
        (void)err_set(resealing->err, ERR_SYSTEM,
                      "another rotation has taken over the lease; run this again when it has finished");
    return ours == RECORD_YES;
}

// A record that was tampered with does not open with any key. It is left as it is, and the others are resealed.
static bool reseal(void *arg, const struct record *record)
{
    struct resealing *resealing = arg;
    struct buf plain = {0}, sealed = {0};
    struct record_name name = {resealing->space, record->key};
    enum record_answer wrote = RECORD_FAILED;
    int64_t generation = record->generation;
    bool known = record->value.len >= VAULT_OVERHEAD && record->value.at[0] == FORMAT;
    if (known && memcmp(record->value.at + 1, resealing->vault->ring->keys[0].id, VAULT_ID_BYTES) == 0)
        return true;
    char *key = mem_span(record->key);  // the record is invalid after the next use of the store
    name.key.at = key;
    bool damaged = false;
    if (!vault_unseal(resealing->vault, name, record->value, &plain, resealing->err))
        damaged = known && resealing->err->code == ERR_SYSTEM;
    else if (seal(&resealing->vault->ring->keys[0], name, buf_span(&plain), &sealed, resealing->err))
        wrote = record_rewrite(resealing->records, name, buf_span(&sealed), generation, resealing->err);
    resealing->resealed += wrote == RECORD_YES;
    resealing->left += wrote == RECORD_NO;
    resealing->failed = wrote == RECORD_FAILED && !damaged;
    free(key);
    buf_wipe(&plain);
    buf_release(&sealed);
    if (!resealing->failed && ++resealing->seen % RENEW_EVERY == 0)
        resealing->failed = !keep_lease(resealing);
    return !resealing->failed;
}

// Reports whether the ring was changed so recently that another process may still store a record that it sealed with
// one of the old keys.
static bool is_fresh(const struct vault *vault)
{
    int64_t age = clock_wall_s() - (int64_t)vault->place.seen.st_mtim.tv_sec;
    return age >= 0 && age < FRESH_S;
}

// Writes the new ring: a new key, the first two old keys, and the old keys that records still need. If the ring is
// fresh, all old keys are kept.
static bool renew_ring(struct vault *vault, const struct vault_status *status, struct vault_rotation *out,
                       struct err *err)
{
    struct vault_ring *ring = vault_ring_new();
    const struct vault_ring *old = vault->ring;
    bool ok = true, fresh = is_fresh(vault);
    vault_ring_key_make(&ring->keys[0]);
    ring->count = 1;
    for (size_t i = 0; ok && i < old->count; i++) {
        if (i > 1 && status->keys[i].records == 0 && !fresh)
            out->dropped++;
        else if (ring->count == VAULT_KEYS_MAX)
            ok = err_set(err, ERR_CONFIG, "%s: the ring is full, so no key can be added%s", vault->place.name,
                         fresh ? "; unused keys can be dropped a minute after the last rotation" : "");
        else
            ring->keys[ring->count++] = old->keys[i];
    }
    ok = ok && vault_ring_write(&vault->place, ring, err) && vault_ring_read(&vault->place, vault->ring, err);
    vault_ring_free(ring);
    out->made = ok;
    return ok;
}

static bool reseal_all(struct resealing *resealing)
{
    for (int pass = 0; pass < PASSES; pass++) {
        resealing->left = 0;
        for (size_t i = 0; i < SPACES; i++) {
            resealing->space = spaces[i];
            if (!record_scan(resealing->records, (struct record_name){spaces[i], {0}}, reseal, resealing,
                             resealing->err) ||
                resealing->failed)
                return false;
        }
        if (resealing->left == 0)
            return true;
    }
    return err_set(resealing->err, ERR_SYSTEM, "records change faster than they can be sealed again; try again later");
}

static bool rotate(struct resealing *resealing, struct vault_rotation *out)
{
    struct vault *vault = resealing->vault;
    struct vault_status status;
    if (!vault_status(vault, resealing->records, &status, resealing->err))
        return false;
    for (size_t i = 0; i < status.count; i++)
        if (!status.keys[i].in_ring)
            return err_set(resealing->err, ERR_CONFIG,
                           "records are sealed with key %s (%zu), which is not in %s: restore that key first; nothing "
                           "was changed",
                           status.keys[i].id, status.keys[i].records, vault->place.name);
    if (status.foreign)
        return err_set(resealing->err, ERR_SYSTEM,
                       "records that are damaged, or were written by a later version: %zu; nothing was changed",
                       status.foreign);
    if (vault->place.source == VAULT_RING_FILE && !renew_ring(vault, &status, out, resealing->err))
        return false;
    put_id(vault->ring->keys[0].id, out->id);
    bool ok = reseal_all(resealing);
    out->resealed = resealing->resealed;
    out->damaged = status.damaged;
    return ok;
}

bool vault_rotate(struct vault *vault, struct record_store *records, struct vault_rotation *out, struct err *err)
{
    struct resealing resealing = {.vault = vault, .records = records, .lease = {.length_ms = ROTATION_MS}, .err = err};
    *out = (struct vault_rotation){0};
    enum record_answer mine = record_lease_take(records, span_of(ROTATION_LEASE), &resealing.lease, NULL, err);
    if (mine == RECORD_NO)
        return err_set(err, ERR_SYSTEM,
                       "another rotation is in progress, or one was interrupted less than a minute ago; try "
                       "again later");
    if (mine == RECORD_FAILED)
        return false;
    bool ok = rotate(&resealing, out);
    struct err ignored;
    if (record_lease_release(records, span_of(ROTATION_LEASE), &resealing.lease, &ignored) == RECORD_FAILED)
        log_warn("cannot release the lease of the rotation; it will expire", LOG_STR("problem", ignored.detail));
    return ok;
}

bool vault_check(const struct vault_config *config, struct err *err)
{
    if (!config->key_file || vault_ring_is_descriptor(config))
        return true;
    struct vault_ring_place place = {0};
    struct vault_ring *ring = vault_ring_new();
    bool ok = vault_ring_locate(config, &place, err) && vault_ring_read(&place, ring, err);
    vault_ring_place_release(&place);
    vault_ring_free(ring);
    return ok;
}
