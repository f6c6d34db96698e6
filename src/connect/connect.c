// Owns the connect flow as a whole: its start, its sweep and its end.
#include "connect/connect.h"
#include "base/mem.h"
#include "login.h"
#include "state.h"
#include <stdlib.h>

#define SWEEP_MS 500
#define EXPIRE_SWEEPS 120
#define DOCUMENT_PATH "/oauth/client-metadata.json"
#define NATIVE_DOCUMENT_PATH "/oauth/cli-metadata.json"

static void on_sweep(struct loop_timer *timer)
{
    struct connect *connect = timer->arg;
    connect_offer_watch(connect);
    if (connect->sweeps++ % EXPIRE_SWEEPS == 0)
        grant_store_attempt_expire(connect->parts.store);
    loop_timer_set(connect->parts.loop, timer, SWEEP_MS);
}

static char *url_of(const struct connect *connect, const char *path)
{
    struct buf text = {0};
    buf_printf(&text, "%s%s", connect->base, path);
    return buf_take(&text, NULL);
}

struct connect *connect_new(const struct connect_parts *parts)
{
    const char *public_url = parts->config->public_url;
    if (!public_url || !parts->store || !connect_servers_needed(parts->config))
        return NULL;
    struct connect *connect = mem_new(struct connect);
    size_t len = strlen(public_url);
    connect->parts = *parts;
    connect->parts.config = config_ref(parts->config);
    connect->secure = strncmp(public_url, "https://", 8) == 0;
    connect->base = mem_copy(public_url, len && public_url[len - 1] == '/' ? len - 1 : len);
    connect->redirect_uri = url_of(connect, "/oauth/callback");
    connect->document_url = url_of(connect, DOCUMENT_PATH);
    list_init(&connect->offers.all);
    list_init(&connect->logins);
    list_init(&connect->jobs);
    connect_limits_init(&connect->limits);
    connect->sweep = (struct loop_timer){.on_due = on_sweep, .arg = connect, .name = "login sweep"};
    loop_timer_set(parts->loop, &connect->sweep, SWEEP_MS);
    return connect;
}

void connect_free(struct connect *connect)
{
    if (!connect)
        return;
    connect_offer_drop_all(connect);
    connect_login_drop_all(connect);
    connections_drop_all(connect);
    loop_timer_stop(connect->parts.loop, &connect->sweep);
    connect_limits_release(&connect->limits);
    free(connect->base);
    free(connect->redirect_uri);
    free(connect->document_url);
    config_unref(connect->parts.config);
    free(connect);
}

void connect_configure(struct connect *connect, const struct config *config)
{
    const struct config *old = connect->parts.config;
    connect->parts.config = config_ref(config);
    config_unref(old);
}

void connect_put_url(const struct connect *connect, const struct server *server, struct buf *out)
{
    buf_printf(out, "%s/oauth/connect/%s", connect->base, server->name);
}

bool connect_document(const struct connect *connect, struct span path, struct buf *out)
{
    // Without a port: each login has another port, and servers must accept any (RFC 8252, 7.3).
    static const char *const loopback[] = {"http://127.0.0.1/callback", "http://localhost/callback", NULL};
    struct buf url = {0};
    bool native = span_is(path, NATIVE_DOCUMENT_PATH);
    if (!connect->secure || (!native && !span_is(path, DOCUMENT_PATH)))
        return false;
    buf_printf(&url, "%s%.*s", connect->base, SPAN_ARG(path));
    oauth_client_document(buf_text(&url), native ? loopback : (const char *const[]){connect->redirect_uri, NULL},
                          native, out);
    buf_release(&url);
    return true;
}
