// Owns the caller's own token during a call, for the servers that exchange it.
//
// It is copied from the request once, and wiped at the end of the call. It is not copied if no server of the configuration
// exchanges such tokens.
#include "auth/access/access.h"
#include "base/scan.h"
#include "gate/method/method.h"

static bool takes(const struct option_items *items)
{
    const struct server *servers = items->at;
    for (size_t i = 0; i < items->count; i++)
        if (access_options_takes_caller(&servers[i].auth) && !servers[i].disabled)
            return true;
    return false;
}

bool caller_token_wanted(const struct config *config)
{
    const struct config_tenant *tenants = config->tenants.at;
    bool wanted = takes(&config->servers);
    for (size_t i = 0; i < config->tenants.count; i++)
        wanted |= takes(&tenants[i].servers);
    return wanted;
}

void caller_token_keep(struct call *call)
{
    struct span token = credentials_bearer(&call->credentials);
    if (call->gate->exchanged && call->identity->proof == IDENTITY_JWT && token.at)
        secret_set(&call->caller_token, token);
}

void caller_token_begin(struct call *call)
{
    if (!call->caller_token.len || !call->scope || call->caller_token_shared)
        return;
    call->caller_token_shared = true;
    for (size_t i = 0; i < call->scope->link_count; i++) {
        struct link *link = call->scope->links[i];
        if (access_options_takes_caller(&upstream_server(link->upstream)->auth))
            access_take_caller_token(link->access, secret_span(&call->caller_token), call->identity->expires);
    }
}

void caller_token_end(struct call *call)
{
    for (size_t i = 0; call->caller_token_shared && i < call->scope->link_count; i++) {
        struct link *link = call->scope->links[i];
        if (access_options_takes_caller(&upstream_server(link->upstream)->auth))
            access_drop_caller_token(link->access);
    }
    call->caller_token_shared = false;
}

void caller_token_explain(struct call *call)
{
    const struct server *server = call->link ? upstream_server(call->link->upstream) : NULL;
    const struct call *outer = call->parent ? call->parent : call;
    struct buf text = {0};
    if (!server || !access_options_takes_caller(&server->auth) || !call_is_allowed(call))
        return;
    buf_printf(&text, "Server \"%s\" requires your own identity: %s", server->name,
               outer->caller_token.len ? "your token does not give access to it"
                                       : "authenticate with a token of your identity provider");
    call->error_text = arena_copy(&call->arena, buf_span(&text));
    buf_release(&text);
    buf_clear(&call->error_data);
    buf_put_text(&call->error_data, "\"server\":");
    scan_encode(span_of(server->name), &call->error_data);
}
