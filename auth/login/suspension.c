// Owns suspended logins: the data that the callback is checked against (A4), encoded so that another process, or this
// one after a restart, can resume the login without repeating the discovery. The secrets of a configured client are not
// part of it.
#include "auth/grant/fields.h"
#include "base/mem.h"
#include "flow_state.h"
#include <stdio.h>
#include <stdlib.h>

enum frozen_flag {
    FROZEN_CONSENT = 1,
    FROZEN_ANSWERS_ISS = 2,
    FROZEN_NO_METADATA = 4,  // the authorization server has no metadata
    FROZEN_LEGACY = 8,       // the resource has no metadata
    FROZEN_METHODS_LISTED = 16,
    FROZEN_TAKES_DOCUMENTS = 32,
    FROZEN_OFFLINE = 64,
    FROZEN_DYNAMIC = 128,
};

struct frozen {
    struct secret verifier, client_secret;
    char *redirect_uri, *named, *scope, *resource;
    char *issuer, *authorization_endpoint, *token_endpoint, *registration_endpoint, *revocation_endpoint;
    char *client_id;
    int64_t client_method, methods, learned, flags;
};

#define AT(member) offsetof(struct frozen, member)
// clang-format off
static const struct field table[] = {
    {FIELD_SECRET,  1, AT(verifier)},
    {FIELD_SECRET,  2, AT(client_secret)},
    {FIELD_TEXT,    3, AT(redirect_uri)},
    {FIELD_TEXT,    4, AT(named)},
    {FIELD_TEXT,    5, AT(scope)},
    {FIELD_TEXT,    6, AT(resource)},
    {FIELD_TEXT,    7, AT(issuer)},
    {FIELD_TEXT,    8, AT(authorization_endpoint)},
    {FIELD_TEXT,    9, AT(token_endpoint)},
    {FIELD_TEXT,   10, AT(registration_endpoint)},
    {FIELD_TEXT,   11, AT(revocation_endpoint)},
    {FIELD_TEXT,   12, AT(client_id)},
    {FIELD_TIME,   13, AT(client_method)},
    {FIELD_TIME,   14, AT(methods)},
    {FIELD_TIME,   15, AT(learned)},
    {FIELD_TIME,   16, AT(flags)},
    {0},
};
// clang-format on
#undef AT

static int64_t flags_of(const struct login_flow *flow)
{
    const struct oauth_server *server = &flow->authorization.server;
    return (flow->authorization.consent ? FROZEN_CONSENT : 0) | (server->answers_iss ? FROZEN_ANSWERS_ISS : 0) |
           (server->legacy ? FROZEN_NO_METADATA : 0) | (flow->legacy ? FROZEN_LEGACY : 0) |
           (server->methods_listed ? FROZEN_METHODS_LISTED : 0) |
           (server->takes_documents ? FROZEN_TAKES_DOCUMENTS : 0) | (server->offline_access ? FROZEN_OFFLINE : 0) |
           (flow->authorization.client.dynamic ? FROZEN_DYNAMIC : 0);
}

void login_suspension_save(const struct login_flow *flow, struct buf *out)
{
    const struct oauth_authorization *authorization = &flow->authorization;
    bool configured = flow->spec.options->client_id != NULL;
    struct frozen frozen = {.redirect_uri = mem_string(authorization->redirect_uri),
                            .named = mem_string(authorization->resource),
                            .scope = mem_string(authorization->scope),
                            .resource = mem_string(flow->resource.resource),
                            .issuer = mem_string(authorization->server.issuer),
                            .authorization_endpoint = mem_string(authorization->server.authorization_endpoint),
                            .token_endpoint = mem_string(authorization->server.token_endpoint),
                            .registration_endpoint = mem_string(authorization->server.registration_endpoint),
                            .revocation_endpoint = mem_string(authorization->server.revocation_endpoint),
                            .client_id = mem_string(authorization->client.id),
                            .client_method = (int64_t)authorization->client.method,
                            .methods = (int64_t)authorization->server.methods,
                            .learned = (int64_t)flow->policy.learned,
                            .flags = flags_of(flow)};
    secret_set(&frozen.verifier, span_of(authorization->verifier));
    if (authorization->client.secret && !configured)
        secret_set(&frozen.client_secret, span_of(authorization->client.secret));
    fields_encode(table, &frozen, out);
    fields_release(table, &frozen);
}

