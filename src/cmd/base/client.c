// Owns the command line's own connections to servers.
#include "cmd/base/client.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/scan.h"
#include "cmd/base/fail.h"
#include "cmd/base/grants.h"
#include "cmd/base/output.h"
#include "find.h"
#include "saving.h"
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#define CLOSE_MS 3000
#define PROGRESS_FIRST_MS 1500
#define PROGRESS_MS 5000
#define STDERR_SHOWN 10  // lines

struct one {
    struct client *client;
    const char *tenant;
    struct access *access;  // NULL: no credentials
    struct upstream *upstream;
    struct source *source;
    struct buf last_lines;  // of its stderr, after it failed
    bool wants_login;       // the last request failed because it requires a login
};

struct client {
    struct loop *loop;
    struct http_client *http;
    struct grant_store *grants;  // NULL: no logins are stored
    struct one *all;
    size_t count, open;
    struct loop_timer progress;
    int64_t since_ms;  // when the current wait began
    bool loading, answers;
};

static bool settled(const struct client *client)
{
    for (size_t i = 0; i < client->count; i++)
        if (!source_settled(client->all[i].source))
            return false;
    return true;
}

static void stop_if_settled(struct client *client)
{
    if (client->loading && settled(client))
        loop_stop(client->loop);
}

static void on_state(void *arg, struct upstream *upstream)
{
    struct one *one = arg;
    enum upstream_state state = upstream_state(upstream);
    if (state == UPSTREAM_READY && one->client->loading)
        source_refresh(one->source);
    if (state == UPSTREAM_BACKOFF || state == UPSTREAM_DOWN) {
        buf_clear(&one->last_lines);
        upstream_put_stderr(upstream, STDERR_SHOWN, &one->last_lines);
        scan_mend(one->last_lines.at, one->last_lines.len);
        source_went_down(one->source);
    }
    stop_if_settled(one->client);
}

static void on_notification(void *arg, struct upstream *upstream, const struct message *message,
                            struct upstream_request *origin)
{
    (void)arg;
    (void)upstream;
    (void)message;
    (void)origin;
}

// Whether the object has a member with this name, a raw string.
static bool has_member(struct span object, struct span raw_name)
{
    struct span value;
    struct buf name = {0};
    scan_decode(raw_name, &name);
    bool found = scan_find(object, buf_text(&name), &value);
    buf_release(&name);
    return found;
}

// The answer to a form: each property's default, as it was sent. False: a required property does not have a default.
static bool put_defaults(struct span schema, struct buf *out)
{
    struct span properties = {0}, required = {0}, key, property, value;
    bool whole = true;
    buf_put_char(out, '{');
    if (scan_find(schema, "properties", &properties) && scan_is_object(properties))
        for (struct scan_walk walk = scan_walk(properties); scan_member(&walk, &key, &property);)
            if (scan_find(property, "default", &value)) {
                buf_put_text(out, out->at[out->len - 1] == '{' ? "" : ",");
                buf_put_span(out, key);
                buf_put_char(out, ':');
                buf_put_span(out, value);
            }
    buf_put_char(out, '}');
    if (scan_find(schema, "required", &required) && scan_is_array(required))
        for (struct scan_walk walk = scan_walk(required); scan_element(&walk, &key);)
            whole = whole && scan_is_string(key) && has_member(buf_span(out), key);
    return whole;
}

static void answer_form(struct upstream *upstream, const struct message *message)
{
    struct span schema = {0};
    struct buf content = {0}, result = {0};
    (void)scan_find(message->params, "requestedSchema", &schema);
    if (put_defaults(schema, &content)) {
        buf_put_text(&result, "{\"action\":\"accept\",\"content\":");
        buf_put_span(&result, buf_span(&content));
        buf_put_char(&result, '}');
    } else {
        buf_put_text(&result, "{\"action\":\"decline\"}");
    }
    upstream_message_answer(upstream, message->id, buf_span(&result));
    buf_release(&content);
    buf_release(&result);
}

static void on_request(void *arg, struct upstream *upstream, const struct message *message,
                       struct upstream_request *origin)
{
    const struct one *one = arg;
    (void)origin;
    if (one->client->answers && method_find(message->method) == METHOD_ELICIT)
        answer_form(upstream, message);
    else
        upstream_message_refuse(upstream, message->id, -32601, "method not found");
}

