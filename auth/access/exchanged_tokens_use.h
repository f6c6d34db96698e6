// Looking up and keeping exchanged tokens, as access does it.
#ifndef AUTH_ACCESS_EXCHANGED_TOKENS_USE_H
#define AUTH_ACCESS_EXCHANGED_TOKENS_USE_H

#include "auth/access/exchanged_tokens.h"

// Finds a valid token of this owner for this server that matches the client, scope and issuer of the options, or NULL.
const struct grant *exchanged_tokens_find(struct exchanged_tokens *exchanged, const struct grant_key *owner,
                                          const char *server_url, const struct access_options *options, int64_t now);
// Replaces the token for the same (tenant, user, issuer, resource).
void exchanged_tokens_put(struct exchanged_tokens *exchanged, const struct grant *grant);
// Removes this token if it is still in the table, after the server has refused it.
void exchanged_tokens_drop(struct exchanged_tokens *exchanged, const struct grant *grant);

#endif