static const char *own(struct login_flow *flow, const char *text)
{
    return text ? arena_copy(&flow->arena, span_of(text)) : NULL;
}

static void take_server(struct login_flow *flow, const struct frozen *frozen)
{
    flow->authorization.server =
        (struct oauth_server){.issuer = own(flow, frozen->issuer),
                              .authorization_endpoint = own(flow, frozen->authorization_endpoint),
                              .token_endpoint = own(flow, frozen->token_endpoint),
                              .registration_endpoint = own(flow, frozen->registration_endpoint),
                              .revocation_endpoint = own(flow, frozen->revocation_endpoint),
                              .pkce = OAUTH_PKCE_S256,
                              .methods = (unsigned)frozen->methods,
                              .methods_listed = frozen->flags & FROZEN_METHODS_LISTED,
                              .answers_iss = frozen->flags & FROZEN_ANSWERS_ISS,
                              .takes_documents = frozen->flags & FROZEN_TAKES_DOCUMENTS,
                              .offline_access = frozen->flags & FROZEN_OFFLINE,
                              .code = true,
                              .legacy = frozen->flags & FROZEN_NO_METADATA};
}

// Takes the client of the authorization request. A configured client must still be the same.
static bool take_client(struct login_flow *flow, const struct frozen *frozen, struct err *err)
{
    struct oauth_client *client = &flow->authorization.client;
    const char *configured = flow->spec.options->client_id;
    if (configured && strcmp(configured, frozen->client_id) == 0)
        return login_client_take_configured(flow, err);
    if (configured)
        return err_set(err, ERR_CONFIG,
                       "client_id in the configuration has changed since the login began; log in again");
    *client = (struct oauth_client){.id = own(flow, frozen->client_id),
                                    .method = (enum oauth_method)frozen->client_method,
                                    .dynamic = frozen->flags & FROZEN_DYNAMIC};
    if (frozen->client_secret.len)
        client->secret = arena_copy(&flow->arena, secret_span(&frozen->client_secret));
    return true;
}

static bool take(struct login_flow *flow, const struct frozen *frozen, const char *state, struct err *err)
{
    struct oauth_authorization *authorization = &flow->authorization;
    bool whole = frozen->issuer && frozen->token_endpoint && frozen->authorization_endpoint && frozen->client_id &&
                 frozen->redirect_uri && frozen->verifier.len &&
                 frozen->verifier.len < sizeof authorization->verifier && strlen(state) < sizeof authorization->state &&
                 frozen->client_method >= 0 && frozen->client_method < OAUTH_METHODS;
    if (!whole)
        return err_set(err, ERR_SYSTEM, "a stored login is damaged; log in again");
    if (!flow->spec.redirect_uri)
        flow->spec.redirect_uri = own(flow, frozen->redirect_uri);
    if (strcmp(frozen->redirect_uri, flow->spec.redirect_uri) != 0)
        return err_set(err, ERR_CONFIG, "public_url has changed since the login began; log in again");
    snprintf(authorization->state, sizeof authorization->state, "%s", state);
    snprintf(authorization->verifier, sizeof authorization->verifier, "%s", frozen->verifier.bytes);
    authorization->redirect_uri = flow->spec.redirect_uri;
    authorization->resource = own(flow, frozen->named);
    authorization->scope = own(flow, frozen->scope);
    authorization->consent = frozen->flags & FROZEN_CONSENT;
    flow->legacy = frozen->flags & FROZEN_LEGACY;
    flow->resource.resource = own(flow, frozen->resource);
    flow->policy.learned = (unsigned)frozen->learned;
    login_authorization_add_extra(flow);
    take_server(flow, frozen);
    return take_client(flow, frozen, err);
}

struct login_flow *login_suspension_restore(const struct login_flow_spec *spec, struct span bytes, struct err *err)
{
    struct frozen frozen = {0};
    struct login_flow *flow = flow_new(spec);
    bool ok = fields_decode(table, bytes, &frozen, err) && take(flow, &frozen, spec->state, err);
    fields_release(table, &frozen);
    if (ok) {
        flow_set_state(flow, FLOW_AUTHORIZING);
        return flow;
    }
    login_flow_free(flow);
    return NULL;
}
