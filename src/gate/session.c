// Owns caller sessions: opening, what the caller declared, their streams, and ending.
#include "base/log.h"
#include "base/mem.h"
#include "base/scan.h"
#include "base/secret.h"
#include "call.h"
#include "level.h"
#include <assert.h>
#include <stdlib.h>

#define FINISHED_MAX 32

static struct stream *make_stream(struct session *session, unsigned index)
{
    const struct config_limits *limits = &session->gate->config->limits;
    struct stream_limits bounds = {(size_t)limits->stream_buffer, (size_t)limits->replay_events, session->memory,
                                   session->identity};
    return stream_new(index, !session->pipe, &bounds);
}

// ---- how many there may be ------------------------------------------------------------------

// Callers whom nobody can tell apart share what there is.
bool session_room(const struct gate *gate, const struct identity *identity, struct err *err)
{
    const struct config_limits *limits = &gate->config->limits;
    const struct tenant *tenant = gate_tenant(gate, identity->tenant);
    size_t own = identity->proof == IDENTITY_ANONYMOUS ? 0 : tally_count(&gate->session_counts, identity);
    if ((int64_t)gate->sessions.count >= limits->sessions)
        return err_set(err, ERR_TOO_MANY, "%zu sessions are open", gate->sessions.count);
    if ((int64_t)tenant->session_count >= tenant->session_limit)
        return err_set(err, ERR_TOO_MANY, "%zu sessions of tenant \"%s\" are open", tenant->session_count,
                       tenant->name);
    if (own && (int64_t)own >= limits->identity_sessions)
        return err_set(err, ERR_TOO_MANY, "%zu sessions of this identity are open", own);
    return true;
}

// ---- opening, beginning, ending -------------------------------------------------------------

struct session *session_new(struct gate *gate, const struct identity *identity, bool pipe)
{
    unsigned char random[32];
    struct buf id = {0};
    struct session *session = mem_new(struct session);
    session->gate = gate;
    session->identity = identity_ref(identity);
    session->memory = memory_of(gate, identity);
    session->pipe = pipe;
    session->level = -1;
    session->used_ms = loop_now(gate->loop);
    secret_random(random, sizeof random);
    secret_encode(&id, span_make((const char *)random, sizeof random));
    memcpy(session->id, buf_text(&id), sizeof session->id);
    buf_release(&id);
    list_init(&session->streams);
    list_init(&session->calls);
    list_init(&session->unread);
    session->standalone = make_stream(session, session->next_stream++);
    map_put(&gate->sessions, span_of(session->id), session);
    tally_add(&gate->session_counts, identity);
    gate_tenant(gate, identity->tenant)->session_count++;
    return session;
}

struct session *session_find(struct gate *gate, struct span id)
{
    return id.len == SESSION_ID_LEN ? map_find(&gate->sessions, id) : NULL;
}

static struct session_abilities read_abilities(struct span capabilities)
{
    struct session_abilities can = {0};
    struct span part, inner;
    if (scan_find(capabilities, "roots", &part)) {
        can.roots = true;
        can.roots_changed = scan_find(part, "listChanged", &inner) && span_is(inner, "true");
    }
    if (scan_find(capabilities, "sampling", &part)) {
        can.sampling = true;
        can.sampling_tools = scan_find(part, "tools", &inner);
    }
    if (scan_find(capabilities, "elicitation", &part)) {
        can.elicit_url = scan_find(part, "url", &inner);
        can.elicit_form = scan_find(part, "form", &inner) || !can.elicit_url;
    }
    if (scan_find(capabilities, "tasks", &part)) {
        can.tasks = true;
        can.tasks_list = scan_find(part, "list", &inner);
        can.tasks_cancel = scan_find(part, "cancel", &inner);
    }
    return can;
}

void session_begin(struct session *session, enum revision revision, struct span capabilities)
{
    assert(session->state == SESSION_NEW);  // or it would be in its scope twice
    session->revision = revision;
    session->can = read_abilities(capabilities);
    session->state = SESSION_LIVE;
    session->scope = scope_get(session->gate, session, capabilities);
    list_append(&session->scope->sessions, &session->scope_node);
    roots_recheck(session);
}

static void session_free(void *object)
{
    struct session *session = object;
    identity_unref(session->identity);
    map_release(&session->asks);
    map_release(&session->subscribed);
    free(session->reach.known);
    free(session);
}

