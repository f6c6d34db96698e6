// Owns JSON-RPC 2.0: parsing a message into spans and writing messages.
#include "mcp/message.h"
#include "base/scan.h"

static bool is_integer(struct span raw)
{
    return scan_is_number(raw) && !memchr(raw.at, '.', raw.len) && !memchr(raw.at, 'e', raw.len) &&
           !memchr(raw.at, 'E', raw.len);
}

static bool is_id(struct span raw) { return scan_is_string(raw) || is_integer(raw); }

static bool is_error(struct span raw)
{
    struct span code, text;
    return scan_is_object(raw) && scan_find(raw, "code", &code) && is_integer(code) &&
           scan_find(raw, "message", &text) && scan_is_string(text);
}

static void set_method(struct message *out, struct span raw)
{
    out->method = span_make(raw.at + 1, raw.len - 2);
    if (!memchr(out->method.at, '\\', out->method.len))
        return;
    struct buf decoded = {0};  // some writers escape the slash of "tools/call"
    scan_decode(raw, &decoded);
    if (decoded.len < sizeof out->method_room) {
        memcpy(out->method_room, decoded.at, decoded.len);
        out->method = span_make(out->method_room, decoded.len);
    }
    buf_release(&decoded);
}

// The known members. Each may occur only once in either mode, because two ids or two methods are always ambiguous.
struct members {
    struct span jsonrpc, id, method, params, result, error;
};

static bool take_member(struct members *m, struct span key, struct span value)
{
    struct span *slot = scan_key_is(key, "jsonrpc")  ? &m->jsonrpc
                        : scan_key_is(key, "id")     ? &m->id
                        : scan_key_is(key, "method") ? &m->method
                        : scan_key_is(key, "params") ? &m->params
                        : scan_key_is(key, "result") ? &m->result
                        : scan_key_is(key, "error")  ? &m->error
                                                     : NULL;
    if (!slot)
        return true;
    if (slot->at)
        return false;
    *slot = value;
    return true;
}

// Some servers write JSON logs to standard output, so an object without "jsonrpc" is not taken for an answer.
static enum message_role role_of(const struct members *m)
{
    return m->method.at || m->params.at                     ? MESSAGE_ASKS
           : m->jsonrpc.at && (m->result.at || m->error.at) ? MESSAGE_ANSWERS
                                                            : MESSAGE_UNCLEAR;
}

static bool classify_answer(struct message *out, const struct members *m, struct err *err)
{
    const char *problem = !m->result.at && !m->error.at ? "neither a request, a notification nor a response"
                          : m->result.at && m->error.at ? "both a result and an error"
                          : m->error.at && !is_error(m->error)
                              ? "error is not an object with an integer code and a message"
                          : m->result.at && !scan_is_object(m->result) ? "result is not an object"
                          : m->result.at && !out->id.at                ? "a result without an id"
                                                                       : NULL;
    if (problem)
        return err_set(err, ERR_INVALID_REQUEST, "%s", problem);
    out->result = m->result;
    out->error = m->error;
    out->kind = m->result.at ? MESSAGE_RESULT : MESSAGE_ERROR;
    return true;
}

static bool classify(struct message *out, const struct members *m, struct err *err)
{
    bool null_id = m->id.at && m->id.at[0] == 'n';
    out->role = role_of(m);
    if (m->id.len > MESSAGE_ID_MAX)
        return err_set(err, ERR_INVALID_REQUEST, "id is longer than %d bytes", MESSAGE_ID_MAX);
    if (m->method.len > MESSAGE_METHOD_MAX)
        return err_set(err, ERR_INVALID_REQUEST, "method is longer than %d bytes", MESSAGE_METHOD_MAX);
    if (m->id.at && !null_id) {
        if (!is_id(m->id))
            return err_set(err, ERR_INVALID_REQUEST, "id must be a string or an integer");
        out->id = m->id;
    }
    if (!m->jsonrpc.at || !span_is(m->jsonrpc, "\"2.0\""))
        return err_set(err, ERR_INVALID_REQUEST, "jsonrpc must be \"2.0\"");
    if (m->method.at) {
        if (!scan_is_string(m->method) || m->result.at || m->error.at || null_id)
            return err_set(err, ERR_INVALID_REQUEST, "not a JSON-RPC request");
        if (m->params.at && !scan_is_object(m->params))
            return err_set(err, ERR_INVALID_REQUEST, "params must be an object");
        set_method(out, m->method);
        out->params = m->params;
        out->kind = out->id.at ? MESSAGE_REQUEST : MESSAGE_NOTIFICATION;
        return true;
    }
    return classify_answer(out, m, err);
}

