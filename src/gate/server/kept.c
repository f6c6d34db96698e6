// Owns the entries of links in the catalogue cache: the lookup for a new link, refreshing in the background, saving and deleting.
//
// A link begins with a lookup, and callers wait until it has ended (source_await_kept). Restored lists count as loaded: the server is
// started only when a call needs it, or when the entry is older than catalogue.fresh and a caller has asked for the lists. At most
// RENEWALS servers are refreshed at a time.
//
// Nothing of one user reaches another: an entry of a server with isolation `user` is found by that user alone, and sealed with a
// key of the vault. Without a store of grants, lists of users are not saved. With isolation `session` no lists are. Where the server
// is used with a grant, the entry belongs to the login that it was fetched with: after a logout, or a login to another account, it
// is not used, even if another process deleted the grant; kept_recheck() deletes it then.
//
// A link is not saved after its entry was deleted, until its lists are fetched anew, nor after it was retired or another process
// replaced this one. Guarded by tests/e2e/servers/kept.test.mjs and tests/e2e/connect/kept-users.test.mjs.
#include "auth/access/access.h"
#include "auth/grant/vault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/option_compare.h"
#include "base/secret.h"
#include "room.h"
#include <stdlib.h>

#define RENEWALS 4
#define SAVE_PAUSE_MS 10000  // of one link, however often its lists change
#define RENEWAL_PAUSE_MS \
    10000  // before the next try, so that a server that does not start does not keep the others waiting
#define SPACE "catalogue"

static struct link *link_at(struct list *node) { return list_entry(node, struct link, kept.node); }

// ---- names ----------------------------------------------------------------------------------

static bool seal(const unsigned char *key, struct span name, struct span plain, struct buf *out)
{
    return vault_seal_with(key, (struct record_name){SPACE, name}, plain, out);
}

static bool unseal(const unsigned char *key, struct span name, struct span sealed, struct buf *out)
{
    return vault_unseal_with(key, (struct record_name){SPACE, name}, sealed, out);
}

// The key of an entry.
struct kept_name {
    struct buf configuration;
    struct catalogue_sealing sealing;
    struct catalogue_name name;
};

static void name_open(const struct gate *gate, const char *tenant, const struct server *server, const char *user,
                      struct kept_name *out)
{
    *out = (struct kept_name){.sealing = {seal, unseal, {0}}};
    if (gate->grants) {  // so that secrets of the configuration cannot be guessed from the file alone
        buf_put(&out->configuration, grant_store_key(gate->grants), VAULT_KEY_BYTES);
        secret_mac(grant_store_key(gate->grants), VAULT_KEY_BYTES, span_of(SPACE), out->sealing.key);
    }
    buf_put_text(&out->configuration, link_capabilities);
    option_compare_put(&server_options, server, &out->configuration);
    out->name = (struct catalogue_name){.tenant = tenant,
                                        .server = server->name,
                                        .user = user,
                                        .configuration = buf_span(&out->configuration),
                                        .sealing = user ? &out->sealing : NULL};
}

static void name_close(struct kept_name *name)
{
    secret_wipe(&name->sealing, sizeof name->sealing);
    buf_wipe(&name->configuration);
}

static void name_link(const struct link *link, struct kept_name *out)
{
    name_open(link->gate, link->tenant->name, upstream_server(link->upstream), link->kept.user, out);
}

// ---- finding --------------------------------------------------------------------------------

static bool is_kept(const struct link *link)
{
    const struct gate *gate = link->gate;
    return gate->catalogue && !link->kept.ended && !link->retired_until_ms &&
           upstream_server(link->upstream)->isolation != SERVER_PER_SESSION && (!link->kept.user || gate->grants);
}

// True if the lists depend on the account whose grant the link uses.
static bool is_bound(const struct link *link)
{
    int mode = upstream_server(link->upstream)->auth.mode;
    return mode == ACCESS_SHARED || mode == ACCESS_USER;
}

static void restore(struct link *link, struct span text)
{
    struct link_kept *kept = &link->kept;
    int64_t fresh_ms = link->gate->config->catalogue.fresh_ms;
    int64_t left_ms = kept->find.age_ms < fresh_ms ? fresh_ms - kept->find.age_ms : 0;
    kept->renew_at_ms = loop_now(link->gate->loop) + left_ms;
    if (source_restore(link->source, text))
        log_info("server restored from the catalogue cache", LOG_STR("server", upstream_server(link->upstream)->name),
                 LOG_INT("fresh_for_s", left_ms / 1000));
}

