// Owns discovery: from a server's URL to its authorization server's metadata, candidate by candidate.
#include "base/scan.h"
#include "oauth_state.h"

#define REVISION "2025-11-25"

static void fetch_get(struct oauth_flow *flow, const char *url)
{
    struct oauth_wish wish = {.url = url,
                              .revision = REVISION,
                              .timeout_ms = FLOW_METADATA_MS,
                              .policy = &flow->policy,
                              .ca_file = flow->spec.options->ca_file};
    oauth_fetch_start(&flow->fetch, flow->spec.http, &wish);
}

// The server itself, without a token: what it answers says where to go on, and where it is says which addresses may
// be talked to.
void flow_probe(struct oauth_flow *flow)
{
    static const char ping[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}";
    struct oauth_wish wish = {.url = flow->spec.server_url,
                              .type = "application/json",
                              .accept = "application/json, text/event-stream",
                              .body = span_of(ping),
                              .timeout_ms = FLOW_METADATA_MS,
                              .policy = &flow->policy,
                              .ca_file = flow->spec.options->ca_file};
    flow_set_state(flow, FLOW_PROBING);
    flow->policy.learning = true;
    oauth_fetch_start(&flow->fetch, flow->spec.http, &wish);
}

static void next_candidate(struct oauth_flow *flow);

void flow_on_probed(struct oauth_flow *flow)
{
    struct oauth_challenge *challenge = &flow->spec.challenge;
    const struct oauth_challenge *found = &flow->fetch.challenge;
    flow->policy.learning = false;
    if (flow->fetch.failed) {
        flow_end(flow, OAUTH_END_DISCOVERY, &flow->fetch.err);
        return;
    }
    flow_note(flow, "POST", flow->spec.server_url, flow->fetch.status);
    if (flow->fetch.status == 401 && !challenge->bearer && found->bearer) {
        challenge->bearer = true;
        challenge->scope = found->scope ? arena_copy(&flow->arena, span_of(found->scope)) : NULL;
        challenge->resource_metadata =
            found->resource_metadata ? arena_copy(&flow->arena, span_of(found->resource_metadata)) : NULL;
    }
    flow_set_state(flow, FLOW_RESOURCE);
    flow->url_count = flow->url_at = 0;
    if (challenge->resource_metadata)
        flow->urls[flow->url_count++] = challenge->resource_metadata;
    flow->url_count += oauth_resource_urls(flow->spec.server_url, &flow->arena, flow->urls + flow->url_count);
    next_candidate(flow);
}

// Nobody is asked in such a flow: what it sends (a secret, somebody's token) goes to the issuer that a person named, where
// that issuer's own metadata are. A server that names another one, or none, does not change that.
static const char *only_issuer(const struct oauth_flow *flow)
{
    return flow->spec.redirect_uri ? NULL : flow->spec.options->issuer;
}

// D11: no resource metadata anywhere: the server's own origin is asked.
static void go_legacy(struct oauth_flow *flow)
{
    struct oauth_server guess;
    flow->legacy = true;
    if (only_issuer(flow)) {
        flow->resource = (struct oauth_resource){.servers = {only_issuer(flow)}, .server_count = 1};
        return;
    }
    oauth_server_default(flow->spec.server_url, &flow->arena, &guess);
    flow->resource = (struct oauth_resource){.servers = {guess.issuer}, .server_count = 1};
    flow_note(flow, "no protected resource metadata: the server's origin is taken for its authorization server", NULL,
              0);
}

// N5: nothing is sent to one that is not on the list.
static bool allowed(struct oauth_flow *flow, const char *issuer)
{
    return oauth_issuer_allowed(issuer, flow->spec.issuers) ||
           err_set(&flow->last, ERR_CONFIG,
                   "authorization server \"%.200s\" is not one of hosted.authorization_servers", issuer);
}

static void look_for_server(struct oauth_flow *flow)
{
    const char *issuer = flow->resource.servers[flow->server_at];
    flow_set_state(flow, FLOW_SERVER);
    flow->url_at = 0;
    flow->url_count = allowed(flow, issuer) ? oauth_server_urls(issuer, &flow->arena, flow->urls) : 0;
    next_candidate(flow);
}

