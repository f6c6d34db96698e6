// Tokens that were got for callers by exchanging theirs: kept in memory until they end, so that the next session of the
// same user need not exchange again. Nothing here leads from one user to another's.
#ifndef AUTH_EXCHANGED_H
#define AUTH_EXCHANGED_H

#include "auth/access.h"
#include "auth/grant.h"

struct exchanged;

struct exchanged *exchanged_new(void);
void exchanged_free(struct exchanged *exchanged);

// For this owner, at this server, as these options would have it; NULL: none that is good now.
const struct grant *exchanged_find(struct exchanged *exchanged, const struct grant_key *owner, const char *server_url,
                                   const struct access_options *options, int64_t now);
// In place of what was there for the same (tenant, user, issuer, resource).
void exchanged_put(struct exchanged *exchanged, const struct grant *grant);
void exchanged_drop(struct exchanged *exchanged, const struct grant *grant);  // this very one: it was refused

#endif
