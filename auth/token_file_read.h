// What changing the tokens file needs of reading it.
#ifndef AUTH_TOKEN_FILE_READ_H
#define AUTH_TOKEN_FILE_READ_H

#include "auth/token_file.h"
#include "base/json.h"
#include "base/option.h"

struct token_file *token_file_new(const char *path);  // without tokens, as of the file that is there now
bool token_file_read(const json_t *tree, struct token_file *into, struct err *err) MUST_CHECK;
// Could this entry be read again?
bool token_file_entry_readable(const json_t *tree, const struct option_place *place, struct err *err) MUST_CHECK;
const char *token_file_schema(const struct token_file *file);

#endif
