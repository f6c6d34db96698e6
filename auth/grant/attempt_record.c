// Owns attempts in records, on the worker's thread: finding an attempt, and the limits on their number (H9).
//
// The key of a record is the digest of the attempt's secret, followed by a digest of its owner (the user and the
// server). So an attempt is found by its secret alone, and the attempts of one owner without opening those of others.
#include "base/clock.h"
#include "base/mem.h"
#include "encoding.h"
#include "sealing.h"
#include "work.h"
#include <stdlib.h>

enum { FUTURE_MS = 60000 };  // a clock that was set back by more than this makes an attempt invalid

void attempt_record_key(struct span secret, const struct attempt *attempt, struct buf *out)
{
    unsigned char digest[SECRET_MAC_BYTES], owner[ATTEMPT_OWNER_BYTES];
    secret_digest(secret, digest);
    buf_put(out, digest, sizeof digest);
    if (attempt) {
        attempt_owner(attempt, owner);
        buf_put(out, owner, sizeof owner);
    }
}

static bool in_time(const struct attempt *attempt, int64_t updated_ms)
{
    int64_t now = clock_wall_ms(), age = now - updated_ms;
    return age < GRANT_STORE_ATTEMPT_MS && age >= -FUTURE_MS && attempt->expires_ms > now &&
           attempt->expires_ms <= now + GRANT_STORE_ATTEMPT_MS + FUTURE_MS;
}

static struct attempt *open_attempt(struct vault *vault, const struct record *record, struct err *err)
{
    struct buf plain = {0};
    struct attempt *attempt = NULL;
    if (vault_unseal(vault, (struct record_name){VAULT_ATTEMPTS, record->key}, record->value, &plain, err))
        attempt = attempt_decode(buf_span(&plain), record->generation, err);
    buf_wipe(&plain);
    return attempt;
}

// ---- finding --------------------------------------------------------------------------------

struct search {
    struct vault *vault;
    struct err *err;
    struct attempt *found;
    enum record_answer answer;
};

static bool take_first(void *arg, const struct record *record)
{
    struct search *search = arg;
    search->found = open_attempt(search->vault, record, search->err);
    search->answer = !search->found                               ? RECORD_FAILED
                     : in_time(search->found, record->updated_ms) ? RECORD_YES
                                                                  : RECORD_NO;
    return false;
}

enum record_answer attempt_record_get(struct vault *vault, struct record_store *records, struct span digest,
                                      struct attempt **out, struct err *err)
{
    struct search search = {.vault = vault, .err = err, .answer = RECORD_NO};
    if (!record_scan(records, (struct record_name){VAULT_ATTEMPTS, digest}, take_first, &search, err))
        search.answer = RECORD_FAILED;
    if (search.answer != RECORD_YES) {
        attempt_free(search.found);
        search.found = NULL;
    }
    *out = search.found;
    return search.answer;
}

// ---- bounds ---------------------------------------------------------------------------------

// A record that may have to be deleted.
struct eviction_candidate {
    char key[SECRET_MAC_BYTES + ATTEMPT_OWNER_BYTES];
    size_t key_len;
    int64_t generation;
    bool agreed;
};

struct survey {
    struct vault *vault;
    struct span key;  // of the new attempt, which is never dropped
    size_t all, own;
    struct eviction_candidate oldest_own;
};

static void propose(struct eviction_candidate *best, const struct record *record, bool agreed)
{
    bool worse = best->key_len && (best->agreed != agreed ? agreed : record->generation > best->generation);
    if (worse || record->key.len > sizeof best->key)
        return;
    *best = (struct eviction_candidate){.key_len = record->key.len, .generation = record->generation, .agreed = agreed};
    memcpy(best->key, record->key.at, record->key.len);
}

static bool is_same_owner(struct span a, struct span b)
{
    return a.len == SECRET_MAC_BYTES + ATTEMPT_OWNER_BYTES && b.len == a.len &&
           memcmp(a.at + SECRET_MAC_BYTES, b.at + SECRET_MAC_BYTES, ATTEMPT_OWNER_BYTES) == 0;
}

static bool is_finished(const struct attempt *attempt)
{
    return attempt->stage == ATTEMPT_OVER || attempt->stage == ATTEMPT_CONNECTED;
}

static bool visit_survey(void *arg, const struct record *record)
{
    struct survey *survey = arg;
    bool newest = span_equal(record->key, survey->key);
    survey->all++;
    if (!is_same_owner(record->key, survey->key))
        return true;
    struct err ignored;  // a record that cannot be opened does not count as an open link
    struct attempt *attempt = open_attempt(survey->vault, record, &ignored);
    bool open = attempt && !is_finished(attempt) && in_time(attempt, record->updated_ms);
    survey->own += open;
    if (open && !newest)
        propose(&survey->oldest_own, record, attempt->stage == ATTEMPT_AWAY);
    attempt_free(attempt);
    return true;
}

