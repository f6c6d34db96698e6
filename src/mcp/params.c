// Owns the members of params: a single walk finds those that the method defines, and refuses those that a server may take for one.
//
// Params are forwarded unchanged. A server may ignore the case of member names (Go's encoding/json, .NET), end them at U+0000 or
// drop a lone surrogate. It would then read "Name" as "name", although the gateway routed, authorized and counted the value of
// "name". So a member that could be taken for one that the method defines is refused, and so is every member with U+0000. Answers of
// callers to questions of servers are not checked, because the policy does not evaluate them.
//
// The length of names, URIs and similar members is bounded, because every phase, the audit and the log process them.
#include "mcp/params.h"
#include "base/check.h"
#include "base/fold.h"
#include "base/scan.h"

typedef const char *const members[6];  // NULL at the end

// The params of every method and notification that callers send, in all revisions.
static members in_params[METHODS] = {
    [METHOD_TOOLS_CALL] = {"name", "arguments", "task", "_meta"},
    [METHOD_TOOLS_LIST] = {"cursor", "_meta"},
    [METHOD_RESOURCES_READ] = {"uri", "_meta"},
    [METHOD_RESOURCES_LIST] = {"cursor", "_meta"},
    [METHOD_RESOURCES_TEMPLATES] = {"cursor", "_meta"},
    [METHOD_RESOURCES_SUBSCRIBE] = {"uri", "_meta"},
    [METHOD_RESOURCES_UNSUBSCRIBE] = {"uri", "_meta"},
    [METHOD_PROMPTS_GET] = {"name", "arguments", "_meta"},
    [METHOD_PROMPTS_LIST] = {"cursor", "_meta"},
    [METHOD_COMPLETE] = {"ref", "argument", "context", "_meta"},
    [METHOD_SET_LEVEL] = {"level", "_meta"},
    [METHOD_INITIALIZE] = {"protocolVersion", "capabilities", "clientInfo", "_meta"},
    [METHOD_PING] = {"_meta"},
    [METHOD_TASKS_GET] = {"taskId", "_meta"},
    [METHOD_TASKS_RESULT] = {"taskId", "_meta"},
    [METHOD_TASKS_LIST] = {"cursor", "_meta"},
    [METHOD_TASKS_CANCEL] = {"taskId", "_meta"},
    [METHOD_INITIALIZED] = {"_meta"},
    [METHOD_CANCELLED] = {"requestId", "reason", "_meta"},
    [METHOD_PROGRESS] = {"progressToken", "progress", "total", "message", "_meta"},
    [METHOD_ROOTS_CHANGED] = {"_meta"},
    [METHOD_TASK_STATUS] = {"taskId", "_meta"},
};

// The members of objects in the params that the gateway reads or changes.
static const struct {
    const char *name;
    members members;
} inside[] = {
    {"_meta", {"progressToken", PARAMS_RELATED}},
    {PARAMS_RELATED, {"taskId"}},
    {"ref", {"type", "name", "uri"}},
    {"argument", {"name", "value"}},
    {"context", {"arguments"}},
};

static const struct {
    const char *in, *name;
    size_t max;
} bounds[] = {
    {NULL, "name", PARAMS_NAME_MAX},
    {"ref", "name", PARAMS_NAME_MAX},
    {"argument", "name", PARAMS_NAME_MAX},
    {NULL, "uri", PARAMS_URI_MAX},
    {"ref", "uri", PARAMS_URI_MAX},
    {NULL, "cursor", PARAMS_URI_MAX},
    {NULL, "taskId", PARAMS_URI_MAX},
    {PARAMS_RELATED, "taskId", PARAMS_URI_MAX},
    {NULL, "requestId", PARAMS_TOKEN_MAX},
    {NULL, "capabilities", PARAMS_CAPABILITIES_MAX},
    {NULL, "progressToken", PARAMS_TOKEN_MAX},
    {"_meta", "progressToken", PARAMS_TOKEN_MAX},
};

