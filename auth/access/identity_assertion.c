// Owns the identity assertion: its claims, and when it is signed again.
#include "assertion_keys.h"
#include "base/mem.h"
#include "base/secret.h"
#include <stdlib.h>

struct identity_assertion {
    struct assertion_options options;  // borrowed texts
    char *issuer, *audience;
    const struct identity *owner;
    const struct assertion_key *key;
    const struct identity *who;  // the subject of the text, with roles; NULL: the owner, without roles
    struct buf text;
    int64_t until;  // the text is used until this time; 0: it is not valid
};

struct identity_assertion *identity_assertion_new(const struct identity_assertion_spec *spec)
{
    struct identity_assertion *assertion = mem_new(struct identity_assertion);
    assertion->options = *spec->options;
    assertion->issuer = mem_string(spec->issuer);
    assertion->audience = mem_string(spec->options->audience ? spec->options->audience : spec->server_url);
    assertion->owner = identity_ref(spec->owner);
    assertion->key = spec->key;
    return assertion;
}

void identity_assertion_free(struct identity_assertion *assertion)
{
    if (!assertion)
        return;
    identity_unref(assertion->owner);
    identity_unref(assertion->who);
    buf_wipe(&assertion->text);
    free(assertion->issuer);
    free(assertion->audience);
    free(assertion);
}

const char *identity_assertion_header(const struct identity_assertion *assertion) { return assertion->options.header; }

static bool proven(const struct identity *who)
{
    return who->proof != IDENTITY_NONE && who->proof != IDENTITY_ANONYMOUS;
}

// Reports whether the claims are the same: the same user, the same roles in the same order, the same expiry.
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

static json_t *claims_of(const struct identity_assertion *assertion, const struct identity *subject, bool with_roles,
                         int64_t now, int64_t end)
{
    json_t *roles = json_array();
    for (size_t i = 0; with_roles && i < subject->role_count; i++)
        json_array_append_new(roles, json_string(subject->roles[i]));
    json_t *name = json_sprintf("%s:%s", subject->provider, subject->subject);
    return json_pack("{s:s, s:s, s:o, s:s, s:o, s:I, s:I}", "iss", assertion->issuer, "aud", assertion->audience, "sub",
                     name, "tenant", subject->tenant, "roles", roles, "iat", (json_int_t)now, "exp", (json_int_t)end);
}

static bool sign(struct identity_assertion *assertion, const struct identity *who, int64_t now, struct err *err)
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
        return err_set(err, ERR_CONFIG, "/public_url: required as the issuer of identity assertions; set it");
    // Only an authenticated identity is asserted, and only at a connection of its own.
    if (!proven(subject) || !identity_same(subject, assertion->owner))
        return err_set(err, ERR_UNAUTHENTICATED, "the caller is not authenticated, so its identity cannot be asserted");
    if (who && who->expires && who->expires < end)
        end = who->expires;
    json_t *claims = claims_of(assertion, subject, who != NULL, now, end);
    bool ok = claims ? signing_key_sign(&assertion->key->sign, claims, &assertion->text, err)
                     : err_set(err, ERR_INTERNAL, "the identity is not valid UTF-8, so it cannot be asserted");
    json_decref(claims);
    if (!ok)
        return false;
    identity_unref(assertion->who);
    assertion->who = who ? identity_ref(who) : NULL;
    assertion->until = now + (end - now) / 2;
    return true;
}

const char *identity_assertion_text(struct identity_assertion *assertion, const struct identity *who, int64_t now,
                                    struct err *err)
{
    int64_t life = assertion->options.lifetime_ms / 1000;
    bool kept = now < assertion->until && assertion->until <= now + life && same_claims(assertion->who, who);
    return kept || sign(assertion, who, now, err) ? buf_text(&assertion->text) : NULL;
}
