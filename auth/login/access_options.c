// Owns the option rows of `auth` of a server.
#include "assertion_options.h"
#include "auth/oauth/oauth.h"
#include "loop/address.h"

static const char *const modes[] = {"none",     "static",         "shared",     "per_user", "client_credentials",
                                    "workload", "token_exchange", "enterprise", NULL};
static const char *const subjects[] = {"id_token", "access_token", "jwt", NULL};
static const char *const sources[] = {"file", "caller", NULL};
static const char *const proofs[] = {"auto", "client_secret_post", "client_secret_basic", NULL};
static const char *const pkces[] = {"require", "assume_s256", NULL};

#define AT(member) offsetof(struct access_idp, member)
static const struct option idp_rows[] = {
    {.name = "issuer",
     .type = OPTION_STRING,
     .offset = AT(issuer),
     .help = "The issuer identifier of the identity provider. Its metadata contain the token endpoint. Required if "
             "`subject` is `caller`."},
    {.name = "token_endpoint",
     .type = OPTION_STRING,
     .offset = AT(token_endpoint),
     .help = "The token endpoint of the identity provider, instead of the one in its metadata; https, or http on "
             "loopback."},
    {.name = "client_id",
     .type = OPTION_STRING,
     .offset = AT(client_id),
     .help = "The client id of the gateway at the identity provider."},
    {.name = "client_secret",
     .type = OPTION_STRING,
     .offset = AT(client_secret),
     .secret = true,
     .help = "The secret of the client at the identity provider, if it has one."},
    {0},
};
#undef AT

static const struct option_table idp_table = {"The identity provider (mcpServers.NAME.auth.idp)",
                                              sizeof(struct access_idp), idp_rows, NULL};

#define AT(member) offsetof(struct access_options, member)