static bool parse_members(struct scan *scan, struct members *m)
{
    struct span key, value;
    enum scan_step step;
    for (bool first = true; (step = scan_key(scan, first, &key)) == SCAN_MEMBER; first = false) {
        if (!scan_value(scan, &value))
            return false;
        if (!take_member(m, key, value)) {
            scan->problem = "duplicate key in the message";
            return false;
        }
    }
    return step == SCAN_OVER;
}

bool message_parse(struct span text, bool strict, struct message *out, struct err *err)
{
    *out = (struct message){.text = text, .lines = true};
    struct scan scan;
    struct members m = {0};
    if (strict) {
        // Scan the whole text once, refusing duplicates at every level, and then its members.
        struct span value;
        if (!scan_document(text, true, &value, err))
            return false;
        if (!scan_is_object(value))
            return err_set(err, ERR_INVALID_REQUEST, "a message must be an object");
        struct scan_walk walk = scan_walk(value);
        struct span key;
        while (scan_member(&walk, &key, &value))
            (void)take_member(&m, key, value);
        return classify(out, &m, err);
    }
    scan_start(&scan, text, false);
    scan_space(&scan);
    if (scan.at >= scan.end || *scan.at != '{') {
        struct span other;
        return scan_document(text, false, &other, err) &&
               err_set(err, ERR_INVALID_REQUEST, "a message must be an object");
    }
    scan.at++;
    bool ok = parse_members(&scan, &m);
    if (ok)
        scan_space(&scan);
    if (!ok || scan.at != scan.end)
        return err_set(err, ERR_PARSE, "byte %zu: %s", (size_t)(scan.at - scan.start),
                       scan.problem ? scan.problem : "not JSON");
    out->lines = scan.lines;
    return classify(out, &m, err);
}

void message_copy(struct message *to, const struct message *from)
{
    *to = *from;
    if (from->method.at == from->method_room)
        to->method.at = to->method_room;
}

void message_begin_request(struct buf *out, uint64_t id, const char *method)
{
    buf_put_text(out, "{\"jsonrpc\":\"2.0\",\"id\":");
    buf_put_int(out, (int64_t)id);
    buf_put_text(out, ",\"method\":\"");
    buf_put_text(out, method);
    buf_put_char(out, '"');
}

static void put_method(struct buf *out, const char *method, struct span params)
{
    buf_put_text(out, ",\"method\":\"");
    buf_put_text(out, method);
    buf_put_char(out, '"');
    if (params.len) {
        buf_put_text(out, ",\"params\":");
        buf_put_span(out, params);
    }
    buf_put_char(out, '}');
}

void message_put_request(struct buf *out, struct span id, const char *method, struct span params)
{
    buf_put_text(out, "{\"jsonrpc\":\"2.0\",\"id\":");
    buf_put_span(out, id);
    put_method(out, method, params);
}

void message_put_notification(struct buf *out, const char *method, struct span params)
{
    buf_put_text(out, "{\"jsonrpc\":\"2.0\"");
    put_method(out, method, params);
}

static void put_head(struct buf *out, struct span id)
{
    buf_put_text(out, "{\"jsonrpc\":\"2.0\",\"id\":");
    if (id.at)
        buf_put_span(out, id);
    else
        buf_put_text(out, "null");
}

void message_put_result(struct buf *out, struct span id, struct span result)
{
    buf_reserve(out, id.len + result.len + 64);
    put_head(out, id);
    buf_put_text(out, ",\"result\":");
    buf_put_span(out, result);
    buf_put_char(out, '}');
}

void message_put_error(struct buf *out, struct span id, enum err_code code, struct span data_members)
{
    message_put_error_text(out, id, code, NULL, data_members);
}

void message_put_error_text(struct buf *out, struct span id, enum err_code code, const char *text,
                            struct span data_members)
{
    put_head(out, id);
    buf_printf(out, ",\"error\":{\"code\":%d,\"message\":", err_rpc_code(code));
    scan_encode_lossy(span_of(text ? text : err_text(code)), out);
    buf_printf(out, ",\"data\":{\"reason\":\"%s\"", err_reason(code));
    if (data_members.len) {
        buf_put_char(out, ',');
        buf_put_span(out, data_members);
    }
    buf_put_text(out, "}}}");
}

void message_put_raw_error(struct buf *out, struct span id, struct span error)
{
    put_head(out, id);
    buf_put_text(out, ",\"error\":");
    buf_put_span(out, error);
    buf_put_char(out, '}');
}

static void blank(char *at, const char *end, char c)
{
    while ((at = memchr(at, c, (size_t)(end - at))))
        *at = ' ';
}

// Works in blocks, so that a large text is read from memory only once.
void message_flatten(char *text, size_t len)
{
    const size_t piece = 8192;
    for (size_t i = 0; i < len; i += piece) {
        const char *end = text + i + (len - i < piece ? len - i : piece);
        blank(text + i, end, '\n');
        blank(text + i, end, '\r');
    }
}
