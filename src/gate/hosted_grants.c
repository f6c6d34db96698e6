// Owns the list of a user's connections, and disconnecting: revoked at the server as far as it takes part, and deleted.
//
// An errand is one such piece of work. It goes on when the browser does not wait for it any more.
#include "auth/access.h"
#include "auth/grant.h"
#include "base/log.h"
#include "base/mem.h"
#include "hosted.h"
#include <stdlib.h>

struct errand {
    struct hosted *hosted;
    struct list node;
    struct hosted_visit *visit;  // NULL: nobody waits
    struct identity *identity;
    char *user;
    const struct server *server;  // to disconnect; NULL: the list is wanted
    struct token_request request;
    struct token_request found;  // a registration, and then the removal
    size_t at;
    struct arena arena;
    struct oauth_client client;
    struct oauth_revocation *revocation;
};

static void errand_free(void *object)
{
    struct errand *errand = object;
    oauth_revocation_free(errand->revocation);
    token_request_release(&errand->request);
    token_request_release(&errand->found);
    arena_release(&errand->arena);
    identity_unref(errand->identity);
    free(errand->user);
    free(errand);
}

static void errand_end(struct errand *errand)
{
    if (errand->visit)
        errand->visit->errand = NULL;
    list_remove(&errand->node);
    loop_reap(errand->hosted->gate->loop, errand, errand_free);
}

static void errand_start(struct hosted_visit *visit, const struct server *server,
                         void (*on_listed)(struct token_request *request))
{
    struct errand *errand = mem_new(struct errand);
    errand->hosted = visit->gate->hosted;
    errand->visit = visit;
    errand->identity = identity_ref(visit->identity);
    errand->user = grant_user(visit->identity);
    errand->server = server;
    errand->request = (struct token_request){.on_done = on_listed, .arg = errand};
    errand->found.arg = errand;
    visit->errand = errand;
    list_append(&errand->hosted->errands, &errand->node);
    struct grant_filter filter = {errand->identity->tenant, errand->user, NULL};
    token_store_list(visit->gate->tokens, &filter, &errand->request);
}

void errand_visit_gone(struct hosted_visit *visit)
{
    struct errand *errand = visit->errand;
    if (errand)
        errand->visit = NULL;
    visit->errand = NULL;
}

void hosted_errands_drop(struct hosted *hosted)
{
    while (!list_empty(&hosted->errands))
        errand_end(list_entry(hosted->errands.next, struct errand, node));
}

static void answer(struct errand *errand, struct hosted_page *page)
{
    struct hosted_visit *visit = errand->visit;
    errand->visit = NULL;
    if (!visit)
        return;
    visit->errand = NULL;
    visit_show(visit, page);
}

// ---- the list -------------------------------------------------------------------------------

static struct hosted_connection connection_of(const struct errand *errand, const struct server *server)
{
    const struct grant *grant = access_pick(errand->request.grants, errand->request.count, server->url);
    return (struct hosted_connection){.server = server->name,
                                      .issuer = grant ? grant->issuer : NULL,
                                      .scope = grant ? grant->is.scope : NULL,
                                      .connected = grant && !grant->is.dead_at,
                                      .ended = grant && grant->is.dead_at};
}

static void on_listed(struct token_request *request)
{
    struct errand *errand = request->arg;
    const struct gate *gate = errand->hosted->gate;
    const struct tenant *tenant = gate_tenant(gate, errand->identity->tenant);
    const struct server *servers = tenant->servers->at;
    struct hosted_connection *list = mem_alloc((tenant->servers->count + 1) * sizeof *list);
    struct buf token = {0};
    struct hosted_page page = {.kind = request->answer == TOKEN_FAILED ? HOSTED_FAILED : HOSTED_LISTS,
                               .user = errand->identity->subject,
                               .tenant = errand->identity->tenant,
                               .connections = list};
    for (size_t i = 0; i < tenant->servers->count; i++)
        if (servers[i].auth.mode == ACCESS_USER && !servers[i].disabled)
            list[page.connection_count++] = connection_of(errand, &servers[i]);
    if (errand->visit)
        hosted_put_csrf(errand->visit, span_of("disconnect"), &page, &token);
    answer(errand, &page);
    buf_release(&token);
    free(list);
    errand_end(errand);
}

