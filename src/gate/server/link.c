// Owns links: servers as the gate uses them, from the first scope that needs one to the last.
//
// The key of a link names its sharers: the tenant for a shared server, the user or the session for the other isolations. Events of
// servers go to gate->events, which is set by a file above this one.
#include "auth/access/access.h"
#include "auth/access/identity_assertion.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/option_compare.h"
#include "connect/audit.h"
#include "connect/connect.h"
#include "gate/session/server_runtime.h"
#include "room.h"
#include <stdlib.h>

// The capabilities of the gateway towards a shared server. The gate answers for callers that do not support them.
const char link_capabilities[] = "{\"roots\":{\"listChanged\":true},\"sampling\":{\"context\":{},\"tools\":{}},"
                                 "\"elicitation\":{\"form\":{},\"url\":{}}}";

// The first user of a new link.
struct link_user {
    struct tenant *tenant;
    const struct identity *identity;
    struct session *session;  // NULL: none, for a server that all share
};

void link_put_key(const struct identity *who, const struct session *session, int isolation, struct buf *out)
{
    buf_printf(out, "%s/", who->tenant);
    if (isolation == SERVER_PER_USER) {
        char *user = grant_user(who);  // escapes slashes, so that provider and subject stay separate
        buf_printf(out, "user/%s", user);
        free(user);
    }
    if (isolation == SERVER_PER_SESSION)
        buf_printf(out, "session/%s", session->id);
}

static void on_refreshed(void *arg, const char *issuer, const struct err *err)
{
    const struct link *link = arg;
    connect_audit_put(link->gate->audit, &(struct connect_audit_record){.event = err ? CONNECT_EVENT_REFRESH_FAILED
                                                                                     : CONNECT_EVENT_REFRESHED,
                                                                        .tenant = link->tenant->name,
                                                                        .identity = link->user,
                                                                        .server = upstream_server(link->upstream),
                                                                        .issuer = issuer,
                                                                        .reason = err ? err_reason(err->code) : NULL});
}

static int64_t wait_for_issuer(void *arg, const char *issuer)
{
    const struct link *link = arg;
    struct connect *connect = link->gate->connect;
    return connect ? connect_limits_wait_for_issuer(connect, issuer) : 0;
}

// The access of the link: with the grants of this caller only, or the grants that the configuration gives to the tenant (H1, H13).
static struct access *link_access(struct link *link, const struct server *server, const struct identity *who)
{
    const struct gate *gate = link->gate;
    bool caller = access_options_takes_caller(&server->auth), own = server->auth.mode == ACCESS_USER || caller;
    bool proven = who->proof != IDENTITY_NONE && who->proof != IDENTITY_ANONYMOUS;
    char *user = own ? grant_user(who) : NULL;
    struct access_spec spec = {.loop = gate->loop,
                               .http = gate->http,
                               .store = own && !proven ? NULL : gate->grants,
                               .exchanged = caller && !link->owner ? gate->exchanged : NULL,
                               .mode = (enum access_mode)server->auth.mode,
                               .options = &server->auth,
                               .tenant = who->tenant,
                               .user = own ? user : ACCESS_SHARED_USER,
                               .server_url = server->url,
                               .probe = server_probe,
                               .server_name = server->name,
                               .issuers = gate->config->hosted.authorization_servers,
                               .on_refreshed = on_refreshed,
                               .wait_for_issuer = wait_for_issuer,
                               .arg = link};
    struct access *access = server->auth.mode == ACCESS_NONE ? NULL : access_new(&spec);
    free(user);
    return access;
}

static struct identity_assertion *link_assertion(const struct gate *gate, const struct server *server,
                                                 const struct identity *who)
{
    const struct assertion_options *options = &server->auth.assertion;
    if (!options->key_file)
        return NULL;
    struct identity_assertion_spec spec = {options, assertion_keys_find(gate->keys, options), gate->config->public_url,
                                           server->url, who};
    return identity_assertion_new(&spec);
}

static struct upstream *link_upstream(struct link *link, const struct server *server, const struct link_user *user)
{
    const struct gate *gate = link->gate;
    struct span declared = link->owner ? link->owner->capabilities : span_of(link_capabilities);
    struct upstream_spec spec = {gate->loop,
                                 gate->http,
                                 server,
                                 declared.len ? declared.at : "{}",
                                 (size_t)gate->config->limits.max_message,
                                 &gate->events->upstream,
                                 link,
                                 link->access = link_access(link, server, user->identity),
                                 link->assertion = link_assertion(gate, server, user->identity),
                                 gate->background,
                                 link->memory};
    return upstream_new(&spec);
}

