// Owns the assertion that tells a server who calls: its option rows, what it claims, and when it is signed anew.
#include "assertion_keys.h"
#include "base/mem.h"
#include "base/secret.h"
#include <ctype.h>
#include <stdlib.h>
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
    if (!oauth_key_algorithm_valid(options->algorithm))
        return err_set(err, ERR_CONFIG, "%s: %s/algorithm: RS256, RS384, RS512, ES256, ES384 or ES512", place->file,
                       place->path);
    if (!good_header(options->header))
        return err_set(err, ERR_CONFIG, "%s: %s/header: letters, digits and '-', and no header with another meaning",
                       place->file, place->path);
    if (!options->key_file && (options->key_id || options->audience || options->other_keys.count))
        return err_set(err, ERR_CONFIG, "%s: %s: needs a \"key_file\"", place->file, place->path);
    return true;
}

const struct option_table assertion_option_table = {"Telling a server who calls (mcpServers.NAME.auth.assertion)",
                                                    sizeof(struct assertion_options), rows, check};

struct assertion {
    struct assertion_options options;  // borrowed texts
    char *issuer, *audience;
    const struct identity *owner;
    const struct assertion_key *key;
    const struct identity *who;  // whom the text is about, with roles; NULL: the owner, without
    struct buf text;
    int64_t until;  // the text is used; 0: there is none
};

struct assertion *assertion_new(const struct assertion_spec *spec)
{
    struct assertion *assertion = mem_new(struct assertion);
    assertion->options = *spec->options;
    assertion->issuer = mem_string(spec->issuer);
    assertion->audience = mem_string(spec->options->audience ? spec->options->audience : spec->server_url);
    assertion->owner = identity_ref(spec->owner);
    assertion->key = spec->key;
    return assertion;
}

void assertion_free(struct assertion *assertion)
{
    if (!assertion)
        return;
    identity_unref(assertion->owner);
    identity_unref(assertion->who);
    if (assertion->text.at)
        secret_wipe(assertion->text.at, assertion->text.room);
    buf_release(&assertion->text);
    free(assertion->issuer);
    free(assertion->audience);
    free(assertion);
}

const char *assertion_header(const struct assertion *assertion) { return assertion->options.header; }

static bool proven(const struct identity *who)
{
    return who->proof != IDENTITY_NONE && who->proof != IDENTITY_ANONYMOUS;
}

// The same claims: one person, the same roles in the same order, the same end.
static bool same_claims(const struct identity *a, const struct identity *b)
{
    if (a == b)
        return true;
    if (!a || !b || !identity_same(a, b) || a->role_count != b->role_count || a->expires != b->expires)
        return false;
    for (size_t i = 0; i < a->role_count; i++)
        if (strcmp(a->roles[i], b->roles[i]) != 0)
            return false;
    return true;
}

static json_t *claims_of(const struct assertion *assertion, const struct identity *subject, bool with_roles,
                         int64_t now, int64_t end)
{
    json_t *roles = json_array();
    for (size_t i = 0; with_roles && i < subject->role_count; i++)
        json_array_append_new(roles, json_string(subject->roles[i]));
    json_t *name = json_sprintf("%s:%s", subject->provider, subject->subject);
    return json_pack("{s:s, s:s, s:o, s:s, s:o, s:I, s:I}", "iss", assertion->issuer, "aud", assertion->audience, "sub",
                     name, "tenant", subject->tenant, "roles", roles, "iat", (json_int_t)now, "exp", (json_int_t)end);
}

static bool sign(struct assertion *assertion, const struct identity *who, int64_t now, struct err *err)
{
    const struct identity *subject = who ? who : assertion->owner;
    int64_t end = now + assertion->options.lifetime_ms / 1000;
    assertion->until = 0;
    buf_clear(&assertion->text);
    if (!assertion->key->sign.pem) {
        *err = assertion->key->unusable;
        return false;
    }
    if (!assertion->issuer)
        return err_set(err, ERR_CONFIG, "/public_url: what tells a server who calls needs it, as the issuer");
    // Whom nobody has proven is not asserted, and a connection is for its own user only.
    if (!proven(subject) || !identity_same(subject, assertion->owner))
        return err_set(err, ERR_UNAUTHENTICATED, "nobody has proven who calls: that cannot be asserted to a server");
    if (who && who->expires && who->expires < end)
        end = who->expires;
    json_t *claims = claims_of(assertion, subject, who != NULL, now, end);
    bool ok = claims ? oauth_key_sign(&assertion->key->sign, claims, &assertion->text, err)
                     : err_set(err, ERR_INTERNAL, "an identity that is no text cannot be asserted");
    json_decref(claims);
    if (!ok)
        return false;
    identity_unref(assertion->who);
    assertion->who = who ? identity_ref(who) : NULL;
    assertion->until = now + (end - now) / 2;
    return true;
}

const char *assertion_text(struct assertion *assertion, const struct identity *who, int64_t now, struct err *err)
{
    int64_t life = assertion->options.lifetime_ms / 1000;
    bool kept = now < assertion->until && assertion->until <= now + life && same_claims(assertion->who, who);
    return kept || sign(assertion, who, now, err) ? buf_text(&assertion->text) : NULL;
}