static void on_change(void *arg, struct source *source, unsigned kinds)
{
    (void)source;
    (void)kinds;
    struct one *one = arg;
    stop_if_settled(one->client);
}

// Tools like npx may install a whole package before the server writes its first output.
static void on_progress(struct loop_timer *timer)
{
    struct client *client = timer->arg;
    int64_t seconds = (loop_now(client->loop) - client->since_ms + 500) / 1000;
    for (size_t i = 0; i < client->count; i++) {
        const struct one *one = &client->all[i];
        const char *name = upstream_server(one->upstream)->name;
        struct buf line = {0};
        if (client->loading && source_settled(one->source))
            continue;
        upstream_put_stderr(one->upstream, 1, &line);
        output_tame(line.at, line.len, "");
        fprintf(stderr, "postern: waiting for server \"%s\" to %s (%d s)%s%s\n", name,
                upstream_state(one->upstream) == UPSTREAM_READY ? "answer" : "start", (int)seconds,
                line.len ? "; its last line on stderr: " : "", buf_text(&line));
        buf_release(&line);
    }
    loop_timer_set(client->loop, timer, PROGRESS_MS);
}

static const struct upstream_listener listener = {
    .on_state = on_state, .on_notification = on_notification, .on_request = on_request};

// A header of the configuration is sent as it is; a login does not replace it.
static bool has_authorization(const struct server *server)
{
    for (size_t i = 0; i < server->headers.count; i++)
        if (strcasecmp(server->headers.at[i].name, "Authorization") == 0)
            return true;
    return false;
}

static void add(struct client *client, const struct config *config, const char *tenant, const struct server *server)
{
    struct one *one = &client->all[client->count++];
    bool optional = server->auth.mode == ACCESS_NONE || server->auth.mode == ACCESS_USER;
    struct access_spec presented = {.loop = client->loop,
                                    .http = client->http,
                                    .store = client->grants,
                                    .mode = optional ? ACCESS_OPTIONAL : (enum access_mode)server->auth.mode,
                                    .options = &server->auth,
                                    .tenant = tenant,
                                    .user = ACCESS_SHARED_USER,
                                    .server_url = server->url,
                                    .probe = server_probe,
                                    .server_name = server->name};
    one->access = server->url && !has_authorization(server) ? access_new(&presented) : NULL;
    struct upstream_spec spec = {.loop = client->loop,
                                 .http = client->http,
                                 .server = server,
                                 .capabilities = client->answers ? "{\"elicitation\":{\"form\":{}}}" : "{}",
                                 .max_message = (size_t)config->limits.max_message,
                                 .listener = &listener,
                                 .arg = one,
                                 .access = one->access};
    one->client = client;
    one->tenant = tenant;
    one->upstream = upstream_new(&spec);
    one->source = source_new(client->loop, one->upstream, on_change, one);
}

// The tenant's server of this name; NULL: every server that is not disabled.
static void add_wanted(struct client *client, const struct config *config, size_t tenant, const char *name)
{
    const char *tenant_name = config_tenant_name(config, tenant);
    const struct option_items *items = config_tenant_servers(config, tenant);
    const struct server *servers = items->at, *named = name ? server_find(items, span_of(name)) : NULL;
    if (named)
        add(client, config, tenant_name, named);
    for (size_t i = 0; !name && i < items->count; i++)
        if (!servers[i].disabled)
            add(client, config, tenant_name, &servers[i]);
}

static void add_all(struct client *client, const struct config *config, const struct client_wanted *wanted)
{
    size_t room = 0;
    for (size_t i = 0; i <= config->tenants.count; i++)
        room += config_tenant_servers(config, i)->count;
    client->all = mem_alloc((room + 1) * sizeof *client->all);
    for (size_t i = 0; i <= config->tenants.count; i++)
        if (!wanted->tenant || strcmp(wanted->tenant, config_tenant_name(config, i)) == 0)
            add_wanted(client, config, i, wanted->server);
}