static struct link *link_new(struct gate *gate, const struct server *server, const struct link_user *user)
{
    struct link *link = mem_new(struct link);
    bool shared = server->isolation == SERVER_SHARED;
    CHECK(shared || user->session);
    link->gate = gate;
    link->level = -1;
    link->owner = server->isolation == SERVER_PER_SESSION ? user->session : NULL;
    link->config = config_ref(gate->config);
    link->keys = assertion_keys_ref(gate->keys);
    link->tenant = tenant_ref(user->tenant);
    link->user = server->auth.mode == ACCESS_USER ? identity_ref(user->identity) : NULL;
    // Anonymous callers are indistinguishable, so their processes do not count for an identity.
    if (!shared && user->identity->proof != IDENTITY_ANONYMOUS)
        link->counted_for = identity_ref(user->identity);
    link->memory = budget_ref(shared ? user->tenant->memory : user->session->memory);
    if (link->owner) {
        budget_open(&link->declared, link->memory);
        budget_count(&link->declared, link->owner->capabilities.len);
    }
    list_init(&link->calls);
    list_init(&link->uses);
    list_init(&link->fan_outs);
    list_init(&link->task_calls);
    list_init(&link->early);
    link->upstream = link_upstream(link, server, user);
    link->source = source_new(gate->loop, link->upstream, gate->events->on_lists, link);
    return link;
}

static struct link *find_or_make(struct gate *gate, const struct server *server, const struct link_user *user)
{
    struct buf key = {0};
    buf_put_text(&key, server->name);
    buf_put_char(&key, '\0');
    link_put_key(user->identity, user->session, server->isolation, &key);
    struct link *link = map_find(&gate->links, buf_span(&key));
    if (!link) {
        link = link_new(gate, server, user);
        link->key_len = key.len;
        link->key = mem_copy(key.at, key.len);
        map_put(&gate->links, buf_span(&key), link);
        kept_begin(link, user->identity);
    }
    buf_release(&key);
    return link;
}

struct link *link_get(struct gate *gate, const struct server *server, struct session *session)
{
    struct link_user user = {session->tenant, session->identity, session};
    struct link *link = find_or_make(gate, server, &user);
    link->refs++;
    return link;
}

// Only for a server that all callers share: no caller needs it yet.
static void start_shared(struct tenant *tenant, const struct server *server)
{
    struct identity *no_user = identity_new(IDENTITY_NONE, tenant->name, "", "");
    struct link *link = find_or_make(tenant->gate, server, &(struct link_user){tenant, no_user, NULL});
    source_load(link->source);
    upstream_start(link->upstream);
    identity_unref(no_user);
}

static void start_eager(struct tenant *tenant)
{
    const struct server *servers = tenant->servers->at;
    for (size_t i = 0; i < tenant->servers->count; i++)
        if (servers[i].eager && server_runtime_enabled(tenant, &servers[i]))
            start_shared(tenant, &servers[i]);
}

void link_start_eager(struct gate *gate)
{
    tenant_each(node, gate)
        start_eager(tenant_at(node));
}

static void link_free(void *object)
{
    struct link *link = object;
    struct gate *gate = link->gate;
    process_ended(link);
    source_free(link->source);
    upstream_free(link->upstream);
    budget_close(&link->declared);
    budget_unref(link->memory);
    tenant_unref(link->tenant);
    access_free(link->access);
    identity_unref(link->user);
    identity_unref(link->roots_of);
    identity_unref(link->counted_for);
    identity_assertion_free(link->assertion);
    assertion_keys_unref(link->keys);
    map_release(&link->watched);
    void *value;
    for (size_t at = 0; map_next(&link->elicited, &at, NULL, &value);)
        free(value);
    map_release(&link->elicited);
    map_release(&link->asks);
    for (size_t at = 0; map_next(&link->task_tokens, &at, NULL, &value);)
        free(value);
    map_release(&link->task_tokens);
    map_release(&link->caller_tasks);
    map_release(&link->usage.callers);
    config_unref(link->config);
    free(link->key);
    free(link);
    gate->links_closing--;
    shutdown_settle(gate);
}

static void on_link_closed(void *arg, struct upstream *upstream)
{
    (void)upstream;
    struct link *link = arg;
    loop_reap(link->gate->loop, link, link_free);
}

// Removes the link from its scopes. Only a gate that closes down still has any.
static void leave_scopes(struct link *link)
{
    list_each(node, &link->uses) {
        struct scope_use *use = list_entry(node, struct scope_use, node);
        use->scope->links[use - use->scope->uses] = NULL;
        list_remove(node);
    }
}

