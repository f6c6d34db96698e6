// OAuth 2.1 as a client sees it: challenges, URLs, documents, requests and answers.
//
// Pure: no IO, no clock, no log. All input is untrusted; anything that does not conform to the specifications is
// refused or counts as absent. Results are strings in the caller's arena, which wipes them when it is released. Errors
// never quote a code, a token, a secret or a state. Letters and numbers such as D9 name a requirement in
// docs/requirements.md; the tests have the same names.
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
#define OAUTH_URLS_MAX 3                   // candidate URLs of one document
#define OAUTH_SERVERS_MAX 8                // authorization servers of one resource; the rest is ignored
#define OAUTH_STATE_BYTES 32
#define OAUTH_VERIFIER_BYTES 47
#define OAUTH_LIFETIME_MAX (10LL * 365 * 86400)

// ---- challenges (D1) ------------------------------------------------------------------------

// The parameters of a Bearer challenge in WWW-Authenticate; NULL: absent.
struct oauth_challenge {
    bool bearer;  // a Bearer challenge was found
    const char *resource_metadata, *scope, *error, *error_description;
};

// Reads one header field; call it for each of them. The first Bearer challenge counts, unless only a later one names
// the metadata.
void oauth_challenge_parse(struct span header, struct arena *arena, struct oauth_challenge *into);

// ---- URLs -----------------------------------------------------------------------------------

// The parts of an absolute http or https URL; spans are views of the text.
struct oauth_url {
    bool https;
    bool loopback;       // by the name of its host: localhost, 127.0.0.0/8, [::1]
    struct span origin;  // scheme://host:port as written
    struct span host;    // with the brackets of an IPv6 address
    unsigned port;       // the default port of the scheme if the URL does not contain a port
    struct span path;    // with its first slash; may be empty
    struct span query;   // without the question mark
};

// Refuses other schemes, user names, fragments, and characters that do not belong in a URL.
bool oauth_url_parse(const char *text, struct oauth_url *out);
bool oauth_url_secure(const char *text);  // N1, D14: https, or http to a loopback host
bool oauth_url_same_origin(const char *a, const char *b);

// The candidate URLs of the metadata of a protected resource (D3), and of an authorization server (D8).
size_t oauth_resource_urls(const char *server_url, struct arena *arena, const char *out[OAUTH_URLS_MAX]);
size_t oauth_server_urls(const char *issuer, struct arena *arena, const char *out[OAUTH_URLS_MAX]);

// D6: the resource is the server's URL or a parent of it.
bool oauth_resource_covers(const char *resource, const char *server_url);
// D9: byte for byte; two issuers without a path may differ by one slash at the end.
bool oauth_issuer_matches(const char *expected, const char *found);

// N5: the issuer's host is one of these domains ("as.example.com"), or below one ("*.example.com"). NULL allows any.
bool oauth_issuer_allowed(const char *issuer, char *const *domains);
bool oauth_issuer_domain_valid(const char *domain);

// ---- metadata -------------------------------------------------------------------------------

// Parses an untrusted JSON object. Returns NULL if it is too large or too deep, or has duplicate keys (N9).
json_t *oauth_document_parse(struct span text, const char *what, struct err *err) MUST_CHECK;
// A string member; null, "" and other types count as absent (N9).
const char *oauth_document_string(const json_t *object, const char *name);

struct oauth_resource {
    const char *resource;  // byte for byte as in the metadata (A6)
    const char *servers[OAUTH_SERVERS_MAX];
    size_t server_count;
    const char *scope;  // scopes_supported, joined; NULL: absent or empty
};

bool oauth_resource_parse(struct span text, const char *server_url, struct arena *arena, struct oauth_resource *out,
                          struct err *err) MUST_CHECK;

enum oauth_method { OAUTH_METHOD_NONE, OAUTH_METHOD_POST, OAUTH_METHOD_BASIC, OAUTH_METHOD_KEY, OAUTH_METHODS };
const char *oauth_method_text(enum oauth_method method);
bool oauth_method_parse(const char *text, enum oauth_method *out);

enum oauth_pkce { OAUTH_PKCE_REFUSED, OAUTH_PKCE_UNSAID, OAUTH_PKCE_S256 };

