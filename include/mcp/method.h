// The methods of MCP up to revision 2025-11-25, as numbers.
#ifndef MCP_METHOD_H
#define MCP_METHOD_H

#include "base/span.h"

// clang-format off
//    name                    wire text
#define METHOD_TABLE(X)                                                  \
    X(TOOLS_CALL,             "tools/call")                              \
    X(TOOLS_LIST,             "tools/list")                              \
    X(RESOURCES_READ,         "resources/read")                          \
    X(RESOURCES_LIST,         "resources/list")                          \
    X(RESOURCES_TEMPLATES,    "resources/templates/list")                \
    X(RESOURCES_SUBSCRIBE,    "resources/subscribe")                     \
    X(RESOURCES_UNSUBSCRIBE,  "resources/unsubscribe")                   \
    X(PROMPTS_GET,            "prompts/get")                             \
    X(PROMPTS_LIST,           "prompts/list")                            \
    X(COMPLETE,               "completion/complete")                     \
    X(SET_LEVEL,              "logging/setLevel")                        \
    X(INITIALIZE,             "initialize")                              \
    X(PING,                   "ping")                                    \
    X(TASKS_GET,              "tasks/get")                               \
    X(TASKS_RESULT,           "tasks/result")                            \
    X(TASKS_LIST,             "tasks/list")                              \
    X(TASKS_CANCEL,           "tasks/cancel")                            \
    X(ROOTS_LIST,             "roots/list")                              \
    X(SAMPLING,               "sampling/createMessage")                  \
    X(ELICIT,                 "elicitation/create")                      \
    X(INITIALIZED,            "notifications/initialized")               \
    X(CANCELLED,              "notifications/cancelled")                 \
    X(PROGRESS,               "notifications/progress")                  \
    X(LOG_MESSAGE,            "notifications/message")                   \
    X(TOOLS_CHANGED,          "notifications/tools/list_changed")        \
    X(PROMPTS_CHANGED,        "notifications/prompts/list_changed")      \
    X(RESOURCES_CHANGED,      "notifications/resources/list_changed")    \
    X(RESOURCE_UPDATED,       "notifications/resources/updated")         \
    X(ROOTS_CHANGED,          "notifications/roots/list_changed")        \
    X(ELICIT_COMPLETE,        "notifications/elicitation/complete")      \
    X(TASK_STATUS,            "notifications/tasks/status")
// clang-format on

enum method {
    METHOD_UNKNOWN,
#define X(name, text) METHOD_##name,
    METHOD_TABLE(X)
#undef X
        METHODS
};

enum method method_find(struct span text);
const char *method_text(enum method method);

#endif
