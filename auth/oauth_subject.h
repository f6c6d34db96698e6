// Tokens got with a token that somebody else made: workload identity (RFC 7523), token exchange (RFC 8693), and ID-JAG.
#ifndef AUTH_OAUTH_SUBJECT_H
#define AUTH_OAUTH_SUBJECT_H

#include "auth/access.h"
#include "auth/oauth.h"

// The token in a file, without white space around it. Read anew each time: who wrote it renews it.
const char *oauth_subject_read(const char *path, struct arena *arena, struct err *err) MUST_CHECK;
// A workload's token goes only to the authorization server that it names as its audience.
bool oauth_subject_meant_for(const char *token, const char *issuer);
// A caller's goes there too, or back to where it came from.
bool oauth_subject_may_go(const char *token, const char *issuer);
// The grant of a mode at the server's authorization server; `token` is the workload's, the subject's or the ID-JAG.
void oauth_subject_put(const struct access_options *options, const struct oauth_attempt *attempt, const char *token,
                       struct buf *form);
// The identity provider is asked for an ID-JAG; what it answers: oauth_jag_parse().
void oauth_jag_put(const struct access_options *options, const struct oauth_attempt *attempt, const char *token,
                   struct buf *form);

#endif
