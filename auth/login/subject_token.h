// Access tokens for a token of another issuer: workload identity (RFC 7523), token exchange (RFC 8693), and ID-JAG.
#ifndef AUTH_OAUTH_SUBJECT_H
#define AUTH_OAUTH_SUBJECT_H

#include "auth/login/access_options.h"
#include "auth/oauth/oauth.h"

// Reads the token in a file, without white space around it. It is read for each request, because its issuer renews the
// file.
const char *login_subject_token_read(const char *path, struct arena *arena, struct err *err) MUST_CHECK;
// A workload's token may be sent only to an authorization server that it names as its audience.
bool login_subject_token_meant_for(const char *token, const char *issuer);
// A caller's token may be sent to its audience or to its issuer.
bool login_subject_token_may_go(const char *token, const char *issuer);
// Writes the token request of a mode; `token` is the workload's token, the subject's token or the ID-JAG.
void login_subject_token_put(const struct access_options *options, const struct oauth_authorization *authorization,
                             const char *token, struct buf *form);
// Writes the request for an ID-JAG to the identity provider. oauth_tokens_parse_jag() reads the answer.
void login_subject_token_put_jag(const struct access_options *options, const struct oauth_authorization *authorization,
                                 const char *token, struct buf *form);

#endif
