// Owns the permission that each method needs, and the policy's kinds of listed items.
#include "gate/session/permit.h"

// For requests only; zero permits no caller. The handlers of the methods are in dispatch.c.
static const struct {
    enum permit permit;
    enum policy_kind kind;  // PERMIT_POLICY, and lists, which are filtered item by item
} rows[METHODS] = {
    [METHOD_INITIALIZE] = {PERMIT_ALWAYS, 0},
    [METHOD_PING] = {PERMIT_ALWAYS, 0},
    [METHOD_SET_LEVEL] = {PERMIT_ALWAYS, 0},
    [METHOD_TOOLS_LIST] = {PERMIT_ALWAYS, POLICY_TOOL},
    [METHOD_PROMPTS_LIST] = {PERMIT_ALWAYS, POLICY_PROMPT},
    [METHOD_RESOURCES_LIST] = {PERMIT_ALWAYS, POLICY_RESOURCE},
    [METHOD_RESOURCES_TEMPLATES] = {PERMIT_ALWAYS, POLICY_TEMPLATE},
    [METHOD_TOOLS_CALL] = {PERMIT_POLICY, POLICY_TOOL},
    [METHOD_PROMPTS_GET] = {PERMIT_POLICY, POLICY_PROMPT},
    [METHOD_RESOURCES_READ] = {PERMIT_POLICY, POLICY_RESOURCE},
    [METHOD_RESOURCES_SUBSCRIBE] = {PERMIT_POLICY, POLICY_RESOURCE},
    [METHOD_RESOURCES_UNSUBSCRIBE] = {PERMIT_POLICY, POLICY_RESOURCE},
    [METHOD_COMPLETE] = {PERMIT_POLICY, POLICY_PROMPT},
    [METHOD_TASKS_GET] = {PERMIT_OWNER, 0},
    [METHOD_TASKS_RESULT] = {PERMIT_OWNER, 0},
    [METHOD_TASKS_CANCEL] = {PERMIT_OWNER, 0},
    [METHOD_TASKS_LIST] = {PERMIT_OWNER, 0},
};

enum permit permit_of(const struct call *call, enum policy_kind *kind)
{
    *kind = call->method == METHOD_COMPLETE && call->by_uri ? POLICY_TEMPLATE : rows[call->method].kind;
    // Session operations, answers to questions and notifications need no permission.
    if (call->op != ARRIVAL_MESSAGE || call->message.kind != MESSAGE_REQUEST)
        return PERMIT_ALWAYS;
    return rows[call->method].permit;  // PERMIT_NEVER for an unknown method (X10)
}

enum policy_kind permit_policy_kind(enum catalog_kind kind)
{
    static const enum policy_kind kinds[] = {[CATALOG_TOOLS] = POLICY_TOOL,
                                             [CATALOG_PROMPTS] = POLICY_PROMPT,
                                             [CATALOG_RESOURCES] = POLICY_RESOURCE,
                                             [CATALOG_TEMPLATES] = POLICY_TEMPLATE};
    return kinds[kind];
}

enum catalog_kind permit_listed_kind(enum method method)
{
    switch (method) {
    case METHOD_PROMPTS_LIST: return CATALOG_PROMPTS;
    case METHOD_RESOURCES_LIST: return CATALOG_RESOURCES;
    case METHOD_RESOURCES_TEMPLATES: return CATALOG_TEMPLATES;
    default: return CATALOG_TOOLS;  // tasks belong to tools
    }
}
