// Owns the client of the gateway: client metadata documents, and authentication at the token endpoint.
#include "auth/jose/signing_key.h"
#include "auth/oauth/oauth.h"
#include "base/mem.h"
#include "base/secret.h"
#include "document.h"
#include <openssl/evp.h>
#include <stdlib.h>

#define SECRET_MARGIN 60
#define ASSERTION_LIFETIME 60

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
    oauth_document_put(json_pack("{s:s, s:s, s:o, s:[s,s], s:[s], s:s, s:s}", "client_id", client_id, "client_name",
                                 "Postern", "redirect_uris", uris, "grant_types", "authorization_code", "refresh_token",
                                 "response_types", "code", "token_endpoint_auth_method", "none", "application_type",
                                 native ? "native" : "web"),
                       out);
}

// ---- authentication -------------------------------------------------------------------------

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
    free(encoded);
    buf_wipe(&pair);
    buf_wipe(&secret);
}

// RFC 7523: a signed assertion of the client's identity, valid for a minute.
static bool put_assertion(const struct oauth_client *client, const char *audience, int64_t now, struct buf *out,
                          struct err *err)
{
    struct signing_key key = {client->key_pem, client->key_alg ? client->key_alg : "RS256", client->key_id};
    json_t *claims = json_pack("{s:s, s:s, s:s, s:I, s:I}", "iss", client->id, "sub", client->id, "aud", audience,
                               "iat", (json_int_t)now, "exp", (json_int_t)now + ASSERTION_LIFETIME);
    bool ok = signing_key_sign(&key, claims, out, err);
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
        ok = put_assertion(client, audience, now, &assertion, err);
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
