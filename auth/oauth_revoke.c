// Owns revoking what a grant holds (RFC 7009): the refresh token first, then the access token, best effort.
#include "auth/oauth_flow.h"
#include "base/mem.h"
#include "oauth_fetch.h"
#include <stdlib.h>
#include <time.h>

#define REVOKE_MS 5000

struct oauth_revocation {
    struct http_client *http;
    struct oauth_fetch fetch;
    const struct grant *grant;
    const struct oauth_client *client;
    const struct access_options *options;
    struct address_policy policy;
    bool refresh_done;
    void (*on_done)(void *arg);
    void *arg;
};

static void send(struct oauth_revocation *revocation, const struct secret *token, const char *hint)
{
    struct buf form = {0}, authorization = {0};
    struct err ignored;
    const struct grant *grant = revocation->grant;
    oauth_form_put(&form, "token", token->bytes);
    oauth_form_put(&form, "token_type_hint", hint);
    bool ok =
        oauth_client_apply(revocation->client, grant->issuer, (int64_t)time(NULL), &form, &authorization, &ignored);
    struct oauth_wish wish = {.url = grant->is.revocation_endpoint,
                              .type = "application/x-www-form-urlencoded",
                              .body = ok ? buf_span(&form) : (struct span){0},
                              .authorization = authorization.len ? buf_text(&authorization) : NULL,
                              .timeout_ms = REVOKE_MS,
                              .policy = &revocation->policy,
                              .ca_file = revocation->options ? revocation->options->ca_file : NULL};
    oauth_fetch_start(&revocation->fetch, revocation->http, &wish);
    if (form.at)
        secret_wipe(form.at, form.room);
    if (authorization.at)
        secret_wipe(authorization.at, authorization.room);
    buf_release(&form);
    buf_release(&authorization);
}

static void on_revoked(struct oauth_fetch *fetch)
{
    struct oauth_revocation *revocation = fetch->arg;
    if (!revocation->refresh_done && !fetch->failed) {
        revocation->refresh_done = true;
        send(revocation, &revocation->grant->is.access_token, "access_token");
        return;
    }
    revocation->on_done(revocation->arg);
}

struct oauth_revocation *oauth_revoke_start(struct http_client *http, const struct grant *grant,
                                            const struct oauth_client *client, const struct access_options *options,
                                            void (*on_done)(void *arg), void *arg)
{
    struct oauth_revocation *revocation = mem_new(struct oauth_revocation);
    const char *server = *grant->resource ? grant->resource : grant->issuer;
    *revocation = (struct oauth_revocation){
        .http = http,
        .fetch = {.on_done = on_revoked, .arg = revocation},
        .grant = grant_ref(grant),
        .client = client,
        .options = options,
        .policy = oauth_fetch_policy(grant->is.learned, server, options ? options->allow_addresses : NULL),
        .on_done = on_done,
        .arg = arg};
    revocation->refresh_done = grant->is.refresh_token.len == 0;
    send(revocation, revocation->refresh_done ? &grant->is.access_token : &grant->is.refresh_token,
         revocation->refresh_done ? "access_token" : "refresh_token");
    return revocation;
}

void oauth_revocation_free(struct oauth_revocation *revocation)
{
    if (!revocation)
        return;
    oauth_fetch_release(&revocation->fetch);
    grant_unref(revocation->grant);
    free(revocation);
}
