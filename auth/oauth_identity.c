// Owns who we are to the authorization server: a configured client, a metadata document, or one that is registered.
#include "base/mem.h"
#include "loop/http_url.h"
#include "oauth_key.h"
#include "oauth_state.h"
#include <time.h>

static int64_t now(void) { return (int64_t)time(NULL); }

static void register_client(struct oauth_flow *flow);

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
    return true;
}

void flow_find_client(struct oauth_flow *flow)
{
    struct registration_key key = {flow->spec.tenant, flow->attempt.server.issuer, flow->spec.redirect_uri};
    flow_set_state(flow, FLOW_FINDING);
    token_store_registration_find(flow->spec.store, &key, &flow->request);
}

static void choose_client(struct oauth_flow *flow)
{
    const struct access_options *options = flow->spec.options;
    const char *document = options->client_metadata_url ? options->client_metadata_url : flow->spec.document_url;
    struct err err;
    if (options->client_id) {
        if (flow_take_configured(flow, &err))
            flow_authorize(flow);
        else
            flow_end(flow, OAUTH_END_REGISTRATION, &err);
    } else if (flow->attempt.server.takes_documents && document && !flow->documents_failed) {
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
            choose_client(flow);
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
        choose_client(flow);
    }
}

void flow_on_client_found(struct oauth_flow *flow)
{
    const struct registration *found = flow->request.registration;
    struct oauth_client *client = &flow->attempt.client;
    if (flow->request.answer == TOKEN_FAILED) {
        flow_end(flow, OAUTH_END_STORE, &flow->request.err);
        return;
    }
    flow->kept_generation = flow->request.answer == TOKEN_DONE ? found->generation : 0;
    if (flow->request.answer == TOKEN_DONE && !flow->anew && !found->is.suspect_at) {
        *client = (struct oauth_client){.id = arena_copy(&flow->arena, span_of(found->is.client_id)),
                                        .dynamic = true,
                                        .secret_expires = found->is.secret_expires_at};
        if (found->is.client_secret.len)
            client->secret = arena_copy(&flow->arena, secret_span(&found->is.client_secret));
        if (oauth_method_parse(found->is.auth_method, &client->method) && oauth_client_usable(client, NULL, now())) {
            registration_fields_copy(&found->is, &flow->kept);
            flow_authorize(flow);
            return;
        }
    }
    register_client(flow);
}

static void register_client(struct oauth_flow *flow)
{
    struct buf body = {0};
    flow_set_state(flow, FLOW_REGISTERING);
    flow->registration =
        (struct oauth_registration){.redirect_uri = flow->spec.redirect_uri,
                                    .scope = flow->attempt.scope,
                                    .method = oauth_registration_method(&flow->attempt.server),
                                    .native = flow->spec.device || http_url_is_loopback(flow->spec.redirect_uri),
                                    .device = flow->spec.device};
    oauth_registration_put(&flow->registration, &body);
    struct oauth_wish wish = {.url = flow->attempt.server.registration_endpoint,
                              .type = "application/json",
                              .body = buf_span(&body),
                              .timeout_ms = FLOW_TOKEN_MS,
                              .policy = &flow->policy};
    oauth_fetch_start(&flow->fetch, flow->spec.http, &wish);
    buf_release(&body);
}

static void keep_client(struct oauth_flow *flow)
{
    const struct oauth_client *client = &flow->attempt.client;
    struct registration_key key = {flow->spec.tenant, flow->attempt.server.issuer, flow->spec.redirect_uri};
    struct registration_fields fields = {.client_id = mem_string(client->id),
                                         .secret_expires_at = client->secret_expires,
                                         .issued_at = now(),
                                         .auth_method = mem_string(oauth_method_text(client->method)),
                                         .registration_uri = mem_string(client->management_uri),
                                         .redirect_uris = mem_string(flow->spec.redirect_uri),
                                         .scope = mem_string(client->scope)};
    if (client->secret)
        secret_set(&fields.client_secret, span_of(client->secret));
    if (client->management_token)
        secret_set(&fields.registration_token, span_of(client->management_token));
    registration_fields_release(&flow->kept);
    registration_fields_copy(&fields, &flow->kept);
    struct registration *kept = registration_new(&key, &fields);
    flow_set_state(flow, FLOW_KEEPING);
    token_store_registration_save(flow->spec.store, kept, flow->kept_generation, &flow->request);
    registration_unref(kept);
}

void flow_on_registered(struct oauth_flow *flow)
{
    struct err err = {0};
    int status = flow->fetch.status;
    if (flow->fetch.failed) {
        flow_end(flow, OAUTH_END_REGISTRATION, &flow->fetch.err);
        return;
    }
    flow_note(flow, "POST", flow->attempt.server.registration_endpoint, status);
    if (status != 200 && status != 201) {
        struct buf problem = {0};
        struct err ignored;
        json_t *tree = oauth_document(buf_span(&flow->fetch.body), "registration", &ignored);
        oauth_put_problem(tree, &problem);
        json_decref(tree);
        (void)err_set(&err, ERR_DENIED,
                      "registration was refused with HTTP %d: %s (redirect_uri %s, application_type %s)", status,
                      buf_text(&problem), flow->spec.redirect_uri, flow->registration.native ? "native" : "web");
        buf_release(&problem);
        flow_end(flow, OAUTH_END_REGISTRATION, &err);
    } else if (!oauth_registration_parse(buf_span(&flow->fetch.body), &flow->registration, &flow->arena,
                                         &flow->attempt.client, &err)) {
        flow_end(flow, OAUTH_END_REGISTRATION, &err);
    } else {
        keep_client(flow);
    }
}

void flow_on_client_kept(struct oauth_flow *flow)
{
    if (flow->request.answer == TOKEN_FAILED) {
        flow_end(flow, OAUTH_END_STORE, &flow->request.err);
        return;
    }
    // TOKEN_CONFLICT: somebody registered at the same time; both registrations are good, and the login uses its own.
    flow->kept_generation = flow->request.registration ? flow->request.registration->generation : 0;
    flow_authorize(flow);
}
