// Tokens that were obtained by exchanging callers' own tokens. They are kept in memory until they expire, so that the
// next session of the same user need not exchange again. A token is found only with the tenant and user that it belongs
// to.
#ifndef AUTH_EXCHANGED_H
#define AUTH_EXCHANGED_H

#include "auth/access/access.h"
#include "auth/grant/grant.h"

struct exchanged_tokens;

struct exchanged_tokens *exchanged_tokens_new(void);
void exchanged_tokens_free(struct exchanged_tokens *exchanged);

#endif
