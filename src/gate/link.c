// Owns links (servers as the gate uses them) and scopes (the views sessions share).
//
// A scope's key says who may share it: the tenant when every server is shared, the user when one is per
// user, the session when one is per session. Links have keys of the same kind, each by its own isolation.
// Each profile has scopes of its own; the links behind them are the same.
#include "base/log.h"
#include "base/mem.h"
#include "base/scan.h"
#include "call.h"
#include "hosted.h"
#include "level.h"
#include <stdlib.h>

// What we declare to a server that serves everybody; callers that cannot are answered for.
static const char all_capabilities[] = "{\"roots\":{\"listChanged\":true},\"sampling\":{\"context\":{},\"tools\":{}},"
                                       "\"elicitation\":{\"form\":{},\"url\":{}}}";

static const struct server *server_named(const struct tenant *tenant, const char *name)
{
    const struct server *servers = tenant->servers->at;
    for (size_t i = 0; i < tenant->servers->count; i++)
        if (strcmp(servers[i].name, name) == 0)
            return &servers[i];
    return NULL;
}

// The servers that a session has: all of its tenant, or those of its profile in the profile's order. Returns how many.
static size_t select_servers(const struct tenant *tenant, const struct profile *profile, const struct server **out)
{
    const struct server *servers = tenant->servers->at, *server;
    size_t count = 0;
    if (!profile || !profile->servers) {
        for (size_t i = 0; i < tenant->servers->count; i++)
            if (!servers[i].disabled)
                out[count++] = &servers[i];
        return count;
    }
    for (char *const *name = profile->servers; *name; name++)
        if ((server = server_named(tenant, *name)) && !server->disabled)
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

static void put_key(const struct session *session, int isolation, struct buf *out)
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

// ---- links ----------------------------------------------------------------------------------

// Calls that wait for the lists of a scope with this link. What one of them sets off may end scopes and sessions.
static void wake_waiters(const struct link *link)
{
    struct list woken;
    list_init(&woken);
    list_each(node, &link->uses) {
        struct list *waiters = &list_entry(node, struct scope_use, node)->scope->waiters;
        while (!list_empty(waiters)) {
            struct list *waiter = waiters->next;
            list_remove(waiter);
            list_append(&woken, waiter);
        }
    }
    while (!list_empty(&woken))
        call_resume(list_entry(woken.next, struct call, wait_node));
}

// Nobody will see these, whatever the rules say.
static void warn_hidden(const struct link *link, const struct source *source, unsigned kinds)
{
    struct span first = {0};
    size_t count = 0;
    for (int kind = CATALOG_RESOURCES; kind <= CATALOG_TEMPLATES; kind++) {
        const struct source_item *items = source_items(source, (enum catalog_kind)kind);
        size_t all = kinds >> kind & 1 ? source_count(source, (enum catalog_kind)kind) : 0;
        for (size_t i = 0; i < all; i++) {
            struct policy_question item = {.kind = dispatch_policy_kind((enum catalog_kind)kind),
                                           .name = items[i].name};
            if (!policy_is_canonical(&item))
                first = count++ ? first : item.name;
        }
    }
    if (count)
        log_warn("resources hidden: their URIs are not canonical and the policy denies them",
                 LOG_STR("server", upstream_server(link->upstream)->name), LOG_INT("count", count),
                 LOG_SPAN("first", span_make(first.at, scan_cut(first, 200))));
}

static void on_source_change(void *arg, struct source *source, unsigned kinds)
{
    struct link *link = arg;
    if (kinds) {
        if (!policy_is_open(gate_tenant(link->gate, link->tenant)->policy))
            warn_hidden(link, source, kinds);
        list_each(node, &link->uses)
            view_dirty(list_entry(node, struct scope_use, node)->scope->view, kinds);
        relay_lists_changed(link, kinds);  // before those who wait for the lists get them: they need not hear of it
    }
    known_note(link);
    wake_waiters(link);
}

static void on_state(void *arg, struct upstream *upstream)
{
    struct link *link = arg;
    switch (upstream_state(upstream)) {
    case UPSTREAM_READY:
        link->level = -1;
        known_note(link);
        source_refresh(link->source);
        subscription_renew(link);
        level_push(link);
        break;
    case UPSTREAM_DOWN:
    case UPSTREAM_BACKOFF:
        process_ended(link);
        ask_drop_link(link);
        roots_forget(link);
        source_went_down(link->source);
        break;
    default: break;
    }
}

static void on_notification(void *arg, struct upstream *upstream, const struct message *message,
                            struct upstream_request *origin)
{
    (void)upstream;
    relay_notification(arg, message, origin);
}

static void on_request(void *arg, struct upstream *upstream, const struct message *message,
                       struct upstream_request *origin)
{
    (void)upstream;
    ask_start(arg, message, origin);
}

static bool may_start(void *arg, struct err *err) { return process_may_start(arg, err); }

const struct upstream_listener link_listener = {on_state, on_notification, on_request, may_start};

static void on_refreshed(void *arg, const char *issuer, const struct err *err)
{
    const struct link *link = arg;
    hosted_audit(link->gate, &(struct hosted_record){.event = err ? HOSTED_EVENT_NOT_REFRESHED : HOSTED_EVENT_REFRESHED,
                                                     .tenant = link->tenant,
                                                     .identity = link->user,
                                                     .server = upstream_server(link->upstream),
                                                     .issuer = issuer,
                                                     .reason = err ? err_reason(err->code) : NULL});
}

static int64_t wait_for_issuer(void *arg, const char *issuer)
{
    const struct link *link = arg;
    return hosted_wait_for_issuer(link->gate, issuer);
}

// Whose grants: those of the caller and nobody else's, or those that the configuration gives to all of the tenant (H1, H13).
static struct access *link_access(struct link *link, const struct server *server, const struct identity *who)
{
    const struct gate *gate = link->gate;
    bool caller = access_takes_caller(&server->auth), own = server->auth.mode == ACCESS_USER || caller;
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

static struct assertion *link_assertion(const struct gate *gate, const struct server *server,
                                        const struct identity *who)
{
    const struct assertion_options *options = &server->auth.assertion;
    if (!options->key_file)
        return NULL;
    struct assertion_spec spec = {options, assertion_keys_find(gate->keys, options), gate->config->public_url,
                                  server->url, who};
    return assertion_new(&spec);
}

static struct link *link_get(struct gate *gate, const struct server *server, struct session *session,
                             struct span capabilities)
{
    struct buf key = {0};
    buf_put_text(&key, server->name);
    buf_put_char(&key, '\0');
    put_key(session, server->isolation, &key);
    struct link *link = map_find(&gate->links, buf_span(&key));
    if (!link) {
        bool own = server->isolation == SERVER_PER_SESSION;
        char *declared = own ? mem_span(capabilities) : NULL;
        link = mem_new(struct link);
        link->gate = gate;
        link->level = -1;
        link->owner = own ? session : NULL;
        link->tenant = gate_tenant(gate, session->identity->tenant)->name;
        link->user = server->auth.mode == ACCESS_USER ? identity_ref(session->identity) : NULL;
        // Anonymous callers cannot be told apart, so their processes count for none of them.
        if (server->isolation != SERVER_SHARED && session->identity->proof != IDENTITY_ANONYMOUS)
            link->counted_for = identity_ref(session->identity);
        link->memory =
            budget_ref(server->isolation == SERVER_SHARED ? gate_tenant(gate, session->identity->tenant)->memory
                                                          : session->memory);
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
                                     &link_listener,
                                     link,
                                     link->access = link_access(link, server, session->identity),
                                     link->assertion = link_assertion(gate, server, session->identity),
                                     gate->background,
                                     link->memory};
        link->upstream = upstream_new(&spec);
        link->source = source_new(gate->loop, link->upstream, on_source_change, link);
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
    assertion_free(link->assertion);
    subscription_release_link(link);
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
    gate_settle(gate);
}

static void on_link_closed(void *arg, struct upstream *upstream)
{
    (void)upstream;
    struct link *link = arg;
    loop_reap(link->gate->loop, link, link_free);
}

static void link_close(struct link *link, int64_t within_ms)
{
    struct gate *gate = link->gate;
    map_remove(&gate->links, span_make(link->key, link->key_len));
    link->owner = NULL;
    ask_drop_link(link);
    task_news_drop(link);
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

// ---- scopes ---------------------------------------------------------------------------------

static struct scope *scope_new(struct gate *gate, struct session *session, const struct server *const *servers,
                               size_t count, struct span capabilities)
{
    const struct profile *profile = session->profile;
    struct view_naming naming = {gate->config->separator, profile ? profile->prefix : gate->config->prefix, profile};
    struct scope *scope = mem_new(struct scope);
    scope->gate = gate;
    scope->view = view_new(&naming);
    scope->everybody = isolation_of(servers, count) == SERVER_SHARED;
    scope->links = mem_alloc((count + 1) * sizeof(struct link *));
    scope->uses = mem_alloc((count + 1) * sizeof *scope->uses);
    list_init(&scope->sessions);
    list_init(&scope->waiters);
    for (size_t i = 0; i < count; i++) {
        struct link *link = link_get(gate, servers[i], session, capabilities);
        scope->uses[i] = (struct scope_use){.scope = scope};
        list_append(&link->uses, &scope->uses[i].node);
        scope->links[scope->link_count++] = link;
        view_add(scope->view, link->source);
    }
    return scope;
}

struct scope *scope_get(struct gate *gate, struct session *session, struct span capabilities)
{
    struct buf key = {0};
    const struct tenant *tenant = gate_tenant(gate, session->identity->tenant);
    const struct server **servers = mem_alloc((tenant->servers->count + 1) * sizeof *servers);
    size_t count = select_servers(tenant, session->profile, servers);
    buf_printf(&key, "%s/", session->profile ? session->profile->name : "");  // no '/' in it
    put_key(session, isolation_of(servers, count), &key);
    struct scope *scope = map_find(&gate->scopes, buf_span(&key));
    if (!scope) {
        scope = scope_new(gate, session, servers, count, capabilities);
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
    free(scope->links);
    free(scope->uses);
    free(scope->key);
    free(scope);
}

void scope_release(struct scope *scope)
{
    struct gate *gate = scope->gate;
    // The scope all of a tenant share stays: its servers stay warm for the next caller.
    if (--scope->refs || (scope->everybody && !gate->closing))
        return;
    map_remove(&gate->scopes, span_of(scope->key));
    for (size_t i = 0; i < scope->link_count; i++) {
        struct link *link = scope->links[i];
        bool everybody = upstream_server(link->upstream)->isolation == SERVER_SHARED;
        fan_out_use_ends(link, &scope->uses[i]);
        list_remove(&scope->uses[i].node);
        if (--link->refs == 0 && !everybody && !gate->closing)
            link_close(link, gate->config->timeouts.shutdown_ms);
    }
    loop_reap(gate->loop, scope, scope_free);
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
        // One that everybody shares learns nothing of a session by being started.
        bool everybody = upstream_server(link->upstream)->isolation == SERVER_SHARED;
        if ((own_too || !link->owner) && (everybody || reach_allowed(session, link)))
            source_load(link->source);
    }
}

void scope_look_again(const struct session *session)
{
    const struct scope *scope = session->scope;
    for (size_t i = 0; i < scope->link_count; i++)
        if (reach_allowed(session, scope->links[i]))
            source_look_again(scope->links[i]->source);
}

struct link *scope_link(const struct scope *scope, const struct source *source)
{
    for (size_t i = 0; i < scope->link_count; i++)
        if (scope->links[i]->source == source)
            return scope->links[i];
    return NULL;
}
