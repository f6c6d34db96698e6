// OAuth 2.1 as a client sees it: challenges, URLs, documents, requests and answers.
//
// Pure: no IO, no clock, no log. All that is parsed here comes from strangers; whatever is not exactly as it should
// be is refused or counts as absent. Results are strings in the caller's arena, which wipes them when it goes. No
// error ever quotes a code, a token, a secret or a state. Letters and numbers like D9 name the requirement a rule is
// for; the tests carry the same names.
#ifndef AUTH_OAUTH_H
#define AUTH_OAUTH_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/secret.h"
#include "base/span.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OAUTH_DOCUMENT_MAX ((size_t)1 << 20)
#define OAUTH_VALUE_MAX ((size_t)4 << 10)  // one parameter of a callback or challenge
#define OAUTH_URLS_MAX 3                   // places where one document is looked for
#define OAUTH_SERVERS_MAX 8                // authorization servers of one resource that are looked at
#define OAUTH_STATE_BYTES 32
#define OAUTH_VERIFIER_BYTES 47
#define OAUTH_LIFETIME_MAX (10LL * 365 * 86400)

// ---- challenges (D1) ------------------------------------------------------------------------

// What a Bearer challenge of WWW-Authenticate says; NULL: nothing.
struct oauth_challenge {
    bool bearer;  // there was one
    const char *resource_metadata, *scope, *error, *error_description;
};

// Reads one header instance; call it for each of them. The first Bearer challenge counts, unless only a later one
// names the metadata.
void oauth_challenge_parse(struct span header, struct arena *arena, struct oauth_challenge *into);

// ---- URLs -----------------------------------------------------------------------------------

// An absolute http or https URL taken apart; spans are views of the text.
struct oauth_url {
    bool https;
    bool loopback;       // by its host's name: localhost, 127.0.0.0/8, [::1]
    struct span origin;  // scheme://host:port as written
    struct span host;    // with the brackets of an IPv6 address
    unsigned port;       // the default one if it has none
    struct span path;    // with its first slash; may be empty
    struct span query;   // without the question mark
};

// Refuses other schemes, user names, fragments, and characters that do not belong in a URL.
bool oauth_url_parse(const char *text, struct oauth_url *out);
bool oauth_url_secure(const char *text);  // N1, D14: https, or http to a loopback host
bool oauth_url_same_origin(const char *a, const char *b);

// Where the metadata of a protected resource (D3), and those of an authorization server (D8), may be.
size_t oauth_resource_urls(const char *server_url, struct arena *arena, const char *out[OAUTH_URLS_MAX]);
size_t oauth_server_urls(const char *issuer, struct arena *arena, const char *out[OAUTH_URLS_MAX]);

// D6: the resource is the server's URL or a parent of it.
bool oauth_resource_covers(const char *resource, const char *server_url);
// D9: byte for byte; two issuers without a path may differ by one slash at the end.
bool oauth_issuer_matches(const char *expected, const char *found);

// N5: the issuer's host is one of these domains ("as.example.com"), or below one ("*.example.com"). NULL: any will do.
bool oauth_issuer_allowed(const char *issuer, char *const *domains);
bool oauth_issuer_domain_valid(const char *domain);

// ---- metadata -------------------------------------------------------------------------------

// A JSON object from outside, or NULL: bounded, no duplicate keys, not too deep (N9).
json_t *oauth_document_parse(struct span text, const char *what, struct err *err) MUST_CHECK;
// A string member; null, "" and other types count as absent (N9).
const char *oauth_document_string(const json_t *object, const char *name);

struct oauth_resource {
    const char *resource;  // byte for byte as it was (A6)
    const char *servers[OAUTH_SERVERS_MAX];
    size_t server_count;
    const char *scope;  // scopes_supported, joined; NULL: none
};

bool oauth_resource_parse(struct span text, const char *server_url, struct arena *arena, struct oauth_resource *out,
                          struct err *err) MUST_CHECK;

enum oauth_method { OAUTH_METHOD_NONE, OAUTH_METHOD_POST, OAUTH_METHOD_BASIC, OAUTH_METHOD_KEY, OAUTH_METHODS };
const char *oauth_method_text(enum oauth_method method);
bool oauth_method_parse(const char *text, enum oauth_method *out);

enum oauth_pkce { OAUTH_PKCE_REFUSED, OAUTH_PKCE_UNSAID, OAUTH_PKCE_S256 };

