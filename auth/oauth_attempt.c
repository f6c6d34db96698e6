// Owns one try at a login: its secrets, the URL the browser is sent to, and the judgement of what comes back.
#include "auth/oauth.h"
#include "base/secret.h"

#define QUERY_MAX ((size_t)16 << 10)

// ---- sending off ----------------------------------------------------------------------------

static void put_random(char *out, size_t size, size_t bytes)
{
    unsigned char random[48];
    struct buf text = {0};
    secret_random(random, bytes);
    secret_encode(&text, span_make((const char *)random, bytes));
    memcpy(out, buf_text(&text), text.len < size ? text.len + 1 : size);
    out[size - 1] = '\0';
    secret_wipe(text.at, text.len);
    secret_wipe(random, sizeof random);
    buf_release(&text);
}

void oauth_attempt_seed(struct oauth_attempt *attempt)
{
    put_random(attempt->state, sizeof attempt->state, 32);
    put_random(attempt->verifier, sizeof attempt->verifier, 47);
    attempt->used = attempt->client_refused = false;
}

bool oauth_extra_allowed(const char *name)
{
    static const char *const own[] = {"response_type", "client_id",      "redirect_uri",          "scope",
                                      "state",         "code_challenge", "code_challenge_method", "prompt",
                                      "request",       "request_uri",    "response_mode",         NULL};
    for (size_t i = 0; own[i]; i++)
        if (strcmp(own[i], name) == 0)
            return false;
    return *name != '\0';
}

static void put_challenge(const char *verifier, struct buf *out)
{
    unsigned char digest[SECRET_MAC_BYTES];
    struct buf text = {0};
    secret_digest(span_of(verifier), digest);
    secret_encode(&text, span_make((const char *)digest, sizeof digest));
    oauth_form_put(out, "code_challenge", buf_text(&text));
    oauth_form_put(out, "code_challenge_method", "S256");
    buf_release(&text);
}

static bool is_ours(void *arg, struct span name, struct span value)
{
    bool *ours = arg;
    (void)value;
    char text[64] = "";
    if (name.len < sizeof text)
        memcpy(text, name.at, name.len);
    *ours |= name.len < sizeof text && *text && (!oauth_extra_allowed(text) || strcmp(text, "resource") == 0);
    return true;
}

// A5: what the endpoint's own query says stays, unless it claims to speak for us.
static void put_endpoint(const char *endpoint, struct buf *out)
{
    const char *query = strchr(endpoint, '?');
    size_t len = query ? (size_t)(query - endpoint) : strlen(endpoint);
    buf_put(out, endpoint, len);
    buf_put_char(out, '?');
    for (const char *at = query ? query + 1 : ""; *at;) {
        size_t pair = strcspn(at, "&");
        bool ours = false;
        bool sound = oauth_form_walk(span_make(at, pair), is_ours, &ours);
        if (pair && sound && !ours) {
            if (out->at[out->len - 1] != '?')
                buf_put_char(out, '&');
            buf_put(out, at, pair);
        }
        at += pair + (at[pair] ? 1 : 0);
    }
}

void oauth_attempt_url(const struct oauth_attempt *attempt, struct buf *out)
{
    put_endpoint(attempt->server.authorization_endpoint, out);
    oauth_form_put(out, "response_type", "code");
    oauth_form_put(out, "client_id", attempt->client.id);
    oauth_form_put(out, "redirect_uri", attempt->redirect_uri);
    put_challenge(attempt->verifier, out);
    oauth_form_put(out, "state", attempt->state);
    oauth_form_put(out, "scope", attempt->scope);
    oauth_form_put(out, "resource", attempt->resource);
    if (attempt->consent)
        oauth_form_put(out, "prompt", "consent");
    for (size_t i = 0; i < attempt->extra_count; i++)
        if (oauth_extra_allowed(attempt->extra[i].name))
            oauth_form_put(out, attempt->extra[i].name, attempt->extra[i].value);
}

