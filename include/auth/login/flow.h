// A login: from the URL of a server to a grant in the token store, as one state machine on the loop.
//
//     flow = login_flow_start(&spec)
//       on_browse(url)     send the user there; what comes back to the redirect URI goes to login_flow_callback()
//       on_end(…)          once, last: the grant, or where and why it failed
//
// With no redirect URI the client's own rights are used (client_credentials): nobody is asked, nothing is stored.
// Callbacks come from the loop, never from inside the functions below; login_flow_free() may be called in any of them.
#ifndef AUTH_OAUTH_FLOW_H
#define AUTH_OAUTH_FLOW_H

#include "auth/login/access_options.h"
#include "auth/oauth/oauth.h"
#include "loop/http_client.h"

struct login_flow;
struct grant_store;

// In the place of a redirect URI when there is none: what a registration for devices is kept under.
#define LOGIN_DEVICE_URI "urn:ietf:params:oauth:grant-type:device_code"

// Where it ended; zero is a failure.
enum login_end {
    LOGIN_END_DISCOVERY,
    LOGIN_END_REGISTRATION,
    LOGIN_END_AUTHORIZATION,  // the answer to the authorization request was wrong, or an error
    LOGIN_END_DENIED,         // the user said no
    LOGIN_END_EXPIRED,        // device: nobody entered the code in time
    LOGIN_END_TOKEN,
    LOGIN_END_STORE,
    LOGIN_END_FOUND,  // only_discover: a login can be tried
    LOGIN_END_GRANTED,
};

struct login_flow_spec {
    struct loop *loop;
    struct http_client *http;
    struct grant_store *store;  // NULL only without a redirect URI; then a configured client is bound to no issuer
    const struct access_options *options;
    const char *tenant, *user;
    const char *server_url;
    const char *probe;     // JSON that is posted there without a token, for a challenge to come back
    char *const *issuers;  // domains that authorization servers may be at (N5); NULL: any
    const char *redirect_uri;
    const char *document_url;          // G2: where our own client metadata are, if they are anywhere; NULL: nowhere
    struct oauth_challenge challenge;  // of the call that was refused; zeroed: none
    const char *held_scope;            // step-up: what was asked for before (A9)
    const char *state;                 // 256 bits that nobody can guess, to be used once; NULL: fresh ones are made
    const char *known_issuer;          // whom the configured client was shown before; it is shown to no other (D16)
    const char *subject;               // the caller's own token, to be exchanged; NULL: that of the options
    int64_t subject_until;             // and its end: what is got for it lives no longer
    bool register_anew;                // do not use a registration that is stored
    bool shared_client;                // other users' grants depend on the registration (G11)
    bool only_discover;                // stop before anything is registered or anybody is asked
    bool device;                       // a code is entered on another device (RFC 8628); LOGIN_DEVICE_URI
    // Registration was refused: another redirect URI of this host to try, with a listener behind it, or NULL (G12).
    const char *(*on_rehost)(void *arg);
    void (*on_browse)(void *arg, const char *url);
    void (*on_device)(void *arg, const char *url, const char *code, const char *whole_url);  // whole_url may be NULL
    void (*on_note)(void *arg, const char *note);  // each URL tried, and what was decided (D17); may be NULL
    // `grant` is the callee's to keep (grant_ref) during the call; NULL unless granted.
    void (*on_end)(void *arg, enum login_end end, const struct grant *grant, const struct err *err);
    void *arg;
};

struct login_flow *login_flow_start(const struct login_flow_spec *spec);  // copies what it needs but the options
// What the user is asked for: complete from on_browse on.
const struct oauth_authorization *login_flow_authorization(const struct login_flow *flow);
// A request came to the redirect URI. OAUTH_CALLBACK_STRANGE: not for this login, go on waiting.
enum oauth_callback_kind login_flow_callback(struct login_flow *flow, const struct oauth_callback *callback,
                                             struct err *err);
// From on_browse until the callback a login can be put away: what the callback will be judged by, as bytes. They hold
// secrets, but neither the state nor those of a configured client.
void login_suspension_save(const struct login_flow *flow, struct buf *out);
// Goes on with it, here or in another process, with login_flow_callback(). spec->state is needed; without a redirect_uri
// it is the one from then. NULL: it cannot, because the configuration changed meanwhile or the bytes are damaged.
struct login_flow *login_suspension_restore(const struct login_flow_spec *spec, struct span bytes,
                                            struct err *err) MUST_CHECK;
// Which addresses this login may connect to, as far as it is known: for who plays the browser.
struct address_policy;
struct address_policy *login_flow_policy(struct login_flow *flow);
// Nobody came back: the registration may be why, so the next login makes a new one (G10). Free it afterwards.
void login_flow_abandon(struct login_flow *flow);
void login_flow_free(struct login_flow *flow);

// F16: revokes the refresh token, then the access token, as far as the server takes part, as the client the grant was given
// to. on_done is called once, from the loop; why: it was not revoked, since it cannot be proven there (any more) who we
// are, or the server did not do it. `spec` is copied; the options must outlive it.
struct login_revocation;
struct login_revocation_spec {
    struct loop *loop;
    struct http_client *http;
    struct grant_store *store;  // where registrations are
    const struct grant *grant;
    const struct access_options *options;  // of the server it is for; NULL: it is not configured (any more)
    void (*on_done)(void *arg, const struct err *why);
    void *arg;
};
struct login_revocation *login_revocation_start(const struct login_revocation_spec *spec);
void login_revocation_free(struct login_revocation *revocation);

#endif