struct oauth_server {
    const char *issuer;  // as in its metadata (D10)
    const char *authorization_endpoint, *token_endpoint, *registration_endpoint, *revocation_endpoint;
    const char *device_endpoint;
    enum oauth_pkce pkce;
    unsigned methods;      // 1 << enum oauth_method: the listed methods
    bool methods_listed;   // false: the metadata do not list methods
    bool answers_iss;      // RFC 9207
    bool takes_documents;  // client_id_metadata_document_supported is true
    bool offline_access;   // scopes_supported has offline_access
    bool code;             // response_types_supported is absent or has "code" (A10)
    bool legacy;           // the server has no metadata: default endpoints (D11)
};

bool oauth_server_parse(struct span text, const char *issuer, struct arena *arena, struct oauth_server *out,
                        struct err *err) MUST_CHECK;
// D11: the default endpoints of a server without metadata, at its origin.
void oauth_server_default(const char *server_url, struct arena *arena, struct oauth_server *out);
// D13: checks that the server supports PKCE; `assume` accepts servers whose metadata do not mention it.
bool oauth_server_check_pkce(const struct oauth_server *server, bool assume, struct err *err) MUST_CHECK;

// ---- scopes (A7 to A9) ----------------------------------------------------------------------

struct oauth_scope_wish {
    const char *configured, *challenged, *supported;  // the first that is set counts
    const char *held;                                 // step-up: the scope requested before, joined with the challenge
    bool offline;                                     // add offline_access
};
const char *oauth_scope_choose(const struct oauth_scope_wish *wish, struct arena *arena);  // NULL: send no scope
bool oauth_scope_covers(const char *scopes, const char *wanted);  // whether `scopes` has all of `wanted`

// ---- forms ----------------------------------------------------------------------------------

// Appends name=value in x-www-form-urlencoded, after an ampersand if the form is not empty. A value of NULL is omitted.
void oauth_form_put(struct buf *form, const char *name, const char *value);
// Calls on_pair for each pair, decoded. Returns false if the form is malformed or a callback returns false.
bool oauth_form_walk(struct span form, bool (*on_pair)(void *arg, struct span name, struct span value), void *arg);

// ---- clients (G) ----------------------------------------------------------------------------

// The gateway's client at one authorization server.
struct oauth_client {
    const char *id, *secret, *key_pem, *key_alg, *key_id;
    enum oauth_method method;
    bool dynamic;            // registered by the gateway, so it may be registered again (G10)
    int64_t secret_expires;  // seconds since the epoch; 0: never
    int64_t issued;          // 0: unknown
    const char *redirect_uri, *scope;
    const char *management_token, *management_uri;
};

struct oauth_registration {
    const char *client_id;  // of the client to renew (RFC 7592); NULL: a new client
    const char *redirect_uri, *scope;
    enum oauth_method method;
    bool native;  // application_type
    bool device;  // RFC 8628: without a redirect URI
};

// G5: the authentication method to request.
enum oauth_method oauth_registration_method(const struct oauth_server *server);
void oauth_registration_put(const struct oauth_registration *wish, struct buf *out);
bool oauth_registration_parse(struct span text, const struct oauth_registration *wish, struct arena *arena,
                              struct oauth_client *out, struct err *err) MUST_CHECK;
// G8: a secret is not used in its last minute.
bool oauth_client_usable(const struct oauth_client *client, const char *redirect_uri, int64_t now);
// T3: the authentication method of a configured client.
enum oauth_method oauth_client_method(const struct oauth_client *client, const struct oauth_server *server);
// T1, T2: authenticates the client, with parameters in the form or with the value of the Authorization header.
bool oauth_client_apply(const struct oauth_client *client, const char *audience, int64_t now, struct buf *form,
                        struct buf *authorization, struct err *err) MUST_CHECK;
// G2: the metadata document that is served at the URL `client_id`.
void oauth_client_document(const char *client_id, const char *const *redirect_uris, bool native, struct buf *out);

// ---- the authorization request and its answer -----------------------------------------------

// One authorization request, complete before the browser is redirected; the callback is checked against it alone (A4).
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
    bool used;            // its callback was received (B7)
    bool client_refused;  // the error in the callback may be caused by the client
};

void oauth_authorization_seed(struct oauth_authorization *authorization);  // A2, A3: fresh state and verifier
bool oauth_authorization_extra_allowed(const char *name);                  // A11: not a parameter of the protocol
void oauth_authorization_url(const struct oauth_authorization *authorization, struct buf *out);

