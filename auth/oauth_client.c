// Owns who we are to an authorization server: registration (RFC 7591), client documents, and proof at the token endpoint.
#include "auth/oauth.h"
#include "base/mem.h"
#include "base/secret.h"
#include "oauth_key.h"
#include <openssl/evp.h>
#include <stdlib.h>

#define SECRET_MARGIN 60
#define ASSERTION_LIFETIME 60

// ---- registration ---------------------------------------------------------------------------

enum oauth_method oauth_registration_method(const struct oauth_server *server)
{
    if (!server->methods_listed || server->methods & 1U << OAUTH_METHOD_NONE)
        return OAUTH_METHOD_NONE;
    if (server->methods & 1U << OAUTH_METHOD_POST)
        return OAUTH_METHOD_POST;
    return server->methods & 1U << OAUTH_METHOD_BASIC ? OAUTH_METHOD_BASIC : OAUTH_METHOD_NONE;
}

static void dump(json_t *tree, struct buf *out)
{
    char *text = json_dumps(tree, JSON_COMPACT);
    buf_put_text(out, text);
    free(text);
    json_decref(tree);
}

void oauth_registration_put(const struct oauth_registration *wish, struct buf *out)
{
    json_t *tree =
        json_pack("{s:s, s:[s], s:[s,s], s:[s], s:s, s:s, s:s, s:s}", "client_name", "Postern", "redirect_uris",
                  wish->redirect_uri, "grant_types", "authorization_code", "refresh_token", "response_types", "code",
                  "token_endpoint_auth_method", oauth_method_text(wish->method), "application_type",
                  wish->native ? "native" : "web", "software_id", "postern", "software_version", POSTERN_VERSION);
    if (wish->device) {
        json_object_del(tree, "redirect_uris");
        json_object_set_new(tree, "response_types", json_array());
        json_object_set_new(tree, "grant_types",
                            json_pack("[s,s]", "urn:ietf:params:oauth:grant-type:device_code", "refresh_token"));
    }
    if (wish->client_id)
        json_object_set_new(tree, "client_id", json_string(wish->client_id));
    if (wish->scope)
        json_object_set_new(tree, "scope", json_string(wish->scope));
    dump(tree, out);
}

static const char *copy_member(const json_t *tree, const char *name, struct arena *arena)
{
    const char *text = oauth_member(tree, name);
    return text ? arena_copy(arena, span_of(text)) : NULL;
}

// G6: what the server made of our wish is what counts, if we can live with it.
static bool settle_method(const char *said, const struct oauth_registration *wish, struct oauth_client *client,
                          struct err *err)
{
    client->method = wish->method;
    if (said && !oauth_method_parse(said, &client->method))
        return err_set(err, ERR_UPSTREAM_INVALID,
                       "the registration asks for a way to authenticate we do not have: \"%.60s\"", said);
    if (client->secret && (!said || client->method == OAUTH_METHOD_NONE))
        client->method = !said && wish->method == OAUTH_METHOD_BASIC ? OAUTH_METHOD_BASIC : OAUTH_METHOD_POST;
    if (client->method == OAUTH_METHOD_KEY)
        return err_set(err, ERR_UPSTREAM_INVALID, "the registration asks for private_key_jwt, and we gave no key");
    if (client->method != OAUTH_METHOD_NONE && !client->secret)
        return err_set(err, ERR_UPSTREAM_INVALID, "the registration asks for %s and gives no client_secret",
                       oauth_method_text(client->method));
    return true;
}

static int64_t read_time(const json_t *tree, const char *name)
{
    json_int_t seconds = json_integer_value(json_object_get(tree, name));
    return seconds > 0 ? seconds : 0;
}

bool oauth_registration_parse(struct span text, const struct oauth_registration *wish, struct arena *arena,
                              struct oauth_client *out, struct err *err)
{
    *out = (struct oauth_client){.dynamic = true};
    json_t *tree = oauth_document(text, "registration", err);
    if (!tree)
        return false;
    out->id = copy_member(tree, "client_id", arena);
    out->secret = copy_member(tree, "client_secret", arena);
    out->management_token = copy_member(tree, "registration_access_token", arena);
    out->management_uri = copy_member(tree, "registration_client_uri", arena);
    out->redirect_uri = arena_copy(arena, span_of(wish->redirect_uri));
    out->scope = wish->scope ? arena_copy(arena, span_of(wish->scope)) : NULL;
    out->secret_expires = read_time(tree, "client_secret_expires_at");
    out->issued = read_time(tree, "client_id_issued_at");
    bool ok = out->id ? settle_method(oauth_member(tree, "token_endpoint_auth_method"), wish, out, err)
                      : err_set(err, ERR_UPSTREAM_INVALID, "the registration has no client_id");
    json_decref(tree);
    return ok;
}

