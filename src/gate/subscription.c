// Owns resource subscriptions: each caller's, counted for each server and URI, renewed after a restart.
#include "subscription.h"
#include "base/mem.h"
#include "base/scan.h"
#include "call.h"
#include "mcp/uri.h"
#include <stdlib.h>

static void tell_server(struct link *link, enum method method, struct span uri)
{
    struct buf params = {0};
    buf_put_text(&params, "{\"uri\":");
    scan_encode(uri, &params);
    buf_put_char(&params, '}');
    dispatch_unheard(link, method, buf_span(&params));
    buf_release(&params);
}

bool subscription_is_first(const struct link *link, struct span uri) { return !map_find(&link->watched, uri); }

void subscription_add(struct session *session, struct link *link, struct span exposed, struct span uri)
{
    if (map_find(&session->subscribed, exposed))
        return;
    struct subscription *subscription = mem_new(struct subscription);
    subscription->link = link;
    subscription->uri = mem_span(uri);
    map_put(&session->subscribed, exposed, subscription);
    map_put(&link->watched, uri, (void *)((size_t)map_find(&link->watched, uri) + 1));
}

void subscription_give_up(struct link *link, struct span uri)
{
    if (!map_find(&link->watched, uri) && upstream_state(link->upstream) == UPSTREAM_READY)
        tell_server(link, METHOD_RESOURCES_UNSUBSCRIBE, uri);
}

bool subscription_remove(struct session *session, struct span exposed)
{
    struct subscription *subscription = map_remove(&session->subscribed, exposed);
    if (!subscription)
        return false;
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
    return true;
}

void subscription_drop_session(struct session *session)
{
    struct span exposed;
    void *value;
    for (size_t at = 0; map_next(&session->subscribed, &at, &exposed, &value); at = 0) {
        char *copy = mem_span(exposed);
        subscription_remove(session, span_make(copy, exposed.len));
        free(copy);
    }
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
    struct policy *policy = gate_tenant(session->gate, session->identity->tenant)->policy;
    return policy_decide(policy, &question).verdict == VERDICT_ALLOW;
}

void subscription_recheck(struct session *session)
{
    void *value;
    struct span exposed;
    for (size_t at = 0; map_next(&session->subscribed, &at, &exposed, &value);) {
        const struct subscription *subscription = value;
        if (may_read(session, subscription->link, span_of(subscription->uri)))
            continue;
        char *copy = mem_span(exposed);
        subscription_remove(session, span_make(copy, exposed.len));
        free(copy);
        at = 0;
    }
}

void subscription_release_link(struct link *link) { map_release(&link->watched); }

// `updated` may name a part of what was subscribed to.
static bool covers(struct span subscribed, struct span updated)
{
    if (updated.len < subscribed.len || memcmp(updated.at, subscribed.at, subscribed.len) != 0)
        return false;
    bool folder = subscribed.len && subscribed.at[subscribed.len - 1] == '/';
    return updated.len == subscribed.len || folder || memchr("/?#", updated.at[subscribed.len], 3);
}

static bool any_covers(const struct link *link, struct span updated)
{
    struct span uri;
    void *value;
    for (size_t at = 0; map_next(&link->watched, &at, &uri, &value);)
        if (covers(uri, updated))
            return true;
    return false;
}

static bool wants(const struct session *session, const struct link *link, struct span updated, bool known)
{
    void *value;
    for (size_t at = 0; map_next(&session->subscribed, &at, NULL, &value);) {
        const struct subscription *subscription = value;
        if (subscription->link == link && (!known || covers(span_of(subscription->uri), updated)))
            return true;
    }
    return false;
}

void subscription_fan_out(struct link *link, const struct message *message)
{
    struct span raw;
    void *value;
    struct buf updated = {0};
    if (!scan_find(message->params, "uri", &raw) || !scan_is_string(raw))
        return;
    scan_decode(raw, &updated);
    bool known = any_covers(link, buf_span(&updated));
    for (size_t at = 0; map_next(&link->gate->sessions, &at, NULL, &value);) {
        struct session *session = value;
        if (!session->scope || !wants(session, link, buf_span(&updated), known) ||
            !may_read(session, link, buf_span(&updated)))
            continue;
        struct buf uri = {0}, params = {0}, text = {0};
        view_put_uri(session->scope->view, link->source, buf_span(&updated), &uri);
        buf_put_text(&params, "{\"uri\":");
        scan_encode(buf_span(&uri), &params);
        buf_put_char(&params, '}');
        message_put_notification(&text, method_text(METHOD_RESOURCE_UPDATED), buf_span(&params));
        session_tell(session, blob_take(&text));
        buf_release(&uri);
        buf_release(&params);
    }
    buf_release(&updated);
}