static void bind_client(struct oauth_flow *flow);

static void out_of_candidates(struct oauth_flow *flow)
{
    if (flow->state == FLOW_RESOURCE) {
        go_legacy(flow);
        look_for_server(flow);
        return;
    }
    if (++flow->server_at < flow->resource.server_count) {
        look_for_server(flow);
        return;
    }
    if (flow->legacy && !flow->last.code && !only_issuer(flow)) {
        oauth_server_default(flow->spec.server_url, &flow->arena, &flow->attempt.server);
        flow_note(flow, "no authorization server metadata: default endpoints at", flow->attempt.server.issuer, 0);
        bind_client(flow);
        return;
    }
    if (!flow->last.code)
        (void)err_set(&flow->last, ERR_UNAVAILABLE, "no metadata of the authorization server \"%.200s\"",
                      flow->resource.servers[0]);
    flow_end(flow, OAUTH_END_DISCOVERY, &flow->last);
}

static void next_candidate(struct oauth_flow *flow)
{
    struct err err;
    if (flow->url_at == flow->url_count) {
        out_of_candidates(flow);
        return;
    }
    const char *url = flow->urls[flow->url_at];
    if (!oauth_url_secure(url)) {
        (void)err_set(&err, ERR_UPSTREAM_INVALID, "no https URL: %.200s", url);
        flow_end(flow, OAUTH_END_DISCOVERY, &err);
        return;
    }
    fetch_get(flow, url);
}

// As far as the grammar goes: one with a key twice is no reason to look elsewhere, but to stop.
static bool is_object(struct span text)
{
    struct err ignored;
    struct span value;
    return scan_document(text, false, &value, &ignored) && scan_is_object(value);
}

bool flow_passes_over(const struct oauth_fetch *fetch)
{
    int status = fetch->status;
    return (status >= 300 && status < 500) || status == 502 || (status == 200 && !is_object(buf_span(&fetch->body)));
}

static bool answered(struct oauth_flow *flow)
{
    struct err err;
    if (flow->fetch.failed) {
        flow_note(flow, "GET", flow->urls[flow->url_at], 0);
        flow_end(flow, OAUTH_END_DISCOVERY, &flow->fetch.err);
        return false;
    }
    flow_note(flow, "GET", flow->urls[flow->url_at], flow->fetch.status);
    if (flow_passes_over(&flow->fetch)) {
        flow->url_at++;
        next_candidate(flow);
        return false;
    }
    if (flow->fetch.status != 200) {
        (void)err_set(&err, ERR_UNAVAILABLE, "%.200s answered HTTP %d", flow->urls[flow->url_at], flow->fetch.status);
        flow_end(flow, OAUTH_END_DISCOVERY, &err);
        return false;
    }
    return true;
}

void flow_on_resource(struct oauth_flow *flow)
{
    struct err err;
    if (!answered(flow))
        return;
    if (!oauth_resource_parse(buf_span(&flow->fetch.body), flow->spec.server_url, &flow->arena, &flow->resource,
                              &err)) {
        flow_end(flow, OAUTH_END_DISCOVERY, &err);
        return;
    }
    const char *pin = flow->spec.options->issuer, *only = only_issuer(flow);
    bool named = false;
    for (size_t i = 0; pin && i < flow->resource.server_count; i++)
        if (strcmp(flow->resource.servers[i], pin) == 0 ||
            (only && oauth_issuer_matches(only, flow->resource.servers[i]))) {
            flow->resource.servers[0] = flow->resource.servers[i];
            flow->resource.server_count = 1;
            named = true;
        }
    if (only && !named) {
        (void)err_set(&err, ERR_CONFIG,
                      "the server does not take tokens of \"%.150s\", the issuer of the configuration", only);
        flow_end(flow, OAUTH_END_DISCOVERY, &err);
        return;
    }
    if (flow->resource.server_count > 1 && flow->spec.store) {
        struct grant_filter filter = {flow->spec.tenant, flow->spec.user, NULL};
        flow_set_state(flow, FLOW_CHOOSING);
        token_store_list(flow->spec.store, &filter, &flow->request);
    } else {
        look_for_server(flow);
    }
}

