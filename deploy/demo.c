/* A small MCP server over stdio, as a server for a trial of the gateway: three tools, a resource, a template, a prompt.
 *
 * It speaks the revisions that begin with `initialize` (2024-11-05 to 2025-11-25), one JSON message per line, and ends
 * when its input does. It is a program of its own and shares no code with the gateway.
 *
 * A handler gets the request's params (an object, never NULL) and returns the result, or NULL after fail().
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GREETING "demo://greeting/"
#define NAME_MAX_BYTES 200

enum rpc_code {
    RPC_PARSE = -32700,
    RPC_REQUEST = -32600,
    RPC_METHOD = -32601,
    RPC_PARAMS = -32602,
    RPC_INTERNAL = -32603,
    RPC_RESOURCE = -32002,
};

struct demo {
    bool batches;  /* the negotiated revision has JSON-RPC batches: only 2025-03-26 */
    json_t *error; /* the error set by fail() for the current request, or NULL */
};

/* Revisions, oldest first; the last is offered to a client that asks for an unknown one. */
static const char *const revisions[] = {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"};
static const size_t revision_count = sizeof revisions / sizeof *revisions;

/* Names offered when a client completes the argument `name`. */
static const char *const names[] = {"Ada", "Alan", "Barbara", "Dennis", "Edsger", "Grace", "Ken"};

static json_t *fail(struct demo *d, enum rpc_code code, const char *message, json_t *extra)
{
    json_decref(d->error);
    d->error = json_pack("{s:i, s:s, s:o*}", "code", (int)code, "message", message, "data", extra);
    return NULL;
}

static json_t *text_content(const char *text) { return json_pack("[{s:s, s:s}]", "type", "text", "text", text); }

static json_t *text_result(const char *text, json_t *structured)
{
    return json_pack("{s:o, s:o*}", "content", text_content(text), "structuredContent", structured);
}

/* The result of a tool that failed: the model can read the reason there. */
static json_t *tool_error(const char *text)
{
    return json_pack("{s:o, s:b}", "content", text_content(text), "isError", 1);
}

/* ---- tools ---- */

static json_t *echo_call(json_t *arguments)
{
    const char *message = json_string_value(json_object_get(arguments, "message"));

    return message ? text_result(message, NULL) : tool_error("echo needs a string: message");
}

static json_t *add_call(json_t *arguments)
{
    json_t *a = json_object_get(arguments, "a");
    json_t *b = json_object_get(arguments, "b");
    json_int_t whole;
    json_t *sum;
    json_t *result;
    char *text;

    if (!json_is_number(a) || !json_is_number(b))
        return tool_error("add needs two numbers: a and b");
    if (json_is_integer(a) && json_is_integer(b) &&
        !__builtin_add_overflow(json_integer_value(a), json_integer_value(b), &whole))
        sum = json_integer(whole);
    else
        sum = json_real(json_number_value(a) + json_number_value(b)); /* NULL for infinity */
    if (!sum)
        return tool_error("the sum is too large for a number");
    text = json_dumps(sum, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    result = text ? text_result(text, json_pack("{s:O}", "sum", sum)) : NULL;
    free(text);
    json_decref(sum);
    return result;
}

static json_t *now_call(json_t *arguments)
{
    time_t now = time(NULL);
    struct tm utc;
    char text[sizeof "2026-01-01T00:00:00Z"];

    (void)arguments;
    if (!gmtime_r(&now, &utc) || !strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc))
        return tool_error("the clock cannot be read");
    return text_result(text, json_pack("{s:s, s:I}", "time", text, "unix", (json_int_t)now));
}

static const struct tool {
    const char *name;
    const char *title;
    const char *description;
    const char *input;  /* JSON Schema of the arguments */
    const char *output; /* JSON Schema of structuredContent, or NULL */
    bool idempotent;
    json_t *(*call)(json_t *arguments);
} tools[] = {
    {
        .name = "echo",
        .title = "Echo",
        .description = "Returns the message it was given, unchanged. Useful to see that a call "
                       "reaches the server and comes back.",
        .input = "{\"type\": \"object\","
                 " \"properties\": {\"message\": {\"type\": \"string\","
                 "   \"description\": \"The text to send back.\"}},"
                 " \"required\": [\"message\"], \"additionalProperties\": false}",
        .idempotent = true,
        .call = echo_call,
    },
    {
        .name = "add",
        .title = "Add two numbers",
        .description = "Adds two numbers and returns their sum.",
        .input = "{\"type\": \"object\","
                 " \"properties\": {"
                 "   \"a\": {\"type\": \"number\", \"description\": \"The first number.\"},"
                 "   \"b\": {\"type\": \"number\", \"description\": \"The second number.\"}},"
                 " \"required\": [\"a\", \"b\"], \"additionalProperties\": false}",
        .output = "{\"type\": \"object\","
                  " \"properties\": {\"sum\": {\"type\": \"number\","
                  "   \"description\": \"The sum of a and b.\"}},"
                  " \"required\": [\"sum\"]}",
        .idempotent = true,
        .call = add_call,
    },
    {
        .name = "now",
        .title = "Current time",
        .description = "Returns the current time of the server in UTC.",
        .input = "{\"type\": \"object\", \"properties\": {}, \"additionalProperties\": false}",
        .output = "{\"type\": \"object\","
                  " \"properties\": {"
                  "   \"time\": {\"type\": \"string\", \"format\": \"date-time\","
                  "     \"description\": \"The time in ISO 8601, UTC.\"},"
                  "   \"unix\": {\"type\": \"integer\","
                  "     \"description\": \"Seconds since 1970-01-01.\"}},"
                  " \"required\": [\"time\", \"unix\"]}",
        .call = now_call,
    },
};
static const size_t tool_count = sizeof tools / sizeof *tools;

static json_t *tool_describe(const struct tool *tool)
{
    json_t *input = json_loads(tool->input, 0, NULL);
    json_t *output = tool->output ? json_loads(tool->output, 0, NULL) : NULL;
    json_t *annotations = json_pack("{s:b, s:b, s:b, s:b}", "readOnlyHint", 1, "destructiveHint", 0, "idempotentHint",
                                    (int)tool->idempotent, "openWorldHint", 0);

    return json_pack("{s:s, s:s, s:s, s:o, s:o*, s:o}", "name", tool->name, "title", tool->title, "description",
                     tool->description, "inputSchema", input, "outputSchema", output, "annotations", annotations);
}

static json_t *on_tools_list(struct demo *d, json_t *params)
{
    json_t *list = json_array();

    if (json_object_get(params, "cursor")) {
        json_decref(list);
        return fail(d, RPC_PARAMS, "Unknown cursor: there is one page", NULL);
    }
    for (size_t i = 0; i < tool_count; i++)
        json_array_append_new(list, tool_describe(&tools[i]));
    return json_pack("{s:o}", "tools", list);
}

static json_t *on_tools_call(struct demo *d, json_t *params)
{
    const char *name = json_string_value(json_object_get(params, "name"));
    json_t *given = json_object_get(params, "arguments");
    json_t *arguments;
    json_t *result;

    if (!name)
        return fail(d, RPC_PARAMS, "tools/call needs a string: name", NULL);
    if (given && !json_is_object(given))
        return fail(d, RPC_PARAMS, "arguments must be an object", NULL);
    for (size_t i = 0; i < tool_count; i++) {
        if (strcmp(tools[i].name, name) != 0)
            continue;
        arguments = given ? json_incref(given) : json_object();
        result = tools[i].call(arguments);
        json_decref(arguments);
        return result;
    }
    return fail(d, RPC_PARAMS, "Unknown tool", json_pack("{s:s}", "name", name));
}

/* ---- resources ---- */

static json_t *on_resources_list(struct demo *d, json_t *params)
{
    if (json_object_get(params, "cursor"))
        return fail(d, RPC_PARAMS, "Unknown cursor: there is one page", NULL);
    return json_pack("{s:[{s:s, s:s, s:s, s:s, s:s}]}", "resources", "uri", "demo://welcome", "name", "welcome",
                     "title", "Welcome", "description", "A few words about this demonstration server.", "mimeType",
                     "text/plain");
}

static json_t *on_templates_list(struct demo *d, json_t *params)
{
    if (json_object_get(params, "cursor"))
        return fail(d, RPC_PARAMS, "Unknown cursor: there is one page", NULL);
    return json_pack("{s:[{s:s, s:s, s:s, s:s, s:s}]}", "resourceTemplates", "uriTemplate", GREETING "{name}", "name",
                     "greeting", "title", "Greeting", "description", "A greeting for the person named in the URI.",
                     "mimeType", "text/plain");
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Undoes percent-encoding; false for a bad escape, and for a name that is empty, has a slash or does not fit. */
static bool name_parse(const char *from, char *to, size_t size)
{
    size_t n = 0;

    for (; *from; from++) {
        char c = *from;

        if (c == '%') {
            int high = hex_digit(from[1]);
            int low = high < 0 ? -1 : hex_digit(from[2]);

            if (low < 0 || !(high | low))
                return false;
            c = (char)(high << 4 | low);
            from += 2;
        } else if (c == '/' || c == '?' || c == '#') {
            return false;
        }
        if (n + 1 >= size)
            return false;
        to[n++] = c;
    }
    to[n] = '\0';
    return n > 0;
}

static json_t *on_resources_read(struct demo *d, json_t *params)
{
    const char *uri = json_string_value(json_object_get(params, "uri"));
    json_t *text = NULL;

    if (!uri)
        return fail(d, RPC_PARAMS, "resources/read needs a string: uri", NULL);
    if (!strcmp(uri, "demo://welcome")) {
        text = json_string("Welcome. You reached the demonstration server behind the gateway.\n");
    } else if (!strncmp(uri, GREETING, strlen(GREETING))) {
        char name[NAME_MAX_BYTES];

        if (name_parse(uri + strlen(GREETING), name, sizeof name))
            text = json_sprintf("Hello, %s!\n", name); /* NULL when the name is not UTF-8 */
    }
    if (!text)
        return fail(d, RPC_RESOURCE, "Resource not found", json_pack("{s:s}", "uri", uri));
    return json_pack("{s:[{s:s, s:s, s:o}]}", "contents", "uri", uri, "mimeType", "text/plain", "text", text);
}

/* ---- prompts and completion ---- */

static json_t *on_prompts_list(struct demo *d, json_t *params)
{
    if (json_object_get(params, "cursor"))
        return fail(d, RPC_PARAMS, "Unknown cursor: there is one page", NULL);
    return json_pack("{s:[{s:s, s:s, s:s, s:[{s:s, s:s, s:s, s:b}]}]}", "prompts", "name", "introduce", "title",
                     "Introduce a person", "description", "Asks the model to introduce a person to the group.",
                     "arguments", "name", "name", "title", "Name", "description", "The person to introduce.",
                     "required", 1);
}

static json_t *on_prompts_get(struct demo *d, json_t *params)
{
    const char *prompt = json_string_value(json_object_get(params, "name"));
    json_t *arguments = json_object_get(params, "arguments");
    const char *name = json_string_value(json_object_get(arguments, "name"));
    json_t *text;

    if (!prompt)
        return fail(d, RPC_PARAMS, "prompts/get needs a string: name", NULL);
    if (strcmp(prompt, "introduce") != 0)
        return fail(d, RPC_PARAMS, "Unknown prompt", json_pack("{s:s}", "name", prompt));
    if (!name)
        return fail(d, RPC_PARAMS, "The prompt needs the argument: name", NULL);
    text = json_sprintf("Please introduce %s to the group in two friendly sentences.", name);
    return json_pack("{s:s, s:[{s:s, s:{s:s, s:o}}]}", "description", "Introduces a person", "messages", "role", "user",
                     "content", "type", "text", "text", text);
}

static bool completes_name(json_t *ref)
{
    const char *type = json_string_value(json_object_get(ref, "type"));
    const char *prompt = json_string_value(json_object_get(ref, "name"));
    const char *uri = json_string_value(json_object_get(ref, "uri"));

    if (type && prompt && !strcmp(type, "ref/prompt"))
        return !strcmp(prompt, "introduce");
    return type && uri && !strcmp(type, "ref/resource") && !strcmp(uri, GREETING "{name}");
}

static json_t *on_complete(struct demo *d, json_t *params)
{
    json_t *argument = json_object_get(params, "argument");
    const char *name = json_string_value(json_object_get(argument, "name"));
    const char *typed = json_string_value(json_object_get(argument, "value"));
    json_t *values;

    if (!completes_name(json_object_get(params, "ref")))
        return fail(d, RPC_PARAMS, "Unknown prompt or template in ref", NULL);
    if (!name || !typed)
        return fail(d, RPC_PARAMS, "argument needs two strings: name and value", NULL);
    values = json_array();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, "name") && !strncmp(names[i], typed, strlen(typed)))
            json_array_append_new(values, json_string(names[i]));
    return json_pack("{s:{s:o, s:I, s:b}}", "completion", "values", values, "total",
                     (json_int_t)json_array_size(values), "hasMore", 0);
}

