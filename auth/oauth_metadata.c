// Owns judging the metadata of protected resources (RFC 9728) and authorization servers (RFC 8414, OpenID).
#include "auth/oauth.h"
#include "base/scan.h"
#include <ctype.h>
#include <stdlib.h>

#define PROBLEM_MAX 256
#define SCOPE_MAX ((size_t)4 << 10)
#define SCRUB_MIN 8

static const char *const method_names[OAUTH_METHODS] = {
    [OAUTH_METHOD_NONE] = "none",
    [OAUTH_METHOD_POST] = "client_secret_post",
    [OAUTH_METHOD_BASIC] = "client_secret_basic",
    [OAUTH_METHOD_KEY] = "private_key_jwt",
};

const char *oauth_method_text(enum oauth_method method) { return method_names[method]; }

bool oauth_method_parse(const char *text, enum oauth_method *out)
{
    for (int i = 0; text && i < OAUTH_METHODS; i++)
        if (strcmp(text, method_names[i]) == 0) {
            *out = (enum oauth_method)i;
            return true;
        }
    return false;
}

json_t *oauth_document(struct span text, const char *what, struct err *err)
{
    struct span value;
    if (text.len > OAUTH_DOCUMENT_MAX) {
        (void)err_set(err, ERR_UPSTREAM_INVALID, "%s: larger than %zu bytes", what, OAUTH_DOCUMENT_MAX);
        return NULL;
    }
    if (!scan_document(text, true, &value, err) || !scan_is_object(value)) {  // also bounds the depth
        (void)err_set(err, ERR_UPSTREAM_INVALID, "%s: not a JSON object", what);
        return NULL;
    }
    json_t *tree = json_parse(value, what, err);
    if (!tree)
        err->code = ERR_UPSTREAM_INVALID;
    return tree;
}

const char *oauth_member(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    const char *text = json_string_value(value);
    return text && *text && strlen(text) == json_string_length(value) ? text : NULL;
}

static const char *copy_member(const json_t *object, const char *name, struct arena *arena)
{
    const char *text = oauth_member(object, name);
    return text ? arena_copy(arena, span_of(text)) : NULL;
}

static bool list_has(const json_t *list, const char *word)
{
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        const char *text = json_string_value(item);
        if (text && strcmp(text, word) == 0)
            return true;
    }
    return false;
}

// The words of a list with a space between; one that has a space itself, or is empty, is left out.
static const char *join_words(const json_t *list, struct arena *arena)
{
    struct buf words = {.max = SCOPE_MAX};
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        const char *text = json_string_value(item);
        if (!text || !*text || strpbrk(text, " \t\r\n\"\\"))
            continue;
        if (words.len)
            buf_put_char(&words, ' ');
        buf_put_text(&words, text);
    }
    const char *out = words.len && !words.overflow ? arena_copy(arena, buf_span(&words)) : NULL;
    buf_release(&words);
    return out;
}

bool oauth_resource_parse(struct span text, const char *server_url, struct arena *arena, struct oauth_resource *out,
                          struct err *err)
{
    *out = (struct oauth_resource){0};
    json_t *tree = oauth_document(text, "protected resource metadata", err), *item;
    if (!tree)
        return false;
    const char *resource = oauth_member(tree, "resource");
    bool ok = false;
    size_t i;
    if (!resource)
        (void)err_set(err, ERR_UPSTREAM_INVALID, "protected resource metadata: no \"resource\"");
    else if (!oauth_resource_covers(resource, server_url))
        (void)err_set(err, ERR_UPSTREAM_INVALID,
                      "protected resource metadata are for another resource: they say \"%.200s\", the server is %.200s",
                      resource, server_url);
    else
        ok = true;
    if (ok) {
        out->resource = arena_copy(arena, span_of(resource));
        out->scope = join_words(json_object_get(tree, "scopes_supported"), arena);
        json_array_foreach(json_object_get(tree, "authorization_servers"), i, item) {
            const char *server = json_string_value(item);
            if (server && oauth_url_secure(server) && out->server_count < OAUTH_SERVERS_MAX)
                out->servers[out->server_count++] = arena_copy(arena, span_of(server));
        }
        if (!out->server_count)
            ok = err_set(err, ERR_UPSTREAM_INVALID,
                         "protected resource metadata name no authorization server with an https URL");
    }
    json_decref(tree);
    return ok;
}

