// Owns the list of a user's connections, and disconnecting: each grant is revoked at its authorization server, if that
// supports it, and deleted.
//
// A job is one such piece of work. It continues when the browser no longer waits for it.
#include "auth/access/access.h"
#include "auth/grant/grant.h"
#include "base/log.h"
#include "base/mem.h"
#include "state.h"
#include <stdlib.h>

struct connections_job {
    struct connect *connect;
    struct list node;
    struct connect_request *request;  // NULL: the browser no longer waits
    struct identity *identity;
    char *user;
    const struct config *config;
    const struct server *server;  // the server to disconnect; NULL: the job makes the list
    struct grant_request listing;
    struct grant_request removal;
    size_t at;  // index of the grant that is being revoked and removed
    struct login_revocation *revocation;
    bool not_revoked;  // the grant is only deleted
    struct peer peer;  // only the address of the browser
};

static void job_free(void *object)
{
    struct connections_job *job = object;
    grant_request_release(&job->listing);
    grant_request_release(&job->removal);
    identity_unref(job->identity);
    config_unref(job->config);
    free(job->user);
    free(job);
}

static void job_end(struct connections_job *job)
{
    if (job->request)
        job->request->job = NULL;
    login_revocation_free(job->revocation);
    job->revocation = NULL;
    grant_request_cancel(&job->listing);
    grant_request_cancel(&job->removal);
    list_remove(&job->node);
    loop_reap(job->connect->parts.loop, job, job_free);
}

static void job_start(struct connect_request *request, const struct server *server,
                      void (*on_listed)(struct grant_request *listing))
{
    struct connections_job *job = mem_new(struct connections_job);
    job->connect = request->connect;
    job->request = request;
    job->identity = identity_ref(request->identity);
    job->user = grant_user(request->identity);
    job->config = config_ref(request->connect->parts.config);
    job->server = server;
    if (request->credentials.peer)
        job->peer.address = request->credentials.peer->address;
    job->listing = (struct grant_request){.on_done = on_listed, .arg = job};
    job->removal.arg = job;
    request->job = job;
    list_append(&job->connect->jobs, &job->node);
    struct grant_filter filter = {job->identity->tenant, job->user, NULL};
    grant_store_list(job->connect->parts.store, &filter, &job->listing);
}

void connections_detach(struct connect_request *request)
{
    struct connections_job *job = request->job;
    if (job)
        job->request = NULL;
    request->job = NULL;
}

void connections_drop_all(struct connect *connect)
{
    while (!list_empty(&connect->jobs))
        job_end(list_entry(connect->jobs.next, struct connections_job, node));
}

static void show(struct connections_job *job, struct connect_page *page)
{
    struct connect_request *request = job->request;
    job->request = NULL;
    if (!request)
        return;
    request->job = NULL;
    connect_page_show(request, page);
}

// ---- the list -------------------------------------------------------------------------------

static struct connection connection_of(const struct connections_job *job, const struct server *server)
{
    const struct grant_request *listing = &job->listing;
    const struct grant *grant = access_pick(listing->grants, listing->count, server->url);
    const struct grant *damaged = access_pick(listing->damaged, listing->damaged_count, server->url);
    if (!grant && damaged)
        return (struct connection){server->name, damaged->issuer, NULL, CONNECTION_DAMAGED};
    if (!grant)
        return (struct connection){.server = server->name};
    return (struct connection){server->name, grant->issuer, grant->is.scope,
                               grant->is.dead_at ? CONNECTION_ENDED : CONNECTION_GOOD};
}

static size_t count_servers(const struct connections_job *job)
{
    size_t count = 0, at = 0;
    while (connect_servers_next(job->config, job->identity->tenant, &at))
        count++;
    return count;
}

