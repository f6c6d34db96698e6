// Owns the phase `session`: finds or opens the session of a call, and checks that its message is allowed in that state.
//
// The revision is checked before the session is looked up, so that a caller of a newer protocol gets the list of supported versions.
// A large message is read here, after its caller was authenticated (reading.c). A batch is split here (batch.c).
#include "base/check.h"
#include "base/scan.h"
#include "batch.h"
#include "phase.h"
#include "reading.h"

#define VERSION_SHOWN 40  // bytes

static enum phase_result open_session(struct call *call)
{
    struct gate *gate = call->gate;
    struct span name = call->profile_name;
    const struct profile *profile = name.at ? profile_find(call->tenant->profiles, name) : NULL;
    if (!list_linked(&call->tenant->node))  // by a reload, while the message was read
        return call_fail(call, ERR_UNAUTHENTICATED, "the tenant was removed");
    if (name.at && !profile)  // by a reload, after `authenticate` had found it
        return call_fail(call, ERR_NO_PROFILE, "the profile was removed");
    if (!session_may_open(gate, call->tenant, call->identity, &call->err))
        return PHASE_FAIL;
    call->new_session = true;
    call_join_session(call, session_new(gate, call->tenant, call->identity, call->op == ARRIVAL_PIPE));
    call->session->profile = profile;
    return memory_hold_call(call) ? PHASE_NEXT : PHASE_FAIL;
}

// A caller that sends requests without reading the answers would make the gateway keep all of them. On stdio it harms only itself.
static bool reads_too_little(const struct call *call, const struct session *on)
{
    bool asks = call->op == ARRIVAL_MESSAGE && call->message.kind != MESSAGE_NOTIFICATION &&
                call->message.kind != MESSAGE_RESULT && call->message.kind != MESSAGE_ERROR;
    return asks && call->pipe && call->credentials.peer &&
           stream_unread(on->standalone) > (size_t)call->gate->config->limits.stream_buffer;
}

static bool is_in_profile(const struct session *session, struct span name)
{
    return session->profile ? name.at && span_is(name, session->profile->name) : !name.at;
}

static enum phase_result find_session(struct call *call)
{
    struct session *found = session_find(call->gate, call->session_id);
    if (!found && call->gate->state == GATE_CLOSED_DOWN)
        return call_fail(call, ERR_SHUTTING_DOWN, "all sessions have ended");
    if (!found || !identity_same(found->identity, call->identity) || found->pipe != call->pipe ||
        !is_in_profile(found, call->profile_name))
        return call_fail(call, ERR_UNKNOWN_SESSION, "the session does not exist, or belongs to another caller");
    recheck_identity(found, call->identity);
    call_join_session(call, found);
    caller_token_begin(call);
    return memory_hold_call(call) ? PHASE_NEXT : PHASE_FAIL;
}

// The revision that a request names in its header, or in its _meta (since 2026-07-28), if the gateway does not support it.
static struct span unknown_version(const struct call *call)
{
    struct span meta, raw, said = call->version;
    if (said.at && !revision_parse(said))
        return said;
    bool has_meta =
        params_find(&call->params, NULL, "_meta", &meta) ||
        (call->method == METHOD_UNKNOWN && call->message.params.at && scan_find(call->message.params, "_meta", &meta));
    if (!has_meta || !scan_is_object(meta) || !scan_find(meta, "io.modelcontextprotocol/protocolVersion", &raw) ||
        !scan_is_string(raw))
        return (struct span){0};
    said = span_make(raw.at + 1, raw.len - 2);
    return revision_parse(said) ? (struct span){0} : said;
}

