// Owns revoking the tokens of a grant (RFC 7009): the refresh token first, then the access token, best effort.
#include "auth/grant/registration.h"
#include "auth/grant/store.h"
#include "auth/jose/signing_key.h"
#include "auth/login/fetch.h"
#include "auth/login/flow.h"
#include "base/clock.h"
#include "base/mem.h"
#include <stdlib.h>

#define REVOKE_MS 5000

struct login_revocation {
    struct login_revocation_spec spec;
    struct loop_task begin;
    struct grant_request found;  // the registration of the client
    struct oauth_client client;  // the client that the grant was issued to
    struct arena arena;
    struct login_fetch fetch;
    struct address_policy policy;
    bool refresh_done;
    struct err why;  // why a token was not revoked; zeroed: all were
};

static void end(struct login_revocation *revocation, const struct err *why)
{
    revocation->spec.on_done(revocation->spec.arg, why);
}

static void send(struct login_revocation *revocation, const struct secret *token, const char *hint)
{
    struct buf form = {0};
    struct err err;
    const struct grant *grant = revocation->spec.grant;
    struct login_form to = {.url = grant->is.revocation_endpoint,
                            .client = &revocation->client,
                            .audience = grant->issuer,
                            .now = clock_wall_s(),
                            .timeout_ms = REVOKE_MS,
                            .policy = &revocation->policy,
                            .ca_file = revocation->spec.options ? revocation->spec.options->ca_file : NULL};
    oauth_form_put(&form, "token", token->bytes);
    oauth_form_put(&form, "token_type_hint", hint);
    if (!login_fetch_post(&revocation->fetch, revocation->spec.http, &to, &form, &err))
        end(revocation, &err);
}

static void on_revoked(struct login_fetch *fetch)
{
    struct login_revocation *revocation = fetch->arg;
    if (fetch->failed)
        revocation->why = fetch->err;
    else if (fetch->status / 100 != 2)
        (void)err_set(&revocation->why, ERR_DENIED, "%.200s answered HTTP %d",
                      revocation->spec.grant->is.revocation_endpoint, fetch->status);
    if (!revocation->refresh_done && !fetch->failed) {
        revocation->refresh_done = true;
        send(revocation, &revocation->spec.grant->is.access_token, "access_token");
        return;
    }
    end(revocation, revocation->why.code ? &revocation->why : NULL);
}

static void revoke(struct login_revocation *revocation)
{
    const struct grant *grant = revocation->spec.grant;
    const struct access_options *options = revocation->spec.options;
    const char *server = *grant->resource ? grant->resource : grant->issuer;
    revocation->policy = login_fetch_policy(grant->is.learned, server, options ? options->allow_addresses : NULL);
    revocation->refresh_done = grant->is.refresh_token.len == 0;
    send(revocation, revocation->refresh_done ? &grant->is.access_token : &grant->is.refresh_token,
         revocation->refresh_done ? "access_token" : "refresh_token");
}

// ---- the client that the grant was issued to ------------------------------------------------

static void end_unproven(struct login_revocation *revocation)
{
    struct err err;
    (void)err_set(&err, ERR_CONFIG,
                  "the registration of the client that the grant at \"%.200s\" was issued to does not exist any more",
                  revocation->spec.grant->issuer);
    end(revocation, &err);
}

static void on_found(struct grant_request *request)
{
    struct login_revocation *revocation = request->arg;
    const struct secret *secret =
        request->answer == GRANT_STORE_DONE ? registration_secret(request->registration, revocation->client.id) : NULL;
    if (!secret) {
        end_unproven(revocation);
        return;
    }
    revocation->client.secret = arena_copy(&revocation->arena, secret_span(secret));
    revoke(revocation);
}

// F15, D16: the secret of the configured client is sent only to the authorization server that the client belongs to.
static void use_configured(struct login_revocation *revocation)
{
    const struct access_options *options = revocation->spec.options;
    struct oauth_client *client = &revocation->client;
    struct err err;
    if (!options || !access_options_is_client_of(options, revocation->spec.grant)) {
        end_unproven(revocation);
        return;
    }
    client->secret = options->client_secret;
    client->key_alg = options->signing_algorithm;
    client->key_id = options->key_id;
    if (client->method == OAUTH_METHOD_KEY &&
        !(client->key_pem = signing_key_read(options->private_key_file, &revocation->arena, &err)))
        end(revocation, &err);
    else
        revoke(revocation);
}

static void on_begin(struct loop_task *task)
{
    struct login_revocation *revocation = task->arg;
    const struct grant *grant = revocation->spec.grant;
    struct oauth_client *client = &revocation->client;
    struct registration_key key = {grant->tenant, grant->issuer, grant->is.client_redirect};
    if (!grant->is.revocation_endpoint || !*grant->is.revocation_endpoint || !grant->is.client_id) {
        end(revocation, NULL);  // the authorization server does not support revocation
        return;
    }
    client->id = grant->is.client_id;
    if (!oauth_method_parse(grant->is.auth_method, &client->method))
        client->method = OAUTH_METHOD_NONE;
    if (client->method == OAUTH_METHOD_NONE)
        revoke(revocation);
    else if (key.redirect && *key.redirect)
        grant_store_registration_find(revocation->spec.store, &key, &revocation->found);
    else
        use_configured(revocation);
}

struct login_revocation *login_revocation_start(const struct login_revocation_spec *spec)
{
    struct login_revocation *revocation = mem_new(struct login_revocation);
    *revocation = (struct login_revocation){.spec = *spec,
                                            .begin = {.run = on_begin, .arg = revocation},
                                            .found = {.on_done = on_found, .arg = revocation},
                                            .fetch = {.on_done = on_revoked, .arg = revocation}};
    grant_ref(spec->grant);
    loop_task_put(spec->loop, &revocation->begin);
    return revocation;
}

static void release(void *object)
{
    struct login_revocation *revocation = object;
    login_fetch_release(&revocation->fetch);
    arena_release(&revocation->arena);
    grant_unref(revocation->spec.grant);
    free(revocation);
}

void login_revocation_free(struct login_revocation *revocation)
{
    if (!revocation)
        return;
    login_fetch_cancel(&revocation->fetch);
    grant_request_release(&revocation->found);
    loop_task_drop(&revocation->begin);
    loop_reap(revocation->spec.loop, revocation, release);
}