// G10: many authorization servers report an unknown client on a page of their own and never redirect the user back. So
// an abandoned login makes its client suspect.
static bool doubt_client(struct vault *vault, struct record_store *records, const struct attempt *attempt,
                         struct err *err)
{
    struct buf name = {0};
    struct registration_key key = {attempt->tenant, attempt->client_issuer, attempt->client_redirect};
    struct issuer_notes notes = {.documents_refused_at = clock_wall_s()};
    enum record_answer answer;
    if (attempt->stage != ATTEMPT_AWAY || !key.issuer || !attempt->client_id)
        return true;
    if (key.redirect) {
        registration_key_encode(&key, &name);
        answer = grant_record_amend(vault, records, buf_span(&name), attempt->client_id, NULL, err);
    } else {
        grant_record_issuer_key(key.tenant, key.issuer, &name);
        answer = grant_record_put_issuer(vault, records, buf_span(&name), &notes, err);
    }
    bool ok = answer != RECORD_FAILED;
    buf_release(&name);
    return ok;
}

static bool give_up(struct vault *vault, struct record_store *records, const struct record *record, struct err *err)
{
    struct buf key = {0};
    struct err ignored;  // a record that cannot be opened makes no client suspect
    int64_t generation = record->generation;
    struct attempt *attempt = open_attempt(vault, record, &ignored);
    buf_put_span(&key, record->key);
    bool ok = record_delete(records, (struct record_name){VAULT_ATTEMPTS, buf_span(&key)}, generation, err) !=
                  RECORD_FAILED &&
              (!attempt || doubt_client(vault, records, attempt, err));
    attempt_free(attempt);
    buf_release(&key);
    return ok;
}

static bool drop(struct vault *vault, struct record_store *records, const struct eviction_candidate *candidate,
                 struct err *err)
{
    struct record record;
    struct record_name name = {VAULT_ATTEMPTS, span_make(candidate->key, candidate->key_len)};
    if (!candidate->key_len)
        return true;
    enum record_answer found = record_get(records, name, &record, err);
    if (found != RECORD_YES || record.generation != candidate->generation)  // another process has continued the login
        return found != RECORD_FAILED;
    return give_up(vault, records, &record, err);
}

// Too many attempts in all: a finished attempt is dropped first, else one of the tenant that added the new attempt, so
// that one tenant cannot displace the logins of the others.
struct crowd {
    struct vault *vault;
    struct span key;       // of the new attempt
    struct attempt *mine;  // the new attempt
    struct eviction_candidate finished, same_tenant, oldest;
};

static bool visit_crowd(void *arg, const struct record *record)
{
    struct crowd *crowd = arg;
    struct err ignored;
    if (span_equal(record->key, crowd->key))
        return true;
    struct attempt *attempt = open_attempt(crowd->vault, record, &ignored);
    propose(&crowd->oldest, record, false);
    if (attempt && is_finished(attempt))
        propose(&crowd->finished, record, false);
    const char *mine = crowd->mine->tenant;
    if (attempt && attempt->tenant && mine && strcmp(attempt->tenant, mine) == 0)
        propose(&crowd->same_tenant, record, false);
    attempt_free(attempt);
    return true;
}

static bool drop_one(struct vault *vault, struct record_store *records, struct span key, struct err *err)
{
    struct crowd crowd = {.vault = vault, .key = key};
    struct record newest;
    enum record_answer got = record_get(records, (struct record_name){VAULT_ATTEMPTS, key}, &newest, err);
    if (got != RECORD_YES)  // another process has already dropped the new attempt
        return got != RECORD_FAILED;
    bool ok = (crowd.mine = open_attempt(vault, &newest, err)) &&
              record_scan(records, (struct record_name){VAULT_ATTEMPTS, {0}}, visit_crowd, &crowd, err);
    const struct eviction_candidate *worst = crowd.finished.key_len      ? &crowd.finished
                                             : crowd.same_tenant.key_len ? &crowd.same_tenant
                                                                         : &crowd.oldest;
    ok = ok && drop(vault, records, worst, err);
    attempt_free(crowd.mine);
    return ok;
}

struct expiry {
    struct vault *vault;
    struct record_store *records;
    int64_t now_ms;
    struct err *err;
    bool ok;
};

static bool visit_expiry(void *arg, const struct record *record)
{
    struct expiry *expiry = arg;
    int64_t age = expiry->now_ms - record->updated_ms;
    if (age >= GRANT_STORE_ATTEMPT_MS || age < -FUTURE_MS)
        expiry->ok = give_up(expiry->vault, expiry->records, record, expiry->err);
    return expiry->ok;
}

bool attempt_record_expire(struct vault *vault, struct record_store *records, struct err *err)
{
    struct expiry expiry = {vault, records, clock_wall_ms(), err, true};
    return record_scan(records, (struct record_name){VAULT_ATTEMPTS, {0}}, visit_expiry, &expiry, err) && expiry.ok;
}

// Runs after the new attempt is stored. When several processes add attempts at once, the last one to run sees them all.
bool attempt_record_trim(struct vault *vault, struct record_store *records, struct span key, struct err *err)
{
    struct survey survey;
    if (!attempt_record_expire(vault, records, err))
        return false;
    do {
        survey = (struct survey){.vault = vault, .key = key};
        if (!record_scan(records, (struct record_name){VAULT_ATTEMPTS, {0}}, visit_survey, &survey, err))
            return false;
        if (survey.own > GRANT_STORE_ATTEMPTS_OPEN && !drop(vault, records, &survey.oldest_own, err))
            return false;
        if (survey.all > GRANT_STORE_ATTEMPTS && !drop_one(vault, records, key, err))
            return false;
    } while (survey.own > GRANT_STORE_ATTEMPTS_OPEN + 1 || survey.all > GRANT_STORE_ATTEMPTS + 1);
    return true;
}
