// The audit records of `postern token`, and of other commands that take tokens away.
#ifndef CMD_TOKEN_RECORD_H
#define CMD_TOKEN_RECORD_H

#include "auth/token_file.h"
#include "cmd.h"
#include "store/audit.h"

struct token_change {
    const char *action;               // "new", "rotate", "revoke"
    const struct token_entry *entry;  // the token that came or went
    const char *replaces;             // id of the one it is rotated from, or NULL
};

// Records the change, if the configuration has an audit database; `problem` says that it did not come about after all.
// False: it must be recorded and could not be, or --config is wrong; the exit code is set, and nothing may change.
bool token_record(const struct flags *flags, const struct token_change *change, const struct err *problem,
                  int *exit_code);
// Writes a row of event `token` in the name of the user of this machine, if the configuration has an audit database.
bool token_record_write(const struct config *config, const struct audit_record *record, struct err *err) MUST_CHECK;
// When tokens were last used, from the same database: id → time. Empty if there is none.
json_t *token_record_uses(const struct flags *flags);

#endif