static bool is_in(const char *in, const char *wanted) { return wanted ? in && strcmp(in, wanted) == 0 : !in; }

static void check_length(const struct params_member *member, struct params *out)
{
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (member->value.len > bounds[i].max && is_in(member->in, bounds[i].in) &&
            strcmp(member->name, bounds[i].name) == 0) {
            out->too_long = member->name;
            out->max = bounds[i].max;
        }
}

static bool is_known(members known, struct span key)
{
    for (size_t i = 0; known[i]; i++)
        if (fold_equal(key, span_of(known[i])))
            return true;
    return false;
}

// True if the key is one of these for a server that drops lone surrogates, or ends the key at the first of them.
static bool is_known_without_halves(members known, struct span key)
{
    struct buf whole = {0};
    struct span start = {0};
    for (size_t i = 0, len; i < key.len; i += len) {
        bool half = scan_has_half(span_make(key.at + i, key.len - i < 3 ? key.len - i : 3));
        len = half ? 3 : 1;
        if (half && !start.at)
            start = span_make(key.at, i);
        if (!half)
            buf_put_char(&whole, key.at[i]);
    }
    bool known_one = start.at && (is_known(known, start) || is_known(known, buf_span(&whole)));
    buf_release(&whole);
    return known_one;
}

// Finds the known member with exactly this name, or NULL. False: a server may take the key for a known member that it is not.
static bool find_member(members known, struct span key, const char **out)
{
    *out = NULL;
    for (size_t i = 0; known[i]; i++)
        if (span_is(key, known[i])) {
            *out = known[i];
            return true;
        }
    if (!key.len)
        return true;
    return !memchr(key.at, '\0', key.len) &&
           !(scan_has_half(key) ? is_known_without_halves(known, key) : is_known(known, key));
}

static bool check_key(members known, struct span raw, const char **member)
{
    struct buf decoded = {0};
    struct span key = span_make(raw.at + 1, raw.len - 2);
    if (memchr(key.at, '\\', key.len)) {
        scan_decode(raw, &decoded);
        key = buf_span(&decoded);
    }
    bool ok = find_member(known, key, member);
    buf_release(&decoded);
    return ok;
}

static void read_object(members known, const char *in, struct span object, struct params *out);

static void read_inside(const char *member, struct span value, struct params *out)
{
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
        if (strcmp(inside[i].name, member) == 0)
            read_object(inside[i].members, member, value, out);
}

static void read_object(members known, const char *in, struct span object, struct params *out)
{
    struct span key, value;
    const char *member;
    for (struct scan_walk walk = scan_walk(object); scan_member(&walk, &key, &value);) {
        if (!check_key(known, key, &member))
            out->ambiguous = key;
        if (!member)
            continue;
        CHECK(out->count < PARAMS_KNOWN_MAX);  // each occurs at most once
        out->known[out->count++] = (struct params_member){in, member, value};
        check_length(&out->known[out->count - 1], out);
        if ((!in || is_in(in, "_meta")) && scan_is_object(value))
            read_inside(member, value, out);
    }
}

void params_read(enum method method, struct span params, struct params *out)
{
    struct span arguments = {0};
    *out = (struct params){0};
    read_object(in_params[method], NULL, params, out);
    (void)params_find(out, NULL, "arguments", &arguments);
    if (method != METHOD_UNKNOWN && params.len - arguments.len > PARAMS_REST_MAX) {
        out->too_long = "";
        out->max = PARAMS_REST_MAX;
    }
}

bool params_find(const struct params *params, const char *in, const char *name, struct span *value)
{
    for (size_t i = 0; i < params->count; i++) {
        const struct params_member *member = &params->known[i];
        if (strcmp(member->name, name) != 0 || !is_in(member->in, in))
            continue;
        *value = member->value;
        return true;
    }
    return false;
}