struct oauth_server {
    const char *issuer;  // as its metadata say it (D10)
    const char *authorization_endpoint, *token_endpoint, *registration_endpoint, *revocation_endpoint;
    const char *device_endpoint;
    enum oauth_pkce pkce;
    unsigned methods;      // 1 << enum oauth_method; what it lists
    bool methods_listed;   // false: it said nothing
    bool answers_iss;      // RFC 9207
    bool takes_documents;  // client_id_metadata_document_supported is true
    bool offline_access;   // it lists that scope
    bool code;             // response_types_supported is absent or has "code" (A10)
    bool legacy;           // without metadata: default endpoints (D11)
};

bool oauth_server_parse(struct span text, const char *issuer, struct arena *arena, struct oauth_server *out,
                        struct err *err) MUST_CHECK;
// D11: the endpoints of a server that has no metadata, at its origin.
void oauth_server_default(const char *server_url, struct arena *arena, struct oauth_server *out);
// D13: whether PKCE may be relied on; `assume` is the switch for those who do not say.
bool oauth_server_check_pkce(const struct oauth_server *server, bool assume, struct err *err) MUST_CHECK;

// ---- scopes (A7 to A9) ----------------------------------------------------------------------

struct oauth_scope_wish {
    const char *configured, *challenged, *supported;  // the first that is there counts
    const char *held;                                 // step-up: what was asked for before, joined with the challenge
    bool offline;                                     // add offline_access
};
const char *oauth_scope_choose(const struct oauth_scope_wish *wish, struct arena *arena);  // NULL: leave it out
bool oauth_scope_covers(const char *scopes, const char *wanted);                           // has all of them

// ---- forms ----------------------------------------------------------------------------------

// Appends name=value in x-www-form-urlencoded, with an ampersand if something is there already.
void oauth_form_put(struct buf *form, const char *name, const char *value);
// Calls back for each pair, decoded; false: it is not well-formed, or a callback said no.
bool oauth_form_walk(struct span form, bool (*on_pair)(void *arg, struct span name, struct span value), void *arg);

// ---- clients (G) ----------------------------------------------------------------------------

// Who we are to one authorization server.
struct oauth_client {
    const char *id, *secret, *key_pem, *key_alg, *key_id;
    enum oauth_method method;
    bool dynamic;            // registered by us, so it may be registered anew (G10)
    int64_t secret_expires;  // seconds since the epoch; 0: never
    int64_t issued;          // 0: not said
    const char *redirect_uri, *scope;
    const char *management_token, *management_uri;
};

struct oauth_registration {
    const char *client_id;  // of the client that is to be renewed (RFC 7592); NULL: a new one
    const char *redirect_uri, *scope;
    enum oauth_method method;
    bool native;  // application_type
    bool device;  // no redirect: RFC 8628
};

// G5: what to ask for.
enum oauth_method oauth_registration_method(const struct oauth_server *server);
void oauth_registration_put(const struct oauth_registration *wish, struct buf *out);
bool oauth_registration_parse(struct span text, const struct oauth_registration *wish, struct arena *arena,
                              struct oauth_client *out, struct err *err) MUST_CHECK;
// G8: a secret is of no use in its last minute.
bool oauth_client_usable(const struct oauth_client *client, const char *redirect_uri, int64_t now);
// T3: how a client that was given to us proves itself.
enum oauth_method oauth_client_method(const struct oauth_client *client, const struct oauth_server *server);
// T1, T2: adds to the form, or fills the Authorization header's value.
bool oauth_client_apply(const struct oauth_client *client, const char *audience, int64_t now, struct buf *form,
                        struct buf *authorization, struct err *err) MUST_CHECK;
// G2: the document that a client id that is a URL leads to.
void oauth_client_document(const char *client_id, const char *const *redirect_uris, bool native, struct buf *out);

// ---- the authorization request and its answer -----------------------------------------------

// One authorization request, made before the browser is sent off; the callback is judged by this alone (A4).
struct oauth_authorization {
    char state[SECRET_TEXT_SIZE(OAUTH_STATE_BYTES)], verifier[SECRET_TEXT_SIZE(OAUTH_VERIFIER_BYTES)];
    struct oauth_client client;
    struct oauth_server server;
    const char *redirect_uri, *resource, *scope;
    bool consent;         // prompt=consent (A8)
    struct oauth_extra {  // A11
        const char *name, *value;
    } extra[8];
    size_t extra_count;
    bool used;            // its callback came (B7)
    bool client_refused;  // and says that the client may be what is wrong
};

