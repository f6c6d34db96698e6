// Owns parsing the answers of token endpoints: tokens, refusals, and the lifetime of a token.
#include "auth/jose/jwt.h"
#include "auth/oauth/oauth.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <strings.h>

#define TOKEN_MAX ((size_t)64 << 10)
#define ID_JAG "urn:ietf:params:oauth:token-type:id-jag"
#define AHEAD_MIN_MS 2000
#define ACCOUNT_MAX ((size_t)128)

static bool keep_pair(void *arg, struct span name, struct span value)
{
    json_t *tree = arg;
    char key[64] = "";
    if (!name.len || name.len >= sizeof key)
        return true;
    memcpy(key, name.at, name.len);
    if (json_object_get(tree, key))
        return false;
    json_t *text = json_stringn(value.at, value.len);
    return text && json_object_set_new(tree, key, text) == 0;
}

// T5: JSON, unless the content type is that of a form (GitHub sends forms) and the body is not a JSON object.
static json_t *read_answer(const struct oauth_answer *answer, struct err *err)
{
    struct span body = answer->body;
    while (body.len && strchr(" \t\r\n", body.at[0]))
        body = span_after(body, 1);
    bool form = answer->type.len >= 33 && strncasecmp(answer->type.at, "application/x-www-form-urlencoded", 33) == 0;
    if (!form || (body.len && body.at[0] == '{'))
        return oauth_document_parse(body, "token response", err);
    json_t *tree = json_object();
    if (body.len <= OAUTH_DOCUMENT_MAX && oauth_form_walk(body, keep_pair, tree))
        return tree;
    json_decref(tree);
    (void)err_set(err, ERR_UPSTREAM_INVALID, "token response: not a form");
    return NULL;
}

// ---- refusals -------------------------------------------------------------------------------

static bool is_one_of(const char *word, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(word, *words) == 0)
            return true;
    return false;
}

// F12. The error's exact value decides: invalid_client_metadata is not invalid_client.
static enum oauth_verdict judge(int status, const json_t *tree)
{
    static const char *const dead[] = {"invalid_grant", "invalid_refresh_token", "bad_refresh_token", NULL};
    static const char *const later[] = {"temporarily_unavailable", "server_error", "slow_down", NULL};
    const char *error = oauth_document_string(tree, "error"), *text = oauth_document_string(tree, "error_description");
    if (!error || is_one_of(error, later) || status == 408 || status == 425 || status == 429 || status >= 500)
        return OAUTH_VERDICT_TRANSIENT;
    if (is_one_of(error, dead))
        return OAUTH_VERDICT_DEAD;
    if (strcmp(error, "unauthorized_client") == 0 && text && strstr(text, "refresh_token is invalid"))
        return OAUTH_VERDICT_DEAD;  // Atlassian's spelling
    if (strcmp(error, "invalid_client") == 0)
        return OAUTH_VERDICT_CLIENT;
    if (strcmp(error, "invalid_request") == 0 && status == 400)
        return text && strcasestr(text, "client_id") ? OAUTH_VERDICT_UNPROVEN : OAUTH_VERDICT_VAGUE;
    return strcmp(error, "invalid_target") == 0 ? OAUTH_VERDICT_RESOURCE : OAUTH_VERDICT_REFUSED;
}

static enum oauth_verdict refuse(const struct oauth_answer *answer, const json_t *tree, struct err *err)
{
    struct buf text = {0};
    enum oauth_verdict verdict = judge(answer->status, tree);
    if (tree)
        oauth_problem_put(tree, &text);
    else
        buf_put_text(&text, "not a token response");
    (void)err_set(err, verdict == OAUTH_VERDICT_TRANSIENT ? ERR_UNAVAILABLE : ERR_DENIED,
                  "the token endpoint answered HTTP %d: %s", answer->status, buf_text(&text));
    buf_release(&text);
    return verdict;
}

// ---- lifetimes ------------------------------------------------------------------------------

// T7: reads seconds from a number or a string of digits. Returns false if the value is invalid.
static bool read_lifetime(const json_t *value, int64_t *out)
{
    double seconds = -1;
    if (json_is_number(value)) {
        seconds = json_number_value(value);
    } else if (json_is_string(value)) {
        const char *text = json_string_value(value);
        uint64_t whole;
        if (span_to_u64(span_of(text), &whole))
            seconds = (double)whole;
    }
    if (!(seconds >= 0))
        return false;
    *out = seconds > (double)OAUTH_LIFETIME_MAX ? OAUTH_LIFETIME_MAX : (int64_t)seconds;
    return true;
}

static bool is_there(const json_t *value)  // N9
{
    return value && !json_is_null(value) && !(json_is_string(value) && !json_string_length(value));
}

// T8: the expiry in the token itself, if it is a JWT; a hint only, because the token is not verified.
static int64_t expiry_in_token(const char *token, int64_t now)
{
    struct jwt jwt;
    struct err ignored;
    int64_t lifetime = 0, expires = 0;
    if (!jwt_parse(span_of(token), &jwt, &ignored))
        return 0;
    const json_t *exp = json_object_get(jwt.payload, "exp");
    if (json_is_number(exp) && json_number_value(exp) > (double)now && json_number_value(exp) < 1e12)
        lifetime = (int64_t)json_number_value(exp) - now;
    if (lifetime > 0)
        expires = now + (lifetime > OAUTH_LIFETIME_MAX ? OAUTH_LIFETIME_MAX : lifetime);
    jwt_release(&jwt);
    return expires;
}

