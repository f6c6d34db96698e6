// Owns the translation of messages from servers for callers of the merged view: resource URIs get their prefix, and
// task ids their seal. Everything else stays unchanged, byte for byte. It also owns the reverse translation, for
// answers to questions of servers.
#include "base/scan.h"
#include "mcp/rewrite.h"
#include "mcp/uri.h"
#include "room.h"
#include <inttypes.h>

enum { PART_URI, PART_LINK, PART_TASK, PART_ID };

// The places in the protocol of task ids, then of request ids and progress tokens, and then of resource URIs. The first are not needed
// for a server without tasks, and the last not for a server whose URIs are not wrapped. Every message may name a related task.
#define OF_TASK                                        \
    {                                                  \
        {"_meta", PARAMS_RELATED, "taskId"}, PART_TASK \
    }

static const struct rewrite_rule tool_rules[] = {
    OF_TASK,
    {{"task", "taskId"}, PART_TASK},
    {{"content", "*:resource_link", "uri"}, PART_LINK},
    {{"content", "*:resource", "resource", "uri"}, PART_URI},
    {{"_meta", "ui", "resourceUri"}, PART_URI},
};
static const struct rewrite_rule message_rules[] = {
    OF_TASK,
    {{"messages", "*", "content", "*:resource_link", "uri"}, PART_LINK},
    {{"messages", "*", "content", "*:resource", "resource", "uri"}, PART_URI},
    {{"messages", "*", "content", "*:tool_result", "content", "*:resource_link", "uri"}, PART_LINK},
    {{"messages", "*", "content", "*:tool_result", "content", "*:resource", "resource", "uri"}, PART_URI},
};
static const struct rewrite_rule read_rules[] = {OF_TASK, {{"contents", "*", "uri"}, PART_URI}};
static const struct rewrite_rule task_rules[] = {OF_TASK, {{"taskId"}, PART_TASK}};
static const struct rewrite_rule update_rules[] = {{{"uri"}, PART_URI}};  // the same for all sessions
static const struct rewrite_rule cancel_rules[] = {OF_TASK, {{"requestId"}, PART_ID}};
static const struct rewrite_rule progress_rules[] = {OF_TASK, {{"progressToken"}, PART_ID}};
static const struct rewrite_rule other_rules[] = {OF_TASK};
static const struct rewrite_rule error_rules[] = {{{"data", "uri"}, PART_URI}};

struct choice {
    const struct rewrite_rule *rules;
    size_t tasks, bare, all;  // `bare`: without the rules for URIs
};

#define CHOICE(rules, tasks, bare) ((struct choice){rules, tasks, bare, sizeof(rules) / sizeof *(rules)})

// The rules for the method of the notification or question, or of the answered request.
static struct choice rules_of(enum method method)
{
    switch (method) {
    case METHOD_TOOLS_CALL:
    case METHOD_TASKS_RESULT: return CHOICE(tool_rules, 2, 2);
    case METHOD_PROMPTS_GET:
    case METHOD_SAMPLING: return CHOICE(message_rules, 1, 1);
    case METHOD_RESOURCES_READ: return CHOICE(read_rules, 1, 1);
    case METHOD_TASKS_GET:
    case METHOD_TASKS_CANCEL:
    case METHOD_TASK_STATUS: return CHOICE(task_rules, 2, 2);
    case METHOD_RESOURCE_UPDATED: return CHOICE(update_rules, 0, 0);
    case METHOD_CANCELLED: return CHOICE(cancel_rules, 1, 2);
    case METHOD_PROGRESS: return CHOICE(progress_rules, 1, 2);
    default: return CHOICE(other_rules, 1, 1);
    }
}

static bool translate(void *arg, int what, struct span raw, struct buf *out)
{
    const struct shape *shape = arg;
    if (what == PART_ID) {
        buf_put_span(out, shape->id);
        return true;
    }
    if (!scan_is_string(raw))
        return false;
    struct buf text = {0}, changed = {0};
    scan_decode(raw, &text);
    bool leave = what == PART_LINK && uri_is_web(buf_span(&text));  // callers may fetch these themselves
    if (what == PART_TASK)
        task_wrap(&shape->seal, buf_span(&text), &changed);
    else if (!leave)
        uri_wrap(shape->prefix, buf_span(&text), &changed);
    if (!leave)
        scan_encode(buf_span(&changed), out);
    buf_release(&text);
    buf_release(&changed);
    return !leave;
}