void hosted_list(struct hosted_visit *visit) { errand_start(visit, NULL, on_listed); }

// ---- disconnecting --------------------------------------------------------------------------

static void next_grant(struct errand *errand);

static void on_removed(struct token_request *request)
{
    struct errand *errand = request->arg;
    const struct grant *grant = errand->request.grants[errand->at];
    if (request->answer == TOKEN_FAILED) {
        log_error("a grant could not be deleted", LOG_STR("server", errand->server->name),
                  LOG_STR("detail", request->err.detail));
        answer(errand, &(struct hosted_page){.kind = HOSTED_FAILED, .server = errand->server->name});
        errand_end(errand);
        return;
    }
    hosted_audit(errand->hosted->gate, &(struct hosted_record){.event = HOSTED_EVENT_REVOKED,
                                                               .identity = errand->identity,
                                                               .server = errand->server,
                                                               .issuer = grant->issuer});
    errand->at++;
    next_grant(errand);
}

static void remove_grant(struct errand *errand)
{
    struct grant_key key = grant_key(errand->request.grants[errand->at]);
    errand->found.on_done = on_removed;
    token_store_remove(errand->hosted->gate->tokens, &key, TOKEN_ANY, &errand->found);
}

static void on_revoked(void *arg) { remove_grant(arg); }

static void revoke(struct errand *errand)
{
    const struct grant *grant = errand->request.grants[errand->at];
    oauth_revocation_free(errand->revocation);
    errand->revocation = NULL;
    bool known = grant->is.revocation_endpoint && *grant->is.revocation_endpoint &&
                 (errand->client.method == OAUTH_METHOD_NONE || errand->client.secret);
    if (!known) {
        remove_grant(errand);
        return;
    }
    errand->revocation = oauth_revoke_start(errand->hosted->gate->http, grant, &errand->client, &errand->server->auth,
                                            on_revoked, errand);
}

static void on_client(struct token_request *request)
{
    struct errand *errand = request->arg;
    if (request->answer == TOKEN_DONE && request->registration->is.client_secret.len)
        errand->client.secret = arena_copy(&errand->arena, secret_span(&request->registration->is.client_secret));
    revoke(errand);
}

// F16: as the client it was given to.
static void find_client(struct errand *errand)
{
    const struct grant *grant = errand->request.grants[errand->at];
    errand->client = (struct oauth_client){.id = grant->is.client_id};
    if (!oauth_method_parse(grant->is.auth_method, &errand->client.method))
        errand->client.method = OAUTH_METHOD_NONE;
    if (!grant->is.client_redirect || !*grant->is.client_redirect) {
        errand->client.secret = errand->server->auth.client_secret;
        revoke(errand);
        return;
    }
    struct registration_key key = {grant->tenant, grant->issuer, grant->is.client_redirect};
    errand->found.on_done = on_client;
    token_store_registration_find(errand->hosted->gate->tokens, &key, &errand->found);
}

static void next_grant(struct errand *errand)
{
    for (; errand->at < errand->request.count; errand->at++)
        if (access_pick(&errand->request.grants[errand->at], 1, errand->server->url)) {
            find_client(errand);
            return;
        }
    hosted_grant_changed(errand->hosted, errand->identity, errand->server);
    answer(errand, &(struct hosted_page){.kind = HOSTED_MOVED, .url = "connections"});
    errand_end(errand);
}

static void on_grants(struct token_request *request)
{
    struct errand *errand = request->arg;
    if (request->answer != TOKEN_FAILED) {
        next_grant(errand);
        return;
    }
    answer(errand, &(struct hosted_page){.kind = HOSTED_FAILED, .server = errand->server->name});
    errand_end(errand);
}

void hosted_disconnect(struct hosted_visit *visit, const struct server *server)
{
    errand_start(visit, server, on_grants);
}