static bool has_granted(const struct token_request *held, const char *issuer)
{
    for (size_t i = 0; i < held->count; i++)
        if (!held->grants[i]->is.dead_at && oauth_issuer_matches(issuer, held->grants[i]->issuer))
            return true;
    return false;
}

static void prefer(struct oauth_flow *flow, size_t at)
{
    const char **servers = flow->resource.servers, *best = servers[at];
    memmove(servers + 1, servers, at * sizeof *servers);
    servers[0] = best;
    flow->server_at = 0;
    look_for_server(flow);
}

// The next one that a registration of ours may be at.
static void look_for_client(struct oauth_flow *flow)
{
    const struct oauth_flow_spec *spec = &flow->spec;
    if (flow->server_at == flow->resource.server_count || !spec->redirect_uri || spec->options->client_id) {
        prefer(flow, 0);
        return;
    }
    struct registration_key key = {spec->tenant, flow->resource.servers[flow->server_at], spec->redirect_uri};
    flow_set_state(flow, FLOW_PREFERRING);
    token_store_registration_find(spec->store, &key, &flow->request);
}

void flow_on_preferred(struct oauth_flow *flow)
{
    if (flow->request.answer == TOKEN_FAILED) {
        flow_end(flow, OAUTH_END_STORE, &flow->request.err);
    } else if (flow->request.answer == TOKEN_DONE) {
        prefer(flow, flow->server_at);
    } else {
        flow->server_at++;
        look_for_client(flow);
    }
}

// D7: of several, the first that has granted this user something comes before all others, and then the first that we
// are registered at.
void flow_on_chosen(struct oauth_flow *flow)
{
    size_t at = 0;
    if (flow->request.answer == TOKEN_FAILED) {
        flow_end(flow, OAUTH_END_STORE, &flow->request.err);
        return;
    }
    while (at < flow->resource.server_count && !has_granted(&flow->request, flow->resource.servers[at]))
        at++;
    if (at < flow->resource.server_count)
        prefer(flow, at);
    else
        look_for_client(flow);
}

static void pass_over_server(struct oauth_flow *flow)
{
    flow->url_at = flow->url_count;  // its other documents are not to be trusted either
    flow_set_state(flow, FLOW_SERVER);
    next_candidate(flow);
}

// D16: perhaps another one that the server names is it.
static void has_moved(struct oauth_flow *flow, const char *known)
{
    (void)err_set(&flow->last, ERR_CONFIG,
                  "the server has moved from the authorization server \"%.120s\" to \"%.120s\": the configured "
                  "client is not shown there; set \"issuer\" if that is right",
                  known, flow->attempt.server.issuer);
    pass_over_server(flow);
}

void flow_on_client_bound(struct oauth_flow *flow)
{
    if (flow->request.answer == TOKEN_FAILED)
        flow_end(flow, OAUTH_END_STORE, &flow->request.err);
    else if (flow->request.answer == TOKEN_CONFLICT)
        has_moved(flow, flow->request.issuer);
    else
        flow_identify(flow);
}

static void bind_client(struct oauth_flow *flow)
{
    const struct oauth_flow_spec *spec = &flow->spec;
    struct client_place place = {spec->tenant, spec->server_url, spec->options->client_id};
    if (!access_client_moves(spec->options) || !spec->store || spec->only_discover) {
        flow_identify(flow);
        return;
    }
    flow_set_state(flow, FLOW_BINDING);
    token_store_client_bind(spec->store, &place, flow->attempt.server.issuer, &flow->request);
}

void flow_on_server(struct oauth_flow *flow)
{
    const char *pin = flow->spec.options->issuer, *known = flow->spec.known_issuer;
    if (!answered(flow))
        return;
    const char *issuer = pin ? pin : flow->resource.servers[flow->server_at];
    if (!oauth_server_parse(buf_span(&flow->fetch.body), issuer, &flow->arena, &flow->attempt.server, &flow->last) ||
        !allowed(flow, flow->attempt.server.issuer)) {
        pass_over_server(flow);
        return;
    }
    flow_note(flow, "authorization server:", flow->attempt.server.issuer, 0);
    if (known && strcmp(known, flow->attempt.server.issuer) != 0)
        has_moved(flow, known);
    else
        bind_client(flow);
}
