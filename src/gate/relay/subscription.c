// Owns resource subscriptions of callers: counted for each server and URI, and renewed after a restart of the server.
#include "base/mem.h"
#include "base/scan.h"
#include "mcp/uri.h"
#include "room.h"
#include <stdlib.h>

static void tell_server(struct link *link, enum method method, struct span uri)
{
    struct buf params = {0};
    buf_put_text(&params, "{\"uri\":");
    scan_encode(uri, &params);
    buf_put_char(&params, '}');
    outgoing_unheard(link, method, buf_span(&params));
    buf_release(&params);
}

// Puts the key of session->subscribed. The key of a URI begins with the key of every URI that covers it.
static void put_key(const struct link *link, struct span uri, struct buf *out)
{
    buf_put(out, (const char *)&link, sizeof(struct link *));
    buf_put_span(out, uri);
}

bool subscription_is_first(const struct link *link, struct span uri) { return !map_find(&link->watched, uri); }

void subscription_add(struct session *session, struct link *link, struct span uri)
{
    struct buf key = {0};
    put_key(link, uri, &key);
    if (!map_find(&session->subscribed, buf_span(&key))) {
        struct subscription *subscription = mem_new(struct subscription);
        subscription->link = link;
        subscription->uri = mem_span(uri);
        map_put(&session->subscribed, buf_span(&key), subscription);
        map_put(&link->watched, uri, (void *)((size_t)map_find(&link->watched, uri) + 1));
    }
    buf_release(&key);
}

void subscription_give_up(struct link *link, struct span uri)
{
    if (!map_find(&link->watched, uri) && upstream_state(link->upstream) == UPSTREAM_READY)
        tell_server(link, METHOD_RESOURCES_UNSUBSCRIBE, uri);
}

// Removes a subscription from the session. The position of map_next() stays valid.
static void end(struct session *session, struct span key)
{
    struct subscription *subscription = map_remove(&session->subscribed, key);
    if (!subscription)
        return;
    struct link *link = subscription->link;
    struct span uri = span_of(subscription->uri);
    size_t left = (size_t)map_find(&link->watched, uri) - 1;
    if (left) {
        map_put(&link->watched, uri, (void *)left);
    } else {
        map_remove(&link->watched, uri);
        subscription_give_up(link, uri);
    }
    free(subscription->uri);
    free(subscription);
}

// The link of the session's scope to the same server. NULL: the server was removed. They differ if the call that names the link began
// before a reload or a restart: its link ends with it.
static struct link *find_successor(const struct session *session, const struct link *link)
{
    const char *name = upstream_server(link->upstream)->name;
    for (size_t i = 0; i < session->scope->link_count; i++) {
        struct link *other = session->scope->links[i];
        if (other == link || strcmp(upstream_server(other->upstream)->name, name) == 0)
            return other;
    }
    return NULL;
}

// The server is asked now, unless another session has subscribed to the URI already, or when it is ready.
static void add_to_successor(struct session *session, struct link *link, struct span uri)
{
    bool first = subscription_is_first(link, uri);
    subscription_add(session, link, uri);
    if (first && upstream_state(link->upstream) == UPSTREAM_READY)
        tell_server(link, METHOD_RESOURCES_SUBSCRIBE, uri);
    upstream_start(link->upstream);
}

void subscription_begin(struct session *session, struct link *link, struct span uri)
{
    struct link *successor = find_successor(session, link);
    if (successor == link)
        subscription_add(session, link, uri);
    else if (successor)
        add_to_successor(session, successor, uri);
}

void subscription_remove(struct session *session, struct link *link, struct span uri)
{
    struct link *successor = find_successor(session, link);
    struct buf key = {0};
    if (!successor)
        return;
    put_key(successor, uri, &key);
    end(session, buf_span(&key));
    buf_release(&key);
}

void subscription_drop_session(struct session *session)
{
    struct span key;
    void *value;
    for (size_t at = 0; map_next(&session->subscribed, &at, &key, &value);)
        end(session, key);
}

struct moving {
    struct link *to;
    char *uri;
};

