// Tokens that were got for callers by exchanging theirs: kept in memory until they end, so that the next session of the
// same user need not exchange again. Nothing here leads from one user to another's.
#ifndef AUTH_EXCHANGED_H
#define AUTH_EXCHANGED_H

#include "auth/access/access.h"
#include "auth/grant/grant.h"

struct exchanged_tokens;

struct exchanged_tokens *exchanged_tokens_new(void);
void exchanged_tokens_free(struct exchanged_tokens *exchanged);

#endif
