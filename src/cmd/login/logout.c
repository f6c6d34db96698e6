// Owns `postern logout` and `postern connections`: listing and deleting grants.
#include "auth/grant/registration.h"
#include "auth/grant/store.h"
#include "auth/login/flow.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/scan.h"
#include "cmd/base/configuration.h"
#include "cmd/base/fail.h"
#include "cmd/base/grants.h"
#include "cmd/base/output.h"
#include "cmd/base/table.h"
#include "cmd/base/token_audit.h"
#include "cmd/login/login.h"
#include "turn.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define STORE_MS 10000

struct grant_listing {
    struct config *config;  // NULL: not needed
    struct loop *loop;
    struct http_client *http;
    struct grant_store *store;  // NULL: the store was not created yet
    struct grant_request held;
};

static void grant_listing_close(struct grant_listing *listing)
{
    grant_request_release(&listing->held);
    if (listing->store)
        grant_store_close(listing->store);
    http_client_free(listing->http);
    if (listing->loop)
        loop_free(listing->loop);
    if (listing->config)
        config_unref(listing->config);
}

// Opens the store and lists the grants of a tenant (NULL: of all), of one user or, if `user` is NULL, of all its users.
static bool grant_listing_open(struct grant_listing *listing, const struct flags *flags, const char *tenant,
                               const char *user, int *code)
{
    struct err err = {0};
    struct grant_filter filter = {tenant, user, NULL};
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    char *path = config_path(flags->config);
    bool configured = path || flags->url || flags->count;
    free(path);
    if (configured && !(listing->config = configuration_load(flags, code)))
        return false;
    if (!(listing->loop = loop_new(&err)) || !(listing->http = http_client_new(listing->loop, &err)) ||
        !grants_open(listing->config, listing->loop, false, &listing->store, &err)) {
        *code = fail_with(EXIT_STORE, "%s", err.detail);
        return false;
    }
    if (!listing->store)
        return true;
    grant_store_list(listing->store, &filter, &listing->held);
    if (!grant_store_wait(listing->store, STORE_MS) || listing->held.answer == GRANT_STORE_FAILED)
        *code = fail_with(EXIT_STORE, "%s", listing->held.err.detail);
    return *code == EXIT_OK;
}

// S7: a damaged grant is an error, not a missing login. Checks the grants of one server, or of all (NULL).
static int tell_damaged(const struct grant_listing *listing, const struct server *server, const char *issuer)
{
    int code = EXIT_OK;
    struct err err;
    for (size_t i = 0; i < listing->held.damaged_count; i++) {
        struct grant *grant = listing->held.damaged[i];
        if ((server && !access_pick(&grant, 1, server->url)) || (issuer && strcmp(issuer, grant->issuer) != 0))
            continue;
        grant_damaged(grant, &listing->held.err, &err);
        code = fail_with(EXIT_STORE, "%s", err.detail);
    }
    return code;
}

// The configured server, in the grant's own tenant, that the grant is for; NULL: none.
static const struct server *server_of(const struct grant_listing *listing, struct grant *grant)
{
    const struct option_items *items = listing->config ? config_tenant_find(listing->config, grant->tenant) : NULL;
    const struct server *servers = items ? items->at : NULL;
    for (size_t i = 0; items && i < items->count; i++)
        if (servers[i].url && access_pick(&grant, 1, servers[i].url))
            return &servers[i];
    return NULL;
}

// ---- logout ---------------------------------------------------------------------------------

struct revoking {
    struct loop *loop;
    struct err why;  // set if the revocation failed
};

static void on_revoked(void *arg, const struct err *why)
{
    struct revoking *revoking = arg;
    if (why)
        revoking->why = *why;
    loop_stop(revoking->loop);
}