// Moved subscriptions are added after the walk, because nothing may be put into the map during it.
void subscription_move(struct session *session)
{
    struct span key;
    void *value;
    struct moving *moving = mem_alloc((session->subscribed.count + 1) * sizeof *moving);
    size_t count = 0;
    for (size_t at = 0; map_next(&session->subscribed, &at, &key, &value);) {
        const struct subscription *subscription = value;
        struct link *successor = find_successor(session, subscription->link);
        if (successor == subscription->link)
            continue;
        if (successor)
            moving[count++] = (struct moving){successor, mem_string(subscription->uri)};
        end(session, key);
    }
    for (size_t i = 0; i < count; i++) {
        add_to_successor(session, moving[i].to, span_of(moving[i].uri));
        free(moving[i].uri);
    }
    free(moving);
}

void subscription_renew(struct link *link)
{
    struct span uri;
    void *value;
    for (size_t at = 0; map_next(&link->watched, &at, &uri, &value);)
        tell_server(link, METHOD_RESOURCES_SUBSCRIBE, uri);
}

static bool may_read(const struct session *session, const struct link *link, struct span uri)
{
    struct policy_question question = {session->identity, upstream_server(link->upstream)->name, POLICY_RESOURCE, uri,
                                       NULL};
    return policy_decide(session->tenant->memo, &question).verdict == VERDICT_ALLOW;
}

void subscription_recheck(struct session *session)
{
    void *value;
    struct span key;
    for (size_t at = 0; map_next(&session->subscribed, &at, &key, &value);) {
        const struct subscription *subscription = value;
        if (!may_read(session, subscription->link, span_of(subscription->uri)))
            end(session, key);
    }
}

// ---- updates --------------------------------------------------------------------------------

#define PARTS_MAX 256  // of a URI: deeper than this, only a subscription to the URI itself covers it

// True if one of the keys covers this one, whose first `fixed` bytes precede the URI. A key is covered by itself, and by its
// prefixes that end before or after a slash, or before a query or a fragment.
static bool any_covers(const struct map *keys, struct span key, size_t fixed)
{
    if (!keys->count)
        return false;
    if (map_find(keys, key))
        return true;
    int parts = 0;
    for (size_t i = fixed + 1; i < key.len && parts < PARTS_MAX; i++)
        if (memchr("/?#", key.at[i], 3) || key.at[i - 1] == '/') {
            parts++;
            if (map_find(keys, span_make(key.at, i)))
                return true;
        }
    return false;
}

static bool wants(const struct fan_out *news, const struct session *session)
{
    void *value;
    if (news->known)
        return any_covers(&session->subscribed, buf_span(&news->key), sizeof(struct link *));
    for (size_t at = 0; map_next(&session->subscribed, &at, NULL, &value);)
        if (((const struct subscription *)value)->link == news->link)
            return true;
    return false;
}

static bool tell_update(struct fan_out *news, struct session *session)
{
    struct span updated = span_after(buf_span(&news->key), sizeof(struct link *));
    if (!wants(news, session) || !may_read(session, news->link, updated))
        return false;
    if (!news->texts[0])
        news->texts[0] = notice_text(session, news->link, METHOD_RESOURCE_UPDATED, news->params, (struct span){0});
    session_tell(session, blob_ref(news->texts[0]));
    return true;
}

// An update of a URI without a subscription goes to all subscribers of the server, because the server may spell its URIs in several
// ways.
void subscription_fan_out(struct link *link, const struct message *message)
{
    struct span raw;
    struct buf updated = {0};
    if (!link->watched.count || !scan_find(message->params, "uri", &raw) || !scan_is_string(raw) ||
        raw.len > PARAMS_URI_MAX)
        return;
    scan_decode(raw, &updated);
    struct fan_out news = {.link = link, .tell = tell_update, .params = message->params};
    news.known = any_covers(&link->watched, buf_span(&updated), 0);
    put_key(link, buf_span(&updated), &news.key);
    buf_release(&updated);
    fan_out_start(&news);
}
