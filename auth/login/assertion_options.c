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
     .help =
         "PEM file with the private key it is signed with; nobody else may be able to read it. Without it nothing is "
         "asserted."},
    {.name = "algorithm",
     .type = OPTION_STRING,
     .offset = AT(algorithm),
     .fallback = "\"ES256\"",
     .help = "What that key signs with: RS256, RS384, RS512, ES256, ES384 or ES512."},
    {.name = "key_id",
     .type = OPTION_STRING,
     .offset = AT(key_id),
     .help = "`kid` of that key; its thumbprint (RFC 7638) if absent."},
    {.name = "other_keys",
     .type = OPTION_PAIRS,
     .offset = AT(other_keys),
     .help =
         "More keys to publish at `/.well-known/jwks.json`, `kid` → PEM file (a public key is enough): the one before, "
         "while something signed with it may still be about, and the next one, before it signs."},
    {.name = "header",
     .type = OPTION_STRING,
     .offset = AT(header),
     .fallback = "\"X-Postern-Identity\"",
     .help = "The header that carries it."},
    {.name = "audience",
     .type = OPTION_STRING,
     .offset = AT(audience),
     .help = "What it says as `aud` instead of the server's URL."},
    {.name = "lifetime",
     .type = OPTION_DURATION,
     .offset = AT(lifetime_ms),
     .fallback = "60",
     .min = 10000,
     .max = 3600000,
     .help = "How long it is good, in whole seconds; it is used for half of that."},
    {0},
};

// Headers of the protocol and of HTTP itself are not for this.
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
        return err_set(err, ERR_CONFIG, "%s: %s/algorithm: RS256, RS384, RS512, ES256, ES384 or ES512", place->file,
                       place->path);
    if (!good_header(options->header))
        return err_set(err, ERR_CONFIG, "%s: %s/header: letters, digits and '-', and no header with another meaning",
                       place->file, place->path);
    if (!options->key_file && (options->key_id || options->audience || options->other_keys.count))
        return err_set(err, ERR_CONFIG, "%s: %s: needs a \"key_file\"", place->file, place->path);
    return true;
}

const struct option_table assertion_options_table = {"Telling a server who calls (mcpServers.NAME.auth.assertion)",
                                                     sizeof(struct assertion_options), rows, check};
