// Encoding the objects of the grant store, and their keys, as bytes.
#ifndef AUTH_GRANT_ENCODING_H
#define AUTH_GRANT_ENCODING_H

#include "auth/grant/attempt.h"
#include "auth/grant/fields.h"
#include "auth/grant/grant.h"
#include "auth/grant/registration.h"

void fields_copy(const struct field *table, const void *from, void *to);
// Encodes texts as one unique key, each text after its length. Stops at the first NULL.
void fields_put_key(struct buf *out, const char *const *texts, size_t count);
// Copies the texts of such a key. Returns false, and copies nothing, if the key does not consist of `count` texts.
bool fields_take_key(struct span key, char **texts, size_t count);

// The plain bytes that are sealed, without the key. The caller wipes `out` (buf_wipe).
void grant_encode(const struct grant *grant, struct buf *out);
struct grant *grant_decode(struct span key, struct span bytes, int64_t generation, struct err *err) MUST_CHECK;
void grant_unref_all(struct grant **grants, size_t count);  // and frees the list

void registration_encode(const struct registration *registration, struct buf *out);
struct registration *registration_decode(struct span key, struct span bytes, int64_t generation,
                                         struct err *err) MUST_CHECK;
void registration_key_encode(const struct registration_key *key, struct buf *out);

// The plain bytes that are sealed. The caller wipes `out` (buf_wipe).
void attempt_encode(const struct attempt *attempt, struct buf *out);
struct attempt *attempt_decode(struct span bytes, int64_t generation, struct err *err) MUST_CHECK;
// A digest of the user and the server: the same for all attempts of one user at one server.
#define ATTEMPT_OWNER_BYTES 16
void attempt_owner(const struct attempt *attempt, unsigned char out[ATTEMPT_OWNER_BYTES]);

#endif
