// An attempt: one connect link and the login that begins with it, as it is kept in the token store between the requests
// of a browser. Any process that shares the store can take the next step.
#ifndef AUTH_ATTEMPT_H
#define AUTH_ATTEMPT_H

#include "base/buf.h"
#include "base/err.h"
#include "base/secret.h"

struct identity;

enum attempt_stage {
    ATTEMPT_OVER,       // used up; kept until its time is over, to say so
    ATTEMPT_OFFERED,    // there is a link
    ATTEMPT_ASKING,     // somebody opened it, and the authorization server was found: consent can be asked for
    ATTEMPT_AWAY,       // consent was given, the browser is at the authorization server
    ATTEMPT_CONNECTED,  // it ended well
};

// NULL and 0: not known, none.
struct attempt {
    int64_t generation;  // 0: not stored
    int64_t stage;       // enum attempt_stage
    int64_t expires_ms;  // wall clock, since the epoch
    // for whom: an identity
    int64_t proof, role_count, identity_expires;
    char *tenant, *provider, *subject, *roles, *token_id;
    char *server, *server_url;
    char *return_to;
    // what the server said when it refused, and what was asked for before
    int64_t challenged;
    char *challenge_scope, *challenge_metadata, *held_scope;
    // G10, G3: the client the user was sent off with, to doubt it if nobody comes back; NULL: a configured one. Without a
    // redirect URI it is a metadata document.
    char *client_issuer, *client_redirect, *client_id;
    struct secret cookie;  // a digest of what the browser has that agreed
    struct secret login;   // login_suspension_save()
};

struct attempt *attempt_new(const struct identity *identity, const char *server, const char *server_url);
void attempt_free(struct attempt *attempt);                        // wiped
struct identity *attempt_identity(const struct attempt *attempt);  // a new one
void attempt_forget(struct attempt *attempt);                      // what a login needs: it is over

#endif
