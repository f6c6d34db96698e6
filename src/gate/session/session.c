// Owns the sessions of callers as objects: their number, lookup and streams. Their begin and end are in session_life.c.
#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/scan.h"
#include "base/secret.h"
#include "room.h"
#include <inttypes.h>
#include <stdlib.h>

#define FINISHED_MAX 32

static struct stream *make_stream(struct session *session, unsigned index)
{
    const struct config_limits *limits = &session->gate->config->limits;
    struct stream_limits bounds = {(size_t)limits->stream_buffer, (size_t)limits->replay_events, session->memory,
                                   session->identity};
    return stream_new(index, !session->pipe, &bounds);
}

// ---- limits ---------------------------------------------------------------------------------

// Anonymous callers are indistinguishable, so limits.identity_sessions does not apply to them.
bool session_may_open(const struct gate *gate, const struct tenant *tenant, const struct identity *identity,
                      struct err *err)
{
    const struct config_limits *limits = &gate->config->limits;
    size_t own = identity->proof == IDENTITY_ANONYMOUS ? 0 : tally_count(&gate->session_counts, identity);
    if ((int64_t)gate->sessions.count >= limits->sessions)
        return err_set(err, ERR_TOO_MANY, "%zu sessions are open (limits.sessions = %" PRId64 ")", gate->sessions.count,
                       limits->sessions);
    if ((int64_t)tenant->session_count >= tenant->session_limit)
        return err_set(err, ERR_TOO_MANY, "%zu sessions of tenant \"%s\" are open (its limits.sessions = %" PRId64 ")",
                       tenant->session_count, tenant->name, tenant->session_limit);
    if (own && (int64_t)own >= limits->identity_sessions)
        return err_set(err, ERR_TOO_MANY,
                       "%zu sessions of this identity are open (limits.identity_sessions = %" PRId64 ")", own,
                       limits->identity_sessions);
    return true;
}

// ---- opening and freeing --------------------------------------------------------------------

struct session *session_new(struct gate *gate, struct tenant *tenant, const struct identity *identity, bool pipe)
{
    struct session *session = mem_new(struct session);
    session->gate = gate;
    session->identity = identity_ref(identity);
    session->tenant = tenant_ref(tenant);
    session->memory = memory_of(gate, tenant, identity);
    session->pipe = pipe;
    session->level = -1;
    session->used_ms = loop_now(gate->loop);
    secret_random_text(session->id, SESSION_ID_BYTES);
    list_init(&session->streams);
    list_init(&session->calls);
    list_init(&session->unread);
    session->standalone = make_stream(session, session->next_stream++);
    map_put(&gate->sessions, span_of(session->id), session);
    tally_add(&gate->session_counts, identity);
    session->tenant->session_count++;
    return session;
}

struct session *session_find(struct gate *gate, struct span id)
{
    return id.len == SESSION_ID_LEN ? map_find(&gate->sessions, id) : NULL;
}

#define TO(state) (1U << SESSION_##state)

static const unsigned allowed[] = {
    [SESSION_NEW] = TO(LIVE) | TO(ENDED),
    [SESSION_LIVE] = TO(READY) | TO(ENDED),
    [SESSION_READY] = TO(ENDED),
    [SESSION_ENDED] = 0,
};

void session_set_state(struct session *session, enum session_state state)
{
    CHECK(allowed[session->state] & (1U << state));
    session->state = state;
}

static void session_free(void *object)
{
    struct session *session = object;
    identity_unref(session->identity);
    tenant_unref(session->tenant);
    map_release(&session->asks);
    map_release(&session->subscribed);
    free(session->visibility.known);
    free((char *)(uintptr_t)session->capabilities.at);
    free(session);
}

// A call that waits for its audit row must still be answered on a stream of the session.
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
    budget_close(&session->declared);
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

// Drops the oldest finished streams beyond the bounds of number and bytes; the others are kept for resumption.
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

void session_tell(struct session *session, struct blob *message)
{
    if (session->state == SESSION_ENDED || stream_ended(session->standalone))
        blob_unref(message);
    else
        stream_push(session->standalone, message);
}

void session_sweep_streams(struct session *session)
{
    int64_t now = loop_now(session->gate->loop);
    list_each(node, &session->streams) {
        struct session_stream *kept = list_entry(node, struct session_stream, node);
        bool old = kept->ended_ms && now - kept->ended_ms > session->gate->config->timeouts.resume_ms;
        if (!old || stream_attached(kept->stream))
            continue;
        drop_stream(kept);
    }
    trim_streams(session);
}
