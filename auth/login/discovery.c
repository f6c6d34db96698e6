// Owns discovery: from a server's URL to its authorization server's metadata, candidate by candidate.
#include "base/check.h"
#include "flow_state.h"

#define REVISION "2025-11-25"

// Sends a request without a token to the server. Its challenge names the resource metadata, and its address decides
// which kinds of addresses the login may connect to.
enum flow_state login_discovery_probe(struct login_flow *flow)
{
    struct login_fetch_request request = {.url = flow->spec.server_url,
                                          .type = "application/json",
                                          .accept = "application/json, text/event-stream",
                                          .body = span_of(flow->spec.probe),
                                          .timeout_ms = FLOW_METADATA_MS,
                                          .policy = &flow->policy,
                                          .ca_file = flow->spec.options->ca_file};
    CHECK(flow->spec.probe);
    flow->policy.learning = true;
    login_fetch_start(&flow->fetch, flow->spec.http, &request);
    return FLOW_WAIT;
}

enum flow_state login_discovery_on_probed(struct login_flow *flow)
{
    struct oauth_challenge *challenge = &flow->spec.challenge;
    const struct oauth_challenge *found = &flow->fetch.challenge;
    flow->policy.learning = false;
    if (flow->fetch.failed)
        return flow_end(flow, LOGIN_END_DISCOVERY, &flow->fetch.err);
    flow_note(flow, "POST", flow->spec.server_url, flow->fetch.status);
    if (flow->fetch.status == 401 && !challenge->bearer && found->bearer) {
        challenge->bearer = true;
        challenge->scope = found->scope ? arena_copy(&flow->arena, span_of(found->scope)) : NULL;
        challenge->resource_metadata =
            found->resource_metadata ? arena_copy(&flow->arena, span_of(found->resource_metadata)) : NULL;
    }
    flow->url_count = flow->url_at = 0;
    if (challenge->resource_metadata)
        flow->urls[flow->url_count++] = challenge->resource_metadata;
    flow->url_count += oauth_resource_urls(flow->spec.server_url, &flow->arena, flow->urls + flow->url_count);
    return FLOW_RESOURCE;
}

// ---- candidates -----------------------------------------------------------------------------

static enum flow_state fetch_candidate(struct login_flow *flow)
{
    struct err err;
    struct login_fetch_request request = {.url = flow->urls[flow->url_at],
                                          .revision = REVISION,
                                          .timeout_ms = FLOW_METADATA_MS,
                                          .policy = &flow->policy,
                                          .ca_file = flow->spec.options->ca_file};
    if (!oauth_url_secure(request.url)) {
        (void)err_set(&err, ERR_UPSTREAM_INVALID, "the URL of a metadata document is not https: %.200s", request.url);
        return flow_end(flow, LOGIN_END_DISCOVERY, &err);
    }
    login_fetch_start(&flow->fetch, flow->spec.http, &request);
    return FLOW_WAIT;
}

// FLOW_WAIT: the document was fetched. Any other value is the next state without it.
static enum flow_state judge_candidate(struct login_flow *flow)
{
    const char *url = flow->urls[flow->url_at];
    struct err err;
    flow_note(flow, "GET", url, flow->fetch.failed ? 0 : flow->fetch.status);
    if (flow->fetch.failed)
        return flow_end(flow, LOGIN_END_DISCOVERY, &flow->fetch.err);
    if (login_fetch_is_absent(&flow->fetch)) {
        flow->url_at++;
        return flow->state;
    }
    if (flow->fetch.status != 200) {
        (void)err_set(&err, ERR_UNAVAILABLE, "%.200s answered HTTP %d", url, flow->fetch.status);
        return flow_end(flow, LOGIN_END_DISCOVERY, &err);
    }
    return FLOW_WAIT;
}

// In a flow without a user, secrets and subjects' tokens are sent only to the configured issuer, as described by its
// own metadata, whichever authorization servers the server names.
static const char *only_issuer(const struct login_flow *flow)
{
    return flow->spec.redirect_uri ? NULL : flow->spec.options->issuer;
}

// N5: the flow sends no request to an authorization server that is not on the list.
static bool allowed(struct login_flow *flow, const char *issuer)
{
    return oauth_issuer_allowed(issuer, flow->spec.issuers) ||
           err_set(&flow->last, ERR_CONFIG,
                   "authorization server \"%.200s\" is not in hosted.authorization_servers; add its domain there if "
                   "you trust it",
                   issuer);
}

