// Owns a login that outlives its process: what is kept of it while the user is away, and going on from there.
//
// All that the callback is judged by is kept (A4), and what the exchange needs. A client of the configuration is read
// there again, so that its secret is nowhere else. Who goes on has one try: nothing is registered or asked a second time.
#include "base/mem.h"
#include "fields.h"
#include "oauth_state.h"
#include <stdio.h>
#include <time.h>

enum { CLOCK_SECONDS = 60 };  // so far a clock may have been set back

struct paused {
    char *tenant, *user, *server_url;
    struct secret state, verifier, client_secret;
    char *client_id, *client_method;
    int64_t dynamic;
    char *issuer, *token_endpoint, *revocation_endpoint;
    int64_t methods, methods_listed, answers_iss, server_legacy;
    char *redirect_uri, *resource, *scope;
    char *kept_resource;  // the resource that the grant will be for; absent: none was said (legacy)
    int64_t learned, started;
};

#define AT(member) offsetof(struct paused, member)
// clang-format off
static const struct field table[] = {
    {FIELD_TEXT,    1, AT(tenant)},
    {FIELD_TEXT,    2, AT(user)},
    {FIELD_TEXT,    3, AT(server_url)},
    {FIELD_SECRET,  4, AT(state)},
    {FIELD_SECRET,  5, AT(verifier)},
    {FIELD_SECRET,  6, AT(client_secret)},
    {FIELD_TEXT,    7, AT(client_id)},
    {FIELD_TEXT,    8, AT(client_method)},
    {FIELD_TIME,    9, AT(dynamic)},
    {FIELD_TEXT,   10, AT(issuer)},
    {FIELD_TEXT,   11, AT(token_endpoint)},
    {FIELD_TEXT,   12, AT(revocation_endpoint)},
    {FIELD_TIME,   13, AT(methods)},
    {FIELD_TIME,   14, AT(methods_listed)},
    {FIELD_TIME,   15, AT(answers_iss)},
    {FIELD_TIME,   16, AT(server_legacy)},
    {FIELD_TEXT,   17, AT(redirect_uri)},
    {FIELD_TEXT,   18, AT(resource)},
    {FIELD_TEXT,   19, AT(scope)},
    {FIELD_TEXT,   20, AT(kept_resource)},
    {FIELD_TIME,   21, AT(learned)},
    {FIELD_TIME,   22, AT(started)},
    {0},
};
// clang-format on
#undef AT

void oauth_flow_pause(const struct oauth_flow *flow, struct buf *out)
{
    const struct oauth_attempt *attempt = &flow->attempt;
    const struct oauth_server *server = &attempt->server;
    struct paused paused = {.tenant = mem_string(flow->spec.tenant),
                            .user = mem_string(flow->spec.user),
                            .server_url = mem_string(flow->spec.server_url),
                            .client_id = mem_string(attempt->client.id),
                            .client_method = mem_string(oauth_method_text(attempt->client.method)),
                            .dynamic = attempt->client.dynamic,
                            .issuer = mem_string(server->issuer),
                            .token_endpoint = mem_string(server->token_endpoint),
                            .revocation_endpoint = mem_string(server->revocation_endpoint),
                            .methods = server->methods,
                            .methods_listed = server->methods_listed,
                            .answers_iss = server->answers_iss,
                            .server_legacy = server->legacy,
                            .redirect_uri = mem_string(attempt->redirect_uri),
                            .resource = mem_string(attempt->resource),
                            .scope = mem_string(attempt->scope),
                            .kept_resource = mem_string(flow->legacy ? NULL : flow->resource.resource),
                            .learned = flow->policy.learned,
                            .started = (int64_t)time(NULL)};
    secret_set(&paused.state, span_of(attempt->state));
    secret_set(&paused.verifier, span_of(attempt->verifier));
    if (attempt->client.secret && attempt->client.dynamic)
        secret_set(&paused.client_secret, span_of(attempt->client.secret));
    fields_encode(table, &paused, out);
    fields_release(table, &paused);
}

static const char *take(struct oauth_flow *flow, const char *text)
{
    return text && *text ? arena_copy(&flow->arena, span_of(text)) : NULL;
}

// False: it is not whole, too old (a store that was written to again would not know), or the login of somebody else.
static bool belongs(const struct paused *paused, const struct oauth_flow_spec *spec, struct err *err)
{
    int64_t age = (int64_t)time(NULL) - paused->started;
    if (!paused->tenant || !paused->user || !paused->server_url || !paused->issuer || !paused->token_endpoint ||
        !paused->client_id || !paused->redirect_uri || !paused->state.len || !paused->verifier.len)
        return err_set(err, ERR_SYSTEM, "the login that was kept is not whole");
    if (age < -CLOCK_SECONDS || age >= TOKEN_STORE_ATTEMPT_MS / 1000)
        return err_set(err, ERR_INVALID_REQUEST, "this attempt is too old: start again");
    return (strcmp(paused->tenant, spec->tenant) == 0 && strcmp(paused->user, spec->user) == 0 &&
            strcmp(paused->server_url, spec->server_url) == 0) ||
           err_set(err, ERR_INVALID_REQUEST, "this attempt is a login to another server, or somebody else's");
}

static bool restore(struct oauth_flow *flow, const struct paused *paused, struct err *err)
{
    struct oauth_attempt *attempt = &flow->attempt;
    attempt->server = (struct oauth_server){.issuer = take(flow, paused->issuer),
                                            .token_endpoint = take(flow, paused->token_endpoint),
                                            .revocation_endpoint = take(flow, paused->revocation_endpoint),
                                            .methods = (unsigned)paused->methods,
                                            .methods_listed = paused->methods_listed != 0,
                                            .answers_iss = paused->answers_iss != 0,
                                            .legacy = paused->server_legacy != 0};
    attempt->redirect_uri = flow->spec.redirect_uri = take(flow, paused->redirect_uri);
    attempt->resource = take(flow, paused->resource);
    attempt->scope = take(flow, paused->scope);
    flow->resource.resource = take(flow, paused->kept_resource);
    flow->legacy = !flow->resource.resource;
    flow->policy.learned = (unsigned)paused->learned;
    snprintf(attempt->state, sizeof attempt->state, "%.*s", (int)paused->state.len, paused->state.bytes);
    snprintf(attempt->verifier, sizeof attempt->verifier, "%.*s", (int)paused->verifier.len, paused->verifier.bytes);
    if (flow->spec.options->client_id)
        return flow_take_configured(flow, err);
    attempt->client = (struct oauth_client){.id = take(flow, paused->client_id), .dynamic = paused->dynamic != 0};
    if (paused->client_secret.len)
        attempt->client.secret = arena_copy(&flow->arena, secret_span(&paused->client_secret));
    return oauth_method_parse(paused->client_method, &attempt->client.method) ||
           err_set(err, ERR_SYSTEM, "the login that was kept is not whole");
}

struct oauth_flow *oauth_flow_resume(const struct oauth_flow_spec *spec, struct span note, struct err *err)
{
    struct paused paused = {0};
    struct oauth_flow *flow = NULL;
    if (fields_decode(table, note, &paused, err) && belongs(&paused, spec, err)) {
        flow = flow_new(spec);
        flow->registered_twice = flow->authorized_twice = true;
        flow_set_state(flow, FLOW_AUTHORIZING);
        if (!restore(flow, &paused, err)) {
            oauth_flow_free(flow);
            flow = NULL;
        }
    }
    fields_release(table, &paused);
    return flow;
}
