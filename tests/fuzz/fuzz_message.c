// Fuzzes the JSON-RPC parser: parts lie in the text, each kind has its parts, and a written message is read back. In accepted
// parameters, no member differs only in case from a member of the method. Any bytes can be searched for a message to salvage.
#include "base/json.h"
#include "base/scan.h"
#include "fuzz.h"
#include "mcp/message.h"
#include "mcp/params.h"
#include "mcp/salvage.h"

static void check_parts(const struct message *m)
{
    struct span all = m->text;
    REQUIRE(!m->id.at || (span_inside(m->id, all) && (scan_is_string(m->id) || scan_is_number(m->id))));
    REQUIRE(!m->params.at || (span_inside(m->params, all) && scan_is_object(m->params)));
    REQUIRE(!m->result.at || (span_inside(m->result, all) && scan_is_object(m->result)));
    REQUIRE(!m->error.at || (span_inside(m->error, all) && scan_is_object(m->error)));
    switch (m->kind) {
    case MESSAGE_REQUEST: REQUIRE(m->id.at && m->method.at && !m->result.at && !m->error.at); break;
    case MESSAGE_NOTIFICATION: REQUIRE(!m->id.at && m->method.at && !m->result.at && !m->error.at); break;
    case MESSAGE_RESULT: REQUIRE(m->id.at && m->result.at && !m->method.at && !m->error.at); break;
    case MESSAGE_ERROR: REQUIRE(m->error.at && !m->method.at && !m->result.at); break;
    case MESSAGE_INVALID: REQUIRE(false); break;
    }
}

static void write_and_read(const struct message *m)
{
    struct buf out = {0};
    struct message again;
    struct err err;
    if (m->kind == MESSAGE_RESULT)
        message_put_result(&out, m->id, m->result);
    else if (m->kind == MESSAGE_ERROR)
        message_put_raw_error(&out, m->id, m->error);
    else
        return;
    REQUIRE(message_parse(buf_span(&out), false, &again, &err));
    REQUIRE(again.kind == m->kind);
    REQUIRE_SAME(again.id, m->id);
    REQUIRE_SAME(again.result, m->result);
    REQUIRE_SAME(again.error, m->error);
    message_flatten(out.at, out.len);
    REQUIRE(!memchr(out.at, '\n', out.len) && !memchr(out.at, '\r', out.len));
    REQUIRE(message_parse(buf_span(&out), false, &again, &err));
    buf_release(&out);
}

static void check_members(const struct message *m)
{
    static const char *const members[] = {"name", "arguments", "task", "_meta"};
    struct err err = {0};
    struct params params;
    const char *key;
    json_t *value, *tree = NULL;
    params_read(METHOD_TOOLS_CALL, m->params, &params);
    if (!params.ambiguous.at)
        tree = m->params.at ? json_parse(m->params, "params", &err)
                            : NULL;  // jansson refuses numbers that it cannot represent
    json_object_foreach(tree, key, value)
        for (size_t i = 0; i < sizeof members / sizeof *members; i++)
            REQUIRE(strcmp(key, members[i]) == 0 || strcasecmp(key, members[i]) != 0);
    json_decref(tree);
}

static void save(struct span text, const struct message *valid)
{
    struct message found;
    struct buf saved = {0};
    salvage_find(text, &found);
    REQUIRE(!found.id.at || (span_inside(found.id, text) && (scan_is_string(found.id) || scan_is_number(found.id))));
    REQUIRE(!found.result.at || span_inside(found.result, text));
    bool list = salvage_list(text, found.result, "tools", &saved);
    REQUIRE(!list || !valid || scan_depth(valid->result) > SCAN_DEPTH_MAX - 4);
    buf_release(&saved);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct span text = span_make((const char *)bytes, len), value;
    struct message strict, lenient;
    struct err err = {0}, other = {0};
    bool ok = message_parse(text, true, &strict, &err), lenient_ok = message_parse(text, false, &lenient, &other);
    REQUIRE(ok || err.code == ERR_PARSE || err.code == ERR_INVALID_REQUEST);
    REQUIRE(ok || strict.kind == MESSAGE_INVALID);
    REQUIRE(lenient_ok || lenient.kind == MESSAGE_INVALID);
    if (ok) {
        REQUIRE(lenient_ok && lenient.kind == strict.kind);
        REQUIRE_SAME(strict.id, lenient.id);
        REQUIRE_SAME(strict.method, lenient.method);
        check_parts(&strict);
        check_members(&strict);
        write_and_read(&strict);
    }
    save(text, lenient_ok ? &lenient : NULL);
    if (lenient_ok) {
        check_parts(&lenient);
        write_and_read(&lenient);
    }
    if (!ok && err.code == ERR_INVALID_REQUEST)  // it was JSON
        REQUIRE(scan_document(text, true, &value, &err));
    return 0;
}