static enum flow_state look_for_server(struct login_flow *flow)
{
    const char *issuer = flow->resource.servers[flow->server_at];
    flow->url_at = 0;
    flow->url_count = allowed(flow, issuer) ? oauth_server_urls(issuer, &flow->arena, flow->urls) : 0;
    return FLOW_SERVER;
}

// ---- the resource ---------------------------------------------------------------------------

// D11: without resource metadata, the server's own origin is taken as the authorization server.
static void go_legacy(struct login_flow *flow)
{
    struct oauth_server guess;
    flow->legacy = true;
    if (only_issuer(flow)) {
        flow->resource = (struct oauth_resource){.servers = {only_issuer(flow)}, .server_count = 1};
        return;
    }
    oauth_server_default(flow->spec.server_url, &flow->arena, &guess);
    flow->resource = (struct oauth_resource){.servers = {guess.issuer}, .server_count = 1};
    flow_note(flow, "no protected resource metadata: using the server's origin as its authorization server", NULL, 0);
}

enum flow_state login_discovery_fetch_resource(struct login_flow *flow)
{
    if (flow->url_at < flow->url_count)
        return fetch_candidate(flow);
    go_legacy(flow);
    return look_for_server(flow);
}

// Selects the configured issuer from the authorization servers in the metadata. Returns false if it is required and
// missing.
static bool pin_issuer(struct login_flow *flow, struct err *err)
{
    const char *pin = flow->spec.options->issuer, *only = only_issuer(flow);
    bool named = false;
    for (size_t i = 0; pin && i < flow->resource.server_count; i++)
        if (strcmp(flow->resource.servers[i], pin) == 0 ||
            (only && oauth_issuer_matches(only, flow->resource.servers[i]))) {
            flow->resource.servers[0] = flow->resource.servers[i];
            flow->resource.server_count = 1;
            named = true;
        }
    return !only || named ||
           err_set(err, ERR_CONFIG, "the server does not accept tokens of \"%.150s\", the configured issuer", only);
}

enum flow_state login_discovery_on_resource(struct login_flow *flow)
{
    struct err err;
    enum flow_state next = judge_candidate(flow);
    if (next != FLOW_WAIT)
        return next;
    if (!oauth_resource_parse(buf_span(&flow->fetch.body), flow->spec.server_url, &flow->arena, &flow->resource,
                              &err) ||
        !pin_issuer(flow, &err))
        return flow_end(flow, LOGIN_END_DISCOVERY, &err);
    return flow->resource.server_count > 1 && flow->spec.store ? FLOW_CHOOSING : look_for_server(flow);
}

// ---- choosing one of several authorization servers ------------------------------------------

enum flow_state login_discovery_list_grants(struct login_flow *flow)
{
    struct grant_filter filter = {flow->spec.tenant, flow->spec.user, NULL};
    grant_store_list(flow->spec.store, &filter, &flow->request);
    return FLOW_WAIT;
}

static bool has_granted(const struct grant_request *held, const char *issuer)
{
    for (size_t i = 0; i < held->count; i++)
        if (!held->grants[i]->is.dead_at && oauth_issuer_matches(issuer, held->grants[i]->issuer))
            return true;
    return false;
}

static enum flow_state prefer(struct login_flow *flow, size_t at)
{
    const char **servers = flow->resource.servers, *best = servers[at];
    memmove(servers + 1, servers, at * sizeof *servers);
    servers[0] = best;
    flow->server_at = 0;
    return look_for_server(flow);
}

// Looks for a stored registration at the next authorization server.
static enum flow_state look_for_client(struct login_flow *flow)
{
    const struct login_flow_spec *spec = &flow->spec;
    if (flow->server_at == flow->resource.server_count || !spec->redirect_uri || spec->options->client_id)
        return prefer(flow, 0);
    return FLOW_PREFERRING;
}

// D7: of several authorization servers, the first with a grant of this user is preferred, then the first with a stored
// registration.
enum flow_state login_discovery_on_grants(struct login_flow *flow)
{
    size_t at = 0;
    if (flow->request.answer == GRANT_STORE_FAILED)
        return flow_end(flow, LOGIN_END_STORE, &flow->request.err);
    while (at < flow->resource.server_count && !has_granted(&flow->request, flow->resource.servers[at]))
        at++;
    return at < flow->resource.server_count ? prefer(flow, at) : look_for_client(flow);
}

