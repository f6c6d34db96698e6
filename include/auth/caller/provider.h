// Providers turn credentials into an identity. The table in provider_table.c lists them all; a new one is a
// file with its functions, and a row there.
#ifndef AUTH_PROVIDER_H
#define AUTH_PROVIDER_H

#include "auth/caller/credentials.h"
#include "auth/caller/identity.h"
#include "base/err.h"
#include "base/list.h"
#include "base/option.h"
#include "loop/http_client.h"
#include "loop/loop.h"

enum provider_verdict {
    PROVIDER_REJECT,       // 401
    PROVIDER_MALFORMED,    // 400: the request names an identity in a way that is not allowed
    PROVIDER_SCOPE,        // 403: a valid token that lacks a required scope
    PROVIDER_UNAVAILABLE,  // 503: the credential cannot be verified now
    PROVIDER_PASS,
    PROVIDER_FOREIGN,  // a credential of this type for another provider of the type, or refused if there is not one
    PROVIDER_WAIT,     // the call will be resumed, and asks again
    PROVIDER_ACCEPT,
};

// A call that waits for a provider. Zeroed but for resume and arg; removed with list_remove(&node).
struct provider_wait {
    struct list node;
    void (*resume)(void *arg);
    void *arg;
    bool waited;
};

struct provider_world {
    struct loop *loop;
    struct http_client *http;
    const char *folder;  // paths are relative to it
};

// One entry of auth.providers.
struct provider_config {
    char *name;  // NULL: the type is the name
    int type;
    bool open;                                          // none
    char *tokens;                                       // bearer
    char *user_header, *groups_header, *tenant_header;  // forwarded-user
    char **trusted_proxies;
    char *secret_header, *secret;
    char **certificate_names;
    char *tenant;
    char *issuer, *jwks_uri;  // jwt
    char **audiences, **algorithms, **required_claims, **required_scopes, **role_claims;
    struct option_pairs role_map;
    char *tenant_claim;
    int64_t clock_skew_ms;
    bool require_at_jwt;
};

struct auth_config {
    struct option_items providers;  // struct provider_config, in order
};

extern const struct option_table provider_config_options;
// Of one listener. Without providers (at is NULL), the listener uses those of `auth`.
extern const struct option_table provider_config_listener_options;

const char *provider_name(const struct provider_config *provider);  // as in user:NAME:SUBJECT
const char *provider_type(const struct provider_config *provider);

// A name means the same users wherever it is used: false if two lists use it for different ones.
bool provider_config_names_agree(const struct auth_config *one, const struct auth_config *other,
                                 const struct option_place *place, struct err *err) MUST_CHECK;

// True if a provider authenticates callers; listeners beyond loopback need one.
bool provider_config_proves(const struct auth_config *config);

// True if unauthenticated callers are accepted beyond loopback, too: `none` with `i_know_this_is_open`.
bool provider_config_is_open(const struct auth_config *config);

// Opens the providers and the files that they need. Fails if any of them cannot be read.
struct provider_chain *provider_chain_new(const struct auth_config *config, const struct provider_world *world,
                                          struct err *err) MUST_CHECK;
void provider_chain_free(struct provider_chain *chain);
// First every provider inspects the request (PASS or MALFORMED), then they authenticate it in order. The first that
// accepts or rejects decides; if all pass, or without a chain, the request is rejected. Returns ACCEPT, WAIT, or another
// verdict with the error set.
enum provider_verdict provider_chain_authenticate(struct provider_chain *chain, const struct credentials *credentials,
                                                  struct provider_wait *wait, struct identity **out,
                                                  struct err *err) MUST_CHECK;
// Reads the files of the providers again if they have changed. A broken file leaves the old content in force and sets
// `err`. True if identities may have ended: ask provider_chain_stands() for each.
bool provider_chain_poll(struct provider_chain *chain, struct err *err);
// The headers that a provider reads, NULL at the end; a face fills credentials.headers in this order.
const char *const *provider_chain_headers(const struct provider_chain *chain);
// Where callers can get a token: the issuers of the jwt providers, NULL at the end.
const char *const *provider_chain_issuers(const struct provider_chain *chain);
// The scopes that their tokens must have, each once, NULL at the end.
const char *const *provider_chain_scopes(const struct provider_chain *chain);
// Is the identity's provider in this chain? If not, the chain cannot say whether the identity still holds.
bool provider_chain_knows(const struct provider_chain *chain, const struct identity *identity);
// The state of one provider, for reports.
struct provider_health {
    const char *name, *issuer;  // issuer: NULL if the provider does not fetch keys
    int64_t keys_age_ms;        // -1: not fetched yet
    uint64_t failures;          // fetches of the keys that failed since the last success
};
bool provider_chain_health(const struct provider_chain *chain, size_t i,
                           struct provider_health *out);  // false: no i-th
bool provider_chain_stands(struct provider_chain *chain, const struct identity *identity);
// Is it the address of a trusted proxy? A request must also prove that it is from the proxy.
bool provider_chain_is_proxy(struct provider_chain *chain, const struct peer *peer);
// The request is from a proxy that proved itself. Many callers share the address of a proxy, so it does not identify one.
bool provider_chain_relays(struct provider_chain *chain, const struct credentials *credentials);

#endif
