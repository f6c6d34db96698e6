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
    struct token_request removal;
    size_t at;
    struct oauth_revocation *revocation;
    bool local;        // the one at `at` was not revoked, and is only deleted
    struct peer peer;  // its address alone: who asked for it
};

static void errand_free(void *object)
{
    struct errand *errand = object;
    token_request_release(&errand->request);
    token_request_release(&errand->removal);
    identity_unref(errand->identity);
    free(errand->user);
    free(errand);
}

static void errand_end(struct errand *errand)
{
    if (errand->visit)
        errand->visit->errand = NULL;
    oauth_revocation_free(errand->revocation);
    errand->revocation = NULL;
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
    hosted_keep_address(visit, &errand->peer);
    errand->request = (struct token_request){.on_done = on_listed, .arg = errand};
    errand->removal.arg = errand;
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
    const struct token_request *held = &errand->request;
    const struct grant *grant = access_pick(held->grants, held->count, server->url);
    const struct grant *damaged = access_pick(held->damaged, held->damaged_count, server->url);
    if (!grant && damaged)
        return (struct hosted_connection){server->name, damaged->issuer, NULL, CONNECTION_DAMAGED};
    if (!grant)
        return (struct hosted_connection){.server = server->name};
    return (struct hosted_connection){server->name, grant->issuer, grant->is.scope,
                                      grant->is.dead_at ? CONNECTION_ENDED : CONNECTION_GOOD};
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

// Those that open, then those that do not.
static struct grant *grant_in_hand(const struct errand *errand)
{
    const struct token_request *held = &errand->request;
    return errand->at < held->count ? held->grants[errand->at] : held->damaged[errand->at - held->count];
}

static void on_removed(struct token_request *request)
{
    struct errand *errand = request->arg;
    const struct grant *grant = grant_in_hand(errand);
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
                                                               .issuer = grant->issuer,
                                                               .reason = errand->local ? "not_told" : NULL,
                                                               .peer = &errand->peer});
    errand->at++;
    next_grant(errand);
}

static void remove_grant(struct errand *errand)
{
    struct grant_key key = grant_key(grant_in_hand(errand));
    errand->removal.on_done = on_removed;
    token_store_remove(errand->hosted->gate->tokens, &key, TOKEN_ANY, &errand->removal);
}

static void on_revoked(void *arg, const struct err *why)
{
    struct errand *errand = arg;
    if (why)
        log_warn("a grant is deleted here and was not revoked", LOG_STR("server", errand->server->name),
                 LOG_STR("subject", errand->identity->subject), LOG_STR("detail", why->detail));
    errand->local = why != NULL;
    remove_grant(errand);
}

static void revoke(struct errand *errand)
{
    const struct gate *gate = errand->hosted->gate;
    struct oauth_revoke_spec spec = {.loop = gate->loop,
                                     .http = gate->http,
                                     .store = gate->tokens,
                                     .grant = grant_in_hand(errand),
                                     .options = &errand->server->auth,
                                     .on_done = on_revoked,
                                     .arg = errand};
    oauth_revocation_free(errand->revocation);
    errand->revocation = oauth_revoke_start(&spec);
}

static void next_grant(struct errand *errand)
{
    for (; errand->at < errand->request.count + errand->request.damaged_count; errand->at++) {
        struct grant *grant = grant_in_hand(errand);
        if (!access_pick(&grant, 1, errand->server->url))
            continue;
        if (errand->at < errand->request.count)
            revoke(errand);
        else
            on_revoked(errand, &errand->request.err);  // what it says is not known, so nobody can be told
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
