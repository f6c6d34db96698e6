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
        task_wrap(shape->link, shape->identity, buf_span(&text), &changed);
    else if (!leave)
        view_put_uri(shape->scope->view, shape->link->source, buf_span(&text), &changed);
    if (!leave)
        scan_encode(buf_span(&changed), out);
    buf_release(&text);
    buf_release(&changed);
    return !leave;
}

bool shape_from_server(const struct shape *shape, struct span json, struct buf *out)
{
    bool bare = view_prefix(shape->scope->view, shape->link->source).len == 0;
    bool tasks = upstream_abilities(shape->link->upstream)->tasks;
    size_t first = tasks ? 0 : TASK_RULES, count = (bare ? (size_t)TASK_RULES : (size_t)RULES) - first;
    return count && rewrite_json(json, rules + first, count, translate, (void *)(uintptr_t)shape, out);
}

bool shape_error_from_server(const struct shape *shape, struct span json, struct buf *out)
{
    return view_prefix(shape->scope->view, shape->link->source).len != 0 &&
           rewrite_json(json, error_rules, 1, translate, (void *)(uintptr_t)shape, out);
}