struct shape shape_of(const struct scope *scope, const struct link *link, const struct identity *identity,
                      enum method method)
{
    return (struct shape){method,
                          view_prefix(scope->view, link->source),
                          upstream_abilities(link->upstream)->tasks,
                          task_seal(link, identity),
                          {0}};
}

// The rules that may apply to a message.
static struct choice choose(const struct shape *shape, bool error)
{
    struct choice chosen = error ? CHOICE(error_rules, 0, 0) : rules_of(shape->method);
    if (!shape->prefix.len)
        chosen.all = chosen.bare;
    if (!shape->tasks)
        chosen.rules += chosen.tasks, chosen.all -= chosen.tasks;
    return chosen;
}

// True if an error may contain a resource URI: it reports an unknown resource, or answers a request about a resource.
static bool names_resource(const struct shape *shape, struct span error)
{
    struct span code;
    return shape->method == METHOD_RESOURCES_READ || shape->method == METHOD_RESOURCES_SUBSCRIBE ||
           shape->method == METHOD_COMPLETE || (scan_find(error, "code", &code) && span_is(code, "-32002"));
}

bool shape_from_server(const struct shape *shape, struct span json, struct buf *out)
{
    struct choice chosen = choose(shape, false);
    return chosen.all && rewrite_json(json, chosen.rules, chosen.all, translate, (void *)(uintptr_t)shape, out);
}

bool shape_error_from_server(const struct shape *shape, struct span json, struct buf *out)
{
    struct choice chosen = choose(shape, true);
    return chosen.all && names_resource(shape, json) &&
           rewrite_json(json, chosen.rules, chosen.all, translate, (void *)(uintptr_t)shape, out);
}

bool shape_put_retry(struct span error, int64_t retry_ms, struct buf *out)
{
    struct span data, member;
    bool has_data = scan_find(error, "data", &data);
    if (has_data && (!scan_is_object(data) || scan_find(data, "retryAfterMs", &member)))
        return false;
    struct span into = has_data ? data : error;
    size_t end = (size_t)(into.at - error.at) + into.len - 1;  // its closing brace
    struct scan_walk walk = scan_walk(into);
    struct span name;
    bool first = !scan_member(&walk, &name, &member);
    buf_put(out, error.at, end);
    buf_printf(out, "%s%s\"retryAfterMs\":%" PRId64 "%s", first ? "" : ",", has_data ? "" : "\"data\":{", retry_ms,
               has_data ? "" : "}");
    buf_put(out, error.at + end, error.len - end);
    return true;
}

bool shape_changes(const struct shape *shape, bool error) { return choose(shape, error).all > 0; }

void shape_shared(const struct shape *shape, bool error, struct blob *owner, struct span json, struct pieces *out)
{
    struct choice chosen = choose(shape, error);
    if (error && !names_resource(shape, json))
        chosen.all = 0;
    rewrite_shared(owner, json, chosen.rules, chosen.all, translate, (void *)(uintptr_t)shape, out);
}

// ---- the reverse translation ----------------------------------------------------------------

struct back {
    const struct session *session;
    const struct link *link;
};

static bool unseal(void *arg, int what, struct span raw, struct buf *out)
{
    (void)what;
    const struct back *back = arg;
    struct buf wrapped = {0}, id = {0};
    if (!scan_is_string(raw))
        return false;
    scan_decode(raw, &wrapped);
    bool known = task_unwrap(back->session->scope, back->session->identity, buf_span(&wrapped), &id) == back->link;
    if (known)
        scan_encode(buf_span(&id), out);
    buf_release(&wrapped);
    buf_release(&id);
    return known;
}

bool shape_answer(const struct session *session, const struct link *link, struct span json, struct buf *out)
{
    struct back back = {session, link};
    return rewrite_json(json, other_rules, 1, unseal, &back, out);
}
