// The tokens file: lookups for the provider `bearer`, and the parts of reading that tokens_edit.c needs.
#ifndef AUTH_TOKEN_FILE_READ_H
#define AUTH_TOKEN_FILE_READ_H

#include "auth/caller/tokens.h"
#include "base/json.h"
#include "base/option.h"

// Sets the name of the provider for the entries' identities; `bearer` if not called. Call it before taking identities.
void caller_tokens_vouch(struct caller_tokens *file, const char *provider);
bool caller_tokens_stale(const struct caller_tokens *file);  // the file on disk has changed
// PASS: not one of our tokens; another provider may know it. REJECT: ours, but damaged, unknown, wrong or
// expired; one digest and one comparison in all cases. ACCEPT: *out is the entry, as long as the file is held.
enum provider_verdict caller_tokens_find(const struct caller_tokens *file, struct span presented, int64_t now,
                                         const struct caller_token **out);
struct identity *caller_tokens_identity(const struct caller_token *entry);  // of an entry of a file; a new reference

struct caller_tokens *caller_tokens_new(const char *path);  // without tokens; remembers the state of the file
bool caller_tokens_read(const json_t *tree, struct caller_tokens *into, struct err *err) MUST_CHECK;
// Can this entry be read again after it was written?
bool caller_tokens_entry_readable(const json_t *tree, const struct option_place *place, struct err *err) MUST_CHECK;
const char *caller_tokens_schema(const struct caller_tokens *file);

#endif