// The error lists the supported versions, from which a newer client can choose. For `initialize` the version is negotiated instead.
static bool check_version(struct call *call)
{
    struct span said = unknown_version(call);
    if (!said.at || call->method == METHOD_INITIALIZE)
        return true;
    said.len = said.len > VERSION_SHOWN ? VERSION_SHOWN : said.len;
    buf_clear(&call->error_data);
    buf_put_text(&call->error_data, "\"supported\":[");
    for (int i = REVISION_LATEST; i > REVISION_NONE; i--)
        buf_printf(&call->error_data, "\"%s\"%s", revision_text((enum revision)i), i > REVISION_NONE + 1 ? "," : "");
    buf_put_text(&call->error_data, "],\"requested\":");
    scan_encode_lossy(said, &call->error_data);
    return err_set(&call->err, ERR_BAD_VERSION, "protocol version %.*s is not supported", SPAN_ARG(said));
}

// Checks that the message is allowed in the state of its session.
static enum phase_result check_message(struct call *call)
{
    const struct session *on = call->session;
    bool initialize = call->method == METHOD_INITIALIZE && call->message.kind == MESSAGE_REQUEST;
    if (!on && initialize && !call->pipe)
        return open_session(call);
    if (!on)
        return call_fail(call, ERR_NO_SESSION, "the request has no Mcp-Session-Id");
    if (initialize && on->state != SESSION_NEW)
        return call_fail(call, ERR_ALREADY_INITIALIZED, "the session is already initialized");
    if (!initialize && on->state == SESSION_NEW && call->op == ARRIVAL_MESSAGE && call->method != METHOD_PING)
        return call_fail(call, ERR_NOT_INITIALIZED, "the first message of a session must be initialize");
    if (reads_too_little(call, on)) {
        (void)err_set(&call->err, ERR_TOO_MANY, "the caller does not read its answers");
        return call_put_off(call, SESSION_RETRY_MS);
    }
    return PHASE_NEXT;
}

// Ends the HTTP request of a message for a pipe with 202. The answer goes to the pipe.
static void move_to_pipe(struct call *call)
{
    struct arrival *arrival = call->arrival;
    struct answer accepted = {.status = 202};
    call->stream = stream_ref(call->session->standalone);
    call->arrival = NULL;
    if (arrival) {
        arrival->call = NULL;
        arrival->ops->answer(arrival, &accepted);
    }
}

// A request out of order is answered on the pipe, too: over HTTP+SSE, clients that send a request before `initialize` treat
// a status of 400 as the end of the connection (tests/e2e/protocol/python.test.mjs).
static bool is_out_of_order(const struct call *call)
{
    return call->message.kind == MESSAGE_REQUEST &&
           (call->err.code == ERR_NOT_INITIALIZED || call->err.code == ERR_ALREADY_INITIALIZED);
}

// A request with an unknown revision in its params is answered on the pipe. With an unknown revision in its header, it is answered
// over HTTP.
static enum phase_result refuse_version(struct call *call)
{
    struct err refusal = call->err;
    if (call->pipe && call->message.kind == MESSAGE_REQUEST && !call->version.at && call->session_id.at &&
        (call->session || find_session(call) != PHASE_FAIL))
        move_to_pipe(call);
    call->err = refusal;
    return PHASE_FAIL;
}

enum phase_result phase_session(struct call *call)
{
    if (call->batch_state == BATCH_SPLIT)
        return PHASE_REPLY;  // resumed: all parts of the batch are done
    if (call_comes_too_late(call))
        return PHASE_FAIL;
    if (!check_version(call))
        return refuse_version(call);
    if (call->op == ARRIVAL_PIPE)
        return open_session(call);
    if (!call->session && call->session_id.at && find_session(call) == PHASE_FAIL)
        return PHASE_FAIL;
    enum phase_result read = reading_wait(call);
    if (read == PHASE_FAIL)
        ask_on_invalid(call->session, &call->message);
    if (read != PHASE_NEXT)
        return read;
    if (call_comes_too_late(call))
        return PHASE_FAIL;
    enum phase_result checked = check_message(call);
    if (call->pipe && call->session && (checked != PHASE_FAIL || is_out_of_order(call)))
        move_to_pipe(call);
    if (checked == PHASE_FAIL)
        return PHASE_FAIL;
    CHECK(call->session);
    return call->batch_state == BATCH_WHOLE ? batch_split(call) : PHASE_NEXT;
}
