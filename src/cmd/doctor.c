// Owns `postern doctor`: how the authorization of a server would be found, address by address.
#include "auth/oauth_flow.h"
#include "base/log.h"
#include "login.h"
#include <stdio.h>

struct visit {
    struct loop *loop;
    int code;
};

static void on_note(void *arg, const char *note)
{
    (void)arg;
    puts(note);
}

static void on_end(void *arg, enum oauth_end end, const struct grant *grant, const struct err *err)
{
    struct visit *visit = arg;
    (void)grant;
    visit->code = EXIT_OK;
    if (end == OAUTH_END_FOUND)
        puts("a login can be tried: postern login");
    else
        visit->code = cmd_fail(end == OAUTH_END_REGISTRATION ? EXIT_REGISTRATION : EXIT_DISCOVERY, "%s", err->detail);
    loop_stop(visit->loop);
}

static int look(const struct server *server, const struct flags *flags)
{
    struct err err = {0};
    struct visit visit = {.loop = loop_new(&err)};
    struct http_client *http = visit.loop ? http_client_new(visit.loop, &err) : NULL;
    if (http) {
        struct oauth_flow_spec spec = {.loop = visit.loop,
                                       .http = http,
                                       .options = &server->auth,
                                       .tenant = login_tenant(flags),
                                       .user = ACCESS_SHARED_USER,
                                       .server_url = server->url,
                                       .redirect_uri = "http://127.0.0.1/callback",
                                       .only_discover = true,
                                       .on_note = on_note,
                                       .on_end = on_end,
                                       .arg = &visit};
        struct oauth_flow *flow = oauth_flow_start(&spec);
        loop_run(visit.loop);
        oauth_flow_free(flow);
    } else {
        visit.code = cmd_fail_err(&err);
    }
    http_client_free(http);
    if (visit.loop)
        loop_free(visit.loop);
    return visit.code;
}

static int run(const struct flags *flags)
{
    int code = EXIT_OK;
    struct config *config = cmd_config(flags, &code);
    if (!config)
        return code;
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    const struct server *server = login_server(config, flags, &code);
    if (server)
        code = look(server, flags);
    config_free(config);
    return code;
}

static const struct flag flags_table[] = {
    FLAG_CONFIG, FLAG_URL, {"tenant", "NAME", FLAG(tenant), "The server is one of this tenant"}, {0}};

const struct command command_doctor = {
    .name = "doctor",
    .synopsis = "doctor SERVER | doctor --url URL",
    .summary = "Show how the authorization of a server is found",
    .details =
        "Every address that is tried, its status, and what was decided. Nothing is registered and nobody is asked.\n"
        "Exit status 14: it was not found.",
    .flags = flags_table,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
