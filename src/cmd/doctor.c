// Owns `postern doctor`: how the authorization of a server would be found, address by address.
#include "auth/access/access.h"
#include "auth/login/flow.h"
#include "base/log.h"
#include "cmd/base/configuration.h"
#include "cmd/base/fail.h"
#include "cmd/base/grants.h"
#include "command_list.h"
#include <stdio.h>

struct diagnosis {
    struct loop *loop;
    int code;
};

static void on_note(void *arg, const char *note)
{
    (void)arg;
    puts(note);
}

static void on_end(void *arg, enum login_end end, const struct grant *grant, const struct err *err)
{
    struct diagnosis *diagnosis = arg;
    (void)grant;
    diagnosis->code = EXIT_OK;
    if (end == LOGIN_END_FOUND)
        puts("the authorization server was found; to log in, run: postern login");
    else
        diagnosis->code =
            fail_with(end == LOGIN_END_REGISTRATION ? EXIT_REGISTRATION : EXIT_DISCOVERY, "%s", err->detail);
    loop_stop(diagnosis->loop);
}

static int look(const struct server *server, const struct flags *flags)
{
    struct err err = {0};
    struct diagnosis diagnosis = {.loop = loop_new(&err)};
    struct http_client *http = diagnosis.loop ? http_client_new(diagnosis.loop, &err) : NULL;
    if (http) {
        struct login_flow_spec spec = {.loop = diagnosis.loop,
                                       .http = http,
                                       .options = &server->auth,
                                       .tenant = grants_tenant(flags),
                                       .user = ACCESS_SHARED_USER,
                                       .server_url = server->url,
                                       .probe = server_probe,
                                       .redirect_uri = "http://127.0.0.1/callback",
                                       .only_discover = true,
                                       .on_note = on_note,
                                       .on_end = on_end,
                                       .arg = &diagnosis};
        struct login_flow *flow = login_flow_start(&spec);
        loop_run(diagnosis.loop);
        login_flow_free(flow);
    } else {
        diagnosis.code = fail_with_err(&err);
    }
    http_client_free(http);
    if (diagnosis.loop)
        loop_free(diagnosis.loop);
    return diagnosis.code;
}

static int run(const struct flags *flags)
{
    int code = EXIT_OK;
    struct config *config = configuration_load(flags, &code);
    if (!config)
        return code;
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    const struct server *server = grants_server(config, flags, &code);
    if (server)
        code = look(server, flags);
    config_unref(config);
    return code;
}

static const struct flag flags_table[] = {FLAG_CONFIG, FLAG_URL, FLAG_SERVER_TENANT, {0}};

const struct command doctor_command = {
    .name = "doctor",
    .synopsis = "doctor SERVER | doctor --url URL",
    .summary = "Show how the authorization server of a server is found",
    .details = "Prints every address that is tried, its status, and the decision. The command does not register\n"
               "a client and does not log in.\n"
               "Exit status 14: the authorization server was not found.",
    .flags = flags_table,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