static const struct option rows[] = {
    {.name = "mode",
     .type = OPTION_ENUM,
     .offset = AT(mode),
     .fallback = "\"none\"",
     .choices = modes,
     .help = "The credential that the gateway presents to the server. `none`: no credential. `static`: the value of "
             "`token`. `shared`: one grant for all callers, obtained with `postern login SERVER`. `per_user`: each "
             "caller's own grant, and no other; makes `isolation` at least `user`. `client_credentials`: a token for "
             "the gateway's own client (RFC 6749, 4.4). `workload`: a token for the workload whose token is in "
             "`subject_token_file` (RFC 7523). `token_exchange`: a token in exchange for the subject token (RFC 8693). "
             "`enterprise`: the subject token is exchanged at `idp` for an assertion (ID-JAG), which the authorization "
             "server exchanges for an access token."},
    {.name = "token",
     .type = OPTION_STRING,
     .offset = AT(token),
     .secret = true,
     .help = "The token of mode `static`."},
    {.name = "client_id",
     .type = OPTION_STRING,
     .offset = AT(client_id),
     .help = "The client id of a client that is registered at the authorization server. If absent, the gateway "
             "registers a client when it needs one."},
    {.name = "client_secret",
     .type = OPTION_STRING,
     .offset = AT(client_secret),
     .secret = true,
     .help = "The secret of the client."},
    {.name = "token_endpoint_auth_method",
     .type = OPTION_ENUM,
     .offset = AT(token_endpoint_auth_method),
     .fallback = "\"auto\"",
     .choices = proofs,
     .help =
         "The method with which `client_secret` is presented first. `auto`: the method in the authorization server's "
         "metadata, or else `client_secret_basic`. If the method is refused, the other method is tried once."},
    {.name = "private_key_file",
     .type = OPTION_STRING,
     .offset = AT(private_key_file),
     .help = "PEM file with the private key of the client, for private_key_jwt. Only the gateway's user may be able to "
             "read the file."},
    {.name = "signing_algorithm",
     .type = OPTION_STRING,
     .offset = AT(signing_algorithm),
     .fallback = "\"RS256\"",
     .help = "The algorithm with which the key signs: RS256, RS384, RS512, ES256, ES384 or ES512."},
    {.name = "key_id",
     .type = OPTION_STRING,
     .offset = AT(key_id),
     .help = "The `kid` of the key in `private_key_file`."},
    {.name = "client_metadata_url",
     .type = OPTION_STRING,
     .offset = AT(client_metadata_url),
     .help = "The https URL of a client metadata document. It is used as the client id if the authorization server "
             "accepts such ids."},
    {.name = "scope",
     .type = OPTION_STRING,
     .offset = AT(scope),
     .help = "Scopes to request, instead of those that the server names."},
    {.name = "resource",
     .type = OPTION_STRING,
     .offset = AT(resource),
     .help = "The `resource` parameter to send, instead of the value in the server's metadata; \"omit\" sends none."},
    {.name = "issuer",
     .type = OPTION_STRING,
     .offset = AT(issuer),
     .help = "The authorization server to use if the server names several: the issuer, exactly as in the metadata of "
             "the authorization server."},
    {.name = "pkce",
     .type = OPTION_ENUM,
     .offset = AT(pkce),
     .fallback = "\"require\"",
     .choices = pkces,
     .help = "`assume_s256`: assume that the authorization server supports PKCE although its metadata do not say so."},
    {.name = "callback_host",
     .type = OPTION_STRING,
     .offset = AT(callback_host),
     .fallback = "\"127.0.0.1\"",
     .help = "Host of the redirect URI of `postern login`: 127.0.0.1, localhost or ::1."},
    {.name = "callback_port",
     .type = OPTION_INT,
     .offset = AT(callback_port),
     .fallback = "0",
     .max = 65535,
     .help = "Port of the redirect URI of `postern login`; 0: the port of the last login, or the first free port from "
             "8085 to 8099."},
    {.name = "device",
     .type = OPTION_BOOL,
     .offset = AT(device),
     .fallback = "false",
     .help = "`postern login` shows a code to enter on another device, as with `--device`."},
    {.name = "authorize_params",
     .type = OPTION_PAIRS,
     .offset = AT(authorize_params),
     .help = "Additional parameters of the authorization request, such as `audience`."},
    {.name = "allow_addresses",
     .type = OPTION_STRINGS,
     .offset = AT(allow_addresses),
     .help =
         "Additional address blocks, such as \"10.0.0.0/8\", in which the authorization server of this server may be. "
         "If absent, only public addresses, and addresses of the same kind as that of the server, are allowed."},
    {.name = "subject",
     .type = OPTION_ENUM,
     .offset = AT(subject),
     .fallback = "\"file\"",
     .choices = sources,
     .help = "The subject token: the token that `token_exchange` and `enterprise` exchange. `file`: the token in "
             "`subject_token_file`, for all callers. `caller`: the JWT that each caller presented, only for that "
             "caller. This JWT must be from the issuer that exchanges it, or name that issuer in `aud`. `caller` makes "
             "`isolation` at least `user`."},
    {.name = "subject_token_file",
     .type = OPTION_STRING,
     .offset = AT(subject_token_file),
     .help = "File with the subject token of modes `workload`, `token_exchange` and `enterprise`. It is read each time "
             "the gateway requests a token."},
    {.name = "subject_token_type",
     .type = OPTION_ENUM,
     .offset = AT(subject_token_type),
     .fallback = "\"id_token\"",
     .choices = subjects,
     .help = "The type of the subject token, for `token_exchange` and `enterprise`."},
    {.name = "idp",
     .type = OPTION_OBJECT,
     .offset = AT(idp),
     .sub = &idp_table,
     .help = "The identity provider of mode `enterprise`."},
    {.name = "assertion",
     .type = OPTION_OBJECT,
     .offset = AT(assertion),
     .sub = &assertion_options_table,
     .help = "Sends the caller's identity to the server, in addition to the credential of `mode`; needs `isolation` "
             "`user` or `session`."},
    {0},
};

bool access_options_mode_asks(enum access_mode mode)
{
    return mode == ACCESS_CLIENT || mode == ACCESS_WORKLOAD || mode == ACCESS_EXCHANGE || mode == ACCESS_ENTERPRISE;
}

bool access_options_takes_caller(const struct access_options *options)
{
    return options->subject == ACCESS_FROM_CALLER;  // check_subject() permits this only with a mode that exchanges
}

bool access_options_is_client_of(const struct access_options *options, const struct grant *grant)
{
    return options->client_id && grant->is.client_id && strcmp(options->client_id, grant->is.client_id) == 0 &&
           (!options->issuer || oauth_issuer_matches(options->issuer, grant->issuer));
}

bool access_options_client_moves(const struct access_options *options)
{
    return options->client_id && !options->issuer;
}

