// Owns JSON Web Tokens: parsing and verifying them.
//
// The order in jwt_verify() is: structure, header, claims, key, signature. The claims of an unverified token can only
// make it refused early: before the expensive verification, and before an unknown kid could make a provider fetch keys.
#include "auth/jose/jwt.h"
#include "base/mem.h"
#include "base/secret.h"
#include "jwk.h"
#include <stdlib.h>
#include <strings.h>

#define TIME_MAX_SECONDS 253402300799  // the last second of the year 9999

#define COUNT(array) (sizeof(array) / sizeof *(array))

// Refuses the token. The message must not contain any part of the token.
#define refuse(err, ...) err_set((err), ERR_UNAUTHENTICATED, "token: " __VA_ARGS__)

static bool same_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

// Bounded and without control characters, so that it is safe in logs and policies.
static bool is_plain(struct span text, size_t max)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.at[i] < 0x20 || text.at[i] == 0x7F)
            return false;
    return text.len > 0 && text.len <= max;
}

// ---- rules ----------------------------------------------------------------------------------

bool jwt_algorithms(char *const *names, unsigned *set, struct err *err)
{
    *set = names ? 0 : JWT_ALGORITHMS_DEFAULT;
    for (size_t i = 0; names && names[i]; i++) {
        const struct jwk_algorithm *algorithm = jwk_algorithm_find(names[i]);
        if (!algorithm)
            return err_set(err, ERR_CONFIG, "%s is not an algorithm for tokens of an issuer with public keys",
                           names[i]);
        *set |= algorithm->bit;
    }
    return *set || err_set(err, ERR_CONFIG, "the list of algorithms is empty");
}

bool jwt_rules_check(const struct jwt_rules *rules, struct err *err)
{
    if (!rules->issuer || !*rules->issuer)
        return err_set(err, ERR_CONFIG, "tokens need an issuer");
    if (!rules->audiences || !rules->audiences[0])
        return err_set(err, ERR_CONFIG, "tokens need at least one audience");
    for (size_t i = 0; rules->audiences[i]; i++)
        if (!*rules->audiences[i])
            return err_set(err, ERR_CONFIG, "an audience is empty");
    if (!rules->algorithms)
        return err_set(err, ERR_CONFIG, "tokens need at least one algorithm");
    if (rules->skew < 0 || rules->skew > JWT_SKEW_MAX)
        return err_set(err, ERR_CONFIG, "the clock skew must be between 0 and %d seconds", JWT_SKEW_MAX);
    return true;
}

// ---- parsing --------------------------------------------------------------------------------

static bool split(struct span token, struct span parts[3])
{
    for (int i = 0; i < 3; i++) {
        const char *dot = token.len ? memchr(token.at, '.', token.len) : NULL;
        if ((dot != NULL) != (i < 2))
            return false;
        parts[i] = span_make(token.at, dot ? (size_t)(dot - token.at) : token.len);
        token = span_after(token, parts[i].len + 1);
        if (!parts[i].len)
            return false;
    }
    return true;
}

static json_t *parse_part(struct span part, const char *what, struct err *err)
{
    struct buf text = {0};
    json_t *tree = NULL;
    if (secret_decode(&text, part))
        tree = jwk_json(buf_span(&text), what, ERR_UNAUTHENTICATED, err);
    else
        (void)err_set(err, ERR_UNAUTHENTICATED, "%s: not base64url", what);
    buf_release(&text);
    return tree;
}

static bool is_access_token(const char *type)
{
    return strcasecmp(type, "at+jwt") == 0 || strcasecmp(type, "application/at+jwt") == 0;
}

// The checks that do not depend on the issuer. jku, x5u, jwk and x5c are ignored: keys come from the issuer's set only.
static bool read_header(struct jwt *jwt, struct err *err)
{
    const json_t *kid = json_object_get(jwt->header, "kid"), *type = json_object_get(jwt->header, "typ");
    jwt->algorithm = json_string_value(json_object_get(jwt->header, "alg"));
    jwt->kid = json_string_value(kid);
    if (!jwt->algorithm)
        return refuse(err, "alg is missing or not a string");
    if (kid && !jwt->kid)
        return refuse(err, "kid is not a string");
    if (json_object_get(jwt->header, "crit"))
        return refuse(err, "critical extensions (crit) are not supported");
    if (type && (!json_is_string(type) ||
                 (strcasecmp(json_string_value(type), "JWT") != 0 && !is_access_token(json_string_value(type)))))
        return refuse(err, "typ is neither JWT nor at+jwt");
    return true;
}

bool jwt_parse(struct span token, struct jwt *out, struct err *err)
{
    struct span part[3];
    *out = (struct jwt){0};
    if (token.len > JWT_TOKEN_MAX)
        return refuse(err, "longer than %zu bytes", JWT_TOKEN_MAX);
    if (!split(token, part))
        return refuse(err, "not three non-empty segments");
    out->text = span_make(token.at, part[0].len + 1 + part[1].len);
    bool ok = secret_decode(&out->signature, part[2]) || refuse(err, "the signature is not base64url");
    ok = ok && (out->header = parse_part(part[0], "token header", err)) && read_header(out, err) &&
         (out->payload = parse_part(part[1], "token payload", err));
    if (ok)
        out->issuer = json_string_value(json_object_get(out->payload, "iss"));
    else
        jwt_release(out);
    return ok;
}

void jwt_release(struct jwt *jwt)
{
    json_decref(jwt->header);
    json_decref(jwt->payload);
    buf_release(&jwt->signature);
    *jwt = (struct jwt){0};
}

// ---- verifying ------------------------------------------------------------------------------