// F16: revokes the grant, if the authorization server supports it; the caller deletes it in any case. False: not revoked,
// and the reason was printed.
static bool revoke(struct grant_listing *listing, const struct grant *grant, const struct server *server)
{
    struct revoking revoking = {.loop = listing->loop};
    struct login_revocation_spec spec = {.loop = listing->loop,
                                         .http = listing->http,
                                         .store = listing->store,
                                         .grant = grant,
                                         .options = server ? &server->auth : NULL,
                                         .on_done = on_revoked,
                                         .arg = &revoking};
    struct login_revocation *revocation = login_revocation_start(&spec);
    loop_run(listing->loop);
    login_revocation_free(revocation);
    if (revoking.why.code)
        fprintf(stderr, "The grant was deleted locally but not revoked: %s\n", revoking.why.detail);
    return !revoking.why.code;
}

// H17. A failure to record does not stop the logout.
static void record(const struct grant_listing *listing, const struct grant *grant, const struct server *server,
                   bool told)
{
    struct buf whose = {0};
    struct err err;
    buf_put_text(&whose, "{\"user\":");
    scan_encode_lossy(span_of(grant->user), &whose);
    buf_put_char(&whose, '}');
    struct audit_record row = {.method = span_of("revoked"),
                               .kind = span_of("grant"),
                               .tenant = span_of(grant->tenant),
                               .server = span_of(server ? server->name : NULL),
                               .name = span_of(grant->issuer),
                               .arguments = buf_span(&whose),
                               .status = AUDIT_OK,
                               .reason = span_of(told ? NULL : "not_told")};
    if (listing->config && !token_audit_write(listing->config, &row, &err))
        (void)fail_with(EXIT_OK, "the logout was not recorded in the audit log: %s", err.detail);
    buf_release(&whose);
}

// S12: with --registration, deletes the registered client as well. Other grants of a client with a secret cannot be
// refreshed without it.
static void forget_client(struct grant_listing *listing, const struct grant *grant)
{
    struct registration_key key = {grant->tenant, grant->issuer, grant->is.client_redirect};
    struct grant_request removed = {0};
    if (!key.redirect || !*key.redirect)
        return;
    grant_store_registration_remove(listing->store, &key, GRANT_STORE_ANY, &removed);
    if (!grant_store_wait(listing->store, STORE_MS) || removed.answer == GRANT_STORE_FAILED)
        fail_with(EXIT_STORE, "cannot delete the registration at %s: %s", grant->issuer, removed.err.detail);
    grant_request_release(&removed);
}

static bool let_go(struct grant_listing *listing, const struct grant *grant, const struct server *server, bool client)
{
    struct grant_key key = grant_key(grant);
    struct grant_request removed = {0};
    bool told = revoke(listing, grant, server);
    if (client)
        forget_client(listing, grant);
    grant_store_remove(listing->store, &key, GRANT_STORE_ANY, &removed);
    bool ok = grant_store_wait(listing->store, STORE_MS) && removed.answer != GRANT_STORE_FAILED;
    if (ok) {
        fprintf(stderr, "Logged out of %s at %s\n", *grant->resource ? grant->resource : grant->issuer, grant->issuer);
        record(listing, grant, server, told);
    } else {
        fail_with(EXIT_STORE, "%s", removed.err.detail);
    }
    grant_request_release(&removed);
    return ok;
}

static int run_logout(const struct flags *flags)
{
    struct grant_listing listing = {0};
    int code = EXIT_OK;
    size_t gone = 0;
    if (!flags->all && !flags->url && !flags->count)
        return fail_with(EXIT_USAGE, "logout: name a SERVER, --url URL or --all");
    const struct server *server = NULL;
    char *user = grants_user(flags);
    if (!user)
        return fail_with(EXIT_USAGE, "--subject: must be PROVIDER:NAME, as in a policy");
    if (grant_listing_open(&listing, flags, grants_tenant(flags), user, &code) && grants_lasts(listing.config, &code) &&
        (flags->all || (server = grants_server(listing.config, flags, &code))))
        for (size_t i = 0; code == EXIT_OK && i < listing.held.count; i++) {
            struct grant *grant = listing.held.grants[i];
            if (!flags->all && !access_pick(&grant, 1, server->url))
                continue;
            gone++;
            if (!let_go(&listing, grant, server ? server : server_of(&listing, grant), flags->registration))
                code = EXIT_STORE;
        }
    if (code == EXIT_OK)
        code = tell_damaged(&listing, server, NULL);
    if (code == EXIT_OK && !gone)
        fprintf(stderr, "Not logged in%s%s\n", server ? " to " : "", server ? server->name : "");
    if (code == EXIT_OK) {  // S12
        const char *key[3] = {grants_tenant(flags), user, server ? server->url : ""};
        login_turn_forget(listing.config, server ? key : NULL);
    }
    grant_listing_close(&listing);
    free(user);
    return code;
}