struct client *client_new(const struct config *config, const struct client_wanted *wanted, struct err *err)
{
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    if (!find_check_tenant(config, wanted->tenant, err))
        return NULL;
    struct client *client = mem_new(struct client);
    client->answers = wanted->answers;
    client->progress = (struct loop_timer){.on_due = on_progress, .arg = client};
    client->loop = loop_new(err);
    client->http = client->loop ? http_client_new(client->loop, err) : NULL;
    if (!client->http || !grants_open(config, client->loop, false, &client->grants, err)) {
        client_free(client);
        return NULL;
    }
    add_all(client, config, wanted);
    if (!wanted->server || client->count)
        return client;
    find_set_unknown(config, wanted->tenant, wanted->server, err);
    client_free(client);
    return NULL;
}

static void on_closed(void *arg, struct upstream *upstream)
{
    (void)upstream;
    struct client *client = arg;
    if (--client->open == 0)
        loop_stop(client->loop);
}

int client_free(struct client *client)
{
    if (!client)
        return EXIT_OK;
    client->loading = false;
    client->open = client->count + 1;
    for (size_t i = 0; i < client->count; i++)
        upstream_close(client->all[i].upstream, CLOSE_MS, on_closed, client);
    if (--client->open)
        loop_run(client->loop);
    for (size_t i = 0; i < client->count; i++) {
        source_free(client->all[i].source);
        upstream_free(client->all[i].upstream);
        access_free(client->all[i].access);
        buf_release(&client->all[i].last_lines);
    }
    int code = saving_close(client->grants, client->loop);
    free(client->all);
    http_client_free(client->http);
    loop_free(client->loop);
    free(client);
    return code;
}

const struct access *client_wants_login(const struct client *client, size_t i)
{
    const struct one *one = &client->all[i];
    bool refused = one->access && !source_loaded(one->source) && access_challenge(one->access)->bearer;
    bool wants = one->wants_login || upstream_needs_login(one->upstream) || refused;
    return wants ? one->access : NULL;
}

size_t client_count(const struct client *client) { return client->count; }
struct upstream *client_upstream(const struct client *client, size_t i) { return client->all[i].upstream; }
const struct source *client_source(const struct client *client, size_t i) { return client->all[i].source; }

const char *client_tenant(const struct client *client, size_t i) { return client->all[i].tenant; }
const char *client_stderr(const struct client *client, size_t i) { return buf_text(&client->all[i].last_lines); }

static void run_loop(struct client *client)
{
    client->since_ms = loop_now(client->loop);
    if (isatty(STDERR_FILENO))
        loop_timer_set(client->loop, &client->progress, PROGRESS_FIRST_MS);
    loop_run(client->loop);
    loop_timer_stop(client->loop, &client->progress);
}

void client_load(struct client *client)
{
    client->loading = true;
    for (size_t i = 0; i < client->count; i++)
        source_load(client->all[i].source);
    if (!settled(client))
        run_loop(client);
    client->loading = false;
}

struct client_wait {
    struct upstream_request request;
    struct client *client;
    struct buf *out;
    struct err *err;
    bool ok, done;
};

static void on_reply(struct upstream_request *request, const struct upstream_reply *reply)
{
    struct client_wait *wait = request->arg;
    struct span text;
    wait->done = true;
    loop_stop(wait->client->loop);
    if (reply->failure) {
        *wait->err = *reply->failure;
    } else if (reply->error.at) {
        struct buf message = {0};
        if (scan_find(reply->error, "message", &text) && scan_is_string(text))
            scan_decode(text, &message);
        (void)err_set(wait->err, ERR_INVALID_PARAMS, "the server answered with an error: %s", buf_text(&message));
        buf_release(&message);
    } else {
        buf_put_span(wait->out, reply->result);
        wait->ok = true;
    }
}

bool client_request(struct client *client, size_t i, enum method method, struct span params, struct buf *out,
                    struct err *err)
{
    struct client_wait wait = {.request = {.on_reply = on_reply}, .client = client, .out = out, .err = err};
    wait.request.arg = &wait;
    struct span tool;
    if (method == METHOD_TOOLS_CALL && scan_find(params, "name", &tool) && scan_is_string(tool))
        wait.request.timeout_ms =
            server_tool_timeout(upstream_server(client->all[i].upstream), span_make(tool.at + 1, tool.len - 2));
    client->all[i].wants_login = false;
    upstream_request_reserve(client->all[i].upstream, &wait.request);
    upstream_request_send(&wait.request, method_text(method), params);
    if (!wait.done)
        run_loop(client);
    client->all[i].wants_login = !wait.ok && err->code == ERR_LOGIN;
    return wait.ok;
}
