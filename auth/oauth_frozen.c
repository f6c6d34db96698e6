// Owns a login at rest: what the callback is judged by (A4) as bytes, so that another process, or this one after a
// restart, can go on with it. Nothing in it is looked up again; a configured client's secrets are not in it.
#include "base/mem.h"
#include "fields.h"
#include "oauth_state.h"
#include <stdio.h>
#include <stdlib.h>

enum frozen_flag {
    FROZEN_CONSENT = 1,
    FROZEN_ANSWERS_ISS = 2,
    FROZEN_NO_METADATA = 4,  // of the authorization server
    FROZEN_LEGACY = 8,       // nor of the resource
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

static int64_t flags_of(const struct oauth_flow *flow)
{
    const struct oauth_server *server = &flow->attempt.server;
    return (flow->attempt.consent ? FROZEN_CONSENT : 0) | (server->answers_iss ? FROZEN_ANSWERS_ISS : 0) |
           (server->legacy ? FROZEN_NO_METADATA : 0) | (flow->legacy ? FROZEN_LEGACY : 0) |
           (server->methods_listed ? FROZEN_METHODS_LISTED : 0) |
           (server->takes_documents ? FROZEN_TAKES_DOCUMENTS : 0) | (server->offline_access ? FROZEN_OFFLINE : 0) |
           (flow->attempt.client.dynamic ? FROZEN_DYNAMIC : 0);
}

void oauth_flow_freeze(const struct oauth_flow *flow, struct buf *out)
{
    const struct oauth_attempt *attempt = &flow->attempt;
    bool configured = flow->spec.options->client_id != NULL;
    struct frozen frozen = {.redirect_uri = mem_string(attempt->redirect_uri),
                            .named = mem_string(attempt->resource),
                            .scope = mem_string(attempt->scope),
                            .resource = mem_string(flow->resource.resource),
                            .issuer = mem_string(attempt->server.issuer),
                            .authorization_endpoint = mem_string(attempt->server.authorization_endpoint),
                            .token_endpoint = mem_string(attempt->server.token_endpoint),
                            .registration_endpoint = mem_string(attempt->server.registration_endpoint),
                            .revocation_endpoint = mem_string(attempt->server.revocation_endpoint),
                            .client_id = mem_string(attempt->client.id),
                            .client_method = (int64_t)attempt->client.method,
                            .methods = (int64_t)attempt->server.methods,
                            .learned = (int64_t)flow->policy.learned,
                            .flags = flags_of(flow)};
    secret_set(&frozen.verifier, span_of(attempt->verifier));
    if (attempt->client.secret && !configured)
        secret_set(&frozen.client_secret, span_of(attempt->client.secret));
    fields_encode(table, &frozen, out);
    fields_release(table, &frozen);
}

static const char *own(struct oauth_flow *flow, const char *text)
{
    return text ? arena_copy(&flow->arena, span_of(text)) : NULL;
}

static void take_server(struct oauth_flow *flow, const struct frozen *frozen)
{
    flow->attempt.server = (struct oauth_server){.issuer = own(flow, frozen->issuer),
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

// The one the user was sent off with. A configured one must still be that one.
static bool take_client(struct oauth_flow *flow, const struct frozen *frozen, struct err *err)
{
    struct oauth_client *client = &flow->attempt.client;
    const char *configured = flow->spec.options->client_id;
    if (configured && strcmp(configured, frozen->client_id) == 0)
        return flow_take_configured(flow, err);
    if (configured)
        return err_set(err, ERR_CONFIG, "client_id of the configuration has changed since the login began");
    *client = (struct oauth_client){.id = own(flow, frozen->client_id),
                                    .method = (enum oauth_method)frozen->client_method,
                                    .dynamic = frozen->flags & FROZEN_DYNAMIC};
    if (frozen->client_secret.len)
        client->secret = arena_copy(&flow->arena, secret_span(&frozen->client_secret));
    return true;
}

static bool take(struct oauth_flow *flow, const struct frozen *frozen, const char *state, struct err *err)
{
    struct oauth_attempt *attempt = &flow->attempt;
    bool whole = frozen->issuer && frozen->token_endpoint && frozen->authorization_endpoint && frozen->client_id &&
                 frozen->redirect_uri && frozen->verifier.len && frozen->verifier.len < sizeof attempt->verifier &&
                 strlen(state) < sizeof attempt->state && frozen->client_method >= 0 &&
                 frozen->client_method < OAUTH_METHODS;
    if (!whole)
        return err_set(err, ERR_SYSTEM, "a stored login is damaged");
    if (!flow->spec.redirect_uri)
        flow->spec.redirect_uri = own(flow, frozen->redirect_uri);
    if (strcmp(frozen->redirect_uri, flow->spec.redirect_uri) != 0)
        return err_set(err, ERR_CONFIG, "public_url has changed since the login began");
    snprintf(attempt->state, sizeof attempt->state, "%s", state);
    snprintf(attempt->verifier, sizeof attempt->verifier, "%s", frozen->verifier.bytes);
    attempt->redirect_uri = flow->spec.redirect_uri;
    attempt->resource = own(flow, frozen->named);
    attempt->scope = own(flow, frozen->scope);
    attempt->consent = frozen->flags & FROZEN_CONSENT;
    flow->legacy = frozen->flags & FROZEN_LEGACY;
    flow->resource.resource = own(flow, frozen->resource);
    flow->policy.learned = (unsigned)frozen->learned;
    flow_add_extra(flow);
    take_server(flow, frozen);
    return take_client(flow, frozen, err);
}

struct oauth_flow *oauth_flow_thaw(const struct oauth_flow_spec *spec, struct span bytes, struct err *err)
{
    struct frozen frozen = {0};
    struct oauth_flow *flow = flow_new(spec);
    bool ok = fields_decode(table, bytes, &frozen, err) && take(flow, &frozen, spec->state, err);
    fields_release(table, &frozen);
    flow_set_state(flow, FLOW_AUTHORIZING);
    if (ok)
        return flow;
    oauth_flow_free(flow);
    return NULL;
}