enum oauth_callback_kind {
    OAUTH_CALLBACK_STRANGE,   // not for this request: answer it and keep waiting (B2)
    OAUTH_CALLBACK_REJECTED,  // for this request, but invalid
    OAUTH_CALLBACK_DENIED,    // the user declined (B5)
    OAUTH_CALLBACK_REFUSED,   // the authorization server refused
    OAUTH_CALLBACK_CODE,
};
// The parameters of a request to a redirect URI, in the arena. NULL: absent.
struct oauth_callback {
    const char *state, *code, *iss, *error, *description;
    // A parameter occurs twice or is too long, or the query cannot be decoded and has no state: the callback is
    // ignored.
    bool malformed;
};
void oauth_callback_parse(struct span query, struct arena *arena, struct oauth_callback *out);
// Checks a callback. Only the first callback for the authorization request counts.
enum oauth_callback_kind oauth_authorization_callback(struct oauth_authorization *authorization,
                                                      const struct oauth_callback *callback, struct err *err);

void oauth_authorization_put_exchange(const struct oauth_authorization *authorization, const char *code,
                                      struct buf *form);

// ---- tokens ---------------------------------------------------------------------------------

struct oauth_tokens {
    const char *access, *refresh;  // refresh may be NULL
    const char *scope;             // granted
    const char *account;           // L12: from the unverified ID token, for display only; NULL: unknown
    int64_t obtained, expires;     // seconds since the epoch; expires 0: unknown
    bool odd_lifetime;             // T7: expires_in is present but invalid
};

// The meaning of a token endpoint's answer for the grant.
enum oauth_verdict {
    OAUTH_VERDICT_TRANSIENT,  // says nothing about the grant: keep it and retry later
    OAUTH_VERDICT_DEAD,       // the grant was revoked or has expired
    OAUTH_VERDICT_CLIENT,     // the client is unknown or not authenticated (G10)
    OAUTH_VERDICT_RESOURCE,   // the server does not accept `resource` (F14)
    OAUTH_VERDICT_VAGUE,      // a refusal because of `resource` (F14), or of a dead grant (F12): ambiguous
    OAUTH_VERDICT_UNPROVEN,   // as vague, but client_id is missing: the server expects it in another place (T4)
    OAUTH_VERDICT_REFUSED,    // any other definite refusal
    OAUTH_VERDICT_GRANTED,
};

struct oauth_answer {
    int status;
    struct span type;  // Content-Type
    struct span body;
};

// `now` is the time before the request was sent (T9), and `requested` the requested scope (T10).
enum oauth_verdict oauth_tokens_parse(const struct oauth_answer *answer, int64_t now, const char *requested,
                                      struct arena *arena, struct oauth_tokens *out, struct err *err);
// F9: members that the answer to a refresh omits keep their old values.
void oauth_tokens_keep(struct oauth_tokens *fresh, const struct oauth_tokens *old, struct arena *arena);
// F1: the time to refresh; 0: when the token is refused.
int64_t oauth_tokens_refresh_at(const struct oauth_tokens *tokens);
// F18: the milliseconds until a refresh ahead of the expiry. `random` makes them up to a tenth less, so that many
// gateways do not refresh at once; they are never more, because the refresh needs the time before the expiry. -1: do
// not refresh ahead.
int64_t oauth_tokens_refresh_in(const struct oauth_tokens *tokens, int64_t now, unsigned char random);

// The token that an identity provider issues for another authorization server (ID-JAG), or NULL.
const char *oauth_tokens_parse_jag(const struct oauth_answer *answer, struct arena *arena, struct err *err) MUST_CHECK;

// A device authorization (RFC 8628).
struct oauth_device {
    const char *device_code;                  // for polling
    const char *user_code, *url, *whole_url;  // for the user: printable; whole_url may be NULL
    int64_t interval_s, lifetime_s;
};
bool oauth_device_parse(const struct oauth_answer *answer, struct arena *arena, struct oauth_device *out,
                        struct err *err) MUST_CHECK;

// Appends the error of a document, escaped and truncated so that it is safe in a message (N10).
void oauth_problem_put(const json_t *document, struct buf *out);
void oauth_problem_put_excerpt(struct span text, struct buf *out);  // the same for any text
// Removes a secret that a server may have echoed.
void oauth_problem_scrub(struct err *err, const char *secret);

#endif
