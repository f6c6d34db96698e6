// Owns a login in two commands, for scripts and agents that cannot wait (L8): `--start` tells the address and keeps the
// attempt, sealed, for ten minutes; `--finish` goes on with where the browser ended. An attempt is good for one answer;
// an address that is not its answer leaves it as it was.
#include "base/json.h"
#include "base/mem.h"
#include "base/secret.h"
#include "login_state.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ID_BYTES = 16, REDIRECT_MAX = 16 << 10 };

// ---- start ----------------------------------------------------------------------------------

static void on_kept(struct token_request *request)
{
    struct login *login = request->arg;
    char expires[32] = "";
    time_t end = time(NULL) + TOKEN_STORE_ATTEMPT_MS / 1000;
    struct tm parts;
    if (request->answer != TOKEN_DONE) {
        login_finish(login, cmd_fail(EXIT_STORE, "the login could not be kept: %s", request->err.detail));
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

void login_pause(struct login *login, const char *url)
{
    unsigned char random[ID_BYTES];
    struct buf id = {0}, note = {0};
    secret_random(random, sizeof random);
    secret_encode(&id, span_make((const char *)random, sizeof random));
    snprintf(login->id, sizeof login->id, "%s", buf_text(&id));
    login->url = mem_string(url);
    oauth_flow_pause(login->flow, &note);
    login->request = (struct token_request){.on_done = on_kept, .arg = login};
    token_store_attempt_put(login->store, span_of(login->id), buf_span(&note), &login->request);
    vault_wipe(&note);
    buf_release(&id);
}

// ---- finish ---------------------------------------------------------------------------------

// --redirect as it is, or the first line of standard input: what is on a command line can be read by others.
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

// An address that is not the answer to this attempt does not use it up (B2).
static void put_back(struct login *login, struct span note)
{
    struct token_request back = {0};
    token_store_attempt_put(login->store, span_of(login->flags->finish), note, &back);
    if (!token_store_wait(login->store, LOGIN_STORE_MS) || back.answer != TOKEN_DONE)
        fprintf(stderr, "postern: the attempt could not be kept: start again\n");
    token_request_release(&back);
}

static bool go_on(struct login *login, struct span note, const char *redirect)
{
    struct err err = {0};
    struct oauth_flow_spec spec = login_spec(login);
    const char *query = strchr(redirect, '?');
    if (!(login->flow = oauth_flow_resume(&spec, note, &err))) {
        put_back(login, note);
        login->code = cmd_fail(EXIT_USAGE, "--finish: %s", err.detail);
        return false;
    }
    if (!query || !login_take_query(login, span_of(query + 1))) {
        put_back(login, note);
        login->code = cmd_fail(EXIT_ANSWER, "--redirect: not the address that the browser ended at after this attempt; "
                                            "it can still be finished");
        return false;
    }
    return true;
}

bool login_resume(struct login *login)
{
    struct token_request taken = {0};
    char *redirect = read_redirect(login->flags->redirect);
    bool ok = false;
    token_store_attempt_take(login->store, span_of(login->flags->finish), &taken);
    if (!token_store_wait(login->store, LOGIN_STORE_MS) || taken.answer == TOKEN_FAILED)
        login->code = cmd_fail(EXIT_STORE, "%s", taken.err.detail);
    else if (taken.answer != TOKEN_DONE)
        login->code = cmd_fail(EXIT_TIMEOUT, "--finish: there is no such attempt: it is used up, or older than ten "
                                             "minutes, or was never started here");
    else
        ok = go_on(login, secret_span(&taken.note), redirect ? redirect : "");
    if (redirect)
        secret_wipe(redirect, strlen(redirect));
    free(redirect);
    token_request_release(&taken);
    return ok;
}