// ---- connections ----------------------------------------------------------------------------

static const char *name_of(const struct grant_listing *listing, struct grant *grant)
{
    const struct server *server = server_of(listing, grant);
    return server ? server->name : *grant->resource ? grant->resource : grant->issuer;
}

// S10: enough of a digest to distinguish two tokens, and no part of the token.
static void put_hint(const struct grant *grant, char out[16])
{
    unsigned char digest[SECRET_MAC_BYTES];
    secret_digest(secret_span(&grant->is.access_token), digest);
    snprintf(out, 16, "%02x%02x..%02x%02x", digest[0], digest[1], digest[SECRET_MAC_BYTES - 2],
             digest[SECRET_MAC_BYTES - 1]);
}

static void put_expiry(const struct grant *grant, char out[32])
{
    time_t at = (time_t)grant->is.expires_at;
    struct tm parts;
    snprintf(out, 32, "%s", grant->is.dead_at ? "ended" : "-");
    if (!grant->is.dead_at && at && gmtime_r(&at, &parts))
        strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

// Deletes the damaged grants. They cannot be revoked, since their tokens are not known.
static size_t purge_damaged(struct grant_listing *listing, const struct grant_filter *filter)
{
    struct grant_request purged = {0};
    grant_store_purge(listing->store, filter, &purged);
    if (!grant_store_wait(listing->store, STORE_MS) || purged.answer == GRANT_STORE_FAILED)
        fail_with(EXIT_STORE, "%s", purged.err.detail);
    else
        fprintf(stderr, "Damaged grants that were deleted without being revoked: %zu\n", purged.count);
    size_t count = purged.count;
    grant_request_release(&purged);
    return count;
}

// H14: deletes the grants of a user who left, or all grants of one issuer, in any tenant. A running gateway follows.
static int purge(const struct flags *flags)
{
    struct grant_listing listing = {0};
    int code = EXIT_OK;
    size_t count = 0;
    if (!flags->subject && !flags->issuer)
        return fail_with(EXIT_USAGE,
                         "connections --purge: name the grants with --subject PROVIDER:NAME or --issuer URL");
    char *user = flags->subject ? grants_user(flags) : NULL;
    if (flags->subject && !user)
        return fail_with(EXIT_USAGE, "--subject: must be PROVIDER:NAME, as in a policy");
    if (grant_listing_open(&listing, flags, flags->tenant, user, &code) && grants_lasts(listing.config, &code))
        for (size_t i = 0; code == EXIT_OK && i < listing.held.count; i++) {
            struct grant *grant = listing.held.grants[i];
            if (flags->issuer && strcmp(grant->issuer, flags->issuer) != 0)
                continue;
            if (let_go(&listing, grant, server_of(&listing, grant), false))
                count++;
            else
                code = EXIT_STORE;
        }
    if (code == EXIT_OK && (code = tell_damaged(&listing, NULL, flags->issuer)) != EXIT_OK)
        count += purge_damaged(&listing, &(struct grant_filter){flags->tenant, user, flags->issuer});
    if (code == EXIT_OK || count)
        printf("%zu %s purged\n", count, count == 1 ? "grant" : "grants");
    grant_listing_close(&listing);
    free(user);
    return code;
}

static int run_connections(const struct flags *flags)
{
    if (flags->purge)
        return purge(flags);
    if (flags->subject || flags->issuer)
        return fail_with(EXIT_USAGE, "connections: --subject and --issuer need --purge");
    static const char *titles[] = {"TENANT", "SERVER", "USER", "ISSUER", "EXPIRES", "TOKEN", "SCOPE", NULL};
    struct grant_listing listing = {0};
    int code = EXIT_OK;
    struct table table = {.titles = titles};
    json_t *list = json_array();
    if (grant_listing_open(&listing, flags, flags->tenant, NULL, &code)) {
        bool seed = listing.config && listing.config->store.seed;
        for (size_t i = 0; i < listing.held.count; i++) {
            struct grant *grant = listing.held.grants[i];
            char hint[16], expires[32];
            const char *scope = grant->is.scope ? grant->is.scope : "", *server = name_of(&listing, grant);
            bool refreshed = grant->is.refresh_token.len > 0;
            put_hint(grant, hint);
            put_expiry(grant, expires);
            table_add(&table,
                      (const char *const[]){grant->tenant, server, grant->user, grant->issuer, expires, hint, scope});
            json_array_append_new(list,
                                  json_pack("{s:s, s:s, s:s, s:s, s:s, s:s*, s:s, s:s, s:b, s:b, s:b, s:s}", "tenant",
                                            grant->tenant, "server", server, "issuer", grant->issuer, "resource",
                                            grant->resource, "user", grant->user, "account", grant->is.account, "scope",
                                            scope, "expires", expires, "refresh", refreshed, "ended",
                                            grant->is.dead_at != 0, "volatile", seed, "token", hint));
        }
        if (output_wants_json(flags)) {
            json_dumpf(list, stdout, JSON_INDENT(2));
            putchar('\n');
        } else if (!listing.held.count && !listing.held.damaged_count) {
            fprintf(stderr, "The store does not contain any grants; to log in, run 'postern login SERVER'\n");
        } else {
            table_print(&table);
            if (seed)
                fprintf(stderr, "These grants are from a seed: refreshed tokens are kept in memory only (volatile)\n");
        }
        code = tell_damaged(&listing, NULL, NULL);
    }
    json_decref(list);
    table_release(&table);
    grant_listing_close(&listing);
    return code;
}

static const struct flag logout_flags[] = {
    FLAG_CONFIG,
    FLAG_URL,
    FLAG_SERVER_TENANT,
    {"subject", "PROVIDER:NAME", FLAG(subject),
     "Delete the grant of this caller; default: the command line's own grant"},
    {"all", NULL, FLAG(all), "Delete the grants for all servers"},
    {"registration", NULL, FLAG(registration), "Also delete the client registration from the store"},
    {0},
};
static const struct flag connections_flags[] = {
    FLAG_CONFIG,
    FLAG_URL,
    {"tenant", "NAME", FLAG(tenant), "Only grants of this tenant"},
    {"purge", NULL, FLAG(purge), "Revoke and delete the grants of --subject or --issuer"},
    {"subject", "PROVIDER:NAME", FLAG(subject), "With --purge: all grants of this caller"},
    {"issuer", "URL", FLAG(issuer), "With --purge: all grants of this authorization server"},
    FLAG_JSON,
    {0},
};

const struct command logout_command = {
    .name = "logout",
    .synopsis = "logout SERVER | logout --url URL | logout --all",
    .summary = "Revoke and delete the grant for a server",
    .flags = logout_flags,
    .max_args = 1,
    .run = run_logout,
};
const struct command logout_command_connections = {
    .name = "connections",
    .synopsis = "connections [--json] | connections --purge [--subject PROVIDER:NAME] [--issuer URL]",
    .summary = "List the stored grants, or delete those of a caller or an authorization server",
    .details = "Tokens are not printed. The member \"token\" of the JSON is part of the token's digest, which "
               "distinguishes tokens.",
    .flags = connections_flags,
    .run = run_connections,
};