static void on_listed(struct grant_request *listing)
{
    struct connections_job *job = listing->arg;
    const struct server *server;
    struct connection *list = mem_alloc((count_servers(job) + 1) * sizeof *list);
    struct buf token = {0};
    struct connect_page page = {.kind = listing->answer == GRANT_STORE_FAILED ? CONNECT_PAGE_FAILED : CONNECT_PAGE_LIST,
                                .user = job->identity->subject,
                                .tenant = job->identity->tenant,
                                .connections = list};
    for (size_t at = 0; (server = connect_servers_next(job->config, job->identity->tenant, &at));)
        list[page.connection_count++] = connection_of(job, server);
    if (job->request)
        connect_csrf_put(job->request, span_of("disconnect"), &page, &token);
    show(job, &page);
    buf_release(&token);
    free(list);
    job_end(job);
}

void connections_list(struct connect_request *request) { job_start(request, NULL, on_listed); }

// ---- disconnecting --------------------------------------------------------------------------

static void next_grant(struct connections_job *job);

// Grants that can be decrypted come first, then the damaged ones.
static struct grant *current_grant(const struct connections_job *job)
{
    const struct grant_request *listing = &job->listing;
    return job->at < listing->count ? listing->grants[job->at] : listing->damaged[job->at - listing->count];
}

static void fail(struct connections_job *job)
{
    show(job, &(struct connect_page){.kind = CONNECT_PAGE_FAILED, .server = job->server->name});
    job_end(job);
}

static void on_removed(struct grant_request *removal)
{
    struct connections_job *job = removal->arg;
    if (removal->answer == GRANT_STORE_FAILED) {
        log_error("cannot delete a grant", LOG_STR("server", job->server->name),
                  LOG_STR("detail", removal->err.detail));
        fail(job);
        return;
    }
    connect_audit_put(job->connect->parts.audit,
                      &(struct connect_audit_record){.event = CONNECT_EVENT_REVOKED,
                                                     .identity = job->identity,
                                                     .server = job->server,
                                                     .issuer = current_grant(job)->issuer,
                                                     .reason = job->not_revoked ? "not_told" : NULL,
                                                     .peer = &job->peer});
    job->at++;
    next_grant(job);
}

static void on_revoked(void *arg, const struct err *why)
{
    struct connections_job *job = arg;
    struct grant_key key = grant_key(current_grant(job));
    if (why)
        log_warn("cannot revoke a grant, only deleting it", LOG_STR("server", job->server->name),
                 LOG_STR("subject", job->identity->subject), LOG_STR("detail", why->detail));
    job->not_revoked = why != NULL;
    job->removal.on_done = on_removed;
    grant_store_remove(job->connect->parts.store, &key, GRANT_STORE_ANY, &job->removal);
}

static void revoke(struct connections_job *job)
{
    const struct connect_parts *parts = &job->connect->parts;
    struct login_revocation_spec spec = {.loop = parts->loop,
                                         .http = parts->http,
                                         .store = parts->store,
                                         .grant = current_grant(job),
                                         .options = &job->server->auth,
                                         .on_done = on_revoked,
                                         .arg = job};
    login_revocation_free(job->revocation);
    job->revocation = login_revocation_start(&spec);
}

static void next_grant(struct connections_job *job)
{
    const struct connect_parts *parts = &job->connect->parts;
    for (; job->at < job->listing.count + job->listing.damaged_count; job->at++) {
        struct grant *grant = current_grant(job);
        if (!access_pick(&grant, 1, job->server->url))
            continue;
        if (job->at < job->listing.count)
            revoke(job);
        else
            on_revoked(job, &job->listing.err);  // its tokens cannot be read, so they cannot be revoked
        return;
    }
    parts->ops->grant_changed(parts->arg, job->identity, job->server);
    show(job, &(struct connect_page){.kind = CONNECT_PAGE_REDIRECT, .url = "connections"});
    job_end(job);
}

static void on_grants(struct grant_request *listing)
{
    struct connections_job *job = listing->arg;
    if (listing->answer == GRANT_STORE_FAILED)
        fail(job);
    else
        next_grant(job);
}

void connections_disconnect(struct connect_request *request, const struct server *server)
{
    job_start(request, server, on_grants);
}
