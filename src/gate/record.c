// Owns the audit rows of the gate: of calls when they end, and of sessions whose credential is no longer valid.
//
// A call is recorded once, by the phase `record`. The status is `gone` if its caller had disconnected when the call ended, even
// if the server answered: the caller may still resume its stream, but has not received the answer yet.
#include "record.h"
#include "base/clock.h"
#include "base/scan.h"
#include "gate/method/method.h"
#include "gate/session/permit.h"
#include "reading.h"
#include "refused.h"

#define ROLES_MAX_BYTES ((size_t)60 << 10)

static bool is_gone(const struct call *call)
{
    const struct call *outer = call->parent ? call->parent : call;
    return !outer->arrival && !(outer->stream && stream_attached(outer->stream));
}

static enum audit_status status_of(const struct call *call)
{
    switch (call->err.code) {
    case ERR_NONE: return is_gone(call) ? AUDIT_GONE : call->reply && call->reply->error.at ? AUDIT_ERROR : AUDIT_OK;
    case ERR_DENIED:
    case ERR_SCOPE:
    case ERR_UNAUTHENTICATED:
    case ERR_AUTH_LIMITED: return AUDIT_DENIED;
    case ERR_UPSTREAM_TIMEOUT: return AUDIT_TIMEOUT;
    case ERR_CANCELLED: return AUDIT_CANCELLED;
    default: break;
    }
    if (!call->session || call->session->state != SESSION_ENDED)
        return AUDIT_ERROR;
    return is_gone(call) ? AUDIT_GONE : AUDIT_CANCELLED;  // the end of its session ended the call
}

// Puts the roles as a JSON array. A list that is incomplete, here or from the issuer, ends in "…".
static void put_roles(const struct identity *identity, struct buf *out)
{
    size_t count = identity->role_count + identity->roles_left_out;
    for (size_t i = 0; i < count; i++) {
        buf_put_char(out, i ? ',' : '[');
        bool more = i < identity->role_count && out->len < ROLES_MAX_BYTES;
        scan_encode_lossy(span_of(more ? identity->roles[i] : "\xE2\x80\xA6"), out);
        if (!more)
            break;
    }
    if (out->len)
        buf_put_char(out, ']');
}

// Encoded once for each identity, because it is a large part of a row and equal in all of them.
static const char *who_is(struct identity *identity)
{
    struct buf roles = {0};
    if (!identity || identity->audit_text)
        return identity ? identity->audit_text : NULL;
    put_roles(identity, &roles);
    identity->audit_text = audit_row_who(&(struct audit_record){.tenant = span_of(identity->tenant),
                                                                .provider = span_of(identity->provider),
                                                                .subject = span_of(identity->subject),
                                                                .proof = span_of(identity_proof_text(identity->proof)),
                                                                .token = span_of(identity->token_id),
                                                                .roles = buf_span(&roles)});
    buf_release(&roles);
    return identity->audit_text;
}

static void put_what(const struct call *call, struct audit_record *record)
{
    enum policy_kind kind;
    record->request = span_of(call->request_id);
    record->method = call->message.method;
    record->server = call->link ? span_of(upstream_server(call->link->upstream)->name) : (struct span){0};
    record->name = call->target;
    if (permit_of(call, &kind) == PERMIT_POLICY)
        record->kind = span_of(policy_kind_text(kind));
    record->decision = !call->decision.by ? AUDIT_UNDECIDED : call_is_allowed(call) ? AUDIT_ALLOW : AUDIT_DENY;
    record->rule = span_of(call->decision.by);
    record->policy = call->policy ? span_of(policy_digest(call->policy)) : (struct span){0};
}

// Finds the arguments, also of a call that was refused before they were read.
static bool find_arguments(const struct call *call, struct span *arguments)
{
    *arguments = call->arguments;
    return arguments->at || params_find(&call->params, NULL, "arguments", arguments);
}

// True if the call was refused before its caller was authenticated. Only calls of identities have rows of the event `call`.
static bool is_refusal(const struct call *call)
{
    return call->err.code == ERR_UNAUTHENTICATED || call->err.code == ERR_AUTH_LIMITED || call->err.code == ERR_SCOPE ||
           call->err.code == ERR_AUTH_UNAVAILABLE || call->err.code == ERR_BAD_FRAMING ||
           (!call->identity && call->message.kind == MESSAGE_REQUEST);
}

// Requests without a credential are counted together; rows of their own would add no information.
static bool is_counted(const struct call *call)
{
    bool shown = call->arrival && credentials_shown(&call->credentials);  // credentials end with the connection
    return !shown || call->err.code == ERR_AUTH_LIMITED || !refused_is_row(call->gate);
}

static void on_row(struct audit_wait *wait) { call_resume(list_entry(wait, struct call, row)); }

// Records requests and refusals. Notifications, answers and pings of callers are not recorded. If the audit is required, a call waits
// for its row; a refusal does not wait, because it discloses nothing.
enum phase_result record_call(struct call *call)
{
    struct audit_record record = {0};
    struct audit *audit = call->gate->audit;
    struct buf kept = {0}, address = {0};
    char digest[AUDIT_HASH_CHARS + 1];
    struct span arguments;
    bool refused = is_refusal(call);
    if (!audit || (!refused && (call->message.kind != MESSAGE_REQUEST || call->method == METHOD_PING)))
        return PHASE_NEXT;
    if (refused && is_counted(call)) {
        refused_note(call->gate, call->arrival ? call->credentials.peer : NULL, call->err.code);
        return PHASE_NEXT;
    }
    record.event = refused ? AUDIT_AUTHENTICATION : AUDIT_CALL;
    record.who = who_is(call->identity);
    put_what(call, &record);
    if (refused && call->arrival && call->credentials.peer)  // the peer ends with the connection
        credentials_put_address(call->credentials.peer, &address);
    record.peer = buf_span(&address);
    if (find_arguments(call, &arguments)) {
        const struct arguments *found = call->found && call->found->raw.at == arguments.at ? call->found : NULL;
        if (!found)
            secret_digest_hex(arguments, digest);
        record.arguments_sha256 = span_make(found ? found->digest : digest, AUDIT_HASH_CHARS);
        if (found && !refused)
            record.arguments = found->kept ? buf_span(found->kept) : (struct span){0};
        else if (!refused && audit_arguments(audit, arguments, &kept))
            record.arguments = buf_span(&kept);
    }
    record.status = status_of(call);
    record.reason = call->err.code ? span_of(err_reason(call->err.code)) : (struct span){0};
    record.duration_us = clock_now_us() - call->started_us;
    record.bytes_in = call->body ? (int64_t)call->body->len : 0;
    record.bytes_out = (int64_t)call_answer_len(call);
    bool put = audit_put(audit, &record);  // the audit itself counts, logs and records a lost row
    buf_release(&kept);
    buf_release(&address);
    if (refused || !audit_required(audit))
        return PHASE_NEXT;
    call->row.done = on_row;
    return put && audit_wait(audit, &call->row) ? PHASE_WAIT : PHASE_FAIL;
}

void record_session_over(const struct session *session)
{
    struct audit_record record = {.event = AUDIT_TOKEN,
                                  .method = span_of("end"),
                                  .kind = span_of("session"),
                                  .status = AUDIT_OK,
                                  .reason = span_of("credential_ended")};
    if (!session->gate->audit)
        return;
    record.who = who_is(session->identity);
    (void)audit_put(session->gate->audit, &record);
}
