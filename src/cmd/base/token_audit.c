// Owns the audit records of commands: which user of this machine changed which token or grant. Never contains a secret.
//
// The record is written before the change is saved, so that with audit.required every issued token is recorded. A full
// disk or an invalid configuration never delays a revocation.
#include "cmd/base/token_audit.h"
#include "base/mem.h"
#include "cmd/base/fail.h"
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

static struct config *load(const struct flags *flags, struct err *err)
{
    char *path = config_path(flags->config);
    struct config *config = path ? config_load(path, NULL, err) : NULL;
    free(path);
    return config;
}

// The configured database, or an existing one: a command must not create a database in the state folder of the user who
// happens to run it.
static bool has_database(const struct config *config)
{
    char *path = audit_path(config->audit.path);
    bool yes = config_audited(config) && (config->audit.path || access(path, F_OK) == 0);
    free(path);
    return yes;
}

static void put_user(struct buf *out)
{
    const struct passwd *user = getpwuid(getuid());
    if (user)
        buf_put_text(out, user->pw_name);
    else
        buf_printf(out, "uid:%lu", (unsigned long)getuid());
}

bool token_audit_write(const struct config *config, const struct audit_record *record, struct err *err)
{
    struct buf user = {0};
    struct audit_record row = *record;
    if (!has_database(config))
        return true;
    put_user(&user);
    row.event = AUDIT_TOKEN;
    row.provider = row.proof = span_of("os");
    row.subject = buf_span(&user);
    bool ok = audit_write(&config->audit, &row, err);
    buf_release(&user);
    return ok;
}

static bool write_record(const struct config *config, const struct token_change *change, const struct err *problem,
                         struct err *err)
{
    struct buf reason = {0};
    if (problem)
        buf_put_text(&reason, problem->detail);
    else if (change->replaces)
        buf_printf(&reason, "replaces %s", change->replaces);
    struct audit_record record = {.tenant = span_of(change->entry->tenant ? change->entry->tenant : "default"),
                                  .token = span_of(change->entry->id),
                                  .kind = span_of("token"),
                                  .name = span_of(change->entry->subject),
                                  .method = span_of(change->action),
                                  .status = problem ? AUDIT_ERROR : AUDIT_OK,
                                  .reason = buf_span(&reason)};
    bool ok = token_audit_write(config, &record, err);
    buf_release(&reason);
    return ok;
}

bool token_audit_change(const struct flags *flags, const struct token_change *change, const struct err *problem,
                        int *exit_code)
{
    struct err err = {0};
    struct config *config = load(flags, &err);
    bool revokes = strcmp(change->action, "revoke") == 0, must = false;
    if (config && !write_record(config, change, problem, &err))
        must = config->audit.required && !revokes;
    else if (!config && err.code)
        must = flags->config && !revokes;
    config_unref(config);
    if (must)
        *exit_code =
            fail_with(EXIT_CONFIG, "nothing was changed, because the change cannot be recorded: %s", err.detail);
    else if (err.code)
        (void)fail_with(EXIT_OK, "the change was not recorded in the audit log: %s", err.detail);
    return !must;
}

static void on_token(void *arg, struct span token, struct span time)
{
    char *id = mem_span(token), *when = mem_span(time);
    json_object_set_new(arg, id, json_string(when));
    free(id);
    free(when);
}

json_t *token_audit_uses(const struct flags *flags)
{
    struct err err = {0};
    struct config *config = load(flags, &err);
    char *path = config ? audit_path(config->audit.path) : NULL;
    json_t *uses = json_object();
    bool there = config && config_audited(config) && access(path, F_OK) == 0;
    if ((!config && err.code) || (there && !audit_reader_uses(path, on_token, uses, &err)))
        (void)fail_with(EXIT_OK, "cannot read the last use of the tokens from the audit log: %s", err.detail);
    free(path);
    config_unref(config);
    return uses;
}
