// Owns the command line's own connection to servers.
#include "client.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/scan.h"
#include "login.h"
#include <stdlib.h>

#define CLOSE_MS 3000

struct one {
    struct client *client;
    struct access *access;  // NULL: nothing is presented
    struct upstream *upstream;
    struct source *source;
    bool wants_login;  // the last request failed for want of one
};

struct client {
    struct loop *loop;
    struct http_client *http;
    struct token_store *tokens;  // NULL: nobody has logged in anywhere
    struct one *all;
    size_t count, open;
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
    if (state == UPSTREAM_BACKOFF || state == UPSTREAM_DOWN)
        source_went_down(one->source);
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

// The answer to a form: each property's default. NULL: a property that is required has none.
static json_t *defaults_of(const json_t *schema)
{
    json_t *content = json_object(), *property, *name;
    const char *key;
    size_t i;
    bool whole = true;
    json_object_foreach(json_object_get(schema, "properties"), key, property) {
        json_t *value = json_object_get(property, "default");
        if (value)
            json_object_set(content, key, value);
    }
    json_array_foreach(json_object_get(schema, "required"), i, name)
        whole = whole && json_is_string(name) && json_object_get(content, json_string_value(name));
    if (!whole)
        json_decref(content);
    return whole ? content : NULL;
}

static void answer_form(struct upstream *upstream, const struct message *message)
{
    struct err err;
    json_t *params = message->params.len ? json_parse(message->params, "elicitation", &err) : NULL;
    json_t *content = defaults_of(json_object_get(params, "requestedSchema"));
    json_t *result = content ? json_pack("{s:s, s:o}", "action", "accept", "content", content)
                             : json_pack("{s:s}", "action", "decline");
    char *text = json_dumps(result, JSON_COMPACT);
    upstream_answer(upstream, message->id, span_of(text));
    free(text);
    json_decref(result);
    json_decref(params);
}

static void on_request(void *arg, struct upstream *upstream, const struct message *message,
                       struct upstream_request *origin)
{
    const struct one *one = arg;
    (void)origin;
    if (one->client->answers && method_find(message->method) == METHOD_ELICIT)
        answer_form(upstream, message);
    else
        upstream_refuse(upstream, message->id, -32601, "method not found");
}

static void on_change(void *arg, struct source *source, unsigned kinds)
{
    (void)source;
    (void)kinds;
    struct one *one = arg;
    stop_if_settled(one->client);
}

static const struct upstream_listener listener = {on_state, on_notification, on_request};

static void add(struct client *client, const struct config *config, const struct server *server)
{
    struct one *one = &client->all[client->count++];
    bool optional = server->auth.mode == ACCESS_NONE || server->auth.mode == ACCESS_USER;
    struct access_spec presented = {.loop = client->loop,
                                    .http = client->http,
                                    .store = client->tokens,
                                    .mode = optional ? ACCESS_OPTIONAL : (enum access_mode)server->auth.mode,
                                    .options = &server->auth,
                                    .tenant = ACCESS_TENANT,
                                    .user = ACCESS_SHARED_USER,
                                    .server_url = server->url,
                                    .server_name = server->name};
    one->access = server->url ? access_new(&presented) : NULL;
    struct upstream_spec spec = {.loop = client->loop,
                                 .http = client->http,
                                 .server = server,
                                 .capabilities = client->answers ? "{\"elicitation\":{\"form\":{}}}" : "{}",
                                 .max_message = (size_t)config->limits.max_message,
                                 .listener = &listener,
                                 .arg = one,
                                 .access = one->access};
    one->client = client;
    one->upstream = upstream_new(&spec);
    one->source = source_new(client->loop, one->upstream, on_change, one);
}

const struct err *client_unknown(const struct config *config, const char *name, struct err *err)
{
    const struct server *servers = config->servers.at;
    const char **names = mem_alloc((config->servers.count + 1) * sizeof *names);
    for (size_t i = 0; i < config->servers.count; i++)
        names[i] = servers[i].name;
    const char *near = option_nearest(name, names);
    (void)err_set(err, ERR_CONFIG, "no server \"%s\" in the configuration%s%s%s", name, near ? "; did you mean \"" : "",
                  near ? near : "", near ? "\"?" : "; 'postern servers' lists them");
    free(names);
    return err;
}

struct client *client_new(const struct config *config, const char *name, bool answers, struct err *err)
{
    const struct server *servers = config->servers.at, *wanted = name ? config_server(config, name) : NULL;
    if (name && !wanted) {
        (void)client_unknown(config, name, err);
        return NULL;
    }
    struct client *client = mem_new(struct client);
    client->answers = answers;
    client->loop = loop_new(err);
    client->http = client->loop ? http_client_new(client->loop, err) : NULL;
    if (!client->http || !login_store_open(config, client->loop, false, &client->tokens, err)) {
        client_free(client);
        return NULL;
    }
    client->all = mem_alloc((config->servers.count + 1) * sizeof *client->all);
    for (size_t i = 0; i < config->servers.count; i++)
        if (wanted ? wanted == &servers[i] : !servers[i].disabled)
            add(client, config, &servers[i]);
    return client;
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
    }
    int code = login_store_close(client->tokens, client->loop);
    free(client->all);
    http_client_free(client->http);
    loop_free(client->loop);
    free(client);
    return code;
}

bool client_wants_login(const struct client *client, size_t i, struct login_cause *cause)
{
    const struct one *one = &client->all[i];
    bool refused = one->access && !source_loaded(one->source) && access_challenge(one->access)->bearer;
    if (!one->access || (!one->wants_login && !upstream_needs_login(one->upstream) && !refused))
        return false;
    login_cause_set(cause, one->access);
    return true;
}

size_t client_count(const struct client *client) { return client->count; }
struct upstream *client_upstream(const struct client *client, size_t i) { return client->all[i].upstream; }
const struct source *client_source(const struct client *client, size_t i) { return client->all[i].source; }

void client_load(struct client *client)
{
    client->loading = true;
    for (size_t i = 0; i < client->count; i++)
        source_load(client->all[i].source);
    if (!settled(client))
        loop_run(client->loop);
    client->loading = false;
}

struct pending {
    struct upstream_request request;
    struct client *client;
    struct buf *out;
    struct err *err;
    bool ok, done;
};

static void on_reply(struct upstream_request *request, const struct upstream_reply *reply)
{
    struct pending *pending = request->arg;
    struct span text;
    pending->done = true;
    loop_stop(pending->client->loop);
    if (reply->failure) {
        *pending->err = *reply->failure;
    } else if (reply->error.at) {
        struct buf message = {0};
        if (scan_find(reply->error, "message", &text) && scan_is_string(text))
            scan_decode(text, &message);
        (void)err_set(pending->err, ERR_INVALID_PARAMS, "the server answered with an error: %s", buf_text(&message));
        buf_release(&message);
    } else {
        buf_put_span(pending->out, reply->result);
        pending->ok = true;
    }
}

bool client_request(struct client *client, size_t i, enum method method, struct span params, struct buf *out,
                    struct err *err)
{
    struct pending pending = {.request = {.on_reply = on_reply}, .client = client, .out = out, .err = err};
    pending.request.arg = &pending;
    client->all[i].wants_login = false;
    upstream_reserve(client->all[i].upstream, &pending.request);
    upstream_send(&pending.request, method_text(method), params);
    if (!pending.done)
        loop_run(client->loop);
    client->all[i].wants_login = !pending.ok && err->code == ERR_LOGIN;
    return pending.ok;
}