void link_close(struct link *link, int64_t within_ms)
{
    struct gate *gate = link->gate;
    if (link->retired_until_ms)
        list_remove(&link->retired_node);
    else
        map_remove(&gate->links, span_make(link->key, link->key_len));
    link->owner = NULL;
    gate->events->on_close(link);
    kept_end(link);
    fan_out_drop_all(link);
    leave_scopes(link);
    list_remove(&link->level_node);
    gate->links_closing++;
    upstream_close(link->upstream, within_ms, on_link_closed, link);
}

void link_close_all(struct gate *gate, int64_t within_ms)
{
    void *value;
    for (size_t at = 0; map_next(&gate->links, &at, NULL, &value); at = 0)
        link_close(value, within_ms);
    while (!list_empty(&gate->retired))
        link_close(list_entry(gate->retired.next, struct link, retired_node), within_ms);
}

// ---- reload ---------------------------------------------------------------------------------

static bool texts_equal(const char *one, const char *other)
{
    return one && other ? strcmp(one, other) == 0 : one == other;
}

static bool lists_equal(char *const *one, char *const *other)
{
    for (; one && other && *one && *other; one++, other++)
        if (strcmp(*one, *other) != 0)
            return false;
    return (!one || !*one) == (!other || !*other);
}

// True if the settings that a link uses, other than those of its server, are equal in the new configuration.
static bool has_same_surroundings(const struct link *link)
{
    const struct config *began = link->config, *now = link->gate->config;
    return began->limits.max_message == now->limits.max_message && texts_equal(began->public_url, now->public_url) &&
           lists_equal(began->hosted.authorization_servers, now->hosted.authorization_servers);
}

static bool is_current(const struct link *link)
{
    const struct server *began = upstream_server(link->upstream);
    const struct server *now = server_find(link->tenant->servers, span_of(began->name));
    return list_linked(&link->tenant->node) && now && server_runtime_enabled(link->tenant, now) &&
           option_compare_equal(&server_options, began, now) && has_same_surroundings(link);
}

// A link that no scope has ends at once; the others end with their last scope.
static void retire(struct link *link)
{
    struct gate *gate = link->gate;
    int64_t within_ms = gate->config->timeouts.shutdown_ms;
    kept_retire(link);
    map_remove(&gate->links, span_make(link->key, link->key_len));
    link->retired_until_ms = loop_now(gate->loop) + within_ms;
    list_append(&gate->retired, &link->retired_node);
    if (!link->refs)  // no scope will end it
        link_close(link, within_ms);
}

void link_retire_stale(struct gate *gate)
{
    void *value;
    for (size_t at = 0; map_next(&gate->links, &at, NULL, &value);)
        if (!is_current(value))
            retire(value);
}

bool link_is_of(const struct link *link, const struct tenant *tenant, const char *server)
{
    return link->tenant == tenant && strcmp(upstream_server(link->upstream)->name, server) == 0;
}

void link_retire_server(const struct tenant *tenant, const char *server)
{
    void *value;
    for (size_t at = 0; map_next(&tenant->gate->links, &at, NULL, &value);)
        if (link_is_of(value, tenant, server))
            retire(value);
    kept_forget_server(tenant->gate, tenant->name, server_find(tenant->servers, span_of(server)));
}

void link_start_server(struct tenant *tenant, const char *server)
{
    const struct server *found = server_find(tenant->servers, span_of(server));
    if (found && found->isolation == SERVER_SHARED && server_runtime_enabled(tenant, found))
        start_shared(tenant, found);
}

// Ends the calls of a retired link. The link is freed with its last scope, and the scope with its last call.
static void break_off_calls(struct link *link)
{
    while (!list_empty(&link->calls))
        call_break_off(list_entry(link->calls.next, struct call, link_node), ERR_UNAVAILABLE,
                       "The server was restarted, removed or changed, and did not answer in time");
}

void link_sweep_retired(struct gate *gate)
{
    list_each(node, &gate->retired) {
        struct link *link = list_entry(node, struct link, retired_node);
        if (loop_now(gate->loop) < link->retired_until_ms || list_empty(&link->calls))
            continue;
        break_off_calls(link);
        return;  // it may have closed other links, too
    }
}

void link_recheck_all(struct gate *gate)
{
    void *value;
    for (size_t at = 0; map_next(&gate->links, &at, NULL, &value);) {
        struct link *link = value;
        kept_recheck(link);
        if (!link->access || !access_recheck(link->access))
            continue;
        upstream_restart(link->upstream);
        kept_forget_link(link);
    }
}
