// A grant: what a user gave the gateway at one authorization server for one resource, tokens included. Immutable,
// counted.
#ifndef AUTH_GRANT_H
#define AUTH_GRANT_H

#include "base/buf.h"
#include "base/err.h"
#include "base/secret.h"

struct identity;

struct grant_key {
    const char *tenant;
    const char *user;  // within the tenant; grant_user() makes it from an identity
    const char *issuer;
    const char *resource;  // "" for a server without a resource
};

// provider/subject, with '%' and '/' in the provider escaped. The caller frees it.
char *grant_user(const struct identity *identity);

// The contents of a grant. NULL (or an empty text) and 0 mean unknown. Times are seconds since the epoch, wall clock.
struct grant_fields {
    struct secret access_token, refresh_token;
    char *token_type;
    char *scope;           // granted, separated by spaces
    char *scope_asked;     // requested
    int64_t expires_at;    // 0: unknown; the token is used until a server refuses it
    int64_t obtained_at;   // before the token request was sent
    char *token_endpoint;  // where the grant is refreshed
    char *revocation_endpoint;
    char *client_id;        // the client that the grant was issued to
    char *client_redirect;  // its redirect URI: with the issuer, the key of the registration
    char *auth_method;      // none, client_secret_basic, client_secret_post, …
    char *account;          // the account at the server, for display only
    int64_t dead_at;        // the time of a permanent refusal; the grant is kept for GRANT_DEAD_S to report the reason
    char *dead_reason;
    int64_t doubts;      // ambiguous refusals since the last successful refresh
    int64_t doubted_at;  // the time of the first of them
    int64_t learned;     // the kinds of addresses that its endpoints may have (loop/address.h); 0: unknown
    int64_t login;       // grant_login_new(): the login that the grant is from; refreshes keep it; 0: unknown
};

enum {
    GRANT_DOUBTS = 3,      // F12: this many ambiguous refusals
    GRANT_DOUBT_S = 600,   // over at least this time count as a permanent refusal
    GRANT_DEAD_S = 86400,  // a dead grant is kept for this time, so that errors can name the reason
};

// Immutable and counted.
struct grant {
    unsigned refs;
    int64_t generation;  // 0: not stored
    char *tenant, *user, *issuer, *resource;
    struct grant_fields is;
};

int64_t grant_login_new(void);  // a random number that identifies a new login

// Takes ownership of the members of `fields` and zeroes it.
struct grant *grant_new(const struct grant_key *key, struct grant_fields *fields);
struct grant *grant_ref(const struct grant *grant);
void grant_unref(const struct grant *grant);  // the last one wipes the tokens
void grant_fields_copy(const struct grant_fields *from, struct grant_fields *to);
void grant_fields_release(struct grant_fields *fields);
struct grant_key grant_key(const struct grant *grant);
// Reports whether the access token is valid for `margin` seconds more. If the clock was set back to before obtained_at,
// the expiry is unknown; a token with an unknown expiry is valid until the server refuses it.
bool grant_fresh(const struct grant *grant, int64_t now, int64_t margin);

// S7: the error for a grant that cannot be opened: which grant, why, and how to remove it.
void grant_damaged(const struct grant *grant, const struct err *problem, struct err *out);

// F12: counts an ambiguous refusal. Returns true if the refusals now count as a permanent one.
bool grant_doubt(struct grant_fields *fields, int64_t now);

// Encodes the four texts as one unique key, in which the tenant and the user come first. A key with trailing NULLs
// gives a prefix, for a filter.
void grant_key_encode(const struct grant_key *key, struct buf *out);

#endif