/* ---- life cycle ---- */

static json_t *on_initialize(struct demo *d, json_t *params)
{
    const char *asked = json_string_value(json_object_get(params, "protocolVersion"));
    const char *revision = revisions[revision_count - 1];

    if (!asked)
        return fail(d, RPC_PARAMS, "initialize needs a string: protocolVersion", NULL);
    for (size_t i = 0; i < revision_count; i++)
        if (!strcmp(revisions[i], asked))
            revision = revisions[i];
    d->batches = !strcmp(revision, "2025-03-26");
    return json_pack("{s:s, s:{s:{}, s:{}, s:{}, s:{}}, s:{s:s, s:s, s:s}, s:s}", "protocolVersion", revision,
                     "capabilities", "tools", "resources", "prompts", "completions", "serverInfo", "name",
                     "postern-demo", "title", "Postern demonstration server", "version", POSTERN_VERSION,
                     "instructions",
                     "A demonstration: echo repeats a message, add sums two numbers, now tells the "
                     "time.");
}

static json_t *on_ping(struct demo *d, json_t *params)
{
    (void)d;
    (void)params;
    return json_object();
}

static const struct demo_method {
    const char *name;
    json_t *(*handle)(struct demo *d, json_t *params);
} methods[] = {
    {"initialize", on_initialize},         {"ping", on_ping},
    {"tools/list", on_tools_list},         {"tools/call", on_tools_call},
    {"resources/list", on_resources_list}, {"resources/templates/list", on_templates_list},
    {"resources/read", on_resources_read}, {"prompts/list", on_prompts_list},
    {"prompts/get", on_prompts_get},       {"completion/complete", on_complete},
};

