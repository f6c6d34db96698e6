// Owns the gate's callbacks for the connect flow: admission, and the notification of servers and sessions about new grants.
#include "connect_hook.h"
#include "admission.h"
#include "auth/access/access.h"
#include "connect/connect.h"
#include "gate/server/server.h"
#include "mcp/message.h"
#include "refused.h"

static enum connect_verdict admit(void *arg, struct connect_admission *asked)
{
    struct gate *gate = arg;
    struct admission admission = {.credentials = asked->credentials, .wait = asked->wait};
    enum admission_verdict verdict = admission_ask(gate, &admission);
    asked->identity = admission.identity;
    asked->code = admission.err.code;
    asked->retry_ms = admission.retry_ms;
    if (verdict == ADMISSION_GRANTED)
        return CONNECT_ADMITTED;
    if (verdict == ADMISSION_WAIT)
        return CONNECT_WAIT;
    if (!credentials_shown(asked->credentials) && !asked->identity)
        return CONNECT_NO_CREDENTIAL;
    refused_note(gate, asked->credentials->peer, asked->code);
    return CONNECT_REFUSED;
}

static bool identity_valid(void *arg, const struct identity *identity) { return admission_stands(arg, identity); }

// Finds the next link from `at` on that uses the grant of this user at this server.
static struct link *next_link(const struct gate *gate, size_t *at, const struct identity *user,
                              const struct server *server)
{
    void *value;
    while (map_next(&gate->links, at, NULL, &value)) {
        struct link *link = value;
        bool same = strcmp(upstream_server(link->upstream)->name, server->name) == 0;
        if (link->user && same && identity_same(link->user, user))
            return link;
    }
    return NULL;
}

static void grant_added(void *arg, const struct identity *user, const struct server *server)
{
    struct link *link;
    kept_forget_user(arg, user, server->name);
    for (size_t at = 0; (link = next_link(arg, &at, user, server));) {
        kept_note(link, 0);  // its lists may have been fetched with the new grant already
        source_look_again(link->source);
        source_load(link->source);
    }
}

static void grant_changed(void *arg, const struct identity *user, const struct server *server)
{
    struct link *link;
    kept_forget_user(arg, user, server->name);
    for (size_t at = 0; (link = next_link(arg, &at, user, server));) {
        access_forget(link->access);
        upstream_restart(link->upstream);
        source_look_again(link->source);
        source_load(link->source);
    }
}

static void login_complete(void *arg, const char *session_id, const char *elicitation, const struct identity *user)
{
    struct session *session = session_find(arg, span_of(session_id));
    if (!session || !identity_same(session->identity, user))
        return;
    struct buf params = {0}, text = {0};
    buf_printf(&params, "{\"elicitationId\":\"%s\"}", elicitation);
    message_put_notification(&text, method_text(METHOD_ELICIT_COMPLETE), buf_span(&params));
    session_tell(session, blob_take(&text));
    buf_release(&params);
}

struct connect *connect_hook_new(struct gate *gate)
{
    static const struct connect_ops ops = {admit, identity_valid, grant_added, grant_changed, login_complete};
    return connect_new(&(struct connect_parts){.loop = gate->loop,
                                               .http = gate->http,
                                               .config = gate->config,
                                               .store = gate->grants,
                                               .audit = gate->audit,
                                               .ops = &ops,
                                               .arg = gate});
}
