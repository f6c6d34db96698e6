// Owns one authorization request: its secrets, the URL that the browser is sent to, and checking the callback.
#include "auth/oauth/oauth.h"
#include "base/secret.h"

// ---- the request ----------------------------------------------------------------------------

void oauth_authorization_seed(struct oauth_authorization *authorization)
{
    secret_random_text(authorization->state, OAUTH_STATE_BYTES);
    secret_random_text(authorization->verifier, OAUTH_VERIFIER_BYTES);
    authorization->used = authorization->client_refused = false;
}

bool oauth_authorization_extra_allowed(const char *name)
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
    *ours |=
        name.len < sizeof text && *text && (!oauth_authorization_extra_allowed(text) || strcmp(text, "resource") == 0);
    return true;
}

// A5: the endpoint's own query is kept, except for parameters that the gateway sets.
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

void oauth_authorization_url(const struct oauth_authorization *authorization, struct buf *out)
{
    put_endpoint(authorization->server.authorization_endpoint, out);
    oauth_form_put(out, "response_type", "code");
    oauth_form_put(out, "client_id", authorization->client.id);
    oauth_form_put(out, "redirect_uri", authorization->redirect_uri);
    put_challenge(authorization->verifier, out);
    oauth_form_put(out, "state", authorization->state);
    oauth_form_put(out, "scope", authorization->scope);
    oauth_form_put(out, "resource", authorization->resource);
    if (authorization->consent)
        oauth_form_put(out, "prompt", "consent");
    for (size_t i = 0; i < authorization->extra_count; i++)
        if (oauth_authorization_extra_allowed(authorization->extra[i].name))
            oauth_form_put(out, authorization->extra[i].name, authorization->extra[i].value);
}

// ---- the callback ---------------------------------------------------------------------------

static bool is_state(const char *mine, const char *given)
{
    size_t len = strlen(mine);
    return given && strlen(given) == len && secret_equal(mine, given, len);
}

// B3, RFC 9207: iss is compared if it is present, and required if the server's metadata promise it.
static bool check_iss(const struct oauth_authorization *authorization, const char *iss, struct err *err)
{
    if (!iss)
        return !authorization->server.answers_iss ||
               err_set(err, ERR_UPSTREAM_INVALID,
                       "the authorization response does not name its issuer (iss), although the server's metadata "
                       "declare that it does");
    // Without metadata the issuer is unknown, so any iss is refused.
    return (!authorization->server.legacy && strcmp(iss, authorization->server.issuer) == 0) ||
           err_set(err, ERR_UPSTREAM_INVALID, "the authorization response is from another issuer");
}

static enum oauth_callback_kind refused(struct oauth_authorization *authorization,
                                        const struct oauth_callback *callback, struct err *err)
{
    struct buf text = {0};
    json_t *problem = json_pack("{s:s, s:s*}", "error", callback->error, "error_description", callback->description);
    oauth_problem_put(problem, &text);
    json_decref(problem);
    bool denied = strcmp(callback->error, "access_denied") == 0;
    authorization->client_refused =
        strcmp(callback->error, "invalid_client") == 0 || strcmp(callback->error, "invalid_request") == 0;
    (void)err_set(err, ERR_DENIED, denied ? "access was declined (%s)" : "the authorization server refused: %s",
                  buf_text(&text));
    buf_release(&text);
    return denied ? OAUTH_CALLBACK_DENIED : OAUTH_CALLBACK_REFUSED;
}

enum oauth_callback_kind oauth_authorization_callback(struct oauth_authorization *authorization,
                                                      const struct oauth_callback *callback, struct err *err)
{
    if (callback->malformed || authorization->used || !is_state(authorization->state, callback->state)) {
        (void)err_set(err, ERR_INVALID_REQUEST, "ignored a callback for another login attempt");
        return OAUTH_CALLBACK_STRANGE;
    }
    authorization->used = true;
    if (!check_iss(authorization, callback->iss, err))
        return OAUTH_CALLBACK_REJECTED;
    if (callback->error)
        return refused(authorization, callback, err);
    if (callback->code && *callback->code)
        return OAUTH_CALLBACK_CODE;
    (void)err_set(err, ERR_UPSTREAM_INVALID, "the authorization response has neither a code nor an error");
    return OAUTH_CALLBACK_REJECTED;
}

void oauth_authorization_put_exchange(const struct oauth_authorization *authorization, const char *code,
                                      struct buf *form)
{
    oauth_form_put(form, "grant_type", "authorization_code");
    oauth_form_put(form, "code", code);
    oauth_form_put(form, "redirect_uri", authorization->redirect_uri);
    oauth_form_put(form, "code_verifier", authorization->verifier);
    oauth_form_put(form, "resource", authorization->resource);
}
