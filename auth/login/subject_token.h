// Tokens got with a token that somebody else made: workload identity (RFC 7523), token exchange (RFC 8693), and ID-JAG.
#ifndef AUTH_OAUTH_SUBJECT_H
#define AUTH_OAUTH_SUBJECT_H

#include "auth/login/access_options.h"
#include "auth/oauth/oauth.h"

// The token in a file, without white space around it. Read anew each time: who wrote it renews it.
const char *login_subject_token_read(const char *path, struct arena *arena, struct err *err) MUST_CHECK;
// A workload's token goes only to the authorization server that it names as its audience.
bool login_subject_token_meant_for(const char *token, const char *issuer);
// A caller's goes there too, or back to where it came from.
bool login_subject_token_may_go(const char *token, const char *issuer);
// The grant of a mode at the server's authorization server; `token` is the workload's, the subject's or the ID-JAG.
void login_subject_token_put(const struct access_options *options, const struct oauth_authorization *authorization,
                             const char *token, struct buf *form);
// The identity provider is asked for an ID-JAG; what it answers: oauth_tokens_parse_jag().
void login_subject_token_put_jag(const struct access_options *options, const struct oauth_authorization *authorization,
                                 const char *token, struct buf *form);

#endif