// Rounds up, which is exact when compared with whole seconds. Saturates far enough from the limits of the type that the
// skew can be added and subtracted.
static int64_t whole_seconds(double value)
{
    const int64_t most = (int64_t)1 << 62;
    if (value >= (double)most)
        return most;
    if (value <= -(double)most)
        return -most;
    int64_t whole = (int64_t)value;
    return (double)whole < value ? whole + 1 : whole;
}

// Returns false if the claim is present and not a number. *out stays as it is if the claim is missing.
static bool read_time(const json_t *payload, const char *name, int64_t *out)
{
    const json_t *value = json_object_get(payload, name);
    if (json_is_number(value))
        *out = whole_seconds(json_number_value(value));
    return !value || json_is_number(value);
}

// *expires gets the first second at which the token is not accepted any more. An `exp` after the year 9999 is refused:
// it is an attempt to create a token that never expires, or to cause an overflow.
static bool check_times(const json_t *payload, int64_t skew, int64_t now, int64_t *expires, struct err *err)
{
    int64_t exp = 0, nbf = INT64_MIN / 2, iat = 0;
    if (!json_object_get(payload, "exp"))
        return refuse(err, "exp is missing");
    if (!read_time(payload, "exp", &exp) || !read_time(payload, "nbf", &nbf) || !read_time(payload, "iat", &iat))
        return refuse(err, "exp, nbf or iat is not a number");
    if (exp > TIME_MAX_SECONDS)
        return refuse(err, "exp is out of range");
    *expires = exp + skew;
    if (now >= *expires)
        return refuse(err, "expired");
    if (now < nbf - skew)
        return refuse(err, "not valid yet (nbf)");
    return true;
}

static bool is_audience(const json_t *value, char *const *audiences)
{
    for (size_t i = 0; audiences[i]; i++)
        if (same_text(value, audiences[i]))
            return true;
    return false;
}

static bool check_audience(const json_t *payload, char *const *audiences, struct err *err)
{
    const json_t *aud = json_object_get(payload, "aud"), *item;
    bool found = is_audience(aud, audiences);
    size_t i;
    if (!json_is_string(aud) && !json_is_array(aud))
        return refuse(err, "aud is missing, or neither a string nor an array");
    json_array_foreach(aud, i, item) {
        if (!json_is_string(item))
            return refuse(err, "aud has a member that is not a string");
        found = found || is_audience(item, audiences);
    }
    return found || refuse(err, "issued for another audience");
}

static bool check_claims(const struct jwt_rules *rules, const struct jwt *jwt, int64_t now, struct jwt_claims *out,
                         struct err *err)
{
    const json_t *subject = json_object_get(jwt->payload, "sub");
    if (!jwt->issuer || strcmp(jwt->issuer, rules->issuer) != 0)
        return refuse(err, "issued by another issuer");
    if (!check_audience(jwt->payload, rules->audiences, err) ||
        !check_times(jwt->payload, rules->skew, now, &out->expires, err))
        return false;
    out->subject = json_string_value(subject);
    out->token_id = json_string_value(json_object_get(jwt->payload, "jti"));
    if (subject && (!out->subject || !is_plain(span_of(out->subject), JWT_SUBJECT_MAX)))
        return refuse(err, "sub is not a plain string of 1 to %d bytes", JWT_SUBJECT_MAX);
    for (size_t i = 0; rules->required_claims && rules->required_claims[i]; i++) {
        const json_t *claim = json_object_get(jwt->payload, rules->required_claims[i]);
        if (!claim || json_is_null(claim))
            return refuse(err, "the required claim %s is missing", rules->required_claims[i]);
    }
    return true;
}

static const struct jwk_algorithm *check_header(const struct jwt_rules *rules, const struct jwt *jwt, struct err *err)
{
    const struct jwk_algorithm *algorithm = jwk_algorithm_find(jwt->algorithm);
    const char *type = json_string_value(json_object_get(jwt->header, "typ"));
    if (!algorithm)
        (void)refuse(err, "alg is not supported");
    else if (!(rules->algorithms & algorithm->bit))
        (void)refuse(err, "%s is not among the allowed algorithms", algorithm->name);
    else if (rules->require_at_jwt && (!type || !is_access_token(type)))
        (void)refuse(err, "typ is not at+jwt");
    else
        return algorithm;
    return NULL;
}

enum jwt_outcome jwt_verify(const struct jwt_rules *rules, const struct jwks *keys, struct span token, int64_t now,
                            struct jwt_claims *out, struct err *err)
{
    struct jwt jwt;
    *out = (struct jwt_claims){0};
    if (!jwt_rules_check(rules, err) || !jwt_parse(token, &jwt, err))
        return JWT_REJECTED;
    bool unknown = false, ok = false;
    const struct jwk_algorithm *algorithm = check_header(rules, &jwt, err);
    if (algorithm && check_claims(rules, &jwt, now, out, err)) {
        const struct jwk *jwk = jwks_select(keys, jwt.kid, algorithm, &unknown, err);
        ok = jwk && (jwk_verify(jwk, algorithm, jwt.text, buf_span(&jwt.signature)) ||
                     refuse(err, "the signature is not valid"));
    }
    if (ok)
        out->tree = json_incref(jwt.payload);
    else
        *out = (struct jwt_claims){0};
    jwt_release(&jwt);
    return ok ? JWT_ACCEPTED : unknown ? JWT_UNKNOWN_KEY : JWT_REJECTED;
}

void jwt_claims_release(struct jwt_claims *claims)
{
    json_decref(claims->tree);
    *claims = (struct jwt_claims){0};
}
