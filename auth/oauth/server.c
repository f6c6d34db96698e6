// Owns authorization servers: the URLs of their metadata (RFC 8414, OpenID), parsing these, and the check for PKCE.
#include "document.h"
#include "url.h"

size_t oauth_server_urls(const char *issuer, struct arena *arena, const char *out[OAUTH_URLS_MAX])
{
    struct oauth_url url;
    size_t count = 0;
    if (!oauth_url_parse(issuer, &url) || url.query.len)
        return 0;
    struct span path = url.path;
    if (path.len && path.at[path.len - 1] == '/')
        path.len--;
    const struct span rfc8414 = span_of("/.well-known/oauth-authorization-server");
    const struct span openid = span_of("/.well-known/openid-configuration");
    const struct span places[][OAUTH_URL_PARTS] = {
        {url.origin, rfc8414, path}, {url.origin, openid, path}, {url.origin, path, openid}};
    for (size_t i = 0; i < (path.len ? 3 : 2); i++)
        count = oauth_url_add(out, count, arena, places[i]);
    return count;
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

// An endpoint may be absent, but must not have a URL that is not secure (N1, D14).
static bool take_endpoint(const json_t *tree, const char *name, struct arena *arena, const char **out, struct err *err)
{
    *out = oauth_document_copy(tree, name, arena);
    if (*out && !oauth_url_secure(*out))
        return err_set(err, ERR_UPSTREAM_INVALID, "authorization server metadata: %s is not an https URL: \"%.200s\"",
                       name, *out);
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
           err_set(err, ERR_UPSTREAM_INVALID, "authorization server metadata: token_endpoint is missing");
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
        if (list_has(methods, oauth_method_text((enum oauth_method)i)))
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
    json_t *tree = oauth_document_parse(text, "authorization server metadata", err);
    if (!tree)
        return false;
    const char *said = oauth_document_string(tree, "issuer");
    bool ok = said != NULL && oauth_issuer_matches(issuer, said);
    if (!ok)
        (void)err_set(err, ERR_UPSTREAM_INVALID,
                      "authorization server metadata belong to another issuer: expected \"%.150s\", found \"%.150s\"",
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

// Servers that are known to support PKCE although their metadata do not say so (D13).
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

bool oauth_server_check_pkce(const struct oauth_server *server, bool assume, struct err *err)
{
    if (server->pkce == OAUTH_PKCE_S256)
        return true;
    if (server->pkce == OAUTH_PKCE_REFUSED)
        return err_set(err, ERR_UPSTREAM_INVALID, "authorization server \"%.200s\" does not support PKCE with S256",
                       server->issuer);
    return assume || known_to_do_pkce(server->issuer) ||
           err_set(
               err, ERR_UPSTREAM_INVALID,
               "the metadata of authorization server \"%.200s\" do not say that it supports PKCE; if you know that it "
               "does, set \"pkce\": \"assume_s256\" in the server's auth",
               server->issuer);
}