void oauth_authorization_seed(struct oauth_authorization *authorization);  // A2, A3: fresh state and verifier
bool oauth_authorization_extra_allowed(const char *name);                  // A11: not one of the protocol's own
void oauth_authorization_url(const struct oauth_authorization *authorization, struct buf *out);

enum oauth_callback_kind {
    OAUTH_CALLBACK_STRANGE,   // not for this request: answer it and go on waiting (B2)
    OAUTH_CALLBACK_REJECTED,  // for this request, and wrong
    OAUTH_CALLBACK_DENIED,    // the user said no (B5)
    OAUTH_CALLBACK_REFUSED,   // the server said no
    OAUTH_CALLBACK_CODE,
};
// What came to a redirect URI, in the arena. NULL: not there.
struct oauth_callback {
    const char *state, *code, *iss, *error, *description;
    bool
        malformed;  // it answers no request: a parameter came twice or is too long, or (without a state) it cannot be read
};
void oauth_callback_parse(struct span query, struct arena *arena, struct oauth_callback *out);
// Judges a callback; only the first that is for the authorization request counts.
enum oauth_callback_kind oauth_authorization_callback(struct oauth_authorization *authorization,
                                                      const struct oauth_callback *callback, struct err *err);

void oauth_authorization_put_exchange(const struct oauth_authorization *authorization, const char *code,
                                      struct buf *form);

// ---- tokens ---------------------------------------------------------------------------------

struct oauth_tokens {
    const char *access, *refresh;  // refresh may be NULL
    const char *scope;             // granted
    const char *account;        // L12: who the ID token says it is; for people only, nothing proves it; NULL: not said
    int64_t obtained, expires;  // seconds since the epoch; expires 0: not known
    bool odd_lifetime;          // T7: expires_in is there and says nothing usable
};

// What an answer of the token endpoint means for what we hold.
enum oauth_verdict {
    OAUTH_VERDICT_TRANSIENT,  // nothing is known: keep all, try later
    OAUTH_VERDICT_DEAD,       // the grant is gone
    OAUTH_VERDICT_CLIENT,     // the client is not known or not proven (G10)
    OAUTH_VERDICT_RESOURCE,   // it does not like `resource` (F14)
    OAUTH_VERDICT_VAGUE,      // a no that may be about `resource` (F14), or about a grant that is gone (F12)
    OAUTH_VERDICT_UNPROVEN,   // as vague, but that it misses our client_id: it is looked for in another place (T4)
    OAUTH_VERDICT_REFUSED,    // any other clear no
    OAUTH_VERDICT_GRANTED,
};

struct oauth_answer {
    int status;
    struct span type;  // Content-Type
    struct span body;
};

// `now` is the time before the request was sent (T9); `requested` the scope asked for (T10).
enum oauth_verdict oauth_tokens_parse(const struct oauth_answer *answer, int64_t now, const char *requested,
                                      struct arena *arena, struct oauth_tokens *out, struct err *err);
// F9: what the answer to a refresh left out stays as it was.
void oauth_tokens_keep(struct oauth_tokens *fresh, const struct oauth_tokens *old, struct arena *arena);
// F1: when to refresh; 0: not before it is refused.
int64_t oauth_tokens_refresh_at(const struct oauth_tokens *tokens);
// F18: in how many milliseconds to refresh ahead, up to a tenth of that earlier by `random`, so that many gateways do not
// come at once; never later, for that would be at the cost of the time before its end. -1: not ahead.
int64_t oauth_tokens_refresh_in(const struct oauth_tokens *tokens, int64_t now, unsigned char random);

// The token that an identity provider gives for another authorization server (ID-JAG); NULL: none.
const char *oauth_tokens_parse_jag(const struct oauth_answer *answer, struct arena *arena, struct err *err) MUST_CHECK;

// What a person enters elsewhere, and what is polled with meanwhile (RFC 8628).
struct oauth_device {
    const char *device_code;
    const char *user_code, *url, *whole_url;  // for a person: printable; whole_url may be NULL
    int64_t interval_s, lifetime_s;
};
bool oauth_device_parse(const struct oauth_answer *answer, struct arena *arena, struct oauth_device *out,
                        struct err *err) MUST_CHECK;

// What a document says went wrong, escaped and cut, fit for a message (N10).
void oauth_problem_put(const json_t *document, struct buf *out);
void oauth_problem_put_excerpt(struct span text, struct buf *out);  // the same of any text
// Strikes out a secret that a server may have said back to us.
void oauth_problem_scrub(struct err *err, const char *secret);

#endif