// L12, T11: the account of the user, for display. The ID token itself is not stored.
static const char *account_in_token(const char *token, struct arena *arena)
{
    static const char *const claims[] = {"email", "preferred_username", "name", "sub", NULL};
    struct jwt jwt;
    struct err ignored;
    char *account = NULL;
    if (!token || !jwt_parse(span_of(token), &jwt, &ignored))
        return NULL;
    for (size_t i = 0; !account && claims[i]; i++) {
        const char *said = oauth_document_string(jwt.payload, claims[i]);
        account = said && strlen(said) <= ACCOUNT_MAX ? arena_copy(arena, span_of(said)) : NULL;
    }
    for (char *c = account; c && *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
    jwt_release(&jwt);
    return account;
}

// A token must contain only characters that are allowed in a header.
static bool is_header_safe(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text <= ' ' || (unsigned char)*text >= 0x7f)
            return false;
    return true;
}

enum oauth_verdict oauth_tokens_parse(const struct oauth_answer *answer, int64_t now, const char *requested,
                                      struct arena *arena, struct oauth_tokens *out, struct err *err)
{
    *out = (struct oauth_tokens){0};
    json_t *tree = read_answer(answer, err);
    enum oauth_verdict verdict = OAUTH_VERDICT_TRANSIENT;
    const char *access = oauth_document_string(tree, "access_token"), *type = oauth_document_string(tree, "token_type");
    const char *refresh = oauth_document_string(tree, "refresh_token"), *scope = oauth_document_string(tree, "scope");
    int64_t lifetime;
    if (answer->status < 200 || answer->status > 299 || !tree || oauth_document_string(tree, "error")) {
        verdict = refuse(answer, tree, err);
    } else if (!access || strlen(access) > TOKEN_MAX || !is_header_safe(access)) {
        (void)err_set(err, ERR_UPSTREAM_INVALID, "token response: access_token is missing or not valid");
    } else if (type && strcasecmp(type, "bearer") != 0) {
        (void)err_set(err, ERR_UPSTREAM_INVALID, "token response: token_type is not Bearer");
        verdict = OAUTH_VERDICT_REFUSED;
    } else {
        verdict = OAUTH_VERDICT_GRANTED;
        out->access = arena_copy(arena, span_of(access));
        out->refresh = refresh && strlen(refresh) <= TOKEN_MAX ? arena_copy(arena, span_of(refresh)) : NULL;
        out->scope = scope ? arena_copy(arena, span_of(scope)) : requested;
        out->account = account_in_token(oauth_document_string(tree, "id_token"), arena);
        out->obtained = now;
        bool said = read_lifetime(json_object_get(tree, "expires_in"), &lifetime);
        out->odd_lifetime = !said && is_there(json_object_get(tree, "expires_in"));
        out->expires = said ? now + lifetime : expiry_in_token(access, now);
    }
    json_decref(tree);
    return verdict;
}

void oauth_tokens_keep(struct oauth_tokens *fresh, const struct oauth_tokens *old, struct arena *arena)
{
    if (!fresh->refresh && old->refresh)
        fresh->refresh = arena_copy(arena, span_of(old->refresh));
    if (!fresh->scope && old->scope)
        fresh->scope = arena_copy(arena, span_of(old->scope));
    if (!fresh->expires && old->expires > old->obtained)
        fresh->expires = fresh->obtained + (old->expires - old->obtained);
}

int64_t oauth_tokens_refresh_at(const struct oauth_tokens *tokens)
{
    if (!tokens->expires)
        return 0;
    int64_t lifetime = tokens->expires - tokens->obtained;
    if (lifetime < 120)
        return tokens->expires - lifetime / 5;
    int64_t tenth = lifetime / 10 < 300 ? lifetime / 10 : 300;
    return tokens->expires - (tenth > 30 ? tenth : 30);
}

int64_t oauth_tokens_refresh_in(const struct oauth_tokens *tokens, int64_t now, unsigned char random)
{
    int64_t at = oauth_tokens_refresh_at(tokens), left = (at - now) * 1000;
    if (!at || left < AHEAD_MIN_MS)  // a very short-lived token is refreshed only when it is needed
        return -1;
    return left - left * random / 2550;
}

const char *oauth_tokens_parse_jag(const struct oauth_answer *answer, struct arena *arena, struct err *err)
{
    json_t *tree = oauth_document_parse(answer->body, "the identity provider's response", err);
    const char *token = oauth_document_string(tree, "access_token"),
               *type = oauth_document_string(tree, "issued_token_type"), *jag = NULL;
    struct buf problem = {0};
    bool ok = answer->status >= 200 && answer->status <= 299 && !oauth_document_string(tree, "error");
    if (!tree && !ok) {
        (void)err_set(err, answer->status >= 500 ? ERR_UNAVAILABLE : ERR_DENIED,
                      "the identity provider answered HTTP %d", answer->status);
    } else if (tree && !ok) {
        oauth_problem_put(tree, &problem);
        (void)err_set(err, answer->status >= 500 ? ERR_UNAVAILABLE : ERR_DENIED,
                      "the identity provider answered HTTP %d: %s", answer->status, buf_text(&problem));
    } else if (tree && (!type || strcmp(type, ID_JAG) != 0)) {
        (void)err_set(err, ERR_UPSTREAM_INVALID, "the identity provider issued a token that is not an ID-JAG");
    } else if (tree && (!token || strlen(token) > TOKEN_MAX || !*token || !is_header_safe(token))) {
        (void)err_set(err, ERR_UPSTREAM_INVALID, "the identity provider did not issue a usable ID-JAG");
    } else if (tree) {
        jag = arena_copy(arena, span_of(token));
    }
    buf_release(&problem);
    json_decref(tree);
    return jag;
}
