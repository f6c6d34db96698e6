// Owns a login in two commands, for scripts and agents that cannot wait (L8): `--start` prints the address and stores the
// attempt, sealed, for ten minutes; `--finish` completes it with the final address of the browser. An attempt accepts one
// answer; an address that is not its answer leaves it unchanged.
#include "auth/grant/attempt.h"
#include "auth/grant/store.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/secret.h"
#include "cmd/base/fail.h"
#include "cmd/base/grants.h"
#include "state.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ID_BYTES = 32, REDIRECT_MAX = 16 << 10 };

// ---- start ----------------------------------------------------------------------------------

void login_attempt_new_id(struct login *login) { secret_random_text(login->id, ID_BYTES); }

static void on_kept(struct grant_request *request)
{
    struct login *login = request->arg;
    char expires[32] = "";
    time_t end = clock_wall_s() + GRANT_STORE_ATTEMPT_MS / 1000;
    struct tm parts;
    if (request->answer != GRANT_STORE_DONE) {
        login_finish(login, fail_with(EXIT_STORE, "cannot store the login: %s", request->err.detail));
        return;
    }
    if (gmtime_r(&end, &parts))
        strftime(expires, sizeof expires, "%Y-%m-%dT%H:%M:%SZ", &parts);
    json_t *told = json_pack("{s:s, s:s, s:s, s:s}", "attempt_id", login->id, "url", login->url, "redirect_uri",
                             login->redirect_uri, "expires", expires);
    json_dumpf(told, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(told);
    login_finish(login, EXIT_OK);
}

void login_attempt_save(struct login *login, const char *url)
{
    const struct oauth_authorization *going = login_flow_authorization(login->flow);
    struct buf frozen = {0};
    struct identity *who = identity_new(IDENTITY_NONE, grants_tenant(login->flags), "login", login->user);
    struct attempt *attempt = attempt_new(who, login->server->name, login->server->url);
    attempt->stage = ATTEMPT_AWAY;
    attempt->expires_ms = clock_wall_ms() + GRANT_STORE_ATTEMPT_MS;
    if (going->client.dynamic) {  // G10: the user may not come back
        attempt->client_issuer = mem_string(going->server.issuer);
        attempt->client_redirect = mem_string(going->redirect_uri);
        attempt->client_id = mem_string(going->client.id);
    }
    login_suspension_save(login->flow, &frozen);
    secret_set(&attempt->login, buf_span(&frozen));
    login->url = mem_string(url);
    login->request = (struct grant_request){.on_done = on_kept, .arg = login};
    grant_store_attempt_add(login->store, span_of(login->id), attempt, &login->request);
    buf_wipe(&frozen);
    attempt_free(attempt);
    identity_unref(who);
}

// ---- finish ---------------------------------------------------------------------------------

// --redirect itself, or the first line of standard input: other users can read a command line.
static char *read_redirect(const char *given)
{
    char line[REDIRECT_MAX];
    if (strcmp(given, "-") != 0)
        return mem_string(given);
    if (!fgets(line, sizeof line, stdin))
        return NULL;
    line[strcspn(line, " \t\r\n")] = '\0';
    return mem_string(line);
}

static bool is_ours(const struct login *login, const struct attempt *attempt)
{
    return strcmp(attempt->provider, "login") == 0 && strcmp(attempt->tenant, grants_tenant(login->flags)) == 0 &&
           strcmp(attempt->subject, login->user) == 0 && strcmp(attempt->server_url, login->server->url) == 0;
}

// Replaces the stored attempt; `request` then has it as stored now.
static bool save(struct login *login, const struct attempt *attempt, struct grant_request *request)
{
    grant_store_attempt_save(login->store, span_of(login->id), attempt, request);
    return grant_store_wait(login->store, LOGIN_STORE_MS) && request->answer == GRANT_STORE_DONE;
}

// An address that is not the answer to this attempt does not spend it (B2).
static void put_back(struct login *login, struct attempt *attempt, struct span frozen)
{
    struct grant_request back = {0};
    attempt->stage = ATTEMPT_AWAY;
    secret_set(&attempt->login, frozen);
    if (!save(login, attempt, &back))
        fprintf(stderr, "postern: cannot store the attempt for another try; start a new login with --start\n");
    grant_request_release(&back);
}

// Takes the attempt, so that another process cannot, and its answer.
static bool answer(struct login *login, struct attempt *attempt, const char *redirect)
{
    struct grant_request taken = {0};
    struct secret frozen = {0};
    const char *query = strchr(redirect, '?');
    secret_set(&frozen, secret_span(&attempt->login));
    attempt_forget(attempt);
    bool ok = save(login, attempt, &taken);
    if (!ok)
        login->code = fail_with(
            EXIT_TIMEOUT,
            "--finish: another process is completing this attempt; if it fails, start a new login with --start");
    if (ok && !(query && login_take_query(login, span_of(query + 1)))) {
        put_back(login, taken.attempt, secret_span(&frozen));
        login->code = fail_with(EXIT_ANSWER, "--redirect: this is not the final address of the browser for this "
                                             "attempt; the attempt can still be completed "
                                             "with the address that the browser shows at the end");
        ok = false;
    }
    secret_release(&frozen);
    grant_request_release(&taken);
    return ok;
}

static bool go_on(struct login *login, struct attempt *attempt, const char *redirect)
{
    struct err err = {0};
    struct login_flow_spec spec = login_spec(login);
    if (!is_ours(login, attempt)) {
        login->code = fail_with(
            EXIT_USAGE, "--finish: this attempt is for another server or user; name those that --start was given");
        return false;
    }
    if (!(login->flow = login_suspension_restore(&spec, secret_span(&attempt->login), &err))) {
        login->code = fail_with(EXIT_USAGE, "--finish: %s", err.detail);
        return false;
    }
    return answer(login, attempt, redirect);
}

bool login_attempt_resume(struct login *login)
{
    struct grant_request found = {0};
    char *redirect = read_redirect(login->flags->redirect);
    bool ok = false;
    snprintf(login->id, sizeof login->id, "%s", login->flags->finish);
    grant_store_attempt_find(login->store, span_of(login->id), &found);
    if (!grant_store_wait(login->store, LOGIN_STORE_MS) || found.answer == GRANT_STORE_FAILED)
        login->code = fail_with(EXIT_STORE, "%s", found.err.detail);
    else if (found.answer != GRANT_STORE_DONE || found.attempt->stage != ATTEMPT_AWAY)
        login->code = fail_with(EXIT_TIMEOUT, "--finish: the attempt does not exist: it was completed, is older than "
                                              "ten minutes, or was not started with this store; start a new "
                                              "login with --start");
    else
        ok = go_on(login, found.attempt, redirect ? redirect : "");
    if (redirect)
        secret_wipe(redirect, strlen(redirect));
    free(redirect);
    grant_request_release(&found);
    return ok;
}