static json_t *dispatch(struct demo *d, const char *method, json_t *given)
{
    json_t *params;
    json_t *result;

    if (given && !json_is_object(given))
        return fail(d, RPC_PARAMS, "params must be an object", NULL);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (strcmp(methods[i].name, method) != 0)
            continue;
        params = given ? json_incref(given) : json_object();
        result = methods[i].handle(d, params);
        json_decref(params);
        return result || d->error ? result : fail(d, RPC_INTERNAL, "Out of memory", NULL);
    }
    return fail(d, RPC_METHOD, "Method not found", json_pack("{s:s}", "method", method));
}

/* The reply to one message. NULL for a notification, and for a response (this server sends no requests). */
static json_t *answer(struct demo *d, json_t *message)
{
    const char *version = json_string_value(json_object_get(message, "jsonrpc"));
    json_t *method = json_object_get(message, "method");
    json_t *id = json_object_get(message, "id");
    bool id_valid = json_is_string(id) || json_is_integer(id);
    json_t *result = NULL;
    json_t *reply;

    if (version && !strcmp(version, "2.0") && !method && id_valid &&
        (json_object_get(message, "result") || json_object_get(message, "error")))
        return NULL;
    if (!version || strcmp(version, "2.0") != 0 || !json_is_string(method) || (id && !id_valid))
        fail(d, RPC_REQUEST, "Invalid Request", NULL);
    else if (!id)
        return NULL;
    else
        result = dispatch(d, json_string_value(method), json_object_get(message, "params"));

    reply = json_pack("{s:s, s:o}", "jsonrpc", "2.0", "id", id_valid ? json_incref(id) : json_null());
    if (result)
        json_object_set_new(reply, "result", result);
    else
        json_object_set_new(reply, "error", d->error);
    d->error = NULL;
    return reply;
}

