// Owns links: servers as the gate uses them, from the first scope that needs one to the last.
//
// A link's key says who shares it: the tenant when its server is shared, the user when it is per user, the session when it is
// per session. What servers say on their own goes to gate->events, which the files above give.
#include "auth/access/access.h"
#include "auth/access/identity_assertion.h"
#include "base/mem.h"
#include "connect/audit.h"
#include "connect/connect.h"
#include "room.h"
#include <stdlib.h>

// What we declare to a server that serves everybody; callers that cannot are answered for.
static const char all_capabilities[] = "{\"roots\":{\"listChanged\":true},\"sampling\":{\"context\":{},\"tools\":{}},"
                                       "\"elicitation\":{\"form\":{},\"url\":{}}}";

void link_put_key(const struct session *session, int isolation, struct buf *out)
{
    const struct identity *who = session->identity;
    buf_printf(out, "%s/", who->tenant);
    if (isolation == SERVER_PER_USER) {
        char *user = grant_user(who);  // a slash in an issuer's URL is none between it and a subject
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

// Whose grants: those of the caller and nobody else's, or those that the configuration gives to all of the tenant (H1, H13).
static struct access *link_access(struct link *link, const struct server *server, const struct identity *who)
{
    const struct gate *gate = link->gate;
    bool caller = access_options_takes_caller(&server->auth), own = server->auth.mode == ACCESS_USER || caller;
    bool proven = who->proof != IDENTITY_NONE && who->proof != IDENTITY_ANONYMOUS;
    char *user = own ? grant_user(who) : NULL;
    struct access_spec spec = {.loop = gate->loop,
                               .http = gate->http,
                               .store = own && !proven ? NULL : gate->tokens,
                               .exchanged = caller && !link->owner ? gate->exchanged : NULL,
                               .mode = (enum access_mode)server->auth.mode,
                               .options = &server->auth,
                               .tenant = who->tenant,
                               .user = own ? user : ACCESS_SHARED_USER,
                               .server_url = server->url,
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

struct link *link_get(struct gate *gate, const struct server *server, struct session *session, struct span capabilities)
{
    struct buf key = {0};
    buf_put_text(&key, server->name);
    buf_put_char(&key, '\0');
    link_put_key(session, server->isolation, &key);
    struct link *link = map_find(&gate->links, buf_span(&key));
    if (!link) {
        bool own = server->isolation == SERVER_PER_SESSION;
        char *declared = own ? mem_span(capabilities) : NULL;
        link = mem_new(struct link);
        link->gate = gate;
        link->level = -1;
        link->owner = own ? session : NULL;
        link->tenant = session->tenant;
        link->user = server->auth.mode == ACCESS_USER ? identity_ref(session->identity) : NULL;
        // Anonymous callers cannot be told apart, so their processes count for none of them.
        if (server->isolation != SERVER_SHARED && session->identity->proof != IDENTITY_ANONYMOUS)
            link->counted_for = identity_ref(session->identity);
        link->memory = budget_ref(server->isolation == SERVER_SHARED ? session->tenant->memory : session->memory);
        if (own) {
            budget_open(&link->declared, link->memory);
            budget_count(&link->declared, capabilities.len);
        }
        list_init(&link->calls);
        list_init(&link->uses);
        list_init(&link->fan_outs);
        list_init(&link->task_calls);
        list_init(&link->early);
        struct upstream_spec spec = {gate->loop,
                                     gate->http,
                                     server,
                                     own ? declared : all_capabilities,
                                     (size_t)gate->config->limits.max_message,
                                     &gate->events->upstream,
                                     link,
                                     link->access = link_access(link, server, session->identity),
                                     link->assertion = link_assertion(gate, server, session->identity),
                                     gate->background,
                                     link->memory};
        link->upstream = upstream_new(&spec);
        link->source = source_new(gate->loop, link->upstream, gate->events->on_lists, link);
        link->key_len = key.len;
        link->key = mem_copy(key.at, key.len);
        map_put(&gate->links, buf_span(&key), link);
        free(declared);
    }
    link->refs++;
    buf_release(&key);
    return link;
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
    access_free(link->access);
    identity_unref(link->user);
    identity_unref(link->roots_of);
    identity_unref(link->counted_for);
    identity_assertion_free(link->assertion);
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

void link_close(struct link *link, int64_t within_ms)
{
    struct gate *gate = link->gate;
    map_remove(&gate->links, span_make(link->key, link->key_len));
    link->owner = NULL;
    gate->events->on_close(link);
    fan_out_drop_all(link);
    list_remove(&link->level_node);
    gate->links_closing++;
    upstream_close(link->upstream, within_ms, on_link_closed, link);
}

void link_close_all(struct gate *gate, int64_t within_ms)
{
    void *value;
    for (size_t at = 0; map_next(&gate->links, &at, NULL, &value); at = 0)
        link_close(value, within_ms);
}

void link_recheck_all(struct gate *gate)
{
    void *value;
    for (size_t at = 0; map_next(&gate->links, &at, NULL, &value);) {
        struct link *link = value;
        if (link->access && access_recheck(link->access))
            upstream_restart(link->upstream);
    }
}
