// Owns the table of exchanged tokens, by (tenant, user, issuer, resource). A full table drops the least recently used
// one.
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "exchanged_tokens_use.h"
#include <stdlib.h>

#define ROOM 4096

struct kept {
    struct list node;
    const struct grant *grant;
    struct buf key;
};

struct exchanged_tokens {
    struct map map;
    struct list used;  // the least recently used first
};

struct exchanged_tokens *exchanged_tokens_new(void)
{
    struct exchanged_tokens *exchanged = mem_new(struct exchanged_tokens);
    list_init(&exchanged->used);
    return exchanged;
}

static void forget(struct exchanged_tokens *exchanged, struct kept *kept)
{
    (void)map_remove(&exchanged->map, buf_span(&kept->key));
    list_remove(&kept->node);
    grant_unref(kept->grant);
    buf_release(&kept->key);
    free(kept);
}

void exchanged_tokens_free(struct exchanged_tokens *exchanged)
{
    if (!exchanged)
        return;
    while (!list_empty(&exchanged->used))
        forget(exchanged, list_entry(exchanged->used.next, struct kept, node));
    map_release(&exchanged->map);
    free(exchanged);
}

static bool same_text(const char *a, const char *b) { return strcmp(a ? a : "", b ? b : "") == 0; }

// Two servers of one tenant may have the same URL, but different clients or scopes.
static bool fits(const struct grant *grant, const struct grant_key *owner, const char *server_url,
                 const struct access_options *options)
{
    struct grant *one = grant_ref(grant);
    bool covers = access_pick(&one, 1, server_url) != NULL;
    grant_unref(grant);
    return covers && same_text(grant->tenant, owner->tenant) && same_text(grant->user, owner->user) &&
           same_text(grant->is.client_id, options->client_id) &&
           (!options->scope || same_text(grant->is.scope_asked, options->scope)) &&
           (!options->issuer || oauth_issuer_matches(options->issuer, grant->issuer));
}

const struct grant *exchanged_tokens_find(struct exchanged_tokens *exchanged, const struct grant_key *owner,
                                          const char *server_url, const struct access_options *options, int64_t now)
{
    list_each(node, &exchanged->used) {
        struct kept *kept = list_entry(node, struct kept, node);
        if (!grant_fresh(kept->grant, now, 0)) {
            forget(exchanged, kept);
        } else if (fits(kept->grant, owner, server_url, options)) {
            list_remove(&kept->node);
            list_append(&exchanged->used, &kept->node);
            return kept->grant;
        }
    }
    return NULL;
}

void exchanged_tokens_drop(struct exchanged_tokens *exchanged, const struct grant *grant)
{
    struct grant_key name = grant_key(grant);
    struct buf key = {0};
    grant_key_encode(&name, &key);
    struct kept *kept = map_find(&exchanged->map, buf_span(&key));
    if (kept && kept->grant == grant)
        forget(exchanged, kept);
    buf_release(&key);
}

void exchanged_tokens_put(struct exchanged_tokens *exchanged, const struct grant *grant)
{
    struct grant_key name = grant_key(grant);
    struct kept *kept = mem_new(struct kept), *old;
    kept->grant = grant_ref(grant);
    grant_key_encode(&name, &kept->key);
    if ((old = map_find(&exchanged->map, buf_span(&kept->key))))
        forget(exchanged, old);
    else if (exchanged->map.count >= ROOM)
        forget(exchanged, list_entry(exchanged->used.next, struct kept, node));
    list_append(&exchanged->used, &kept->node);
    (void)map_put(&exchanged->map, buf_span(&kept->key), kept);
}
