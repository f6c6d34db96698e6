// Owns the translation of what a server says into what a caller of the merged view understands:
// resource URIs get their prefix, task ids their seal. Everything else stays as it came, byte for byte.
#include "base/scan.h"
#include "mcp/rewrite.h"
#include "mcp/uri.h"
#include "state.h"

enum part { PART_URI, PART_LINK, PART_TASK };

#define RELATED "io.modelcontextprotocol/related-task"

// The rules for tasks come first, so that a server whose URIs stay bare uses only those.
static const struct rewrite_rule rules[] = {
    {{"taskId"}, PART_TASK},
    {{"task", "taskId"}, PART_TASK},
    {{"_meta", RELATED, "taskId"}, PART_TASK},
    {{"content", "*", "uri"}, PART_LINK},
    {{"content", "*", "resource", "uri"}, PART_URI},
    {{"contents", "*", "uri"}, PART_URI},
    {{"messages", "*", "content", "uri"}, PART_LINK},
    {{"messages", "*", "content", "resource", "uri"}, PART_URI},
    {{"messages", "*", "content", "*", "uri"}, PART_LINK},
    {{"messages", "*", "content", "*", "resource", "uri"}, PART_URI},
    {{"_meta", "ui", "resourceUri"}, PART_URI},
};

enum { TASK_RULES = 3, RULES = sizeof rules / sizeof *rules };

static const struct rewrite_rule error_rules[] = {{{"data", "uri"}, PART_URI}};

static bool translate(void *arg, int what, struct span raw, struct buf *out)
{
    const struct shape *shape = arg;
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

struct shape shape_of(const struct scope *scope, const struct link *link, const struct identity *identity)
{
    return (struct shape){view_prefix(scope->view, link->source), upstream_abilities(link->upstream)->tasks,
                          task_seal(link, identity)};
}

// Those that may change something.
struct choice {
    const struct rewrite_rule *rules;
    size_t count;
};

static struct choice choose(const struct shape *shape, bool error)
{
    size_t first = shape->tasks ? 0 : TASK_RULES, end = shape->prefix.len ? RULES : TASK_RULES;
    if (error)
        return (struct choice){error_rules, shape->prefix.len ? 1 : 0};
    return (struct choice){rules + first, end - first};
}

static bool rewrite(const struct shape *shape, bool error, struct span json, struct buf *out)
{
    struct choice chosen = choose(shape, error);
    return chosen.count && rewrite_json(json, chosen.rules, chosen.count, translate, (void *)(uintptr_t)shape, out);
}

bool shape_from_server(const struct shape *shape, struct span json, struct buf *out)
{
    return rewrite(shape, false, json, out);
}

bool shape_error_from_server(const struct shape *shape, struct span json, struct buf *out)
{
    return rewrite(shape, true, json, out);
}

bool shape_changes(const struct shape *shape, bool error) { return choose(shape, error).count > 0; }

void shape_shared(const struct shape *shape, bool error, struct blob *owner, struct span json, struct pieces *out)
{
    struct choice chosen = choose(shape, error);
    rewrite_shared(owner, json, chosen.rules, chosen.count, translate, (void *)(uintptr_t)shape, out);
}