static bool check_idp(const struct access_options *options, const struct option_place *place, struct err *err)
{
    const struct access_idp *idp = &options->idp;
    const char *const urls[] = {idp->issuer, idp->token_endpoint};
    bool named = urls[0] || urls[1];
    if ((options->mode == ACCESS_ENTERPRISE) != (named && idp->client_id))
        return err_set(err, ERR_CONFIG,
                       "%s: %s/idp: mode \"enterprise\" needs an issuer or a token_endpoint, and a client_id; no other "
                       "mode accepts an \"idp\"",
                       place->file, place->path);
    if (options->mode == ACCESS_ENTERPRISE && access_options_takes_caller(options) && !idp->issuer)
        return err_set(
            err, ERR_CONFIG,
            "%s: %s/idp/issuer: required with \"subject\" \"caller\", because a token of a caller is sent only to its "
            "issuer or to one of its audiences",
            place->file, place->path);
    for (size_t i = 0; i < 2; i++)
        if (urls[i] && !oauth_url_secure(urls[i]))
            return err_set(err, ERR_CONFIG, "%s: %s/idp/%s: must be https, or http on loopback", place->file,
                           place->path, i ? "token_endpoint" : "issuer");
    return true;
}

// A subject's token is sent only to an identity provider or issuer that the configuration names.
static bool check_subject(const struct access_options *options, const struct option_place *place, struct err *err)
{
    bool wanted = access_options_mode_asks((enum access_mode)options->mode) && options->mode != ACCESS_CLIENT;
    bool caller = access_options_takes_caller(options);
    if (caller && options->mode != ACCESS_EXCHANGE && options->mode != ACCESS_ENTERPRISE)
        return err_set(err, ERR_CONFIG, "%s: %s/subject: \"caller\" needs mode \"token_exchange\" or \"enterprise\"",
                       place->file, place->path);
    if ((wanted && !caller) != (options->subject_token_file != NULL))
        return err_set(err, ERR_CONFIG,
                       "%s: %s: modes \"workload\", \"token_exchange\" and \"enterprise\" require a "
                       "\"subject_token_file\" unless \"subject\" is \"caller\", and no other mode accepts one",
                       place->file, place->path);
    if (wanted && !options->client_id)
        return err_set(err, ERR_CONFIG, "%s: %s: mode \"%s\" needs a client_id", place->file, place->path,
                       modes[options->mode]);
    if (options->mode == ACCESS_EXCHANGE && !options->issuer)
        return err_set(err, ERR_CONFIG, "%s: %s: mode \"token_exchange\" needs an \"issuer\"", place->file,
                       place->path);
    return check_idp(options, place, err);
}

static bool check(void *object, const struct option_place *place, struct err *err)
{
    const struct access_options *options = object;
    const char *host = options->callback_host;
    if ((options->mode == ACCESS_STATIC) != (options->token != NULL))
        return err_set(err, ERR_CONFIG, "%s: %s: mode \"static\" requires a \"token\", and no other mode accepts one",
                       place->file, place->path);
    if (options->mode == ACCESS_CLIENT &&
        (!options->client_id || (!options->client_secret && !options->private_key_file)))
        return err_set(
            err, ERR_CONFIG,
            "%s: %s: mode \"client_credentials\" needs a client_id, and a client_secret or a private_key_file",
            place->file, place->path);
    if (!check_subject(options, place, err))
        return false;
    if (options->client_metadata_url && strncmp(options->client_metadata_url, "https://", 8) != 0)
        return err_set(err, ERR_CONFIG, "%s: %s/client_metadata_url: must be an https:// URL", place->file,
                       place->path);
    if (strcmp(host, "127.0.0.1") != 0 && strcmp(host, "localhost") != 0 && strcmp(host, "::1") != 0)
        return err_set(err, ERR_CONFIG, "%s: %s/callback_host: must be 127.0.0.1, localhost or ::1", place->file,
                       place->path);
    for (char *const *block = options->allow_addresses; block && *block; block++)
        if (!address_block_valid(*block))
            return err_set(err, ERR_CONFIG, "%s: %s/allow_addresses: \"%s\" is not a block such as 10.0.0.0/8",
                           place->file, place->path, *block);
    for (size_t i = 0; i < options->authorize_params.count; i++)
        if (!oauth_authorization_extra_allowed(options->authorize_params.at[i].name))
            return err_set(err, ERR_CONFIG, "%s: %s/authorize_params/%s: reserved: the gateway sets this parameter",
                           place->file, place->path, options->authorize_params.at[i].name);
    return true;
}

const struct option_table access_options_table = {"Credentials for a server (mcpServers.NAME.auth)",
                                                  sizeof(struct access_options), rows, check};
