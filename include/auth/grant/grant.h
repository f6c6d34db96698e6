// A grant: what a user gave the gateway at one authorization server for one resource, tokens included. Immutable, counted.
#ifndef AUTH_GRANT_H
#define AUTH_GRANT_H

#include "base/buf.h"
#include "base/err.h"
#include "base/secret.h"

struct identity;

struct grant_key {
    const char *tenant;
    const char *user;  // within the tenant; of an identity: grant_user()
    const char *issuer;
    const char *resource;  // "" for a server without one
};

// provider/subject, with '%' and '/' in the provider escaped. The caller frees it.
char *grant_user(const struct identity *identity);

// What a grant says. NULL (or an empty text) and 0: not known. Times are seconds since the epoch, wall clock.
struct grant_fields {
    struct secret access_token, refresh_token;
    char *token_type;
    char *scope;           // granted, separated by spaces
    char *scope_asked;     // requested
    int64_t expires_at;    // 0: unknown, use it until it is refused
    int64_t obtained_at;   // before the token request was sent
    char *token_endpoint;  // where it is refreshed
    char *revocation_endpoint;
    char *client_id;        // the registration it was given to
    char *client_redirect;  // and its redirect URI: with the issuer, the key of the registration
    char *auth_method;      // none, client_secret_basic, client_secret_post, …
    char *account;          // a hint for people, from the server
    int64_t dead_at;        // refused for good at this time; kept to tell why
    char *dead_reason;
    int64_t doubts;      // refusals that say little, since it last worked
    int64_t doubted_at;  // the first of them
    int64_t learned;     // the kinds of addresses its endpoints may be at (loop/address.h); 0: not known
    int64_t login;       // grant_login_new(): which login it is from, also after it was refreshed; 0: not known
};

enum {
    GRANT_DOUBTS = 3,      // F12: so many refusals that say little,
    GRANT_DOUBT_S = 600,   // over so long a time, are one for good
    GRANT_DEAD_S = 86400,  // what is dead is kept so long, to tell why
};

// Immutable and counted.
struct grant {
    unsigned refs;
    int64_t generation;  // 0: not stored
    char *tenant, *user, *issuer, *resource;
    struct grant_fields is;
};

int64_t grant_login_new(void);  // of a login that was made just now, and of no other

// Takes over what `fields` holds and zeroes it.
struct grant *grant_new(const struct grant_key *key, struct grant_fields *fields);
struct grant *grant_ref(const struct grant *grant);
void grant_unref(const struct grant *grant);  // the last one wipes the tokens
void grant_fields_copy(const struct grant_fields *from, struct grant_fields *to);
void grant_fields_release(struct grant_fields *fields);
struct grant_key grant_key(const struct grant *grant);
// Is the access token good at this time, for `margin` seconds more? A clock that went back behind obtained_at makes the
// expiry unknown, and an unknown one is good until the server refuses it.
bool grant_fresh(const struct grant *grant, int64_t now, int64_t margin);

// S7: says which grant cannot be opened, why, and what to do about it.
void grant_damaged(const struct grant *grant, const struct err *problem, struct err *out);

// F12: counts a refusal that says little. True: with this one it has been refused for good.
bool grant_doubt(struct grant_fields *fields, int64_t now);

// The four texts as one key that no other four have, and that begins with those of its tenant and user. A filter that
// ends earlier (NULL) gives the beginning.
void grant_key_encode(const struct grant_key *key, struct buf *out);

#endif