// The link does not save the forgotten lists, nor use them if it is looking them up. The next lists that are fetched are saved at
// once, even if they are the same.
static void reset(struct link *link)
{
    struct link_kept *kept = &link->kept;
    kept->unsaved = kept->saved = link->usage.unsaved = false;
    kept->save_after_ms = 0;
    kept->forgotten = kept->find.work != NULL;
}

void kept_forget_link(struct link *link)
{
    const char *server = upstream_server(link->upstream)->name;
    reset(link);
    if (is_kept(link))
        catalogue_forget_user(link->gate->catalogue, link->tenant->name, server, link->kept.user);
}

static void on_found(struct catalogue_find *find)
{
    struct link *link = find->arg;
    struct buf text = find->text;
    find->text = (struct buf){0};
    bool other_login = text.len && is_bound(link) && find->facts.login != link->kept.login;
    if (other_login)
        kept_forget_link(link);
    if (other_login || link->kept.forgotten)
        buf_clear(&text);
    if (text.len && !link->usage.interval_ms && find->facts.interval_ms > 0)
        link->usage.interval_ms = find->facts.interval_ms;
    restore(link, buf_span(&text));
    buf_wipe(&text);
}

static void look_up(struct link *link)
{
    struct kept_name name;
    name_link(link, &name);
    if (!catalogue_find_start(link->gate->catalogue, &name.name, &link->kept.find))
        restore(link, (struct span){0});
    name_close(&name);
}

static const struct grant *find_grant(const struct link *link)
{
    const struct grant_request *grants = &link->kept.grants;
    return grants->answer == GRANT_STORE_DONE
               ? access_pick(grants->grants, grants->count, upstream_server(link->upstream)->url)
               : NULL;
}

static int64_t login_of(const struct grant *grant) { return grant && !grant->is.dead_at ? grant->is.login : 0; }

// An entry is used only if the user's grant is from the same login.
static void on_grants(struct grant_request *request)
{
    struct link *link = request->arg;
    link->kept.login = login_of(find_grant(link));
    if (link->kept.login) {
        look_up(link);
        return;
    }
    kept_forget_link(link);
    restore(link, (struct span){0});
}

static void check_login(struct link *link, const struct grant *grant)
{
    if (login_of(grant) == link->kept.login)
        return;
    link->kept.login = 0;
    kept_forget_link(link);
}

static void on_checked(struct grant_request *request)
{
    if (request->answer == GRANT_STORE_DONE || request->answer == GRANT_STORE_ABSENT)
        check_login(request->arg, request->grant);
}

// Until the server is connected to, link->access has no token, and does not notice that its grant is gone.
void kept_recheck(struct link *link)
{
    struct link_kept *kept = &link->kept;
    bool wanted;
    const struct grant *began = kept->login ? find_grant(link) : NULL;
    if (!began || kept->check.work || !source_is_restored(link->source, &wanted))
        return;
    struct grant_key key = grant_key(began);
    const struct grant *now = grant_store_cached(link->gate->grants, &key);
    if (now)
        check_login(link, now);
    else
        grant_store_find(link->gate->grants, &key, &kept->check);
}

void kept_begin(struct link *link, const struct identity *who)
{
    struct link_kept *kept = &link->kept;
    if (upstream_server(link->upstream)->isolation == SERVER_PER_USER)
        kept->user = grant_user(who);
    if (!is_kept(link))
        return;
    kept->find = (struct catalogue_find){.done = on_found, .arg = link};
    kept->grants = (struct grant_request){.on_done = on_grants, .arg = link};
    kept->check = (struct grant_request){.on_done = on_checked, .arg = link};
    source_await_kept(link->source);
    if (!is_bound(link)) {
        look_up(link);
        return;
    }
    struct grant_filter filter = {link->tenant->name, kept->user ? kept->user : ACCESS_SHARED_USER, NULL};
    grant_store_list(link->gate->grants, &filter, &kept->grants);
}

// ---- saving and refreshing ------------------------------------------------------------------

void kept_note(struct link *link, unsigned kinds)
{
    bool wanted;
    if (!is_kept(link))
        return;
    link->kept.unsaved |= !source_is_restored(link->source, &wanted) && (kinds || !link->kept.saved);
    if (!list_linked(&link->kept.node))
        list_append(&link->gate->kept, &link->kept.node);
}