// An endpoint that is there must be one we may talk to (N1, D14).
static bool take_endpoint(const json_t *tree, const char *name, struct arena *arena, const char **out, struct err *err)
{
    *out = copy_member(tree, name, arena);
    if (*out && !oauth_url_secure(*out))
        return err_set(err, ERR_UPSTREAM_INVALID, "authorization server metadata: %s is no https URL: \"%.200s\"", name,
                       *out);
    return true;
}

static bool take_endpoints(const json_t *tree, struct arena *arena, struct oauth_server *out, struct err *err)
{
    if (!take_endpoint(tree, "authorization_endpoint", arena, &out->authorization_endpoint, err) ||
        !take_endpoint(tree, "token_endpoint", arena, &out->token_endpoint, err) ||
        !take_endpoint(tree, "registration_endpoint", arena, &out->registration_endpoint, err) ||
        !take_endpoint(tree, "revocation_endpoint", arena, &out->revocation_endpoint, err) ||
        !take_endpoint(tree, "device_authorization_endpoint", arena, &out->device_endpoint, err))
        return false;
    return out->token_endpoint ||
           err_set(err, ERR_UPSTREAM_INVALID, "authorization server metadata: no token_endpoint");
}

static void take_lists(const json_t *tree, struct oauth_server *out)
{
    const json_t *challenges = json_object_get(tree, "code_challenge_methods_supported");
    const json_t *methods = json_object_get(tree, "token_endpoint_auth_methods_supported");
    const json_t *types = json_object_get(tree, "response_types_supported");
    out->pkce = list_has(challenges, "S256") ? OAUTH_PKCE_S256
                : json_is_array(challenges)  ? OAUTH_PKCE_REFUSED
                                             : OAUTH_PKCE_UNSAID;
    out->methods_listed = json_is_array(methods);
    for (unsigned i = 0; i < OAUTH_METHODS; i++)
        if (list_has(methods, method_names[i]))
            out->methods |= 1U << i;
    out->code = !json_is_array(types) || list_has(types, "code");
    out->offline_access = list_has(json_object_get(tree, "scopes_supported"), "offline_access");
    out->answers_iss = json_is_true(json_object_get(tree, "authorization_response_iss_parameter_supported"));
    out->takes_documents = json_is_true(json_object_get(tree, "client_id_metadata_document_supported"));
}

bool oauth_server_parse(struct span text, const char *issuer, struct arena *arena, struct oauth_server *out,
                        struct err *err)
{
    *out = (struct oauth_server){0};
    json_t *tree = oauth_document(text, "authorization server metadata", err);
    if (!tree)
        return false;
    const char *said = oauth_member(tree, "issuer");
    bool ok = said != NULL && oauth_issuer_matches(issuer, said);
    if (!ok)
        (void)err_set(err, ERR_UPSTREAM_INVALID,
                      "authorization server metadata are of another issuer: expected \"%.150s\", found \"%.150s\"",
                      issuer, said ? said : "");
    ok = ok && take_endpoints(tree, arena, out, err);
    if (ok) {
        out->issuer = arena_copy(arena, span_of(said));
        take_lists(tree, out);
    }
    json_decref(tree);
    return ok;
}

void oauth_server_default(const char *server_url, struct arena *arena, struct oauth_server *out)
{
    static const char *const paths[] = {"", "/authorize", "/token", "/register"};
    const char **slots[] = {&out->issuer, &out->authorization_endpoint, &out->token_endpoint,
                            &out->registration_endpoint};
    struct oauth_url url;
    *out = (struct oauth_server){.pkce = OAUTH_PKCE_S256, .code = true, .legacy = true};
    if (!oauth_url_parse(server_url, &url))
        return;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct buf text = {0};
        buf_put_span(&text, url.origin);
        buf_put_text(&text, paths[i]);
        *slots[i] = arena_copy(arena, buf_span(&text));
        buf_release(&text);
    }
}

// Servers known to do PKCE and not to say so (D13).
static bool known_to_do_pkce(const char *issuer)
{
    static const char *const tails[] = {"login.microsoftonline.com", ".amazoncognito.com"};
    struct oauth_url url;
    if (!oauth_url_parse(issuer, &url) || !url.https)
        return false;
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        size_t len = strlen(tails[i]);
        bool tail = url.host.len >= len && memcmp(url.host.at + url.host.len - len, tails[i], len) == 0;
        if (tail && (tails[i][0] == '.' || url.host.len == len))
            return true;
    }
    static const char amazon[] = ".amazonaws.com";
    size_t len = sizeof amazon - 1;
    return span_starts(url.host, "cognito-idp.") && url.host.len > len &&
           memcmp(url.host.at + url.host.len - len, amazon, len) == 0;
}