enum flow_state login_discovery_find_client(struct login_flow *flow)
{
    const struct login_flow_spec *spec = &flow->spec;
    struct registration_key key = {spec->tenant, flow->resource.servers[flow->server_at], spec->redirect_uri};
    grant_store_registration_find(spec->store, &key, &flow->request);
    return FLOW_WAIT;
}

enum flow_state login_discovery_on_client(struct login_flow *flow)
{
    if (flow->request.answer == GRANT_STORE_FAILED)
        return flow_end(flow, LOGIN_END_STORE, &flow->request.err);
    if (flow->request.answer == GRANT_STORE_DONE)
        return prefer(flow, flow->server_at);
    flow->server_at++;
    return look_for_client(flow);
}

// ---- the authorization server ---------------------------------------------------------------

static enum flow_state bind_client(struct login_flow *flow)
{
    const struct login_flow_spec *spec = &flow->spec;
    if (!access_options_client_moves(spec->options) || !spec->store || spec->only_discover)
        return login_client_choose(flow);
    return FLOW_BINDING;
}

enum flow_state login_discovery_fetch_server(struct login_flow *flow)
{
    if (flow->url_at < flow->url_count)
        return fetch_candidate(flow);
    if (++flow->server_at < flow->resource.server_count)
        return look_for_server(flow);
    if (flow->legacy && !flow->last.code && !only_issuer(flow)) {
        oauth_server_default(flow->spec.server_url, &flow->arena, &flow->authorization.server);
        flow_note(flow, "no authorization server metadata: default endpoints at", flow->authorization.server.issuer, 0);
        return bind_client(flow);
    }
    if (!flow->last.code)
        (void)err_set(&flow->last, ERR_UNAVAILABLE, "no metadata found for the authorization server \"%.200s\"",
                      flow->resource.servers[0]);
    return flow_end(flow, LOGIN_END_DISCOVERY, &flow->last);
}

// Skips an authorization server with all its documents: if one is wrong, the others are not trusted either.
static enum flow_state pass_over_server(struct login_flow *flow)
{
    flow->url_at = flow->url_count;
    return FLOW_SERVER;
}

// D16: the client is bound to another authorization server; the next one that the server names may be that.
static enum flow_state has_moved(struct login_flow *flow, const char *known)
{
    (void)err_set(&flow->last, ERR_CONFIG,
                  "the server has moved from the authorization server \"%.120s\" to \"%.120s\": the configured "
                  "client is not used there; set \"issuer\" if the new one is correct",
                  known, flow->authorization.server.issuer);
    return pass_over_server(flow);
}

enum flow_state login_discovery_on_server(struct login_flow *flow)
{
    const char *pin = flow->spec.options->issuer, *known = flow->spec.known_issuer;
    struct oauth_server *server = &flow->authorization.server;
    enum flow_state next = judge_candidate(flow);
    if (next != FLOW_WAIT)
        return next;
    const char *issuer = pin ? pin : flow->resource.servers[flow->server_at];
    if (!oauth_server_parse(buf_span(&flow->fetch.body), issuer, &flow->arena, server, &flow->last) ||
        !allowed(flow, server->issuer))
        return pass_over_server(flow);
    flow_note(flow, "authorization server:", server->issuer, 0);
    return known && strcmp(known, server->issuer) != 0 ? has_moved(flow, known) : bind_client(flow);
}

enum flow_state login_discovery_bind(struct login_flow *flow)
{
    const struct login_flow_spec *spec = &flow->spec;
    struct client_place place = {spec->tenant, spec->server_url, spec->options->client_id};
    grant_store_client_bind(spec->store, &place, flow->authorization.server.issuer, &flow->request);
    return FLOW_WAIT;
}

enum flow_state login_discovery_on_bound(struct login_flow *flow)
{
    if (flow->request.answer == GRANT_STORE_FAILED)
        return flow_end(flow, LOGIN_END_STORE, &flow->request.err);
    if (flow->request.answer == GRANT_STORE_CONFLICT)
        return has_moved(flow, flow->request.issuer);
    return login_client_choose(flow);
}
