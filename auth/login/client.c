// Owns the choice of the gateway's client at the authorization server: a configured client, a metadata document, or a
// registered client (registration.c).
#include "auth/jose/signing_key.h"
#include "base/clock.h"
#include "flow_state.h"

static const char *resource_to_name(const struct login_flow *flow)
{
    const char *configured = flow->spec.options->resource;
    if (configured)
        return strcmp(configured, "omit") == 0 ? NULL : configured;
    return flow->resource.resource;
}

static void choose_scope(struct login_flow *flow)
{
    const struct access_options *options = flow->spec.options;
    struct oauth_scope_wish wish = {.configured = options->scope,
                                    .challenged = flow->spec.challenge.scope,
                                    .supported = flow->resource.scope,
                                    .held = flow->spec.held_scope,
                                    .offline = flow->authorization.server.offline_access && flow->spec.redirect_uri};
    flow->authorization.scope = oauth_scope_choose(&wish, &flow->arena);
    flow->authorization.consent = wish.offline && flow->authorization.scope;
}

// G1: takes the configured client. Returns false if its private key cannot be read.
bool login_client_take_configured(struct login_flow *flow, struct err *err)
{
    const struct access_options *options = flow->spec.options;
    struct oauth_client *client = &flow->authorization.client;
    *client = (struct oauth_client){.id = options->client_id,
                                    .secret = options->client_secret,
                                    .key_alg = options->signing_algorithm,
                                    .key_id = options->key_id};
    if (options->private_key_file &&
        !(client->key_pem = signing_key_read(options->private_key_file, &flow->arena, err)))
        return false;
    client->method = oauth_client_method(client, &flow->authorization.server);
    if (client->secret && !client->key_pem && options->token_endpoint_auth_method != ACCESS_PROOF_AUTO)  // T3
        client->method =
            options->token_endpoint_auth_method == ACCESS_PROOF_POST ? OAUTH_METHOD_POST : OAUTH_METHOD_BASIC;
    return true;
}

static const char *document_of(const struct login_flow *flow)
{
    const char *configured = flow->spec.options->client_metadata_url;
    return !flow->authorization.server.takes_documents ? NULL : configured ? configured : flow->spec.document_url;
}

bool login_client_is_document(const struct login_flow *flow)
{
    return flow->authorization.client.id && !flow->authorization.client.dynamic && !flow->spec.options->client_id;
}

static enum flow_state choose_client(struct login_flow *flow)
{
    const struct access_options *options = flow->spec.options;
    const char *document = document_of(flow);
    struct err err;
    if (options->client_id)
        return login_client_take_configured(flow, &err) ? flow_ask_user(flow)
                                                        : flow_end(flow, LOGIN_END_REGISTRATION, &err);
    if (document && !(flow->retried & FLOW_NO_DOCUMENT)) {
        flow->authorization.client = (struct oauth_client){.id = document};
        flow_note(flow, "using the client metadata document as the client id", document, 0);
        return flow_ask_user(flow);
    }
    if (flow->authorization.server.registration_endpoint)
        return FLOW_FINDING;
    (void)err_set(&err, ERR_CONFIG,
                  "authorization server \"%.150s\" does not register clients: set client_id (and client_secret) of a "
                  "registered client, or client_metadata_url if it accepts documents, in the server's auth",
                  flow->authorization.server.issuer);
    return flow_end(flow, LOGIN_END_REGISTRATION, &err);
}

// G3: a document that the authorization server has refused is not tried again if a client can be registered instead.
static enum flow_state look_for_notes(struct login_flow *flow)
{
    if (flow->spec.options->client_id || !document_of(flow) || !flow->authorization.server.registration_endpoint)
        return choose_client(flow);
    return FLOW_NOTES;
}

enum flow_state login_client_find_notes(struct login_flow *flow)
{
    grant_store_issuer_find(flow->spec.store, flow->spec.tenant, flow->authorization.server.issuer, &flow->request);
    return FLOW_WAIT;
}