static void save(struct link *link)
{
    struct buf text = {.max = CATALOGUE_ENTRY_MAX};
    struct kept_name name;
    int64_t login = upstream_login(link->upstream);  // which the lists were fetched with
    bool known = login || !is_bound(link);
    if (link->gate->replaced || !known || !source_save(link->source, &text) || text.overflow) {
        buf_release(&text);
        return;
    }
    name_link(link, &name);
    struct catalogue_facts facts = {login, link->usage.interval_ms};
    link->kept.save_after_ms = loop_now(link->gate->loop) + SAVE_PAUSE_MS;
    if (catalogue_put(link->gate->catalogue, &name.name, &facts, &text)) {
        link->kept.saved = true;
        link->kept.unsaved = link->usage.unsaved = false;
        log_debug("server saved in the catalogue cache", LOG_STR("server", upstream_server(link->upstream)->name));
    }
    name_close(&name);
}

// Another interval alone does not bring back an entry that was deleted.
void kept_save(struct link *link)
{
    if (is_kept(link) && (link->kept.unsaved || (link->kept.saved && link->usage.unsaved)))
        save(link);
}

static bool is_due(const struct link *link)
{
    bool wanted;
    return source_is_restored(link->source, &wanted) && wanted && upstream_state(link->upstream) == UPSTREAM_DOWN &&
           loop_now(link->gate->loop) >= link->kept.renew_at_ms;
}

static struct link *find_due(const struct gate *gate)
{
    list_each(node, &gate->kept)
        if (is_due(link_at(node)))
            return link_at(node);
    return NULL;
}

static size_t count_busy(const struct gate *gate)
{
    size_t busy = 0;
    bool wanted;
    list_each(node, &gate->kept)
        busy += source_is_restored(link_at(node)->source, &wanted) && source_is_busy(link_at(node)->source);
    return busy;
}

void kept_sweep(struct gate *gate)
{
    bool wanted;
    list_each(node, &gate->kept) {
        struct link *link = link_at(node);
        if (link->kept.unsaved && loop_now(gate->loop) >= link->kept.save_after_ms)
            kept_save(link);
        if (!link->kept.unsaved && !source_is_restored(link->source, &wanted))
            list_remove(node);
    }
    struct link *due;
    for (size_t busy = count_busy(gate); busy < RENEWALS && (due = find_due(gate)); busy++) {
        due->kept.renew_at_ms = loop_now(gate->loop) + RENEWAL_PAUSE_MS;
        source_renew(due->source);  // which may close links
    }
}

// ---- forgetting -----------------------------------------------------------------------------

// Saves the lists now and not when the link ends, because by then the link in its place may have fetched newer ones.
void kept_retire(struct link *link)
{
    kept_save(link);
    list_remove(&link->kept.node);
}

void kept_hand_over(struct gate *gate)
{
    void *link;
    for (size_t at = 0; map_next(&gate->links, &at, NULL, &link);)
        kept_save(link);
    gate->replaced = true;
}

void kept_end(struct link *link)
{
    kept_save(link);
    link->kept.ended = true;  // the requests that fail now report the lists once more, which are not saved again
    list_remove(&link->kept.node);
    catalogue_find_cancel(&link->kept.find);
    grant_request_release(&link->kept.grants);
    grant_request_release(&link->kept.check);
    free(link->kept.user);
    link->kept.user = NULL;
}

void kept_forget_user(struct gate *gate, const struct identity *who, const char *server)
{
    if (!gate->catalogue)
        return;
    char *user = grant_user(who);
    void *value;
    for (size_t at = 0; map_next(&gate->links, &at, NULL, &value);) {
        struct link *link = value;
        if (link->kept.user && strcmp(link->kept.user, user) == 0 && strcmp(link->tenant->name, who->tenant) == 0 &&
            (!server || strcmp(upstream_server(link->upstream)->name, server) == 0))
            reset(link);
    }
    catalogue_forget_user(gate->catalogue, who->tenant, server, user);
    free(user);
}

void kept_forget_server(const struct gate *gate, const char *tenant, const struct server *server)
{
    struct kept_name name;
    if (!gate->catalogue)
        return;
    name_open(gate, tenant, server, NULL, &name);
    catalogue_forget_server(gate->catalogue, &name.name);
    name_close(&name);
}

static void forget_changed(const struct gate *gate, const char *tenant, const struct option_items *old,
                           const struct option_items *now)
{
    const struct server *servers = old->at;
    for (size_t i = 0; i < old->count; i++) {
        const struct server *same = now ? server_find(now, span_of(servers[i].name)) : NULL;
        if (!same || !option_compare_equal(&server_options, &servers[i], same))
            kept_forget_server(gate, tenant, &servers[i]);
    }
}

void kept_forget_changed(const struct gate *gate, const struct config *old)
{
    for (size_t i = 0; gate->catalogue && i <= old->tenants.count; i++) {
        const char *tenant = config_tenant_name(old, i);
        forget_changed(gate, tenant, config_tenant_servers(old, i), config_tenant_find(gate->config, tenant));
    }
}
