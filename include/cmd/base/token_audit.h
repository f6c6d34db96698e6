// The audit records of `postern token`, and of other commands that revoke tokens.
#ifndef CMD_BASE_TOKEN_AUDIT_H
#define CMD_BASE_TOKEN_AUDIT_H

#include "auth/caller/tokens.h"
#include "cmd/base/options.h"
#include "config/config.h"
#include "store/audit/audit.h"

struct token_change {
    const char *action;                // "new", "rotate", "revoke"
    const struct caller_token *entry;  // the token that was added or removed
    const char *replaces;              // id of the token that it replaces, or NULL
};

// Records the change, if the configuration has an audit database; `problem` says that the change failed after all.
// False: the change must be recorded and could not be, or --config is not valid; the exit code is set, and nothing may
// change.
bool token_audit_change(const struct flags *flags, const struct token_change *change, const struct err *problem,
                        int *exit_code);
// Writes a row of event `token` in the name of the user of this machine, if the configuration has an audit database.
bool token_audit_write(const struct config *config, const struct audit_record *record, struct err *err) MUST_CHECK;
// The last use of each token, from the same database: id → time. Empty if no use is recorded.
json_t *token_audit_uses(const struct flags *flags);

#endif
