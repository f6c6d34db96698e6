// Owns renewing a registration: the claim, the PUT to the management URL, and storing the renewed registration.
#include "auth/login/renewal.h"
#include "auth/login/flow.h"
#include "base/clock.h"
#include "base/mem.h"
#include "fetch_request.h"
#include "loop/http_url.h"

#define RENEW_MS 30000

bool login_renewal_due(const struct registration *registration, int64_t at)
{
    struct oauth_client client = {.id = registration->is.client_id,
                                  .secret = registration->is.client_secret.bytes,
                                  .secret_expires = registration->is.secret_expires_at};
    return !oauth_client_usable(&client, NULL, at);
}

bool login_renewal_possible(const struct registration *registration)
{
    const char *uri = registration->is.registration_uri;
    return uri && registration->is.registration_token.len && oauth_url_secure(uri) &&
           oauth_url_same_origin(uri, registration->issuer);
}

static void end(struct login_renewal *renewal)
{
    if (!renewal->registration)
        oauth_problem_scrub(&renewal->err, renewal->old->is.registration_token.bytes);
    renewal->on_done(renewal);
}

static void on_saved(struct grant_request *request)
{
    struct login_renewal *renewal = request->arg;
    renewal->err = request->err;
    if (request->answer != GRANT_STORE_FAILED)  // after a conflict: the stored registration, which is newer
        renewal->registration = registration_ref(request->registration);
    if (!renewal->registration && request->answer != GRANT_STORE_FAILED)
        (void)err_set(&renewal->err, ERR_UNAVAILABLE, "the registration was removed");
    end(renewal);
}

static struct oauth_registration wish_of(const struct registration *old)
{
    struct oauth_registration wish = {.client_id = old->is.client_id,
                                      .redirect_uri = old->redirect,
                                      .scope = old->is.scope && *old->is.scope ? old->is.scope : NULL,
                                      .device = strcmp(old->redirect, LOGIN_DEVICE_URI) == 0};
    wish.native = wish.device || http_url_is_loopback(old->redirect);
    if (!oauth_method_parse(old->is.auth_method, &wish.method))
        wish.method = OAUTH_METHOD_POST;
    return wish;
}

static void save(struct login_renewal *renewal, const struct oauth_client *client)
{
    const struct registration *old = renewal->old;
    struct registration_key key = {old->tenant, old->issuer, old->redirect};
    struct registration_fields fields = {0};
    registration_fields_copy(&old->is, &fields);
    secret_set(&fields.client_secret, span_of(client->secret));
    fields.secret_expires_at = client->secret_expires;
    if (client->management_token)
        secret_set(&fields.registration_token, span_of(client->management_token));
    struct registration *fresh = registration_new(&key, &fields);
    grant_store_registration_save(renewal->store, fresh, old->generation, &renewal->save);
    registration_unref(fresh);
}

static void on_answer(struct login_fetch *fetch)
{
    struct login_renewal *renewal = fetch->arg;
    struct oauth_registration wish = wish_of(renewal->old);
    struct oauth_client client;
    struct err *err = &renewal->err;
    if (fetch->failed)
        *err = fetch->err;
    else if (fetch->status != 200)
        (void)err_set(err, ERR_DENIED, "the registration was not renewed: HTTP %d", fetch->status);
    else if (!oauth_registration_parse(buf_span(&fetch->body), &wish, &renewal->arena, &client, err))
        ;
    else if (!client.secret || strcmp(client.id, wish.client_id) != 0 ||
             !oauth_client_usable(&client, NULL, clock_wall_s()))
        (void)err_set(err, ERR_UPSTREAM_INVALID,
                      "the renewed registration has another client id, or no secret that is still valid");
    else {
        save(renewal, &client);
        return;
    }
    end(renewal);
}

static void on_claimed(struct grant_request *request)
{
    struct login_renewal *renewal = request->arg;
    struct oauth_registration wish = wish_of(renewal->old);
    struct buf body = {0}, authorization = {0};
    renewal->claimed = request->answer == GRANT_STORE_DONE;
    if (!renewal->claimed) {
        renewal->err = request->err;
        end(renewal);
        return;
    }
    oauth_registration_put(&wish, &body);
    buf_put_text(&authorization, "Bearer ");
    buf_put_span(&authorization, secret_span(&renewal->old->is.registration_token));
    struct login_fetch_request put = {.url = renewal->old->is.registration_uri,
                                      .type = "application/json",
                                      .put = true,
                                      .body = buf_span(&body),
                                      .authorization = buf_text(&authorization),
                                      .timeout_ms = RENEW_MS,
                                      .policy = renewal->policy,
                                      .ca_file = renewal->ca_file};
    login_fetch_start(&renewal->fetch, renewal->http, &put);
    buf_wipe(&authorization);
    buf_release(&body);
}

void login_renewal_start(struct login_renewal *renewal, struct grant_store *store, struct http_client *http,
                         struct address_policy *policy, const char *ca_file, const struct registration *registration)
{
    login_renewal_release(renewal);
    renewal->store = store;
    renewal->http = http;
    renewal->policy = policy;
    renewal->ca_file = ca_file;
    renewal->old = registration_ref(registration);
    renewal->claim = (struct grant_request){.on_done = on_claimed, .arg = renewal};
    renewal->save = (struct grant_request){.on_done = on_saved, .arg = renewal};
    renewal->fetch = (struct login_fetch){.on_done = on_answer, .arg = renewal};
    grant_store_registration_claim(store, registration->tenant, registration->issuer, &renewal->claim);
}

void login_renewal_release(struct login_renewal *renewal)
{
    grant_request_release(&renewal->claim);
    grant_request_release(&renewal->save);
    login_fetch_release(&renewal->fetch);
    registration_unref(renewal->registration);
    registration_unref(renewal->old);
    arena_release(&renewal->arena);
    renewal->registration = renewal->old = NULL;
    renewal->err = (struct err){0};
    renewal->claimed = false;
}
