// Owns the documents of dynamic client registration (RFC 7591): writing the request, and parsing the answer.
#include "document.h"

enum oauth_method oauth_registration_method(const struct oauth_server *server)
{
    if (!server->methods_listed || server->methods & 1U << OAUTH_METHOD_NONE)
        return OAUTH_METHOD_NONE;
    if (server->methods & 1U << OAUTH_METHOD_POST)
        return OAUTH_METHOD_POST;
    return server->methods & 1U << OAUTH_METHOD_BASIC ? OAUTH_METHOD_BASIC : OAUTH_METHOD_NONE;
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
    oauth_document_put(tree, out);
}

// G6: the method in the server's answer counts, not the requested one, if the gateway supports it.
static bool settle_method(const char *said, const struct oauth_registration *wish, struct oauth_client *client,
                          struct err *err)
{
    client->method = wish->method;
    if (said && !oauth_method_parse(said, &client->method))
        return err_set(err, ERR_UPSTREAM_INVALID,
                       "the registration requires an unsupported authentication method: \"%.60s\"", said);
    if (client->secret && (!said || client->method == OAUTH_METHOD_NONE))
        client->method = !said && wish->method == OAUTH_METHOD_BASIC ? OAUTH_METHOD_BASIC : OAUTH_METHOD_POST;
    if (client->method == OAUTH_METHOD_KEY)
        return err_set(err, ERR_UPSTREAM_INVALID,
                       "the registration requires private_key_jwt, but no key was registered");
    if (client->method != OAUTH_METHOD_NONE && !client->secret)
        return err_set(err, ERR_UPSTREAM_INVALID, "the registration requires %s, but has no client_secret",
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
    json_t *tree = oauth_document_parse(text, "registration", err);
    if (!tree)
        return false;
    out->id = oauth_document_copy(tree, "client_id", arena);
    out->secret = oauth_document_copy(tree, "client_secret", arena);
    out->management_token = oauth_document_copy(tree, "registration_access_token", arena);
    out->management_uri = oauth_document_copy(tree, "registration_client_uri", arena);
    out->redirect_uri = arena_copy(arena, span_of(wish->redirect_uri));
    out->scope = wish->scope ? arena_copy(arena, span_of(wish->scope)) : NULL;
    out->secret_expires = read_time(tree, "client_secret_expires_at");
    out->issued = read_time(tree, "client_id_issued_at");
    bool ok = out->id ? settle_method(oauth_document_string(tree, "token_endpoint_auth_method"), wish, out, err)
                      : err_set(err, ERR_UPSTREAM_INVALID, "the registration has no client_id");
    json_decref(tree);
    return ok;
}
