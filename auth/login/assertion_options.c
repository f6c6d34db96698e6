// Owns the option rows of `auth.assertion` of a server.
#include "assertion_options.h"
#include "auth/jose/signing_key.h"
#include <ctype.h>
#include <strings.h>

#define AT(member) offsetof(struct assertion_options, member)

static const struct option rows[] = {
    {.name = "key_file",
     .type = OPTION_STRING,
     .offset = AT(key_file),
     .help = "PEM file with the private key that signs the assertion. Only the gateway's user may be able to read the "
             "file. If absent, no assertion is sent."},
    {.name = "algorithm",
     .type = OPTION_STRING,
     .offset = AT(algorithm),
     .fallback = "\"ES256\"",
     .help = "The algorithm with which the key signs: RS256, RS384, RS512, ES256, ES384 or ES512."},
    {.name = "key_id",
     .type = OPTION_STRING,
     .offset = AT(key_id),
     .help = "The `kid` of the key in `key_file`; the thumbprint of the key (RFC 7638) if absent."},
    {.name = "other_keys",
     .type = OPTION_PAIRS,
     .offset = AT(other_keys),
     .help = "Additional keys to publish at `/.well-known/jwks.json`: a map from `kid` to a PEM file (a public key is "
             "enough). List the previous key until the assertions that it signed have expired, and the next key before "
             "it is used."},
    {.name = "header",
     .type = OPTION_STRING,
     .offset = AT(header),
     .fallback = "\"X-Postern-Identity\"",
     .help = "The header that contains the assertion."},
    {.name = "audience",
     .type = OPTION_STRING,
     .offset = AT(audience),
     .help = "The `aud` of the assertion, instead of the server's URL."},
    {.name = "lifetime",
     .type = OPTION_DURATION,
     .offset = AT(lifetime_ms),
     .fallback = "60",
     .min = 10000,
     .max = 3600000,
     .help = "The lifetime of an assertion, in whole seconds. An assertion is reused for half of its lifetime."},
    {0},
};

// Headers of MCP and of HTTP itself cannot carry the assertion.
static bool good_header(const char *name)
{
    static const char *const taken[] = {
        "authorization", "accept", "content-type", "content-length",    "host",         "cookie",
        "connection",    "te",     "upgrade",      "transfer-encoding", "last-event-id"};
    size_t len = strlen(name);
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '-')
            return false;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (strcasecmp(name, taken[i]) == 0)
            return false;
    return len >= 1 && len <= 64 && strncasecmp(name, "mcp-", 4) != 0;
}

static bool check(void *object, const struct option_place *place, struct err *err)
{
    const struct assertion_options *options = object;
    if (!signing_key_algorithm_valid(options->algorithm))
        return err_set(err, ERR_CONFIG, "%s: %s/algorithm: must be RS256, RS384, RS512, ES256, ES384 or ES512",
                       place->file, place->path);
    if (!good_header(options->header))
        return err_set(err, ERR_CONFIG,
                       "%s: %s/header: must be letters, digits and '-', and not a header of HTTP or MCP", place->file,
                       place->path);
    if (!options->key_file && (options->key_id || options->audience || options->other_keys.count))
        return err_set(err, ERR_CONFIG, "%s: %s: needs a \"key_file\"", place->file, place->path);
    return true;
}

const struct option_table assertion_options_table = {
    "The identity assertion for a server (mcpServers.NAME.auth.assertion)", sizeof(struct assertion_options), rows,
    check};
