// Providers turn credentials into an identity. The table in provider.c lists them all; a new one is a
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
    PROVIDER_MALFORMED,    // 400: an identity that nobody may show that way
    PROVIDER_SCOPE,        // 403: a good token without all the scopes that are needed
    PROVIDER_UNAVAILABLE,  // 503: it cannot be told now
    PROVIDER_PASS,
    PROVIDER_FOREIGN,  // of a kind I know, but of somebody else: another of my type may take it, or it is refused
    PROVIDER_WAIT,     // the call will be resumed, and asks again
    PROVIDER_ACCEPT,
};

// A call that waits for what a provider needs. Zeroed but for resume and arg; taken out with list_remove(&node).
struct provider_wait {
    struct list node;
    void (*resume)(void *arg);
    void *arg;
    bool waited;
};

struct provider_world {
    struct loop *loop;
    struct http_client *http;
    const char *folder;  // what paths are relative to
};

// One entry of auth.providers.
struct provider_config {
    char *name;  // NULL: as its type
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
// Of one listener. Without providers (at is NULL) it has those at the top.
extern const struct option_table provider_config_listener_options;

const char *provider_name(const struct provider_config *provider);  // as in user:NAME:SUBJECT
const char *provider_type(const struct provider_config *provider);

// A name stands for the same people wherever it is used: false if two lists mean different ones by it.
bool provider_config_names_agree(const struct auth_config *one, const struct auth_config *other,
                                 const struct option_place *place, struct err *err) MUST_CHECK;

// True if some provider proves who calls; listeners beyond loopback need one.
bool provider_config_proves(const struct auth_config *config);

// True if it is said twice that anybody may come in, beyond loopback too: `none`, and that it is known what that means.
bool provider_config_is_open(const struct auth_config *config);

// Reads what the providers need; paths are relative to the folder. Anything missing refuses.
struct provider_chain *provider_chain_new(const struct auth_config *config, const struct provider_world *world,
                                          struct err *err) MUST_CHECK;
void provider_chain_free(struct provider_chain *chain);
// Asks the providers in order, after each has looked whether the request may be made at all. The first that accepts or
// rejects decides; if all pass, or there is no chain, nobody gets in. ACCEPT, WAIT, or anything else with the error set.
enum provider_verdict provider_chain_authenticate(struct provider_chain *chain, const struct credentials *credentials,
                                                  struct provider_wait *wait, struct identity **out,
                                                  struct err *err) MUST_CHECK;
// Looks whether the files of the providers have changed and takes them over; a broken one leaves the old in
// force and is told in `err`. True if identities may have ended: ask provider_chain_stands() for each.
bool provider_chain_poll(struct provider_chain *chain, struct err *err);
// The headers that some provider wants to see, NULL at the end: what a face fills credentials.headers with.
const char *const *provider_chain_headers(const struct provider_chain *chain);
// Where callers can get a token: the issuers of the jwt providers, NULL at the end.
const char *const *provider_chain_issuers(const struct provider_chain *chain);
// The scopes that their tokens must have, each once, NULL at the end.
const char *const *provider_chain_scopes(const struct provider_chain *chain);
// Has the chain the provider that this identity is of? Only then can it tell whether the identity still holds.
bool provider_chain_knows(const struct provider_chain *chain, const struct identity *identity);
// What a provider says of itself.
struct provider_health {
    const char *name, *issuer;  // no issuer: nothing is fetched for it
    int64_t keys_age_ms;        // -1: there are none
    uint64_t failures;          // to fetch them, since it last worked
};
bool provider_chain_health(const struct provider_chain *chain, size_t i,
                           struct provider_health *out);  // false: no i-th
bool provider_chain_stands(struct provider_chain *chain, const struct identity *identity);
// Is it the address of a trusted proxy? Whether the proxy also proves itself is not known before a request.
bool provider_chain_is_proxy(struct provider_chain *chain, const struct peer *peer);
// It came through a proxy that proved itself: many callers share its address, so the address says nothing of one.
bool provider_chain_relays(struct provider_chain *chain, const struct credentials *credentials);

#endif
