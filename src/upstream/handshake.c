// Owns the handshake: sends initialize, and reads revision, capabilities and instructions from its answer.
#include "handshake.h"
#include "base/log.h"
#include "base/scan.h"
#include "mcp/method.h"
#include "message.h"
#include "request.h"
#include "transport.h"

#define INSTRUCTIONS_MAX 8192
#define CAPABILITIES_MAX 16384  // bytes that are passed on to callers
#define GREETING_MAX 65536

static bool is_set(struct span part, const char *name)
{
    struct span flag;
    return scan_find(part, name, &flag) && span_is(flag, "true");
}

static void read_abilities(struct upstream *upstream, struct span capabilities)
{
    struct span part, flag;
    struct upstream_abilities *can = &upstream->abilities;
    *can = (struct upstream_abilities){0};
    can->tools = scan_find(capabilities, "tools", &part);
    can->tools_changed = can->tools && is_set(part, "listChanged");
    can->prompts = scan_find(capabilities, "prompts", &part);
    can->prompts_changed = can->prompts && is_set(part, "listChanged");
    can->completions = scan_find(capabilities, "completions", &part);
    can->logging = scan_find(capabilities, "logging", &part);
    can->resources = scan_find(capabilities, "resources", &part);
    can->resources_changed = can->resources && is_set(part, "listChanged");
    can->tasks = scan_find(capabilities, "tasks", &part);
    can->tasks_list = can->tasks && scan_find(part, "list", &flag);
    if (capabilities.len > CAPABILITIES_MAX)
        log_warn("capabilities too long, not passed on", LOG_STR("server", upstream->server->name),
                 LOG_INT("bytes", (int64_t)capabilities.len), LOG_INT("max", CAPABILITIES_MAX));
    else if (scan_is_object(capabilities))
        buf_put_span(&upstream->declared, capabilities);
    if (upstream->revision == REVISION_2024_11_05)
        can->completions = true;  // implied before the capability existed
}

static bool read_revision(struct upstream *upstream, struct span result)
{
    struct span version;
    return scan_find(result, "protocolVersion", &version) && scan_is_string(version) &&
           (upstream->revision = revision_parse(span_make(version.at + 1, version.len - 2)));
}

static void read_result(struct upstream *upstream, struct span result)
{
    struct span value;
    buf_clear(&upstream->instructions);
    buf_clear(&upstream->declared);
    buf_clear(&upstream->greeting);
    if (result.len <= GREETING_MAX)
        buf_put_span(&upstream->greeting, result);
    if (scan_find(result, "capabilities", &value))
        read_abilities(upstream, value);
    if (scan_find(result, "instructions", &value) && scan_is_string(value) && value.len < INSTRUCTIONS_MAX)
        scan_decode(value, &upstream->instructions);
}

bool handshake_restore(struct upstream *upstream, struct span result)
{
    if (upstream->revision != REVISION_NONE || !scan_is_object(result) || !read_revision(upstream, result))
        return false;
    read_result(upstream, result);
    return true;
}

static void greet(struct upstream *upstream)
{
    struct buf text = {0};
    message_put_notification(&text, method_text(METHOD_INITIALIZED), (struct span){0});
    struct blob *initialized = blob_take(&text);
    upstream_message_note_told(upstream);
    upstream->transport->greet(upstream, initialized);
    blob_unref(initialized);
}

static void on_answer(struct upstream_request *request, const struct upstream_reply *reply)
{
    struct upstream *upstream = request->arg;
    struct err err = {0};
    if (reply->failure)
        err = *reply->failure;
    else if (reply->error.at)
        (void)err_set(&err, ERR_UNAVAILABLE, "server \"%s\" refused initialize: %.*s", upstream->server->name,
                      reply->error.len > 200 ? 200 : (int)reply->error.len, reply->error.at);
    else if (!read_revision(upstream, reply->result))
        (void)err_set(&err, ERR_UPSTREAM_INVALID,
                      "server \"%s\" answered initialize without a supported protocol version", upstream->server->name);
    if (!err.code) {
        read_result(upstream, reply->result);
        greet(upstream);
    } else if (upstream->state == UPSTREAM_STARTING) {
        upstream->events->on_lost(upstream, &err);
    }
}

void handshake_start(struct upstream *upstream)
{
    struct buf params = {0};
    buf_printf(&params,
               "{\"protocolVersion\":\"%s\",\"capabilities\":%s,\"clientInfo\":{\"name\":\"postern\","
               "\"title\":\"Postern gateway\",\"version\":\"%s\"}}",
               revision_text(REVISION_LATEST), upstream->spec.capabilities, POSTERN_VERSION);
    upstream->hello = (struct upstream_request){.on_reply = on_answer, .arg = upstream, .initial = true};
    upstream_request_reserve(upstream, &upstream->hello);
    upstream_request_send(&upstream->hello, method_text(METHOD_INITIALIZE), buf_span(&params));
    buf_release(&params);
}
