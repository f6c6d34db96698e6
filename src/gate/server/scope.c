// Owns scopes: the merged views that sessions share, with the links behind them.
//
// The key of a scope names its sharers: the tenant if every server is shared, the user if one is per user, the session
// if one is per session. Each profile has scopes of its own; the links behind them are the same.
#include "base/mem.h"
#include "base/option_compare.h"
#include "gate/session/server_runtime.h"
#include "room.h"
#include <stdlib.h>

// Selects the servers of a session: all of its tenant, or those of its profile in the profile's order. Returns their number.
static size_t select_servers(const struct tenant *tenant, const struct profile *profile, const struct server **out)
{
    const struct server *servers = tenant->servers->at, *server;
    size_t count = 0;
    if (!profile || !profile->servers) {
        for (size_t i = 0; i < tenant->servers->count; i++)
            if (server_runtime_enabled(tenant, &servers[i]))
                out[count++] = &servers[i];
        return count;
    }
    for (char *const *name = profile->servers; *name; name++)
        if ((server = server_find(tenant->servers, span_of(*name))) && server_runtime_enabled(tenant, server))
            out[count++] = server;
    return count;
}

static int isolation_of(const struct server *const *servers, size_t count)
{
    int most = SERVER_SHARED;
    for (size_t i = 0; i < count; i++)
        if (servers[i]->isolation > most)
            most = servers[i]->isolation;
    return most;
}

static struct scope *scope_new(struct gate *gate, struct session *session, const struct server *const *servers,
                               size_t count)
{
    const struct profile *profile = session->profile;
    struct view_naming naming = {gate->config->separator, profile ? profile->prefix : gate->config->prefix, profile};
    struct scope *scope = mem_new(struct scope);
    scope->gate = gate;
    scope->config = config_ref(gate->config);
    scope->tenant = tenant_ref(session->tenant);
    scope->profile = profile;
    scope->view = view_new(&naming);
    scope->shared = isolation_of(servers, count) == SERVER_SHARED;
    scope->links = mem_alloc((count + 1) * sizeof(struct link *));
    scope->uses = mem_alloc((count + 1) * sizeof *scope->uses);
    list_init(&scope->sessions);
    list_init(&scope->waiters);
    for (size_t i = 0; i < count; i++) {
        struct link *link = link_get(gate, servers[i], session);
        scope->uses[i] = (struct scope_use){.scope = scope};
        list_append(&link->uses, &scope->uses[i].node);
        scope->links[scope->link_count++] = link;
        view_add(scope->view, link->source);
    }
    return scope;
}

struct scope *scope_get(struct gate *gate, struct session *session)
{
    struct buf key = {0};
    const struct tenant *tenant = session->tenant;
    const struct server **servers = mem_alloc((tenant->servers->count + 1) * sizeof *servers);
    size_t count = select_servers(tenant, session->profile, servers);
    buf_printf(&key, "%s/", session->profile ? session->profile->name : "");  // no '/' in it
    link_put_key(session->identity, session, isolation_of(servers, count), &key);
    struct scope *scope = map_find(&gate->scopes, buf_span(&key));
    if (!scope) {
        scope = scope_new(gate, session, servers, count);
        map_put(&gate->scopes, buf_span(&key), scope);
        scope->key = mem_copy(buf_text(&key), key.len);
    }
    scope->refs++;
    buf_release(&key);
    free(servers);
    return scope;
}

static void scope_free(void *object)
{
    struct scope *scope = object;
    view_free(scope->view);
    tenant_unref(scope->tenant);
    config_unref(scope->config);
    free(scope->links);
    free(scope->uses);
    free(scope->key);
    free(scope);
}

void scope_release(struct scope *scope)
{
    struct gate *gate = scope->gate;
    // The scope that all callers of a tenant share is kept, so that its servers keep running for the next caller.
    if (--scope->refs || (scope->shared && !scope->detached && gate->state == GATE_OPEN))
        return;
    if (!scope->detached)
        map_remove(&gate->scopes, span_of(scope->key));
    for (size_t i = 0; i < scope->link_count; i++) {
        struct link *link = scope->links[i];
        if (!link)
            continue;
        bool stays = upstream_server(link->upstream)->isolation == SERVER_SHARED && !link->retired_until_ms;
        fan_out_use_ends(link, &scope->uses[i]);
        list_remove(&scope->uses[i].node);
        if (--link->refs == 0 && !stays && gate->state == GATE_OPEN)
            link_close(link, gate->config->timeouts.shutdown_ms);
    }
    loop_reap(gate->loop, scope, scope_free);
}

// ---- reload ---------------------------------------------------------------------------------

static bool has_same_profile(const struct scope *scope, const struct profile *profile)
{
    return profile && scope->profile ? strcmp(profile->name, scope->profile->name) == 0 &&
                                           option_compare_equal(&profile_options, profile, scope->profile)
                                     : profile == scope->profile;
}

static bool has_same_servers(const struct scope *scope, const struct profile *profile)
{
    const struct server **servers = mem_alloc((scope->tenant->servers->count + 1) * sizeof *servers);
    size_t count = select_servers(scope->tenant, profile, servers);
    bool same = count == scope->link_count;
    for (size_t i = 0; same && i < count; i++) {
        const struct link *link = scope->links[i];
        same = !link->retired_until_ms && strcmp(upstream_server(link->upstream)->name, servers[i]->name) == 0;
    }
    free(servers);
    return same;
}

static bool is_current(const struct scope *scope)
{
    const struct config *now = scope->gate->config;
    struct span name = scope->profile ? span_of(scope->profile->name) : (struct span){0};
    const struct profile *profile = scope->profile ? profile_find(scope->tenant->profiles, name) : NULL;
    return list_linked(&scope->tenant->node) && has_same_profile(scope, profile) &&
           strcmp(scope->config->separator, now->separator) == 0 && scope->config->prefix == now->prefix &&
           has_same_servers(scope, profile);
}

void scope_detach_stale(struct gate *gate)
{
    void *value;
    for (size_t at = 0; map_next(&gate->scopes, &at, NULL, &value);) {
        struct scope *scope = value;
        if (is_current(scope))
            continue;
        map_remove(&gate->scopes, span_of(scope->key));
        scope->detached = true;
        scope->refs++;
        scope_release(scope);
    }
}

void scope_release_all(struct gate *gate)
{
    void *value;
    for (size_t at = 0; map_next(&gate->scopes, &at, NULL, &value);)
        scope_free(value);
    map_release(&gate->scopes);
}

void scope_warm(const struct session *session, bool own_too)
{
    const struct scope *scope = session->scope;
    for (size_t i = 0; i < scope->link_count; i++) {
        const struct link *link = scope->links[i];
        // The start of a shared server discloses nothing about a session.
        bool shared = upstream_server(link->upstream)->isolation == SERVER_SHARED;
        if ((own_too || !link->owner) && (shared || visibility_allowed(session, link)))
            source_load(link->source);
    }
}

void scope_look_again(const struct session *session)
{
    const struct scope *scope = session->scope;
    for (size_t i = 0; i < scope->link_count; i++)
        if (visibility_allowed(session, scope->links[i]))
            source_look_again(scope->links[i]->source);
}

struct link *scope_link(const struct scope *scope, const struct source *source)
{
    for (size_t i = 0; i < scope->link_count; i++)
        if (scope->links[i]->source == source)
            return scope->links[i];
    return NULL;
}
