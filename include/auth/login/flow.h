// A login: from the URL of a server to a grant in the grant store, as one state machine on the loop.
//
//     flow = login_flow_start(&spec)
//       on_browse(url)     send the user there; pass requests to the redirect URI to login_flow_callback()
//       on_end(…)          once, last: the grant, or the step that failed and the reason
//
// Without a redirect URI the client's own rights are used (client_credentials): no user is involved and no grant is
// stored. Callbacks come from the loop, never from inside the functions below; login_flow_free() may be called in any
// of them.
#ifndef AUTH_OAUTH_FLOW_H
#define AUTH_OAUTH_FLOW_H

#include "auth/login/access_options.h"
#include "auth/oauth/oauth.h"
#include "loop/http_client.h"

struct login_flow;
struct grant_store;

// Used in place of a redirect URI in the key of a registration for the device flow.
#define LOGIN_DEVICE_URI "urn:ietf:params:oauth:grant-type:device_code"

// The step at which the login ended; zero is a failure.
enum login_end {
    LOGIN_END_DISCOVERY,
    LOGIN_END_REGISTRATION,
    LOGIN_END_AUTHORIZATION,  // the authorization response was invalid or an error
    LOGIN_END_DENIED,         // the user declined
    LOGIN_END_EXPIRED,        // device: the code was not entered in time
    LOGIN_END_TOKEN,
    LOGIN_END_STORE,
    LOGIN_END_FOUND,  // only_discover: discovery succeeded
    LOGIN_END_GRANTED,
};

struct login_flow_spec {
    struct loop *loop;
    struct http_client *http;
    struct grant_store *store;  // NULL only without a redirect URI; then a configured client is bound to no issuer
    const struct access_options *options;
    const char *tenant, *user;
    const char *server_url;
    const char *probe;     // JSON that is posted to server_url without a token, to provoke a challenge
    char *const *issuers;  // allowed domains of authorization servers (N5); NULL: any
    const char *redirect_uri;
    const char *document_url;          // G2: the URL of our own client metadata document; NULL: not published
    struct oauth_challenge challenge;  // of the call that was refused; zeroed: none
    const char *held_scope;            // step-up: the scope that was requested before (A9)
    const char *state;                 // a random value of 256 bits, to be used once; NULL: the flow generates one
    const char *known_issuer;          // the only authorization server that may get the configured client (D16)
    const char *subject;               // the caller's own token, to be exchanged; NULL: that of the options
    int64_t subject_until;             // its expiry, which also limits the lifetime of the exchanged token
    bool register_anew;                // do not use a stored registration
    bool shared_client;                // other users' grants depend on the registration (G11)
    bool only_discover;                // stop before a client is registered or a user is asked
    bool device;                       // a code is entered on another device (RFC 8628); LOGIN_DEVICE_URI
    // Registration was refused: returns another redirect URI of this host to try, with a listener behind it, or NULL
    // (G12).
    const char *(*on_rehost)(void *arg);
    void (*on_browse)(void *arg, const char *url);
    void (*on_device)(void *arg, const char *url, const char *code, const char *whole_url);  // whole_url may be NULL
    void (*on_note)(void *arg, const char *note);  // each URL tried, and each decision (D17); may be NULL
    // `grant` is valid during the call only, unless the callee keeps it with grant_ref(); NULL unless granted.
    void (*on_end)(void *arg, enum login_end end, const struct grant *grant, const struct err *err);
    void *arg;
};

// Copies `spec`, except its options and issuers, which must outlive the flow.
struct login_flow *login_flow_start(const struct login_flow_spec *spec);
// The authorization that the user is asked for; complete from on_browse on.
const struct oauth_authorization *login_flow_authorization(const struct login_flow *flow);
// Passes a request to the redirect URI to the flow. OAUTH_CALLBACK_STRANGE: it is not for this login; keep waiting.
enum oauth_callback_kind login_flow_callback(struct login_flow *flow, const struct oauth_callback *callback,
                                             struct err *err);
// Between on_browse and the callback a login can be suspended: this encodes everything that the callback is checked
// against. The bytes contain secrets, but neither the state nor the secrets of a configured client.
void login_suspension_save(const struct login_flow *flow, struct buf *out);
// Resumes a suspended login, in this or another process; continue with login_flow_callback(). spec->state is required;
// a missing redirect_uri is taken from the bytes. NULL: the configuration has changed, or the bytes are damaged.
struct login_flow *login_suspension_restore(const struct login_flow_spec *spec, struct span bytes,
                                            struct err *err) MUST_CHECK;
// The addresses that this login may connect to, as far as they are known. For a command that acts as the browser.
struct address_policy;
struct address_policy *login_flow_policy(struct login_flow *flow);
// Ends a login whose user did not return. The registration may be the reason, so the next login registers a new client
// (G10). Free the flow afterwards.
void login_flow_abandon(struct login_flow *flow);
void login_flow_free(struct login_flow *flow);

// F16: revokes the refresh token, then the access token, if the server supports revocation, as the client that the
// grant was issued to. on_done is called once, from the loop; `why` is NULL, or the reason why the tokens were not
// revoked: the client cannot authenticate (any more), or the server failed. `spec` is copied; the options must outlive
// it.
struct login_revocation;
struct login_revocation_spec {
    struct loop *loop;
    struct http_client *http;
    struct grant_store *store;  // contains the registrations
    const struct grant *grant;
    const struct access_options *options;  // of the grant's server; NULL: the server is not configured (any more)
    void (*on_done)(void *arg, const struct err *why);
    void *arg;
};
struct login_revocation *login_revocation_start(const struct login_revocation_spec *spec);
void login_revocation_free(struct login_revocation *revocation);

#endif
