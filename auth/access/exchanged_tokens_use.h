// Looking up and keeping exchanged tokens, as access does it.
#ifndef AUTH_ACCESS_EXCHANGED_TOKENS_USE_H
#define AUTH_ACCESS_EXCHANGED_TOKENS_USE_H

#include "auth/access/exchanged_tokens.h"

// For this owner, at this server, as these options would have it; NULL: none that is good now.
const struct grant *exchanged_tokens_find(struct exchanged_tokens *exchanged, const struct grant_key *owner,
                                          const char *server_url, const struct access_options *options, int64_t now);
// In place of what was there for the same (tenant, user, issuer, resource).
void exchanged_tokens_put(struct exchanged_tokens *exchanged, const struct grant *grant);
void exchanged_tokens_drop(struct exchanged_tokens *exchanged,
                           const struct grant *grant);  // this very one: it was refused

#endif
