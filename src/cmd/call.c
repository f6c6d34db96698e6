// Owns `postern call`, `read` and `prompt`: send one request to one server, and print its answer.
#include "base/mem.h"
#include "base/scan.h"
#include "call_arguments.h"
#include "cmd/base/client.h"
#include "cmd/base/configuration.h"
#include "cmd/base/fail.h"
#include "cmd/base/grants.h"
#include "cmd/base/output.h"
#include "cmd/login/login.h"
#include "command_list.h"
#include "content.h"

struct server_request {
    const struct flags *flags;
    enum method method;
    struct span params;
    int lost;
};

// Sends the request, and logs in as often as needed and permitted (A9). False without an error: a login failed and has
// reported it. `lost` is the result of client_free().
static bool ask(const struct config *config, const char *server, struct server_request *request, struct buf *result,
                struct err *err)
{
    bool may_login = login_allowed(request->flags);
    if (!server)
        server = "url";
    for (int tries = 0;; tries++) {
        struct login_cause cause = {0};
        struct client_wanted wanted = {grants_tenant(request->flags), server, request->flags->defaults};
        struct client *client = client_new(config, &wanted, err);
        bool ok = client && client_request(client, 0, request->method, request->params, result, err);
        bool may = !ok && client && may_login && tries < LOGIN_TRIES;
        const struct access *login = may ? client_wants_login(client, 0) : NULL;
        if (!ok && client)
            output_stderr_of(server, client_stderr(client, 0));
        const struct server *where = login ? upstream_server(client_upstream(client, 0)) : NULL;
        if (login)
            login_cause_set(&cause, login);
        request->lost = client_free(client);
        if (!login)
            return ok;
        bool in = login_run(config, where, request->flags, &cause) == EXIT_OK;
        login_cause_release(&cause);
        *err = (struct err){0};
        if (!in)
            return false;
    }
}

static int request(const struct flags *flags, const char *server, enum method method, struct span params,
                   const char *list)
{
    int code = EXIT_OK;
    struct err err = {0};
    struct buf result = {0};
    struct span flag;
    struct config *config = configuration_for_client(flags, &code);
    if (!config)
        return code;
    struct server_request request = {flags, method, params, EXIT_OK};
    if (!ask(config, server, &request, &result, &err)) {
        code = err.code == ERR_NONE             ? EXIT_UNAVAILABLE
               : err.code == ERR_INVALID_PARAMS ? fail_with(EXIT_NEGATIVE, "%s", err.detail)
                                                : fail_with_err(&err);
    } else {
        if (scan_find(buf_span(&result), "isError", &flag) && span_is(flag, "true"))
            code = EXIT_NEGATIVE;
        if (output_wants_json(flags))
            output_json_text(buf_span(&result));
        else
            content_print(buf_span(&result), list);
        if (flags->save && !content_save(buf_span(&result), list, flags->save, &err))
            code = fail_with_err(&err);
    }
    buf_release(&result);
    config_unref(config);
    return request.lost != EXIT_OK ? request.lost : code;
}

// With --url the server is not named, so the arguments move up by one.
static const char *argument(const struct flags *flags, int i)
{
    int at = flags->url ? i - 1 : i;
    return at >= 0 && at < flags->count ? flags->args[at] : NULL;
}

static int named(const struct flags *flags, enum method method, const char *list)
{
    struct err err = {0};
    struct buf arguments = {0}, params = {0};
    int first = flags->url ? 1 : 2, code;
    bool texts = method == METHOD_PROMPTS_GET;
    if (!call_arguments_read(flags->args + first, flags->count - first, texts, &arguments, &err)) {
        code = flags->url && flags->count > 2 ? fail_with(EXIT_USAGE, "SERVER cannot be given together with --url")
                                              : fail_with(EXIT_USAGE, "%s", err.detail);
    } else {
        buf_put_text(&params, "{\"name\":");
        scan_encode_lossy(span_of(argument(flags, 1)), &params);
        buf_put_text(&params, ",\"arguments\":");
        buf_put_span(&params, buf_span(&arguments));
        buf_put_char(&params, '}');
        code = request(flags, argument(flags, 0), method, buf_span(&params), list);
    }
    buf_release(&arguments);
    buf_release(&params);
    return code;
}

static int run_call(const struct flags *flags) { return named(flags, METHOD_TOOLS_CALL, "content"); }
static int run_prompt(const struct flags *flags) { return named(flags, METHOD_PROMPTS_GET, "messages"); }

static int run_read(const struct flags *flags)
{
    struct buf params = {0};
    if (flags->url && flags->count > 1)
        return fail_with(EXIT_USAGE, "SERVER cannot be given together with --url");
    buf_put_text(&params, "{\"uri\":");
    scan_encode_lossy(span_of(argument(flags, 1)), &params);
    buf_put_char(&params, '}');
    int code = request(flags, argument(flags, 0), METHOD_RESOURCES_READ, buf_span(&params), "contents");
    buf_release(&params);
    return code;
}

#define FLAG_SAVE                                                                                                   \
    {                                                                                                               \
        "save", "FOLDER", FLAG(save), "Also write images, sounds and other data of the result into new files there" \
    }

static const struct flag flags_table[] = {FLAG_CONFIG,      FLAG_SERVER_TENANT, FLAG_URL,
                                          FLAG_TOKEN_FILE,  FLAG_JSON,          FLAG_SAVE,
                                          FLAG_INTERACTIVE, FLAG_HEADLESS,      {0}};

static const struct flag call_flags[] = {
    FLAG_CONFIG,
    FLAG_SERVER_TENANT,
    FLAG_URL,
    FLAG_TOKEN_FILE,
    FLAG_JSON,
    FLAG_SAVE,
    {"defaults", NULL, FLAG(defaults), "If the server sends a form, answer it with the form's default values"},
    FLAG_INTERACTIVE,
    FLAG_HEADLESS,
    {0},
};

const struct command call_command = {
    .name = "call",
    .synopsis = "call SERVER TOOL " CALL_ARGUMENTS_SYNOPSIS "  |  call --url URL TOOL " CALL_ARGUMENTS_SYNOPSIS,
    .summary = "Call a tool and print its result",
    .details =
        "The arguments are a JSON object, also in a file (@FILE) or on standard input (-), or KEY=VALUE for each. A\n"
        "VALUE that is JSON, such as 3, true or [1,2], is taken as such; any other is a text. `postern SERVER TOOL`\n"
        "is short for `postern call SERVER TOOL`; `postern info SERVER TOOL` shows the arguments of a tool.\n"
        "\n"
        "On a terminal, the command prints the text of the result; in a pipe, the whole result. Exit status 1: the\n"
        "tool reported an error.",
    .flags = call_flags,
    .min_args = 2,
    .max_args = FLAG_ARGS,
    .starts_servers = true,
    .run = run_call};
const struct command call_command_read = {.name = "read",
                                          .synopsis = "read SERVER URI  |  read --url URL URI",
                                          .summary = "Read a resource",
                                          .flags = flags_table,
                                          .min_args = 2,
                                          .max_args = 2,
                                          .starts_servers = true,
                                          .run = run_read};
const struct command call_command_prompt = {.name = "prompt",
                                            .synopsis = "prompt SERVER NAME " CALL_ARGUMENTS_SYNOPSIS
                                                        "  |  prompt --url URL NAME " CALL_ARGUMENTS_SYNOPSIS,
                                            .summary = "Get a prompt",
                                            .flags = flags_table,
                                            .min_args = 2,
                                            .max_args = FLAG_ARGS,
                                            .starts_servers = true,
                                            .run = run_prompt};