bool oauth_client_usable(const struct oauth_client *client, const char *redirect_uri, int64_t now)
{
    if (!client->id || (client->secret && client->secret_expires && now >= client->secret_expires - SECRET_MARGIN))
        return false;
    return !redirect_uri || !client->redirect_uri || strcmp(client->redirect_uri, redirect_uri) == 0;
}

void oauth_client_document(const char *client_id, const char *const *redirect_uris, bool native, struct buf *out)
{
    json_t *uris = json_array();
    for (; *redirect_uris; redirect_uris++)
        json_array_append_new(uris, json_string(*redirect_uris));
    dump(json_pack("{s:s, s:s, s:o, s:[s,s], s:[s], s:s, s:s}", "client_id", client_id, "client_name", "Postern",
                   "redirect_uris", uris, "grant_types", "authorization_code", "refresh_token", "response_types",
                   "code", "token_endpoint_auth_method", "none", "application_type", native ? "native" : "web"),
         out);
}

// ---- proof ----------------------------------------------------------------------------------

enum oauth_method oauth_client_method(const struct oauth_client *client, const struct oauth_server *server)
{
    static const enum oauth_method order[] = {OAUTH_METHOD_BASIC, OAUTH_METHOD_POST};
    if (client->key_pem)
        return OAUTH_METHOD_KEY;
    if (!client->secret)
        return OAUTH_METHOD_NONE;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (server->methods & 1U << order[i])
            return order[i];
    return server->methods_listed ? OAUTH_METHOD_POST : OAUTH_METHOD_BASIC;
}

static void put_basic(const struct oauth_client *client, struct buf *authorization)
{
    struct buf pair = {0}, secret = {0};
    oauth_form_put(&pair, "", client->id);
    oauth_form_put(&secret, "", client->secret);
    buf_put_char(&pair, ':');
    buf_put_span(&pair, buf_span(&secret));
    char *encoded = mem_alloc(pair.len / 3 * 4 + 8);
    int len = EVP_EncodeBlock((unsigned char *)encoded, (const unsigned char *)pair.at, (int)pair.len);
    buf_put_text(authorization, "Basic ");
    buf_put(authorization, encoded, (size_t)len);
    secret_wipe(encoded, (size_t)len);
    secret_wipe(pair.at, pair.len);
    secret_wipe(secret.at, secret.len);
    free(encoded);
    buf_release(&pair);
    buf_release(&secret);
}

bool oauth_assertion(const struct oauth_client *client, const char *audience, int64_t now, struct buf *out,
                     struct err *err)
{
    struct oauth_key key = {client->key_pem, client->key_alg ? client->key_alg : "RS256", client->key_id};
    json_t *claims = json_pack("{s:s, s:s, s:s, s:I, s:I}", "iss", client->id, "sub", client->id, "aud", audience,
                               "iat", (json_int_t)now, "exp", (json_int_t)now + ASSERTION_LIFETIME);
    bool ok = oauth_key_sign(&key, claims, out, err);
    json_decref(claims);
    return ok;
}

bool oauth_client_apply(const struct oauth_client *client, const char *audience, int64_t now, struct buf *form,
                        struct buf *authorization, struct err *err)
{
    struct buf assertion = {0};
    bool ok = true;
    switch (client->method) {
    case OAUTH_METHOD_BASIC: put_basic(client, authorization); break;
    case OAUTH_METHOD_POST:
        oauth_form_put(form, "client_id", client->id);
        oauth_form_put(form, "client_secret", client->secret);
        break;
    case OAUTH_METHOD_KEY:
        ok = oauth_assertion(client, audience, now, &assertion, err);
        if (ok) {
            oauth_form_put(form, "client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
            oauth_form_put(form, "client_assertion", buf_text(&assertion));
        }
        buf_release(&assertion);
        break;
    default: oauth_form_put(form, "client_id", client->id);
    }
    return ok;
}
