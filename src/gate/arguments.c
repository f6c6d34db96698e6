// Owns the arguments of a call that the policy evaluates: those that its method defines, and no others.
//
//   tools/call, prompts/get   params.arguments
//   completion/complete       params.context.arguments and the argument that is being completed, whose partial value
//                             is evaluated like a complete one
//   other methods             no arguments, even if the params have a member of that name
#include "arguments.h"
#include "base/scan.h"
#include "reading.h"

static bool invalid(struct call *call, const char *detail)
{
    return err_set(&call->err, ERR_INVALID_PARAMS, "%s", detail);
}

// Merges the arguments of the context and the one being completed into one object. A name in both is a duplicate key.
static bool merge_completion(struct call *call, struct span *out)
{
    struct span name, value, given, one;
    struct scan_walk walk = {0};
    struct buf text = {0};
    struct err err;
    if (!params_find(&call->params, "argument", "name", &name) ||
        !params_find(&call->params, "argument", "value", &value) || !scan_is_string(name) || !scan_is_string(value))
        return invalid(call, "params.argument needs a name and a value, both strings");
    bool more = params_find(&call->params, "context", "arguments", &given);
    if (more && !scan_is_object(given))
        return invalid(call, "params.context.arguments is not an object");
    if (more)
        walk = scan_walk(given);
    buf_put_char(&text, '{');
    buf_put_span(&text, name);
    buf_put_char(&text, ':');
    buf_put_span(&text, value);
    if (more && scan_element(&walk, &one)) {
        buf_put_char(&text, ',');
        buf_put_span(&text, span_after(given, 1));
    } else {
        buf_put_char(&text, '}');
    }
    *out = arena_span(&call->arena, buf_span(&text));
    buf_release(&text);
    return scan_document(*out, true, out, &err) || invalid(call, "params.argument is also in params.context");
}

// False: the arguments cannot be read, and call->err is set. out->at is NULL if the method has no arguments.
static bool find_arguments(struct call *call, struct span *out)
{
    *out = (struct span){0};
    switch (call->method) {
    case METHOD_TOOLS_CALL:
    case METHOD_PROMPTS_GET: (void)params_find(&call->params, NULL, "arguments", out); return true;
    case METHOD_COMPLETE: return merge_completion(call, out);
    default: return true;
    }
}

// jansson refuses keys with U+0000, which json_parse_arguments() puts in place of a lone surrogate, and numbers that it
// cannot hold.
static bool unjudgeable(struct call *call, size_t len)
{
    if (len > ARGUMENTS_MAX)
        return err_set(&call->err, ERR_INVALID_PARAMS,
                       "arguments of %zu bytes are too large for the policy (at most %zu)", len, ARGUMENTS_MAX);
    call->error_text =
        "Invalid params: the policy cannot evaluate the arguments: the name of one contains U+0000 or a lone "
        "surrogate, or a number does not fit into 64 bits";
    return invalid(call, "the policy cannot evaluate the arguments: an argument name or a number is out of range");
}

// Arguments that a server and a policy might read differently are refused, even if no rule depends on them (X8). The tree is made,
// and the size bounded, only if a rule about this tool or prompt has conditions. Otherwise arguments may be large, and contain
// numbers and names that no condition could evaluate.
bool arguments_read(struct call *call, const struct policy_question *question, json_t **out)
{
    struct span raw;
    struct err err;
    *out = NULL;
    if (!find_arguments(call, &raw))
        return false;
    call->arguments = raw;
    if (!raw.at)
        return true;
    if (!scan_is_object(raw))
        return invalid(call, "the arguments are not an object");
    const struct arguments *found = call->found && call->found->raw.at == raw.at ? call->found : NULL;
    bool may_be_deep = raw.len > (size_t)2 * ARGUMENTS_DEPTH_MAX;
    if (may_be_deep && (found ? found->depth : scan_depth(raw)) > ARGUMENTS_DEPTH_MAX)
        return err_set(&call->err, ERR_INVALID_PARAMS, "arguments are nested deeper than %d", ARGUMENTS_DEPTH_MAX);
    if (!policy_looks_at_arguments(call->tenant->memo, question))
        return true;
    if (raw.len <= ARGUMENTS_MAX)
        *out = found ? json_incref(found->tree) : json_parse_arguments(raw, "arguments", &err);
    // An item that the caller may not see is denied before its arguments matter, as if it did not exist.
    return *out || !policy_visible(call->tenant->memo, question) || unjudgeable(call, raw.len);
}
