// An attempt: one connect link and the login that begins with it, stored in the grant store between the requests of a
// browser. Any process that shares the store can take the next step.
#ifndef AUTH_ATTEMPT_H
#define AUTH_ATTEMPT_H

#include "base/buf.h"
#include "base/err.h"
#include "base/secret.h"

struct identity;

enum attempt_stage {
    ATTEMPT_OVER,       // used; kept until it expires, so that the page can say that the link was used
    ATTEMPT_OFFERED,    // the link exists and was not opened yet
    ATTEMPT_ASKING,     // the link was opened and the authorization server is known: the page asks for consent
    ATTEMPT_AWAY,       // the user consented; the browser is at the authorization server
    ATTEMPT_CONNECTED,  // the login succeeded
};

// NULL and 0 mean unknown or absent.
struct attempt {
    int64_t generation;  // 0: not stored
    int64_t stage;       // enum attempt_stage
    int64_t expires_ms;  // wall clock, since the epoch
    // the identity that the login is for
    int64_t proof, role_count, identity_expires;
    char *tenant, *provider, *subject, *roles, *token_id;
    char *server, *server_url;
    char *return_to;
    // the challenge in the server's refusal, and the scope of the grant that it refused
    int64_t challenged;
    char *challenge_scope, *challenge_metadata, *held_scope;
    // G10, G3: the client in the authorization request, which becomes suspect if the user never returns; NULL for a
    // configured client. Without a redirect URI, the client is a metadata document.
    char *client_issuer, *client_redirect, *client_id;
    struct secret cookie;  // the digest of the cookie of the browser in which the user consented
    struct secret login;   // login_suspension_save()
};

struct attempt *attempt_new(const struct identity *identity, const char *server, const char *server_url);
void attempt_free(struct attempt *attempt);                        // wiped
struct identity *attempt_identity(const struct attempt *attempt);  // a new one
void attempt_forget(struct attempt *attempt);                      // sets ATTEMPT_OVER and wipes the secrets

#endif