// ---- coming back ----------------------------------------------------------------------------

struct answer {
    struct arena *arena;
    const char *state, *code, *iss, *error, *description;
    bool twice;
};

static bool take_pair(void *arg, struct span name, struct span value)
{
    struct answer *answer = arg;
    const struct {
        const char *name;
        const char **slot;
    } rows[] = {{"state", &answer->state},
                {"code", &answer->code},
                {"iss", &answer->iss},
                {"error", &answer->error},
                {"error_description", &answer->description}};
    if (value.len > OAUTH_VALUE_MAX)
        return false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (span_is(name, rows[i].name)) {
            answer->twice |= *rows[i].slot != NULL;
            *rows[i].slot = arena_copy(answer->arena, value);
        }
    return true;
}

static bool is_state(const char *mine, const char *given)
{
    size_t len = strlen(mine);
    return given && strlen(given) == len && secret_equal(mine, given, len);
}

// B3, RFC 9207: the table of four rows.
static bool check_iss(const struct oauth_attempt *attempt, const char *iss, struct err *err)
{
    if (!iss)
        return !attempt->server.answers_iss ||
               err_set(err, ERR_UPSTREAM_INVALID,
                       "the authorization answer does not say who it is from (iss), though the server promised it");
    // Without metadata there is no issuer to compare with; then nobody may claim to be one.
    return (!attempt->server.legacy && strcmp(iss, attempt->server.issuer) == 0) ||
           err_set(err, ERR_UPSTREAM_INVALID, "the authorization answer is from another issuer than the one asked");
}

static enum oauth_callback_kind refused(struct oauth_attempt *attempt, const struct answer *answer, struct err *err)
{
    struct buf text = {0};
    json_t *problem = json_pack("{s:s, s:s*}", "error", answer->error, "error_description", answer->description);
    oauth_put_problem(problem, &text);
    json_decref(problem);
    bool denied = strcmp(answer->error, "access_denied") == 0;
    attempt->client_refused =
        strcmp(answer->error, "invalid_client") == 0 || strcmp(answer->error, "invalid_request") == 0;
    (void)err_set(err, ERR_DENIED, denied ? "access was declined (%s)" : "the authorization server refused: %s",
                  buf_text(&text));
    buf_release(&text);
    return denied ? OAUTH_CALLBACK_DENIED : OAUTH_CALLBACK_REFUSED;
}

enum oauth_callback_kind oauth_callback(struct oauth_attempt *attempt, struct span query, struct arena *arena,
                                        const char **code, struct err *err)
{
    struct answer answer = {.arena = arena};
    *code = NULL;
    if (query.len && query.at[0] == '?')
        query = span_after(query, 1);
    bool sound = query.len <= QUERY_MAX && oauth_form_walk(query, take_pair, &answer);
    if (!sound || answer.twice || attempt->used || !is_state(attempt->state, answer.state)) {
        (void)err_set(err, ERR_INVALID_REQUEST, "ignored a callback for another login attempt");
        return OAUTH_CALLBACK_STRANGE;
    }
    attempt->used = true;
    if (!check_iss(attempt, answer.iss, err))
        return OAUTH_CALLBACK_REJECTED;
    if (answer.error)
        return refused(attempt, &answer, err);
    if (!answer.code || !*answer.code) {
        (void)err_set(err, ERR_UPSTREAM_INVALID, "the authorization answer has neither a code nor an error");
        return OAUTH_CALLBACK_REJECTED;
    }
    *code = answer.code;
    return OAUTH_CALLBACK_CODE;
}

void oauth_exchange_put(const struct oauth_attempt *attempt, const char *code, struct buf *form)
{
    oauth_form_put(form, "grant_type", "authorization_code");
    oauth_form_put(form, "code", code);
    oauth_form_put(form, "redirect_uri", attempt->redirect_uri);
    oauth_form_put(form, "code_verifier", attempt->verifier);
    oauth_form_put(form, "resource", attempt->resource);
}