bool oauth_pkce_check(const struct oauth_server *server, bool assume, struct err *err)
{
    if (server->pkce == OAUTH_PKCE_S256)
        return true;
    if (server->pkce == OAUTH_PKCE_REFUSED)
        return err_set(err, ERR_UPSTREAM_INVALID, "authorization server \"%.200s\" does not do PKCE with S256",
                       server->issuer);
    return assume || known_to_do_pkce(server->issuer) ||
           err_set(err, ERR_UPSTREAM_INVALID,
                   "authorization server \"%.200s\" does not say that it does PKCE; if you know that it does, set "
                   "\"pkce\": \"assume_s256\" in the server's auth",
                   server->issuer);
}

// ---- scopes ---------------------------------------------------------------------------------

static bool has_word(const char *scopes, struct span word)
{
    for (const char *at = scopes; at && *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (span_equal(span_make(at, strcspn(at, " ")), word))
            return true;
    return false;
}

bool oauth_scope_has(const char *scopes, const char *scope) { return has_word(scopes, span_of(scope)); }

bool oauth_scope_covers(const char *scopes, const char *wanted)
{
    for (const char *at = wanted + strspn(wanted, " "); *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (!has_word(scopes, span_make(at, strcspn(at, " "))))
            return false;
    return true;
}

const char *oauth_scope_union(const char *a, const char *b, struct arena *arena)
{
    const char *sources[] = {a, b};
    const char *out = NULL;
    struct buf words = {.max = SCOPE_MAX};
    for (size_t i = 0; i < 2; i++)
        for (const char *at = sources[i]; at && *at; at += strcspn(at, " "), at += strspn(at, " ")) {
            char *word = arena_copy(arena, span_make(at, strcspn(at, " ")));
            if (!*word || (words.len && oauth_scope_has(buf_text(&words), word)))
                continue;
            if (words.len)
                buf_put_char(&words, ' ');
            buf_put_text(&words, word);
        }
    if (words.len && !words.overflow)
        out = arena_copy(arena, buf_span(&words));
    buf_release(&words);
    return out;
}

const char *oauth_scope_choose(const struct oauth_scope_wish *wish, struct arena *arena)
{
    const char *first = wish->configured ? wish->configured : wish->challenged ? wish->challenged : wish->supported;
    const char *scope = oauth_scope_union(wish->held, first, arena);
    if (wish->held && wish->challenged)
        scope = oauth_scope_union(scope, wish->challenged, arena);
    return scope && wish->offline ? oauth_scope_union(scope, "offline_access", arena) : scope;
}

// ---- problems -------------------------------------------------------------------------------

void oauth_put_excerpt(struct span text, struct buf *out)
{
    for (size_t i = 0; i < text.len && i < PROBLEM_MAX; i++) {
        if ((unsigned char)text.at[i] < ' ' || text.at[i] == 0x7f)
            buf_printf(out, "\\x%02x", (unsigned char)text.at[i]);
        else
            buf_put_char(out, text.at[i]);
    }
}

void oauth_put_problem(const json_t *document, struct buf *out)
{
    const char *error = oauth_member(document, "error"), *text = oauth_member(document, "error_description");
    oauth_put_excerpt(span_of(error ? error : "no error code"), out);
    if (text) {
        buf_put_text(out, ": ");
        oauth_put_excerpt(span_of(text), out);
    }
}

// The beginning of a secret is struck out too, as far as it goes: the rest may have been cut off.
void oauth_scrub(struct err *err, const char *secret)
{
    char head[SCRUB_MIN + 1] = "";
    size_t len = secret ? strlen(secret) : 0, least = len < SCRUB_MIN ? len : SCRUB_MIN;
    if (len < 4)  // would strike out half the text
        return;
    memcpy(head, secret, least);
    for (char *at = err->detail; (at = strstr(at, head));)
        for (size_t i = 0; *at && i < len && *at == secret[i]; i++)
            *at++ = '*';
}
