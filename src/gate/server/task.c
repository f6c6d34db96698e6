// Owns task ids (2025-11-25): seals them for one owner, finds their server, and remembers them for listing.
//
// Callers see an id as  server '.' base64url(MAC(owner, server, id)) '.' base64url(id) . No other caller can use it, and it
// works without stored state.
#include "base/mem.h"
#include "base/scan.h"
#include "base/secret.h"
#include "room.h"
#include <stdlib.h>

#define MAC_BYTES 12
#define TASKS_MAX 10000
#define TASK_TOKENS_MAX 1000
#define TASK_ID_MAX 8192  // a longer id is not remembered, because callers cannot send it (PARAMS_URI_MAX)

static const char *server_of(const struct link *link) { return upstream_server(link->upstream)->name; }

static void put_canonical(struct span link_key, struct span id, struct buf *out)
{
    buf_put_span(out, link_key);
    buf_put_char(out, '\0');
    buf_put_span(out, id);
}

static struct span key_of(const struct link *link) { return span_make(link->key, link->key_len); }

struct task_seal task_seal(const struct link *link, const struct identity *owner)
{
    return (struct task_seal){span_of(server_of(link)), key_of(link), link->gate->key, owner};
}

static void put_seal(const struct task_seal *seal, struct span id, struct buf *out)
{
    unsigned char mac[SECRET_MAC_BYTES];
    struct buf text = {0};
    put_canonical(seal->link_key, id, &text);
    buf_printf(&text, "%c%s%c%s%c%s", 0, seal->owner->tenant, 0, seal->owner->provider, 0, seal->owner->subject);
    secret_mac(seal->secret, GATE_KEY_BYTES, buf_span(&text), mac);
    secret_encode(out, span_make((const char *)mac, MAC_BYTES));
    buf_release(&text);
}

void task_wrap(const struct task_seal *seal, struct span id, struct buf *out)
{
    buf_put_span(out, seal->server);
    buf_put_char(out, '.');
    put_seal(seal, id, out);
    buf_put_char(out, '.');
    secret_encode(out, id);
}

static const char *last_dot(struct span text) { return text.len ? memrchr(text.at, '.', text.len) : NULL; }

struct link *task_unwrap(struct scope *scope, const struct identity *owner, struct span wrapped, struct buf *id)
{
    const char *second = last_dot(wrapped);
    const char *first = second ? last_dot(span_make(wrapped.at, (size_t)(second - wrapped.at))) : NULL;
    if (!first || !secret_decode(id, span_after(wrapped, (size_t)(second - wrapped.at) + 1)))
        return NULL;
    struct span server = span_make(wrapped.at, (size_t)(first - wrapped.at));
    struct span given = span_make(first + 1, (size_t)(second - first - 1));
    for (size_t i = 0; i < scope->link_count; i++) {
        if (!span_is(server, server_of(scope->links[i])))
            continue;
        struct buf mac = {0};
        struct task_seal seal = task_seal(scope->links[i], owner);
        put_seal(&seal, buf_span(id), &mac);
        bool ok = mac.len == given.len && secret_equal(mac.at, given.at, given.len);
        buf_release(&mac);
        return ok ? scope->links[i] : NULL;
    }
    return NULL;
}

static void owner_free(struct task_owner *owner)
{
    if (owner)
        identity_unref(owner->identity);
    free(owner);
}

static void remember(struct link *link, const struct session *session, struct span id)
{
    struct buf key = {0};
    if (id.len > PARAMS_TOKEN_MAX)
        return;
    struct task_owner *owner = mem_new(struct task_owner);
    owner->identity = identity_ref(session->identity);
    memcpy(owner->session, session->id, sizeof owner->session);
    if (link->gate->tasks.count >= TASKS_MAX)
        owner_free(map_take_one(&link->gate->tasks));  // the id still works, but is no longer listed
    put_canonical(key_of(link), id, &key);
    owner_free(map_put(&link->gate->tasks, buf_span(&key), owner));
    buf_release(&key);
}

static const struct task_owner *owner_of(const struct link *link, struct span id)
{
    struct buf key = {0};
    put_canonical(key_of(link), id, &key);
    const struct task_owner *owner = map_find(&link->gate->tasks, buf_span(&key));
    buf_release(&key);
    return owner;
}

bool task_known(const struct link *link, struct span id) { return owner_of(link, id) != NULL; }

bool task_related(const struct link *link, struct span params, struct buf *out)
{
    struct span meta, related, raw;
    if (!upstream_abilities(link->upstream)->tasks || !scan_find(params, "_meta", &meta) ||
        !scan_find(meta, PARAMS_RELATED, &related) || !scan_find(related, "taskId", &raw) || !scan_is_string(raw))
        return false;
    scan_decode(raw, out);
    return true;
}

bool task_owned(const struct link *link, const struct session *session, struct span id)
{
    const struct task_owner *owner = owner_of(link, id);
    if (!owner || !identity_same(owner->identity, session->identity))
        return false;
    return session->identity->proof != IDENTITY_ANONYMOUS || strcmp(owner->session, session->id) == 0;
}

void task_release_all(struct gate *gate)
{
    void *value;
    for (size_t at = 0; map_next(&gate->tasks, &at, NULL, &value);)
        owner_free(value);
    map_release(&gate->tasks);
}

void task_note_made(struct call *call, struct span raw_id)
{
    struct buf id = {0};
    if (call->method != METHOD_TOOLS_CALL || raw_id.len > TASK_ID_MAX)
        return;
    scan_decode(raw_id, &id);
    remember(call->link, call->session, buf_span(&id));
    call->task.id = arena_span(&call->arena, buf_span(&id));
    buf_release(&id);
    if (!call->progress_token.at)
        return;
    if (call->link->task_tokens.count >= TASK_TOKENS_MAX)
        free(map_take_one(&call->link->task_tokens));
    struct task_token *wanted = mem_alloc(sizeof *wanted + call->progress_token.len + 1);
    memcpy(wanted->session, call->session->id, sizeof wanted->session);
    memcpy(wanted->token, call->progress_token.at, call->progress_token.len);
    struct buf token = {0};
    buf_put_int(&token, (int64_t)call->request.id);
    free(map_put(&call->link->task_tokens, buf_span(&token), wanted));
    buf_release(&token);
}