static struct call *open_call(const struct session *session)
{
    list_each(node, &session->calls) {
        struct call *call = list_entry(node, struct call, session_node);
        if (call_is_open(call))
            return call;
    }
    return NULL;
}

void session_end(struct session *session)
{
    if (session->state == SESSION_ENDED)
        return;
    session->state = SESSION_ENDED;
    session->call_count++;  // so that it is here until the end of this function
    map_remove(&session->gate->sessions, span_of(session->id));
    tally_drop(&session->gate->session_counts, session->identity);
    gate_tenant(session->gate, session->identity->tenant)->session_count--;
    for (struct call *call; (call = open_call(session));)
        call_break_off(call, ERR_UNKNOWN_SESSION, "The session ended");
    ask_drop_session(session);
    if (session->scope) {
        subscription_drop_session(session);
        fan_out_session_ends(session);
        list_remove(&session->scope_node);
        for (size_t i = 0; i < session->scope->link_count; i++)
            level_session_ends(session->scope->links[i], session);
        scope_release(session->scope);
        session->scope = NULL;
    }
    session->call_count--;
    session_settle(session);
}

// Calls whose rows are not written yet still have to be answered, on its streams.
void session_settle(struct session *session)
{
    if (session->state != SESSION_ENDED || session->call_count)
        return;
    list_each(node, &session->streams) {
        struct session_stream *kept = list_entry(node, struct session_stream, node);
        stream_end(kept->stream);
        stream_unref(kept->stream);
        free(kept);
    }
    list_init(&session->streams);
    stream_end(session->standalone);
    stream_unref(session->standalone);
    budget_unref(session->memory);
    session->memory = NULL;
    loop_reap(session->gate->loop, session, session_free);
}

struct stream *session_stream_new(struct session *session)
{
    struct session_stream *kept = mem_new(struct session_stream);
    kept->stream = make_stream(session, session->next_stream++);
    list_append(&session->streams, &kept->node);
    return kept->stream;
}

struct stream *session_stream_find(struct session *session, unsigned index)
{
    if (index == stream_index(session->standalone))
        return session->standalone;
    list_each(node, &session->streams) {
        struct session_stream *kept = list_entry(node, struct session_stream, node);
        if (stream_index(kept->stream) == index)
            return kept->stream;
    }
    return NULL;
}

static void drop_stream(struct session_stream *kept)
{
    list_remove(&kept->node);
    stream_unref(kept->stream);
    free(kept);
}

// Finished streams are kept for resumption, the newest first, within bounds of number and bytes.
static void trim_streams(struct session *session)
{
    size_t count = 0, bytes = 0;
    for (struct list *node = session->streams.prev, *before; node != &session->streams; node = before) {
        struct session_stream *kept = list_entry(node, struct session_stream, node);
        before = node->prev;
        bytes += stream_kept(kept->stream);
        if (kept->ended_ms && !stream_attached(kept->stream) &&
            (++count > FINISHED_MAX || bytes > (size_t)session->gate->config->limits.stream_buffer))
            drop_stream(kept);
    }
}

void session_stream_done(struct session *session, struct stream *stream)
{
    trim_streams(session);
    list_each(node, &session->streams) {
        struct session_stream *kept = list_entry(node, struct session_stream, node);
        if (kept->stream == stream)
            kept->ended_ms = loop_now(session->gate->loop);
    }
}

void session_sweep(struct session *session)
{
    struct gate *gate = session->gate;
    int64_t now = loop_now(gate->loop);
    list_each(node, &session->streams) {
        struct session_stream *kept = list_entry(node, struct session_stream, node);
        bool old = kept->ended_ms && now - kept->ended_ms > gate->config->timeouts.resume_ms;
        if (!old || stream_attached(kept->stream))
            continue;
        drop_stream(kept);
    }
    trim_streams(session);
    bool in_use = stream_attached(session->standalone) || !list_empty(&session->calls);
    if (in_use)
        session->used_ms = now;
    if (now - session->used_ms > gate->config->timeouts.session_idle_ms) {
        log_info("session ended: idle", LOG_STR("subject", session->identity->subject));
        session_end(session);
    }
}

void session_tell(struct session *session, struct blob *message)
{
    if (session->state == SESSION_ENDED || stream_ended(session->standalone))
        blob_unref(message);
    else
        stream_push(session->standalone, message);
}