enum flow_state login_client_on_notes(struct login_flow *flow)
{
    int64_t age = clock_wall_s() - flow->request.notes.documents_refused_at;
    if (flow->request.answer == GRANT_STORE_FAILED)
        return flow_end(flow, LOGIN_END_STORE, &flow->request.err);
    if (flow->request.answer == GRANT_STORE_DONE && age < ISSUER_NOTE_S)
        (void)flow_retry(flow, FLOW_NO_DOCUMENT);
    return choose_client(flow);
}

// ---- replacing the client -------------------------------------------------------------------

void login_client_note_refused(struct login_flow *flow, struct grant_request *request)
{
    struct issuer_notes notes = {.documents_refused_at = clock_wall_s()};
    grant_store_issuer_note(flow->spec.store, flow->spec.tenant, flow->authorization.server.issuer, &notes, request);
}

// G10, G3: once for each login, and never for a configured client.
bool login_client_replace(struct login_flow *flow)
{
    bool document = login_client_is_document(flow);
    if (!flow->spec.redirect_uri || flow->spec.options->client_id ||
        !flow->authorization.server.registration_endpoint ||
        !flow_retry(flow, document ? FLOW_NO_DOCUMENT : FLOW_NEW_CLIENT))
        return false;
    if (document)  // FLOW_NO_DOCUMENT: a stored registration may be used
        login_client_note_refused(flow, NULL);
    flow->retried &= ~(unsigned)FLOW_OTHER_METHOD;
    return true;
}

// ---- choosing -------------------------------------------------------------------------------

// D17: notes the decisions that a login would make.
static void note_decisions(struct login_flow *flow)
{
    const struct access_options *options = flow->spec.options;
    const struct oauth_authorization *authorization = &flow->authorization;
    const struct oauth_server *server = &authorization->server;
    const char *client = options->client_id                                        ? "the configured client"
                         : server->takes_documents && options->client_metadata_url ? "a metadata document"
                         : server->registration_endpoint                           ? "registered when needed"
                                                                                   : "not available: set client_id";
    flow_note(flow, "client:", client, 0);
    flow_note(flow, "resource:", authorization->resource ? authorization->resource : "(not sent)", 0);
    flow_note(flow, "scope:", authorization->scope ? authorization->scope : "(not sent)", 0);
    flow_note(flow, "authorization endpoint:", server->authorization_endpoint, 0);
    flow_note(flow, "token endpoint:", server->token_endpoint, 0);
}

// A login with the client's own rights, without a user.
static enum flow_state identify_without_user(struct login_flow *flow)
{
    struct err err;
    if (flow->spec.options->client_id && login_client_take_configured(flow, &err))
        return login_subject_exchange_begin(flow);
    if (!flow->spec.options->client_id)
        (void)err_set(&err, ERR_CONFIG, "this mode needs a client_id in the server's auth");
    return flow_end(flow, LOGIN_END_REGISTRATION, &err);
}

// Checks that the authorization server supports the grant type of this login, and PKCE.
static bool check_server(const struct login_flow *flow, struct err *err)
{
    const struct oauth_server *server = &flow->authorization.server;
    if (flow->spec.device)
        return server->device_endpoint ||
               err_set(err, ERR_UPSTREAM_INVALID, "authorization server \"%.200s\" does not support the device flow",
                       server->issuer);
    return oauth_server_check_pkce(server, flow->spec.options->pkce == ACCESS_PKCE_ASSUME, err) &&
           ((server->code && server->authorization_endpoint) ||
            err_set(err, ERR_UPSTREAM_INVALID, "authorization server \"%.200s\" does not support authorization codes",
                    server->issuer));
}

enum flow_state login_client_choose(struct login_flow *flow)
{
    struct err err;
    flow->last = (struct err){0};  // forgets the errors of the skipped candidates
    flow->authorization.resource = resource_to_name(flow);
    flow->authorization.redirect_uri = flow->spec.redirect_uri;
    choose_scope(flow);
    if (!flow->spec.redirect_uri)
        return identify_without_user(flow);
    if (!check_server(flow, &err))
        return flow_end(flow, LOGIN_END_DISCOVERY, &err);
    if (flow->spec.only_discover && !flow->spec.device) {
        note_decisions(flow);
        return flow_end(flow, LOGIN_END_FOUND, NULL);
    }
    return look_for_notes(flow);
}
