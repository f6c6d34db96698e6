// Owns `initialize` of callers: begins the session, and answers with the merged capabilities and instructions of the servers.
#include "base/scan.h"
#include "rows.h"

#define INSTRUCTIONS_MAX 32768
#define DECLARED_MAX 32768  // bytes of `extensions`, and of `experimental`
#define KEPT_WAIT_MS 1000   // for the catalogue cache

// Appends the instructions of one server, if they fit.
static void put_words(const struct call *call, const struct link *link, struct buf *out)
{
    struct span own = known_instructions(link, call->session);
    struct buf text = {0};
    login_offer_put_hint(link, &text);
    if (own.len) {
        buf_printf(&text, "%sServer \"%s\" says:\n", text.len ? "\n\n" : "", upstream_server(link->upstream)->name);
        buf_put_span(&text, own);
    }
    if (text.len && out->len + text.len + 2 <= INSTRUCTIONS_MAX) {
        buf_put_text(out, out->len ? "\n\n" : "");
        buf_put_span(out, buf_span(&text));
    }
    buf_release(&text);
}

static void put_instructions(const struct call *call, struct buf *out)
{
    struct buf text = {0};
    for (size_t i = 0; i < call->scope->link_count; i++)
        if (visibility_sees(call->session, call->scope->links[i]))
            put_words(call, call->scope->links[i], &text);
    if (text.len) {
        buf_put_text(out, ",\"instructions\":");
        scan_encode_lossy(buf_span(&text), out);  // the text of one server must not make the answer unreadable
    }
    buf_release(&text);
}

// True if callers can read the member. Many clients refuse the whole answer if a member is not an object, or has a lone surrogate.
static bool is_readable(struct span key, struct span value)
{
    struct buf masked = {0};
    bool ok = scan_is_object(value) && !scan_mask_halves(key, &masked) && !scan_mask_halves(value, &masked);
    buf_release(&masked);
    return ok;
}

static void put_members(struct span object, struct map *taken, struct buf *out)
{
    struct scan_walk walk = scan_walk(object);
    struct span key, value;
    while (scan_member(&walk, &key, &value)) {
        struct buf name = {0};
        scan_decode(key, &name);
        if (is_readable(key, value) && out->len + key.len + value.len + 2 <= DECLARED_MAX &&
            !map_find(taken, buf_span(&name))) {
            (void)map_put(taken, buf_span(&name), taken);
            buf_put_text(out, out->len ? "," : "");
            buf_put_span(out, key);
            buf_put_char(out, ':');
            buf_put_span(out, value);
        }
        buf_release(&name);
    }
}

// Puts one capability, merged from the servers that are visible to this caller. The first of several members with the same name is
// used.
static void put_declared(const struct call *call, const char *capability, struct buf *out)
{
    struct map taken = {0};
    struct buf members = {0};
    for (size_t i = 0; i < call->scope->link_count; i++) {
        const struct link *link = call->scope->links[i];
        struct span declared = known_declared(link, call->session), object;
        if (declared.len && visibility_sees(call->session, link) && scan_find(declared, capability, &object) &&
            scan_is_object(object))
            put_members(object, &taken, &members);
    }
    if (members.len)
        buf_printf(out, ",\"%s\":{%.*s}", capability, (int)members.len, members.at);
    buf_release(&members);
    map_release(&taken);
}

static void put_result(struct call *call)
{
    enum revision revision = call->session->revision;
    struct buf *out = call_begin_result(call);
    buf_printf(out,
               "{\"protocolVersion\":\"%s\",\"capabilities\":{\"tools\":{\"listChanged\":true},"
               "\"prompts\":{\"listChanged\":true},\"resources\":{\"subscribe\":true,\"listChanged\":true},"
               "\"logging\":{}%s%s",
               revision_text(revision), revision >= REVISION_2025_03_26 ? ",\"completions\":{}" : "",
               revision >= REVISION_2025_11_25
                   ? ",\"tasks\":{\"list\":{},\"cancel\":{},\"requests\":{\"tools\":{\"call\":{}}}}"
                   : "");
    put_declared(call, "extensions", out);
    put_declared(call, "experimental", out);
    buf_printf(out, "},\"serverInfo\":{\"name\":\"postern\",\"title\":\"Postern gateway\",\"version\":\"%s\"}",
               POSTERN_VERSION);
    put_instructions(call, out);
    buf_put_char(out, '}');
}

static enum phase_result begin(struct call *call)
{
    struct span version, capabilities = span_of("{}"), given;
    if (call->session->state != SESSION_NEW)
        return call_fail(call, ERR_ALREADY_INITIALIZED, "the session has already received initialize");
    if (!call_text_param(call, NULL, "protocolVersion", &version))
        return call_fail(call, ERR_INVALID_PARAMS, "params.protocolVersion must be a string");
    if (params_find(&call->params, NULL, "capabilities", &given) && scan_is_object(given))
        capabilities = given;
    session_life_begin(call->session, revision_negotiate(version), capabilities);
    call_set_scope(call, call->session->scope);
    caller_token_begin(call);
    scope_warm(call->session, false);
    return PHASE_NEXT;
}

// A lookup in the catalogue cache is under way for one of the servers.
static bool is_early(const struct call *call)
{
    for (size_t i = 0; i < call->scope->link_count; i++)
        if (source_awaits_kept(call->scope->links[i]->source))
            return true;
    return false;
}

static void on_waited_enough(struct loop_timer *timer) { call_resume(timer->arg); }

// The result needs the instructions of servers, so it waits for the catalogue cache, but not for a server to start.
enum phase_result initialize_session(struct call *call)
{
    int64_t now = loop_now(call->gate->loop);
    if (call->err.code)  // it was ended while it waited
        return PHASE_FAIL;
    if (!call->asked_ms) {
        call->asked_ms = now;
        if (begin(call) == PHASE_FAIL)
            return PHASE_FAIL;
    }
    if (is_early(call) && now < call->asked_ms + KEPT_WAIT_MS) {
        if (call->state != CALL_DISPATCHED)
            call_set_state(call, CALL_DISPATCHED);
        call->timer = (struct loop_timer){.on_due = on_waited_enough, .arg = call, .name = "catalogue wait"};
        loop_timer_set(call->gate->loop, &call->timer, call->asked_ms + KEPT_WAIT_MS - now);
        list_append(&call->scope->waiters, &call->wait_node);
        return PHASE_WAIT;
    }
    put_result(call);
    return PHASE_REPLY;
}
