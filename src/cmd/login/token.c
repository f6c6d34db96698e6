// Owns `postern login --token-stdin`: a token from another source, stored as a grant (L15).
#include "auth/grant/store.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cmd/base/fail.h"
#include "cmd/base/grants.h"
#include "state.h"
#include <stdio.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#define TOKEN_MAX 16384
#define STORE_MS 10000

// Reads one line from standard input, without echo on a terminal. False: it cannot be a token.
static bool read_token(const struct server *server, struct secret *token)
{
    static char line[TOKEN_MAX];
    struct termios shown, hidden;
    const char *what, *where;
    bool terminal = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &shown) == 0;
    if (terminal) {
        hidden = shown;  // first: discards input typed before
        hidden.c_lflag &= ~(tcflag_t)ECHO;
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden);
        if (login_hint(server->url, &what, &where))
            fprintf(stderr, "This server may accept %s, issued at\n%s\n", what, where);
        fputs("Token: ", stderr);
    }
    bool got = fgets(line, sizeof line, stdin) != NULL;
    if (terminal) {
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &shown);
        fputc('\n', stderr);
    }
    size_t len = got ? strcspn(line, "\r\n") : 0;
    bool whole = got && line[len] != '\0';
    for (size_t i = 0; i < len; i++)
        whole = whole && line[i] > ' ' && line[i] < 0x7f;
    if (whole && len)
        secret_set(token, span_make(line, len));
    explicit_bzero(line, sizeof line);
    return token->len > 0;
}

static bool save(struct grant_store *store, const struct grant *grant, struct err *err)
{
    struct grant_key key = grant_key(grant);
    struct grant_request found = {0}, saved = {0};
    grant_store_find(store, &key, &found);
    bool ok = grant_store_wait(store, STORE_MS) && found.answer != GRANT_STORE_FAILED;
    if (ok) {
        grant_store_save(store, grant, found.answer == GRANT_STORE_DONE ? found.grant->generation : 0, &saved);
        ok = grant_store_wait(store, STORE_MS) && saved.answer == GRANT_STORE_DONE;
    }
    if (!ok)
        (void)err_set(err, ERR_SYSTEM, "cannot store the token: %s",
                      *found.err.detail ? found.err.detail : saved.err.detail);
    grant_request_release(&found);
    grant_request_release(&saved);
    return ok;
}

int login_token_store(const struct config *config, const struct server *server, const struct flags *flags)
{
    struct err err = {0};
    struct grant_store *store = NULL;
    struct grant_fields fields = {
        .token_type = mem_string("Bearer"), .obtained_at = clock_wall_s(), .login = grant_login_new()};
    char *user = grants_user(flags);
    struct loop *loop = loop_new(&err);
    int code = EXIT_OK;
    if (!user)
        code = fail_with(EXIT_USAGE, "--subject: must be PROVIDER:NAME, as in a policy");
    else if (!read_token(server, &fields.access_token))
        code = fail_with(EXIT_USAGE, "--token-stdin: standard input must be one line with a token");
    else if (!loop || !grants_open(config, loop, true, &store, &err))
        code = fail_with(EXIT_STORE, "%s", err.detail);
    if (code == EXIT_OK) {
        struct grant_key key = {grants_tenant(flags), user, LOGIN_TOKEN_ISSUER, server->url};
        struct grant *grant = grant_new(&key, &fields);
        code = save(store, grant, &err) ? EXIT_OK : fail_with(EXIT_STORE, "%s", err.detail);
        grant_unref(grant);
        if (code == EXIT_OK)
            fprintf(stderr, "The token for %s is stored\n", server->name);
    }
    grant_fields_release(&fields);
    if (store)
        grant_store_close(store);
    if (loop)
        loop_free(loop);
    free(user);
    return code;
}
