// `auth` of a server in the configuration: which credentials the gateway presents to it, and how it obtains them.
#ifndef AUTH_LOGIN_ACCESS_OPTIONS_H
#define AUTH_LOGIN_ACCESS_OPTIONS_H

#include "auth/grant/grant.h"
#include "base/option.h"

// `auth.assertion` of a server. Without a key_file the gateway does not send assertions.
struct assertion_options {
    char *key_file, *algorithm, *key_id;
    struct option_pairs other_keys;  // id → file: keys that are published but do not sign
    char *header;
    char *audience;  // NULL: the server's URL
    int64_t lifetime_ms;
};

// ACCESS_OPTIONAL cannot be configured: commands use it to present a grant if the user has one.
enum access_mode {
    ACCESS_NONE,
    ACCESS_STATIC,
    ACCESS_SHARED,
    ACCESS_USER,
    ACCESS_CLIENT,
    ACCESS_WORKLOAD,
    ACCESS_EXCHANGE,
    ACCESS_ENTERPRISE,
    ACCESS_OPTIONAL,
};
enum access_source { ACCESS_FROM_FILE, ACCESS_FROM_CALLER };
enum access_subject { ACCESS_SUBJECT_ID_TOKEN, ACCESS_SUBJECT_ACCESS_TOKEN, ACCESS_SUBJECT_JWT };
enum access_pkce { ACCESS_PKCE_REQUIRE, ACCESS_PKCE_ASSUME };
enum access_proof { ACCESS_PROOF_AUTO, ACCESS_PROOF_POST, ACCESS_PROOF_BASIC };

// `auth` of a server in the configuration.
struct access_options {
    int mode;
    char *token;
    char *client_id, *client_secret, *private_key_file, *signing_algorithm, *key_id;
    int token_endpoint_auth_method;  // enum access_proof, of a client_secret
    char *client_metadata_url;
    char *scope;
    char *resource;  // NULL: the one in the server's metadata; "omit": not sent
    char *issuer;
    int pkce;
    char *callback_host;
    int64_t callback_port;
    bool device;
    struct option_pairs authorize_params;
    char **allow_addresses;
    int subject;  // enum access_source
    char *subject_token_file;
    int subject_token_type;
    struct access_idp {  // mode enterprise
        char *issuer, *token_endpoint, *client_id, *client_secret;
    } idp;
    struct assertion_options assertion;
    const char *ca_file;  // not an option: tls.ca_file of the server, used for its authorization server too
};

extern const struct option_table access_options_table;

// Reports whether tokens of this mode are requested when they are needed, without a user, and are not stored.
bool access_options_mode_asks(enum access_mode mode);
// Reports whether the caller's own token is exchanged: access needs it with each call (access_take_caller_token).
bool access_options_takes_caller(const struct access_options *options);
// F15: reports whether the grant was issued to the configured client. If not, the client's secret must not be sent to
// the authorization server of the grant (G14).
bool access_options_is_client_of(const struct access_options *options, const struct grant *grant);
// D16: reports whether only the server's metadata determine the authorization server of the configured client. The
// client is then bound to the first one (grant_store_client_bind) and never sent to another.
bool access_options_client_moves(const struct access_options *options);

#endif
