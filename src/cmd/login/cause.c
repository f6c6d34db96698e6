// Owns the cause of a login: the server's challenge, kept after the connection to it is closed.
#include "cmd/login/login.h"

static const char *keep(struct login_cause *cause, const char *text)
{
    return text ? arena_copy(&cause->arena, span_of(text)) : NULL;
}

void login_cause_set(struct login_cause *cause, const struct access *access)
{
    const struct oauth_challenge *said = access_challenge(access);
    *cause = (struct login_cause){0};
    cause->challenge.bearer = said->bearer;
    cause->challenge.scope = keep(cause, said->scope);
    cause->challenge.resource_metadata = keep(cause, said->resource_metadata);
    cause->held_scope = keep(cause, access_scope(access));
}

void login_cause_release(struct login_cause *cause) { arena_release(&cause->arena); }
