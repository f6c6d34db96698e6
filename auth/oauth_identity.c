// Owns who we are to the authorization server: a configured client, a metadata document, or one that is registered
// (oauth_register.c).
#include "oauth_key.h"
#include "oauth_state.h"
#include <time.h>

static const char *resource_to_name(const struct oauth_flow *flow)
{
    const char *configured = flow->spec.options->resource;
    if (configured)
        return strcmp(configured, "omit") == 0 ? NULL : configured;
    return flow->resource.resource;
}

static void choose_scope(struct oauth_flow *flow)
{
    const struct access_options *options = flow->spec.options;
    struct oauth_scope_wish wish = {.configured = options->scope,
                                    .challenged = flow->spec.challenge.scope,
                                    .supported = flow->resource.scope,
                                    .held = flow->spec.held_scope,
                                    .offline = flow->attempt.server.offline_access && flow->spec.redirect_uri};
    flow->attempt.scope = oauth_scope_choose(&wish, &flow->arena);
    flow->attempt.consent = wish.offline && flow->attempt.scope;
}

// G1: the client that was configured, if one was. False: it cannot be used.
bool flow_take_configured(struct oauth_flow *flow, struct err *err)
{
    const struct access_options *options = flow->spec.options;
    struct oauth_client *client = &flow->attempt.client;
    *client = (struct oauth_client){.id = options->client_id,
                                    .secret = options->client_secret,
                                    .key_alg = options->signing_algorithm,
                                    .key_id = options->key_id};
    if (options->private_key_file && !(client->key_pem = oauth_key_read(options->private_key_file, &flow->arena, err)))
        return false;
    client->method = oauth_client_method(client, &flow->attempt.server);
    if (client->secret && !client->key_pem && options->token_endpoint_auth_method != ACCESS_PROOF_AUTO)  // T3
        client->method =
            options->token_endpoint_auth_method == ACCESS_PROOF_POST ? OAUTH_METHOD_POST : OAUTH_METHOD_BASIC;
    return true;
}

static const char *document_of(const struct oauth_flow *flow)
{
    const char *configured = flow->spec.options->client_metadata_url;
    return !flow->attempt.server.takes_documents ? NULL : configured ? configured : flow->spec.document_url;
}

bool flow_is_document(const struct oauth_flow *flow)
{
    return flow->attempt.client.id && !flow->attempt.client.dynamic && !flow->spec.options->client_id;
}

static void choose_client(struct oauth_flow *flow)
{
    const struct access_options *options = flow->spec.options;
    const char *document = document_of(flow);
    struct err err;
    if (options->client_id) {
        if (flow_take_configured(flow, &err))
            flow_authorize(flow);
        else
            flow_end(flow, OAUTH_END_REGISTRATION, &err);
    } else if (document && !flow->documents_failed) {
        flow->attempt.client = (struct oauth_client){.id = document};
        flow_note(flow, "client id is the document", document, 0);
        flow_authorize(flow);
    } else if (flow->attempt.server.registration_endpoint) {
        flow_find_client(flow);
    } else {
        (void)err_set(
            &err, ERR_CONFIG,
            "authorization server \"%.150s\" registers no clients: set client_id (and client_secret) of one that "
            "is registered there, or a client_metadata_url if it takes documents, in the server's auth",
            flow->attempt.server.issuer);
        flow_end(flow, OAUTH_END_REGISTRATION, &err);
    }
}

void flow_on_notes(struct oauth_flow *flow)
{
    int64_t age = (int64_t)time(NULL) - flow->request.notes.documents_refused_at;
    if (flow->request.answer == TOKEN_FAILED) {
        flow_end(flow, OAUTH_END_STORE, &flow->request.err);
        return;
    }
    flow->documents_failed = flow->request.answer == TOKEN_DONE && age < ISSUER_NOTE_S;
    choose_client(flow);
}

// G3: where documents did not do, they are not tried again and again, as long as there is another way.
static void look_for_notes(struct oauth_flow *flow)
{
    if (flow->spec.options->client_id || !document_of(flow) || !flow->attempt.server.registration_endpoint) {
        choose_client(flow);
        return;
    }
    flow_set_state(flow, FLOW_NOTES);
    token_store_issuer_find(flow->spec.store, flow->spec.tenant, flow->attempt.server.issuer, &flow->request);
}

// D17: what a login would do.
static void tell_decisions(struct oauth_flow *flow)
{
    const struct access_options *options = flow->spec.options;
    const struct oauth_server *server = &flow->attempt.server;
    const char *client = options->client_id                                        ? "that of the configuration"
                         : server->takes_documents && options->client_metadata_url ? "a metadata document"
                         : server->registration_endpoint                           ? "registered when needed"
                                                                                   : "none: set client_id";
    flow_note(flow, "client:", client, 0);
    flow_note(flow, "resource:", flow->attempt.resource ? flow->attempt.resource : "(not sent)", 0);
    flow_note(flow, "scope:", flow->attempt.scope ? flow->attempt.scope : "(not sent)", 0);
    flow_note(flow, "authorization endpoint:", server->authorization_endpoint, 0);
    flow_note(flow, "token endpoint:", server->token_endpoint, 0);
}

void flow_identify(struct oauth_flow *flow)
{
    struct err err;
    const struct oauth_server *server = &flow->attempt.server;
    flow->last = (struct err){0};  // of the places that were passed over
    flow->attempt.resource = resource_to_name(flow);
    flow->attempt.redirect_uri = flow->spec.redirect_uri;
    choose_scope(flow);
    if (!flow->spec.redirect_uri) {
        if (!flow->spec.options->client_id)
            (void)err_set(&err, ERR_CONFIG, "this mode needs a client_id");
        else if (flow_take_configured(flow, &err)) {
            flow_assert(flow);
            return;
        }
        flow_end(flow, OAUTH_END_REGISTRATION, &err);
        return;
    }
    if (flow->spec.device) {
        if (server->device_endpoint) {
            look_for_notes(flow);
            return;
        }
        (void)err_set(&err, ERR_UPSTREAM_INVALID, "authorization server \"%.200s\" has no codes for devices",
                      server->issuer);
        flow_end(flow, OAUTH_END_DISCOVERY, &err);
    } else if (!oauth_pkce_check(server, flow->spec.options->pkce == ACCESS_PKCE_ASSUME, &err)) {
        flow_end(flow, OAUTH_END_DISCOVERY, &err);
    } else if (!server->code || !server->authorization_endpoint) {
        (void)err_set(&err, ERR_UPSTREAM_INVALID, "authorization server \"%.200s\" gives no authorization codes",
                      server->issuer);
        flow_end(flow, OAUTH_END_DISCOVERY, &err);
    } else if (flow->spec.only_discover) {
        tell_decisions(flow);
        flow_end(flow, OAUTH_END_FOUND, NULL);
    } else {
        look_for_notes(flow);
    }
}