static json_t *answer_batch(struct demo *d, json_t *batch)
{
    json_t *replies = json_array();
    json_t *message;
    size_t i;

    json_array_foreach(batch, i, message) {
        json_t *reply = answer(d, message);

        if (reply)
            json_array_append_new(replies, reply);
    }
    if (json_array_size(replies))
        return replies;
    json_decref(replies);
    return NULL;
}

static json_t *answer_line(struct demo *d, const char *line, size_t length)
{
    json_error_t why;
    json_t *message = json_loadb(line, length, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &why);
    json_t *reply;

    if (!message) {
        reply = json_pack("{s:s, s:n, s:{s:i, s:s}}", "jsonrpc", "2.0", "id", "error", "code", (int)RPC_PARSE,
                          "message", "Parse error");
    } else if (d->batches && json_array_size(message)) {
        reply = answer_batch(d, message);
    } else {
        reply = answer(d, message); /* an array here has no method, so it is an invalid request */
    }
    json_decref(message);
    return reply;
}

int main(void)
{
    struct demo d = {0};
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    int status = EXIT_SUCCESS;

    while ((length = getline(&line, &size, stdin)) > 0) {
        json_t *reply;

        if (line[strspn(line, " \t\r\n")] == '\0' && strlen(line) == (size_t)length)
            continue;
        reply = answer_line(&d, line, (size_t)length);
        if (reply) {
            bool written = json_dumpf(reply, stdout, JSON_COMPACT | JSON_REAL_PRECISION(15)) == 0 &&
                           putchar('\n') != EOF && fflush(stdout) == 0;

            json_decref(reply);
            if (!written) {
                fprintf(stderr, "postern-demo: the reply cannot be written\n");
                status = EXIT_FAILURE;
                break;
            }
        }
    }
    free(line);
    return status;
}
