// Tests the verification of JWTs and the import of key sets. The tests sign with their own code and with keys of this
// run.
#include "auth/jose/jwt.h"
#include "base/secret.h"
#include "jwk.h"
#include "unit.h"
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

#define NOW 1700000000
#define ISS "https://issuer.example/"
#define CLAIMS(rest) "{\"iss\":\"" ISS "\",\"sub\":\"alice\",\"aud\":\"https://gate.example/mcp\"," rest "}"
#define GOOD CLAIMS("\"exp\":1700000060")
#define ALL_ALGORITHMS 0x3FFU

// clang-format off
// Every key has its row number as kid. The last has the same type as the first and is in no set.
static struct key {
    const char *kty, *crv;
    EVP_PKEY *key;
} keys[] = {{"RSA", NULL, NULL}, {"EC", "P-256", NULL}, {"EC", "P-384", NULL}, {"EC", "P-521", NULL},
            {"OKP", "ED25519", NULL}, {"OKP", "ED448", NULL}, {"RSA", NULL, NULL}};
enum { RSA_KEY, P256, P384, P521, ED25519, ED448, OTHER_RSA };

static const struct scheme {
    const char *alg;
    int key;
    const char *digest;
    int salt;  // 0: not PSS
} schemes[] = {
    {"RS256", RSA_KEY, "SHA256", 0},  {"RS384", RSA_KEY, "SHA384", 0},  {"RS512", RSA_KEY, "SHA512", 0},
    {"PS256", RSA_KEY, "SHA256", 32}, {"PS384", RSA_KEY, "SHA384", 48}, {"PS512", RSA_KEY, "SHA512", 64},
    {"ES256", P256, "SHA256", 0},     {"ES384", P384, "SHA384", 0},     {"ES512", P521, "SHA512", 0},
    {"EdDSA", ED25519, NULL, 0},      {"EdDSA", ED448, NULL, 0},
};
enum { RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EDDSA, EDDSA448 };
// clang-format on

static char *const audiences[] = {"https://gate.example/mcp", "api://gate", NULL};
static const struct jwt_rules usual = {
    .issuer = ISS, .audiences = audiences, .algorithms = JWT_ALGORITHMS_DEFAULT, .skew = 30};
static struct jwks *set;  // keys 0 to 5

// ---- making keys, sets and tokens -----------------------------------------------------------

static void put_encoded(struct buf *out, const char *name, const void *bytes, size_t len)
{
    buf_printf(out, ",\"%s\":\"", name);
    secret_encode(out, span_make(bytes, len));
    buf_put_char(out, '"');
}

static void put_param(struct buf *out, const char *name, const EVP_PKEY *key, const char *param, int size)
{
    BIGNUM *number = NULL;
    unsigned char bytes[2048];
    assert_int_equal(EVP_PKEY_get_bn_param(key, param, &number), 1);
    int len = BN_bn2binpad(number, bytes, size ? size : BN_num_bytes(number));
    assert_true(len > 0);
    put_encoded(out, name, bytes, (size_t)len);
    BN_free(number);
}

// Writes a JWK with kty, the public members, and `rest`, which begins with a comma.
static void put_jwk(struct buf *out, const struct key *key, const char *rest)
{
    buf_printf(out, "{\"kty\":\"%s\"", key->kty);
    if (strcmp(key->kty, "RSA") == 0) {
        put_param(out, "n", key->key, OSSL_PKEY_PARAM_RSA_N, 0);
        put_param(out, "e", key->key, OSSL_PKEY_PARAM_RSA_E, 0);
    } else if (strcmp(key->kty, "EC") == 0) {
        int size = (EVP_PKEY_get_bits(key->key) + 7) / 8;
        buf_printf(out, ",\"crv\":\"%s\"", key->crv);
        put_param(out, "x", key->key, OSSL_PKEY_PARAM_EC_PUB_X, size);
        put_param(out, "y", key->key, OSSL_PKEY_PARAM_EC_PUB_Y, size);
    } else {
        unsigned char raw[64];
        size_t len = sizeof raw;
        assert_int_equal(EVP_PKEY_get_raw_public_key(key->key, raw, &len), 1);
        buf_printf(out, ",\"crv\":\"%s\"", strcmp(key->crv, "ED448") == 0 ? "Ed448" : "Ed25519");
        put_encoded(out, "x", raw, len);
    }
    buf_printf(out, "%s}", rest);
}

static struct jwks *parse_set(struct buf *text)
{
    struct err err = {0};
    struct jwks *parsed = jwks_parse(buf_span(text), &err);
    if (!parsed)
        print_error("%s\n", err.detail);
    assert_non_null(parsed);
    buf_release(text);
    return parsed;
}

// A set of one or two keys, each with further members.
static struct jwks *set_of(int a, const char *rest_a, int b, const char *rest_b)
{
    struct buf text = {0};
    buf_put_text(&text, "{\"keys\":[");
    put_jwk(&text, &keys[a], rest_a);
    if (rest_b) {
        buf_put_char(&text, ',');
        put_jwk(&text, &keys[b], rest_b);
    }
    buf_put_text(&text, "]}");
    return parse_set(&text);
}

static size_t sign_with(EVP_PKEY *key, const struct scheme *scheme, struct span text, unsigned char *out, bool der)
{
    size_t len = 1024;
    EVP_PKEY_CTX *how = NULL;
    EVP_MD_CTX *run = EVP_MD_CTX_new();
    assert_int_equal(EVP_DigestSignInit_ex(run, &how, scheme->digest, NULL, NULL, key, NULL), 1);
    if (scheme->salt) {
        assert_int_equal(EVP_PKEY_CTX_set_rsa_padding(how, RSA_PKCS1_PSS_PADDING), 1);
        assert_int_equal(EVP_PKEY_CTX_set_rsa_pss_saltlen(how, scheme->salt), 1);
    }
    assert_int_equal(EVP_DigestSign(run, out, &len, (const unsigned char *)text.at, text.len), 1);
    EVP_MD_CTX_free(run);
    if (der || !EVP_PKEY_is_a(key, "EC"))
        return len;
    int half = (EVP_PKEY_get_bits(key) + 7) / 8;
    const unsigned char *at = out;
    ECDSA_SIG *pair = d2i_ECDSA_SIG(NULL, &at, (long)len);
    assert_int_equal(BN_bn2binpad(ECDSA_SIG_get0_r(pair), out, half), half);
    assert_int_equal(BN_bn2binpad(ECDSA_SIG_get0_s(pair), out + half, half), half);
    ECDSA_SIG_free(pair);
    return (size_t)half * 2;
}

static void put_unsigned(struct buf *out, const char *header, const char *payload)
{
    buf_clear(out);
    secret_encode(out, span_of(header));
    buf_put_char(out, '.');
    secret_encode(out, span_of(payload));
}

static void put_signature(struct buf *out, const unsigned char *signature, size_t len)
{
    buf_put_char(out, '.');
    secret_encode(out, span_make((const char *)signature, len));
}

static void put_token(struct buf *out, const char *header, const char *payload, int scheme)
{
    unsigned char signature[1024];
    put_unsigned(out, header, payload);
    size_t len = sign_with(keys[schemes[scheme].key].key, &schemes[scheme], buf_span(out), signature, false);
    put_signature(out, signature, len);
}

// ---- judging --------------------------------------------------------------------------------

static struct err why;

static enum jwt_outcome judge_at(const struct jwt_rules *rules, const struct jwks *with, struct span token, int64_t now)
{
    struct jwt_claims claims;
    memset(&claims, 0xAA, sizeof claims);
    why = (struct err){0};
    enum jwt_outcome outcome = jwt_verify(rules, with, token, now, &claims, &why);
    assert_true((outcome == JWT_ACCEPTED) == (why.code == ERR_NONE));
    assert_true((outcome == JWT_ACCEPTED) == (claims.tree != NULL));
    assert_int_equal(ERR_peek_error(), 0);  // the error queue of OpenSSL is empty again
    jwt_claims_release(&claims);
    return outcome;
}

static enum jwt_outcome judge(const struct jwks *with, const struct buf *token)
{
    return judge_at(&usual, with, buf_span(token), NOW);
}

// Judges a token with this header that is signed with the Ed25519 key.
static enum jwt_outcome judge_header(const char *header)
{
    struct buf token = {0};
    put_token(&token, header, GOOD, EDDSA);
    enum jwt_outcome outcome = judge(set, &token);
    buf_release(&token);
    return outcome;
}

static enum jwt_outcome judge_payload(const struct jwt_rules *rules, const char *payload, int64_t now)
{
    struct buf token = {0};
    put_token(&token, "{\"alg\":\"EdDSA\",\"kid\":\"4\"}", payload, EDDSA);
    enum jwt_outcome outcome = judge_at(rules, set, buf_span(&token), now);
    buf_release(&token);
    return outcome;
}

static enum jwt_outcome judge_with(struct jwks *with, const char *header, int scheme)
{
    struct buf token = {0};
    put_token(&token, header, GOOD, scheme);
    struct jwt_rules rules = usual;
    rules.algorithms = ALL_ALGORITHMS;
    enum jwt_outcome outcome = judge_at(&rules, with, buf_span(&token), NOW);
    buf_release(&token);
    jwks_free(with);
    return outcome;
}

// ---- J1, J2: rules and audiences ------------------------------------------------------------

static void J1_rules_without_an_issuer_audience_or_algorithm_are_refused(void **state)
{
    (void)state;
    static char *const none[] = {NULL}, *const empty[] = {"", NULL};
    struct err err = {0};
    assert_true(jwt_rules_check(&usual, &err));
    const struct jwt_rules rows[] = {
        {0},
        {.issuer = ISS, .algorithms = JWT_RS256},
        {.issuer = ISS, .audiences = none, .algorithms = JWT_RS256},
        {.issuer = ISS, .audiences = empty, .algorithms = JWT_RS256},
        {.issuer = "", .audiences = audiences, .algorithms = JWT_RS256},
        {.issuer = ISS, .audiences = audiences},
        {.issuer = ISS, .audiences = audiences, .algorithms = JWT_RS256, .skew = 301},
        {.issuer = ISS, .audiences = audiences, .algorithms = JWT_RS256, .skew = -1},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        err = (struct err){0};
        assert_false(jwt_rules_check(&rows[i], &err));
        assert_int_equal(err.code, ERR_CONFIG);
        assert_int_equal(judge_payload(&rows[i], GOOD, NOW), JWT_REJECTED);
    }
}

static void J1_algorithms_are_named_exactly(void **state)
{
    (void)state;
    unsigned chosen = 0;
    struct err err = {0};
    assert_true(jwt_algorithms(NULL, &chosen, &err));
    assert_int_equal(chosen, JWT_RS256 | JWT_PS256 | JWT_ES256 | JWT_EDDSA);
    static char *const two[] = {"ES384", "RS512", NULL};
    assert_true(jwt_algorithms(two, &chosen, &err));
    assert_int_equal(chosen, JWT_ES384 | JWT_RS512);
    static char *const wrong[][3] = {{"none"}, {"HS256"}, {"HS512"}, {"rs256"}, {"RS256", "None"}, {""}, {NULL}};
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_false(jwt_algorithms(wrong[i], &chosen, &err));
}

static void J1_a_token_without_a_required_claim_is_rejected(void **state)
{
    (void)state;
    static char *const names[] = {"sub", "client_id", NULL};
    struct jwt_rules rules = usual;
    rules.required_claims = names;
    assert_int_equal(judge_payload(&rules, CLAIMS("\"exp\":1700000060,\"client_id\":\"c\""), NOW), JWT_ACCEPTED);
    assert_int_equal(judge_payload(&rules, CLAIMS("\"exp\":1700000060,\"client_id\":null"), NOW), JWT_REJECTED);
    assert_int_equal(judge_payload(&rules, GOOD, NOW), JWT_REJECTED);
    assert_contains(why.detail, "client_id");
}

static void J2_an_audience_is_a_string_or_an_array_of_strings(void **state)
{
    (void)state;
    static const struct {
        const char *aud;
        enum jwt_outcome want;
    } rows[] = {
        {"\"aud\":\"https://gate.example/mcp\",", JWT_ACCEPTED},
        {"\"aud\":\"api://gate\",", JWT_ACCEPTED},
        {"\"aud\":[\"api://gate\"],", JWT_ACCEPTED},
        {"\"aud\":[\"x\",\"api://gate\",\"y\"],", JWT_ACCEPTED},
        {"\"aud\":\"https://gate.example/mcp/\",", JWT_REJECTED},
        {"\"aud\":\"https://gate.example/MCP\",", JWT_REJECTED},
        {"\"aud\":\"x api://gate\",", JWT_REJECTED},
        {"\"aud\":\"\",", JWT_REJECTED},
        {"\"aud\":[],", JWT_REJECTED},
        {"\"aud\":[\"x\"],", JWT_REJECTED},
        {"\"aud\":[\"api://gate\",1],", JWT_REJECTED},
        {"\"aud\":[[\"api://gate\"]],", JWT_REJECTED},
        {"\"aud\":{\"api://gate\":true},", JWT_REJECTED},
        {"\"aud\":true,", JWT_REJECTED},
        {"\"aud\":null,", JWT_REJECTED},
        {"\"aud\":0,", JWT_REJECTED},
        {"", JWT_REJECTED},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf payload = {0};
        buf_printf(&payload, "{\"iss\":\"" ISS "\",%s\"exp\":1700000060}", rows[i].aud);
        assert_row(judge_payload(&usual, buf_text(&payload), NOW) == rows[i].want, rows[i].aud);
        buf_release(&payload);
    }
}

// ---- J3: the text ---------------------------------------------------------------------------

static void J3_a_token_has_three_segments_in_strict_base64url(void **state)
{
    (void)state;
    struct buf good = {0}, bad = {0};
    put_token(&good, "{\"alg\":\"EdDSA\",\"kid\":\"4\"}", GOOD, EDDSA);
    assert_int_equal(judge(set, &good), JWT_ACCEPTED);
    const char *text = buf_text(&good), *first = strchr(text, '.'), *last = strrchr(text, '.');
    struct span head = span_make(text, (size_t)(first - text));
    struct span body = span_make(first + 1, (size_t)(last - first - 1)), tail = span_of(last + 1);
    // 64 bytes are 86 digits, of which the last has four spare bits that must be zero.
    char spare[87];
    memcpy(spare, tail.at, 87);
    spare[85]++;
    static const char *const dots[] = {"", ".", "..", "..."};
    for (size_t i = 0; i < COUNT(dots); i++)
        assert_int_equal(judge_at(&usual, set, span_of(dots[i]), NOW), JWT_REJECTED);
#define BAD(...)                                          \
    do {                                                  \
        buf_clear(&bad);                                  \
        buf_printf(&bad, __VA_ARGS__);                    \
        assert_int_equal(judge(set, &bad), JWT_REJECTED); \
    } while (0)
    BAD("%.*s", SPAN_ARG(head));
    BAD("%.*s.%.*s", SPAN_ARG(head), SPAN_ARG(body));
    BAD("%.*s.%.*s.", SPAN_ARG(head), SPAN_ARG(body));
    BAD("%.*s..%.*s", SPAN_ARG(head), SPAN_ARG(tail));
    BAD(".%.*s.%.*s", SPAN_ARG(body), SPAN_ARG(tail));
    BAD("%s.", text);
    BAD("%s.e30", text);
    BAD(".%s", text);
    BAD("%s.e30.e30", text);
    BAD("%s=", text);
    BAD("%s==", text);
    BAD("%s\n", text);
    BAD(" %s", text);
    BAD("%.*s. %.*s.%.*s", SPAN_ARG(head), SPAN_ARG(body), SPAN_ARG(tail));
    BAD("%.*s=.%.*s.%.*s", SPAN_ARG(head), SPAN_ARG(body), SPAN_ARG(tail));
    BAD("%.*s.%.*s.%s", SPAN_ARG(head), SPAN_ARG(body), spare);
    BAD("%.*s.%.*s.%.*s", SPAN_ARG(head), SPAN_ARG(body), 85, tail.at);
    BAD("%.*s.%.*s.%sA", SPAN_ARG(head), SPAN_ARG(body), tail.at);
    BAD("Bearer %s", text);
    buf_clear(&bad);
    buf_put_text(&bad, text);
    buf_put_char(&bad, '\0');
    assert_int_equal(judge(set, &bad), JWT_REJECTED);
    buf_release(&good);
    buf_release(&bad);
}

static void J3_a_token_has_at_most_16_KiB(void **state)
{
    (void)state;
    struct buf payload = {0}, token = {0};
    for (int pad = 12100; pad < 12300; pad++) {
        buf_clear(&payload);
        buf_printf(&payload, CLAIMS("\"exp\":1700000060,\"pad\":\"%0*d\""), pad, 0);
        put_token(&token, "{\"alg\":\"EdDSA\",\"kid\":\"4\"}", buf_text(&payload), EDDSA);
        assert_int_equal(judge(set, &token), token.len <= 16384 ? JWT_ACCEPTED : JWT_REJECTED);
        pad += token.len < 16370 || token.len > 16400 ? 20 : 0;
    }
    assert_true(token.len > 16384);
    buf_release(&payload);
    buf_release(&token);
}

static void J3_header_and_payload_must_be_objects_without_duplicate_keys(void **state)
{
    (void)state;
    static const char *const headers[] = {
        "{\"alg\":\"EdDSA\",\"alg\":\"EdDSA\",\"kid\":\"4\"}",
        "{\"alg\":\"EdDSA\",\"kid\":\"4\",\"\\u006bid\":\"4\"}",
        "{\"alg\":\"none\",\"kid\":\"4\",\"alg\":\"EdDSA\"}",
        "[\"EdDSA\"]",
        "\"EdDSA\"",
        "null",
        "{\"alg\":\"EdDSA\",\"kid\":\"4\"",
        "{\"alg\":\"EdDSA\",\"kid\":\"4\"}{}",
        "{\"alg\":\"EdDSA\",\"kid\":\"4\",}",
        "{'alg':'EdDSA'}",
        "{\"alg\":\"EdDSA\",\"kid\":\"4\\u0000\"}",
        "\xEF\xBB\xBF{\"alg\":\"EdDSA\",\"kid\":\"4\"}",
    };
    for (size_t i = 0; i < COUNT(headers); i++)
        assert_row(judge_header(headers[i]) == JWT_REJECTED, headers[i]);
    static const char *const payloads[] = {
        CLAIMS("\"exp\":1700000060,\"aud\":\"api://gate\""),
        CLAIMS("\"exp\":1,\"exp\":1700000060"),
        CLAIMS("\"exp\":1700000060,\"s\\u0075b\":\"admin\""),
        CLAIMS("\"exp\":1700000060,\"deep\":{\"a\":[{\"b\":1,\"b\":2}]}"),
        "[" GOOD "]",
        "1700000060",
        GOOD "x",
        CLAIMS("\"exp\":1700000060,\"bad\":\"\xFF\""),
    };
    for (size_t i = 0; i < COUNT(payloads); i++)
        assert_row(judge_payload(&usual, payloads[i], NOW) == JWT_REJECTED, payloads[i]);
    struct buf deep = {0};
    for (int i = 0; i < 5000; i++)
        buf_put_char(&deep, '[');
    assert_int_equal(judge_payload(&usual, buf_text(&deep), NOW), JWT_REJECTED);
    buf_release(&deep);
}

static void J3_a_parsed_token_has_the_members_that_select_its_rules(void **state)
{
    (void)state;
    struct buf token = {0};
    struct jwt jwt;
    struct err err = {0};
    put_token(&token, "{\"alg\":\"HS256\",\"kid\":\"../../etc/passwd\"}", GOOD, EDDSA);
    assert_true(jwt_parse(buf_span(&token), &jwt, &err));
    assert_string_equal(jwt.algorithm, "HS256");
    assert_string_equal(jwt.kid, "../../etc/passwd");
    assert_string_equal(jwt.issuer, ISS);
    assert_int_equal(jwt.signature.len, 64);
    jwt_release(&jwt);
    put_token(&token, "{\"alg\":\"RS256\"}", "{\"iss\":7}", EDDSA);
    assert_true(jwt_parse(buf_span(&token), &jwt, &err));
    assert_null(jwt.kid);
    assert_null(jwt.issuer);
    jwt_release(&jwt);
    buf_release(&token);
}

// ---- J4: the header -------------------------------------------------------------------------

static void J4_a_token_with_alg_none_is_rejected(void **state)
{
    (void)state;
    static const char *const names[] = {"none", "None", "NONE", "nOnE", "", "eddsa", "EDDSA", "EdDSA ", "HS256", "RS1"};
    for (size_t i = 0; i < COUNT(names); i++) {
        struct buf header = {0}, token = {0};
        buf_printf(&header, "{\"alg\":\"%s\",\"kid\":\"4\"}", names[i]);
        assert_row(judge_header(buf_text(&header)) == JWT_REJECTED, names[i]);
        assert_contains(why.detail, "alg");
        put_unsigned(&token, buf_text(&header), GOOD);
        assert_row(judge(set, &token) == JWT_REJECTED, names[i]);
        buf_put_char(&token, '.');
        assert_row(judge(set, &token) == JWT_REJECTED, names[i]);
        buf_release(&header);
        buf_release(&token);
    }
    static const char *const headers[] = {"{\"kid\":\"4\"}", "{\"alg\":null,\"kid\":\"4\"}", "{\"alg\":[\"EdDSA\"]}",
                                          "{\"alg\":1,\"kid\":\"4\"}", "{\"ALG\":\"EdDSA\",\"kid\":\"4\"}"};
    for (size_t i = 0; i < COUNT(headers); i++)
        assert_row(judge_header(headers[i]) == JWT_REJECTED, headers[i]);
}

static void J4_a_token_signed_by_hmac_with_the_public_key_is_rejected(void **state)
{
    (void)state;
    BIO *memory = BIO_new(BIO_s_mem());
    char *pem = NULL;
    assert_int_equal(PEM_write_bio_PUBKEY(memory, keys[RSA_KEY].key), 1);
    long len = BIO_get_mem_data(memory, &pem);
    static const char *const headers[] = {"{\"alg\":\"HS256\",\"kid\":\"0\"}", "{\"alg\":\"RS256\",\"kid\":\"0\"}"};
    for (size_t i = 0; i < COUNT(headers); i++) {
        struct buf token = {0};
        unsigned char mac[SECRET_MAC_BYTES];
        put_unsigned(&token, headers[i], GOOD);
        secret_mac(pem, (size_t)len, buf_span(&token), mac);
        put_signature(&token, mac, sizeof mac);
        assert_int_equal(judge(set, &token), JWT_REJECTED);
        buf_release(&token);
    }
    BIO_free(memory);
}

static void J4_a_token_of_an_algorithm_that_is_not_allowed_is_rejected_before_its_key_is_looked_up(void **state)
{
    (void)state;
    static const char *const off[] = {"RS384", "RS512", "PS384", "PS512", "ES384", "ES512"};
    static const int with[] = {RS384, RS512, PS384, PS512, ES384, ES512};
    for (size_t i = 0; i < COUNT(off); i++) {
        struct buf header = {0}, token = {0};
        // The kid is unknown, but the algorithm is refused before the key is looked up.
        buf_printf(&header, "{\"alg\":\"%s\",\"kid\":\"unknown\"}", off[i]);
        put_token(&token, buf_text(&header), GOOD, with[i]);
        assert_row(judge(set, &token) == JWT_REJECTED, off[i]);
        assert_contains(why.detail, off[i]);
        buf_release(&header);
        buf_release(&token);
    }
}

static void J4_a_token_with_crit_is_rejected(void **state)
{
    (void)state;
    assert_int_equal(judge_header("{\"alg\":\"EdDSA\",\"kid\":\"4\",\"crit\":[\"exp\"]}"), JWT_REJECTED);
    assert_contains(why.detail, "crit");
    assert_int_equal(judge_header("{\"alg\":\"EdDSA\",\"kid\":\"4\",\"crit\":[]}"), JWT_REJECTED);
    assert_int_equal(judge_header("{\"alg\":\"EdDSA\",\"kid\":\"4\",\"crit\":null}"), JWT_REJECTED);
    assert_int_equal(judge_header("{\"alg\":\"EdDSA\",\"kid\":\"4\",\"crit\":[\"b64\"],\"b64\":false}"), JWT_REJECTED);
}

static void J4_the_typ_of_a_token_is_absent_or_jwt_or_access_token(void **state)
{
    (void)state;
    static const struct {
        const char *typ;
        enum jwt_outcome want, required;
    } rows[] = {
        {"", JWT_ACCEPTED, JWT_REJECTED},
        {",\"typ\":\"JWT\"", JWT_ACCEPTED, JWT_REJECTED},
        {",\"typ\":\"jwt\"", JWT_ACCEPTED, JWT_REJECTED},
        {",\"typ\":\"at+jwt\"", JWT_ACCEPTED, JWT_ACCEPTED},
        {",\"typ\":\"AT+JWT\"", JWT_ACCEPTED, JWT_ACCEPTED},
        {",\"typ\":\"application/at+jwt\"", JWT_ACCEPTED, JWT_ACCEPTED},
        {",\"typ\":\"Application/AT+jwt\"", JWT_ACCEPTED, JWT_ACCEPTED},
        {",\"typ\":\"dpop+jwt\"", JWT_REJECTED, JWT_REJECTED},
        {",\"typ\":\"logout+jwt\"", JWT_REJECTED, JWT_REJECTED},
        {",\"typ\":\"\"", JWT_REJECTED, JWT_REJECTED},
        {",\"typ\":null", JWT_REJECTED, JWT_REJECTED},
        {",\"typ\":[\"JWT\"]", JWT_REJECTED, JWT_REJECTED},
    };
    struct jwt_rules strict = usual;
    strict.require_at_jwt = true;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf header = {0}, token = {0};
        buf_printf(&header, "{\"alg\":\"EdDSA\",\"kid\":\"4\"%s}", rows[i].typ);
        put_token(&token, buf_text(&header), GOOD, EDDSA);
        assert_row(judge(set, &token) == rows[i].want, rows[i].typ);
        assert_row(judge_at(&strict, set, buf_span(&token), NOW) == rows[i].required, rows[i].typ);
        buf_release(&header);
        buf_release(&token);
    }
}

static void J4_keys_in_the_header_of_a_token_are_ignored(void **state)
{
    (void)state;
    struct buf header = {0}, token = {0};
    unsigned char signature[1024];
    buf_put_text(&header,
                 "{\"alg\":\"RS256\",\"kid\":\"0\",\"jku\":\"https://evil.example/\",\"x5u\":1,\"x5c\":[],\"jwk\":");
    put_jwk(&header, &keys[OTHER_RSA], "");
    buf_put_char(&header, '}');
    put_unsigned(&token, buf_text(&header), GOOD);
    size_t len = sign_with(keys[OTHER_RSA].key, &schemes[RS256], buf_span(&token), signature, false);
    put_signature(&token, signature, len);
    assert_int_equal(judge(set, &token), JWT_REJECTED);
    assert_contains(why.detail, "the signature is not valid");
    put_token(&token, buf_text(&header), GOOD, RS256);
    assert_int_equal(judge(set, &token), JWT_ACCEPTED);
    buf_release(&header);
    buf_release(&token);
}

// ---- J5: choosing a key ---------------------------------------------------------------------

static void J5_a_token_with_an_unknown_kid_is_distinguished_from_a_rejected_one(void **state)
{
    (void)state;
    assert_int_equal(judge_header("{\"alg\":\"EdDSA\",\"kid\":\"unknown\"}"), JWT_UNKNOWN_KEY);
    assert_int_equal(judge_header("{\"alg\":\"EdDSA\",\"kid\":\"\"}"), JWT_UNKNOWN_KEY);
    assert_int_equal(judge_header("{\"alg\":\"EdDSA\",\"kid\":\"4 \"}"), JWT_UNKNOWN_KEY);
    assert_int_equal(judge_header("{\"alg\":\"EdDSA\",\"kid\":4}"), JWT_REJECTED);
    assert_int_equal(judge_header("{\"alg\":\"EdDSA\",\"kid\":null}"), JWT_REJECTED);
    // Without a key set, a fetch may help, with a kid or without.
    assert_int_equal(judge_with(NULL, "{\"alg\":\"EdDSA\",\"kid\":\"4\"}", EDDSA), JWT_UNKNOWN_KEY);
    assert_int_equal(judge_with(NULL, "{\"alg\":\"EdDSA\"}", EDDSA), JWT_UNKNOWN_KEY);
    // A kid of the wrong type does not count as absent.
    assert_int_equal(judge_with(set_of(ED25519, "", 0, NULL), "{\"alg\":\"EdDSA\"}", EDDSA), JWT_ACCEPTED);
    assert_int_equal(judge_with(set_of(ED25519, "", 0, NULL), "{\"alg\":\"EdDSA\",\"kid\":4}", EDDSA), JWT_REJECTED);
    assert_int_equal(judge_with(set_of(ED25519, "", 0, NULL), "{\"alg\":\"EdDSA\",\"kid\":null}", EDDSA), JWT_REJECTED);
    // The kid is known, so another fetch would not help.
    assert_int_equal(judge_header("{\"alg\":\"EdDSA\",\"kid\":\"5\"}"), JWT_REJECTED);
    assert_int_equal(judge_header("{\"alg\":\"EdDSA\",\"kid\":\"0\"}"), JWT_REJECTED);
    // A token that would be rejected with any key does not cause a fetch.
    struct buf token = {0};
    put_token(&token, "{\"alg\":\"EdDSA\",\"kid\":\"unknown\"}", CLAIMS("\"exp\":1"), EDDSA);
    assert_int_equal(judge(set, &token), JWT_REJECTED);
    buf_release(&token);
}

static void J5_a_token_without_a_kid_needs_exactly_one_matching_key(void **state)
{
    (void)state;
    static const char header[] = "{\"alg\":\"RS256\"}";
    assert_int_equal(judge_with(set_of(RSA_KEY, "", P256, ""), header, RS256), JWT_ACCEPTED);
    assert_int_equal(judge_with(set_of(RSA_KEY, ",\"kid\":\"a\"", OTHER_RSA, ",\"use\":\"enc\""), header, RS256),
                     JWT_ACCEPTED);
    assert_int_equal(judge_with(set_of(RSA_KEY, "", OTHER_RSA, ""), header, RS256), JWT_REJECTED);
    assert_int_equal(judge_with(set_of(OTHER_RSA, "", RSA_KEY, ""), header, RS256), JWT_REJECTED);
    assert_contains(why.detail, "2 keys match");
    assert_int_equal(judge_with(set_of(P256, "", P384, ""), header, RS256), JWT_REJECTED);
    // The same key, listed twice, is not ambiguous.
    assert_int_equal(judge_with(set_of(RSA_KEY, "", RSA_KEY, ""), header, RS256), JWT_ACCEPTED);
}

static void J5_a_key_must_match_in_kid_type_curve_use_operations_and_alg(void **state)
{
    (void)state;
    static const struct {
        const char *rest;
        enum jwt_outcome want;
    } rows[] = {
        {",\"kid\":\"k\"", JWT_ACCEPTED},
        {",\"kid\":\"k\",\"use\":\"sig\",\"key_ops\":[\"sign\",\"verify\"],\"alg\":\"RS256\"", JWT_ACCEPTED},
        {",\"kid\":\"k\",\"use\":\"enc\"", JWT_REJECTED},
        {",\"kid\":\"k\",\"use\":\"SIG\"", JWT_REJECTED},
        {",\"kid\":\"k\",\"key_ops\":[\"encrypt\"]", JWT_REJECTED},
        {",\"kid\":\"k\",\"key_ops\":[]", JWT_REJECTED},
        {",\"kid\":\"k\",\"alg\":\"RS512\"", JWT_REJECTED},
        {",\"kid\":\"k\",\"alg\":\"PS256\"", JWT_REJECTED},
        {",\"kid\":\"k\",\"alg\":\"RSA-OAEP\"", JWT_REJECTED},
        {",\"kid\":\"other\"", JWT_UNKNOWN_KEY},
        {"", JWT_UNKNOWN_KEY},
        // Malformed keys are left out of the set.
        {",\"kid\":\"k\",\"use\":1", JWT_UNKNOWN_KEY},
        {",\"kid\":\"k\",\"key_ops\":\"verify\"", JWT_UNKNOWN_KEY},
        {",\"kid\":[\"k\"]", JWT_UNKNOWN_KEY},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_row(judge_with(set_of(RSA_KEY, rows[i].rest, 0, NULL), "{\"alg\":\"RS256\",\"kid\":\"k\"}", RS256) ==
                       rows[i].want,
                   rows[i].rest);
    // If keys of two types have one kid, the algorithm selects the key. If both fit, the token is rejected.
    assert_int_equal(judge_with(set_of(RSA_KEY, ",\"kid\":\"k\"", P256, ",\"kid\":\"k\""),
                                "{\"alg\":\"ES256\",\"kid\":\"k\"}", ES256),
                     JWT_ACCEPTED);
    assert_int_equal(judge_with(set_of(RSA_KEY, ",\"kid\":\"k\"", OTHER_RSA, ",\"kid\":\"k\""),
                                "{\"alg\":\"RS256\",\"kid\":\"k\"}", RS256),
                     JWT_REJECTED);
    // Each ES algorithm fits one curve only.
    static const int curve[] = {P256, P384, P521};
    static const char *const algs[] = {"ES256", "ES384", "ES512"};
    for (int key = 0; key < 3; key++)
        for (int alg = 0; alg < 3; alg++) {
            struct buf header = {0};
            buf_printf(&header, "{\"alg\":\"%s\",\"kid\":\"k\"}", algs[alg]);
            assert_int_equal(judge_with(set_of(curve[key], ",\"kid\":\"k\"", 0, NULL), buf_text(&header), ES256 + key),
                             key == alg ? JWT_ACCEPTED : JWT_REJECTED);
            buf_release(&header);
        }
}

// ---- J6: importing --------------------------------------------------------------------------

// Imports a set of this key and a good one, of which `want` keys must remain; `problem` is the reason for the one left
// out.
static void import_beside_good(const char *jwk, size_t want, const char *problem)
{
    struct buf text = {0};
    buf_printf(&text, "{\"keys\":[%s,", jwk);
    put_jwk(&text, &keys[ED25519], ",\"kid\":\"good\"");
    buf_put_text(&text, "]}");
    struct jwks *parsed = parse_set(&text);
    assert_row(jwks_count(parsed) == want, jwk);
    assert_int_equal(jwks_count(parsed) + jwks_skipped(parsed), 2);
    assert_row((jwks_problem(parsed) != NULL) == (problem != NULL), jwk);
    if (problem)
        assert_contains(jwks_problem(parsed), problem);
    assert_int_equal(ERR_peek_error(), 0);
    assert_int_equal(judge_with(parsed, "{\"alg\":\"EdDSA\",\"kid\":\"good\"}", EDDSA), JWT_ACCEPTED);
}

static void import_rsa(const EVP_PKEY *key, const char *e, size_t want, const char *problem)
{
    struct buf jwk = {0};
    buf_put_text(&jwk, "{\"kty\":\"RSA\"");
    put_param(&jwk, "n", key, OSSL_PKEY_PARAM_RSA_N, 0);
    buf_printf(&jwk, ",\"e\":\"%s\"}", e);
    import_beside_good(buf_text(&jwk), want, problem);
    buf_release(&jwk);
}

static void J6_an_rsa_key_with_an_unsafe_modulus_or_exponent_is_refused(void **state)
{
    (void)state;
    EVP_PKEY *small = EVP_RSA_gen(1024), *odd_size = EVP_RSA_gen(2040);
    import_rsa(keys[RSA_KEY].key, "AQAB", 2, NULL);
    import_rsa(keys[RSA_KEY].key, "Aw", 2, NULL);  // 3
    import_rsa(small, "AQAB", 1, "too small");
    import_rsa(odd_size, "AQAB", 1, "too small");
    import_rsa(keys[RSA_KEY].key, "AQ", 1, "exponent");            // 1
    import_rsa(keys[RSA_KEY].key, "AA", 1, "exponent");            // 0
    import_rsa(keys[RSA_KEY].key, "BA", 1, "exponent");            // 4
    import_rsa(keys[RSA_KEY].key, "AQAA", 1, "exponent");          // 65536
    import_rsa(keys[RSA_KEY].key, "AQAAAAAAAAAB", 1, "exponent");  // 2^64 + 1
    import_rsa(keys[RSA_KEY].key, "", 1, "base64url");
    import_rsa(keys[RSA_KEY].key, "AQAB=", 1, "base64url");
    import_beside_good("{\"kty\":\"RSA\",\"e\":\"AQAB\"}", 1, "n or e");
    import_beside_good("{\"kty\":\"RSA\",\"e\":\"AQAB\",\"n\":7}", 1, "n or e");
    EVP_PKEY_free(small);
    EVP_PKEY_free(odd_size);
    // All bits one: 8200 bits; 8192 bits (too large to search for divisors); 2048 bits (divisible by 3); even.
    static const struct {
        size_t len;
        char last;
        size_t want;
        const char *problem;
    } rows[] = {{1025, '\xFF', 1, "too large"},
                {1024, '\xFF', 2, NULL},
                {256, '\xFF', 1, "not valid"},
                {256, '\xFE', 1, "even"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf jwk = {0};
        char bytes[1025];
        memset(bytes, 0xFF, sizeof bytes);
        bytes[rows[i].len - 1] = rows[i].last;
        buf_put_text(&jwk, "{\"kty\":\"RSA\",\"e\":\"AQAB\"");
        put_encoded(&jwk, "n", bytes, rows[i].len);
        buf_put_char(&jwk, '}');
        import_beside_good(buf_text(&jwk), rows[i].want, rows[i].problem);
        buf_release(&jwk);
    }
}

static void J6_a_key_whose_point_is_not_on_its_curve_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *jwk, *problem;
    } rows[] = {
        // (1, 1) is not on any of the curves; the coordinates are padded.
        {"{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AQ\",\"y\":\"AQ\"}", "does not accept the key"},
        {"{\"kty\":\"EC\",\"crv\":\"P-384\",\"x\":\"AQ\",\"y\":\"AQ\"}", "does not accept the key"},
        {"{\"kty\":\"EC\",\"crv\":\"P-521\",\"x\":\"AQ\",\"y\":\"AQ\"}", "does not accept the key"},
        {"{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AA\",\"y\":\"AA\"}", "does not accept the key"},
        {"{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AQ\"}", "x or y"},
        {"{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"\",\"y\":\"AQ\"}", "x or y"},
        // 33 bytes
        {"{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB\",\"y\":\"AQ\"}",
         "x or y"},
        {"{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"AQ\"}", "x is"},
        {"{\"kty\":\"OKP\",\"crv\":\"Ed25519\"}", "x is"},
        {"{\"kty\":\"OKP\",\"crv\":\"Ed448\",\"x\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"}", "x is"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        import_beside_good(rows[i].jwk, 1, rows[i].problem);
    // A point of another curve, and a valid point with x and y swapped.
    struct buf jwk = {0};
    buf_put_text(&jwk, "{\"kty\":\"EC\",\"crv\":\"P-521\"");
    put_param(&jwk, "x", keys[P384].key, OSSL_PKEY_PARAM_EC_PUB_X, 48);
    put_param(&jwk, "y", keys[P384].key, OSSL_PKEY_PARAM_EC_PUB_Y, 48);
    buf_put_char(&jwk, '}');
    import_beside_good(buf_text(&jwk), 1, "does not accept the key");
    buf_clear(&jwk);
    buf_put_text(&jwk, "{\"kty\":\"EC\",\"crv\":\"P-256\"");
    put_param(&jwk, "x", keys[P256].key, OSSL_PKEY_PARAM_EC_PUB_Y, 32);
    put_param(&jwk, "y", keys[P256].key, OSSL_PKEY_PARAM_EC_PUB_X, 32);
    buf_put_char(&jwk, '}');
    import_beside_good(buf_text(&jwk), 1, "does not accept the key");
    buf_release(&jwk);
}

static void J6_short_coordinates_of_a_key_are_padded(void **state)
{
    (void)state;
    // About every 128th key has an x or y that begins with a zero byte.
    struct key key = {"EC", "P-256", NULL};
    struct buf jwk = {0};
    unsigned char x[32];
    for (int i = 0; i < 20000; i++) {
        BIGNUM *number = NULL;
        EVP_PKEY_free(key.key);
        key.key = EVP_EC_gen("P-256");
        assert_int_equal(EVP_PKEY_get_bn_param(key.key, OSSL_PKEY_PARAM_EC_PUB_X, &number), 1);
        bool found = BN_num_bytes(number) < 32 && BN_bn2binpad(number, x, 32) == 32;
        BN_free(number);
        if (found)
            break;
    }
    assert_int_equal(x[0], 0);
    buf_put_text(&jwk, "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\"");
    put_param(&jwk, "x", key.key, OSSL_PKEY_PARAM_EC_PUB_X, 0);
    put_param(&jwk, "y", key.key, OSSL_PKEY_PARAM_EC_PUB_Y, 0);
    buf_put_text(&jwk, "}]}");
    struct jwks *parsed = parse_set(&jwk);
    struct buf token = {0};
    unsigned char signature[1024];
    put_unsigned(&token, "{\"alg\":\"ES256\"}", GOOD);
    put_signature(&token, signature, sign_with(key.key, &schemes[ES256], buf_span(&token), signature, false));
    assert_int_equal(judge(parsed, &token), JWT_ACCEPTED);
    EVP_PKEY_free(key.key);
    jwks_free(parsed);
    buf_release(&token);
}

static void J6_private_members_and_keys_of_unknown_types_are_ignored(void **state)
{
    (void)state;
    struct jwks *parsed =
        set_of(RSA_KEY, ",\"d\":\"not even base64url!\",\"p\":1,\"q\":[],\"x5c\":[\"x\"],\"later\":{}", 0, NULL);
    assert_int_equal(jwks_count(parsed), 1);
    assert_int_equal(judge_with(parsed, "{\"alg\":\"RS256\"}", RS256), JWT_ACCEPTED);
    static const char *const unknown[] = {
        "{\"kty\":\"oct\",\"k\":\"AAAA\",\"alg\":\"HS256\"}",
        "{\"kty\":\"AKP\",\"alg\":\"ML-DSA-44\",\"pub\":\"AA\"}",
        "{\"kty\":\"EC\",\"crv\":\"secp256k1\",\"x\":\"AQ\",\"y\":\"AQ\"}",
        "{\"kty\":\"OKP\",\"crv\":\"X25519\",\"x\":\"AQ\"}",
        "{\"kty\":\"EC\"}",
        "{\"kty\":\"rsa\"}",
        "{\"kty\":1}",
        "{}",
        "[]",
        "null",
        "7",
    };
    for (size_t i = 0; i < COUNT(unknown); i++)
        import_beside_good(unknown[i], 1, NULL);
}

static void J6_a_key_set_has_at_most_64_keys_and_256_KiB(void **state)
{
    (void)state;
    struct buf text = {0};
    struct err err = {0};
    for (int count = 64; count <= 65; count++) {
        buf_clear(&text);
        buf_put_text(&text, "{\"keys\":[");
        for (int i = 0; i < count; i++) {
            char kid[32];
            snprintf(kid, sizeof kid, ",\"kid\":\"%d\"", i);
            buf_put_text(&text, i ? "," : "");
            put_jwk(&text, &keys[ED25519], kid);
        }
        buf_put_text(&text, "]}");
        struct jwks *parsed = jwks_parse(buf_span(&text), &err);
        assert_true((parsed != NULL) == (count == 64));
        assert_true(!parsed || jwks_count(parsed) == 64);
        jwks_free(parsed);
    }
    assert_int_equal(err.code, ERR_PARSE);
    for (size_t size = JWKS_TEXT_MAX; size <= JWKS_TEXT_MAX + 1; size++) {
        buf_clear(&text);
        buf_put_text(&text, "{\"keys\":[]}");
        while (text.len < size)
            buf_put_char(&text, ' ');
        struct jwks *parsed = jwks_parse(buf_span(&text), &err);
        assert_true((parsed != NULL) == (size == JWKS_TEXT_MAX));
        assert_true(!parsed || jwks_count(parsed) == 0);
        jwks_free(parsed);
    }
    buf_release(&text);
}

static void J6_a_document_that_is_not_a_key_set_is_an_error(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",
        "[]",
        "null",
        "{}",
        "{\"keys\":{}}",
        "{\"keys\":null}",
        "{\"keys\":[",
        "{\"keys\":[],\"keys\":[]}",
        "<html>",
        "{\"keys\":[{\"kty\":\"RSA\",\"kty\":\"EC\"}]}",
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct err err = {0};
        assert_row(!jwks_parse(span_of(rows[i]), &err), rows[i]);
        assert_int_equal(err.code, ERR_PARSE);
    }
}

static void J6_a_key_set_that_was_never_fetched_can_be_freed(void **state)
{
    (void)state;
    assert_int_equal(judge_with(set_of(ED25519, "", 0, NULL), "{\"alg\":\"EdDSA\"}", EDDSA), JWT_ACCEPTED);
    jwks_free(NULL);
}

// ---- J7: signatures -------------------------------------------------------------------------

static void J7_every_algorithm_accepts_its_signature_and_rejects_a_tampered_one(void **state)
{
    (void)state;
    struct jwt_rules rules = usual;
    rules.algorithms = ALL_ALGORITHMS;
    for (size_t i = 0; i < COUNT(schemes); i++) {
        struct buf header = {0}, token = {0};
        buf_printf(&header, "{\"alg\":\"%s\",\"kid\":\"%d\"}", schemes[i].alg, schemes[i].key);
        put_token(&token, buf_text(&header), GOOD, (int)i);
        assert_row(judge_at(&rules, set, buf_span(&token), NOW) == JWT_ACCEPTED, schemes[i].alg);
        size_t first = 0, last = token.len;
        while (token.at[first] != '.')
            first++;
        while (token.at[last - 1] != '.')
            last--;
        // Changes digits of the header, the payload and the signature, except the last digit, which has spare bits.
        for (size_t at = 1; at < token.len - 1; at += at < last ? 11 : 7) {
            char was = token.at[at];
            if (was == '.')
                continue;
            token.at[at] = was == 'A' ? 'B' : 'A';
            enum jwt_outcome outcome = judge_at(&rules, set, buf_span(&token), NOW);
            assert_row(outcome != JWT_ACCEPTED, schemes[i].alg);
            assert_row(at < last || (outcome == JWT_REJECTED && strstr(why.detail, "the signature is not valid")),
                       schemes[i].alg);
            token.at[at] = was;
        }
        assert_row(judge_at(&rules, set, buf_span(&token), NOW) == JWT_ACCEPTED, schemes[i].alg);
        buf_release(&header);
        buf_release(&token);
    }
}

// A signature by each scheme is tried under the name of every scheme, and accepted only under its own.
static void J7_a_signature_does_not_verify_under_another_algorithm(void **state)
{
    (void)state;
    struct jwt_rules rules = usual;
    rules.algorithms = ALL_ALGORITHMS;
    for (size_t made = 0; made < COUNT(schemes); made++)
        for (size_t said = 0; said < COUNT(schemes); said++) {
            struct buf header = {0}, token = {0};
            buf_printf(&header, "{\"alg\":\"%s\",\"kid\":\"%d\"}", schemes[said].alg, schemes[said].key);
            put_token(&token, buf_text(&header), GOOD, (int)made);
            assert_row(judge_at(&rules, set, buf_span(&token), NOW) == (made == said ? JWT_ACCEPTED : JWT_REJECTED),
                       buf_text(&header));
            buf_release(&header);
            buf_release(&token);
        }
}

static void J7_an_ecdsa_signature_is_raw_and_of_exact_length(void **state)
{
    (void)state;
    for (int i = ES256; i <= ES512; i++) {
        struct jwt_rules rules = usual;
        struct buf header = {0}, token = {0};
        unsigned char signature[1024] = {0};
        rules.algorithms = ALL_ALGORITHMS;
        buf_printf(&header, "{\"alg\":\"%s\",\"kid\":\"%d\"}", schemes[i].alg, schemes[i].key);
        put_unsigned(&token, buf_text(&header), GOOD);
        size_t text = token.len, len;
        len = sign_with(keys[schemes[i].key].key, &schemes[i], buf_span(&token), signature, true);
        put_signature(&token, signature, len);
        assert_int_equal(judge_at(&rules, set, buf_span(&token), NOW), JWT_REJECTED);
        token.len = text;
        len = sign_with(keys[schemes[i].key].key, &schemes[i], buf_span(&token), signature, false);
        const size_t lengths[] = {1, len / 2, len - 2, len - 1, len, len + 1, len + 2, len * 2};
        memset(signature + len, 0, sizeof signature - len);
        for (size_t j = 0; j < COUNT(lengths); j++) {
            token.len = text;
            put_signature(&token, signature, lengths[j]);
            assert_int_equal(judge_at(&rules, set, buf_span(&token), NOW),
                             lengths[j] == len ? JWT_ACCEPTED : JWT_REJECTED);
        }
        memset(signature, 0, sizeof signature);  // r = s = 0
        token.len = text;
        put_signature(&token, signature, len);
        assert_int_equal(judge_at(&rules, set, buf_span(&token), NOW), JWT_REJECTED);
        buf_release(&header);
        buf_release(&token);
    }
}

static void J7_the_pss_salt_is_as_long_as_the_digest(void **state)
{
    (void)state;
    static const int salts[] = {20, 31, 32, 33, 64};
    for (size_t i = 0; i < COUNT(salts); i++) {
        struct scheme scheme = schemes[PS256];
        struct buf token = {0};
        unsigned char signature[1024];
        scheme.salt = salts[i];
        put_unsigned(&token, "{\"alg\":\"PS256\",\"kid\":\"0\"}", GOOD);
        put_signature(&token, signature, sign_with(keys[RSA_KEY].key, &scheme, buf_span(&token), signature, false));
        assert_int_equal(judge(set, &token), salts[i] == 32 ? JWT_ACCEPTED : JWT_REJECTED);
        buf_release(&token);
    }
}

// The examples of RFC 7515 A.2 and A.3 and of RFC 8037 A.4.
static void J7_published_signatures_verify(void **state)
{
    (void)state;
#define RFC7515_PAYLOAD "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
    static const struct {
        const char *alg, *jwk, *text, *signature;
    } rows[] = {
        {"RS256",
         "{\"kty\":\"RSA\",\"e\":\"AQAB\",\"n\":\"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-"
         "4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-"
         "bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_"
         "I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ\"}",
         "eyJhbGciOiJSUzI1NiJ9." RFC7515_PAYLOAD,
         "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_"
         "lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L"
         "07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9"
         "Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"},
        {"ES256",
         "{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\","
         "\"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"}",
         "eyJhbGciOiJFUzI1NiJ9." RFC7515_PAYLOAD,
         "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"},
        {"EdDSA", "{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}",
         "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc",
         "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf text = {0}, signature = {0};
        struct err err = {0};
        bool unknown;
        buf_printf(&text, "{\"keys\":[%s]}", rows[i].jwk);
        struct jwks *parsed = parse_set(&text);
        const struct jwk_algorithm *algorithm = jwk_algorithm_find(rows[i].alg);
        const struct jwk *jwk = jwks_select(parsed, NULL, algorithm, &unknown, &err);
        assert_row(jwk, rows[i].alg);
        assert_true(secret_decode(&signature, span_of(rows[i].signature)));
        assert_row(jwk_verify(jwk, algorithm, span_of(rows[i].text), buf_span(&signature)), rows[i].alg);
        assert_row(!jwk_verify(jwk, algorithm, span_of(rows[i].text + 1), buf_span(&signature)), rows[i].alg);
        jwks_free(parsed);
        buf_release(&signature);
    }
}

// ---- J8: claims -----------------------------------------------------------------------------

static void J8_the_issuer_is_compared_exactly(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "\"https://issuer.example\"",
        "\"https://issuer.example//\"",
        "\"HTTPS://issuer.example/\"",
        "\"\"",
        "null",
        "7",
        "[\"" ISS "\"]",
        "\"" ISS " \"",
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct buf payload = {0};
        buf_printf(&payload, "{\"iss\":%s,\"aud\":\"api://gate\",\"exp\":1700000060}", wrong[i]);
        assert_row(judge_payload(&usual, buf_text(&payload), NOW) == JWT_REJECTED, wrong[i]);
        assert_contains(why.detail, "issuer");
        buf_release(&payload);
    }
    assert_int_equal(judge_payload(&usual, "{\"aud\":\"api://gate\",\"exp\":1700000060}", NOW), JWT_REJECTED);
    assert_int_equal(
        judge_payload(&usual, "{\"iss\":\"https:\\/\\/issuer.example\\/\",\"aud\":\"api://gate\",\"exp\":1700000060}",
                      NOW),
        JWT_ACCEPTED);
}

static void J8_times_are_compared_with_the_configured_skew(void **state)
{
    (void)state;
    static const struct {
        const char *payload;
        int64_t skew, now;
        enum jwt_outcome want;
    } rows[] = {
        {CLAIMS("\"exp\":1000"), 0, 999, JWT_ACCEPTED},
        {CLAIMS("\"exp\":1000"), 0, 1000, JWT_REJECTED},
        {CLAIMS("\"exp\":1000"), 30, 1029, JWT_ACCEPTED},
        {CLAIMS("\"exp\":1000"), 30, 1030, JWT_REJECTED},
        {CLAIMS("\"exp\":1000"), 300, 1299, JWT_ACCEPTED},
        {CLAIMS("\"exp\":1000"), 300, 1300, JWT_REJECTED},
        {CLAIMS("\"exp\":1000.5"), 0, 1000, JWT_ACCEPTED},
        {CLAIMS("\"exp\":1000.5"), 0, 1001, JWT_REJECTED},
        {CLAIMS("\"exp\":1e3"), 0, 999, JWT_ACCEPTED},
        {CLAIMS("\"exp\":1e3"), 0, 1000, JWT_REJECTED},
        {CLAIMS("\"exp\":5000,\"nbf\":1000"), 0, 999, JWT_REJECTED},
        {CLAIMS("\"exp\":5000,\"nbf\":1000"), 0, 1000, JWT_ACCEPTED},
        {CLAIMS("\"exp\":5000,\"nbf\":1000"), 30, 969, JWT_REJECTED},
        {CLAIMS("\"exp\":5000,\"nbf\":1000"), 30, 970, JWT_ACCEPTED},
        {CLAIMS("\"exp\":5000,\"nbf\":999.5"), 0, 999, JWT_REJECTED},
        {CLAIMS("\"exp\":5000,\"nbf\":999.5"), 0, 1000, JWT_ACCEPTED},
        {CLAIMS("\"exp\":5000,\"nbf\":-1"), 0, 1000, JWT_ACCEPTED},
        {CLAIMS("\"exp\":5000,\"iat\":4000"), 0, 1000, JWT_ACCEPTED},
        {CLAIMS("\"exp\":-1"), 30, 1000, JWT_REJECTED},
        {CLAIMS("\"exp\":0"), 0, 0, JWT_REJECTED},
        {CLAIMS("\"exp\":1000"), 30, INT64_MAX, JWT_REJECTED},
        {CLAIMS("\"exp\":1000,\"nbf\":1"), 300, INT64_MIN, JWT_REJECTED},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct jwt_rules rules = usual;
        rules.skew = rows[i].skew;
        assert_row(judge_payload(&rules, rows[i].payload, rows[i].now) == rows[i].want, rows[i].payload);
    }
}

static void J8_times_must_be_numbers_and_saturate(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "\"exp\":\"1700000060\"",
        "\"exp\":null",
        "\"exp\":true",
        "\"exp\":[1700000060]",
        "\"exp\":{}",
        "\"exp\":1e300",
        "\"exp\":1e400",
        "\"exp\":9223372036854775807",
        "\"exp\":9223372036854775808",
        "\"exp\":18446744073709551616",
        "\"exp\":99999999999999999999999",
        "\"exp\":253402300800",
        "\"exp\":-1e300",
        "\"exp\":-9223372036854775809",
        "\"exp\":1700000060,\"nbf\":1e300",
        "\"exp\":1700000060,\"nbf\":9223372036854775808",
        "\"exp\":1700000060,\"nbf\":\"0\"",
        "\"exp\":1700000060,\"nbf\":null",
        "\"exp\":1700000060,\"iat\":\"0\"",
        "\"exp\":1700000060,\"iat\":false",
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct buf payload = {0};
        buf_printf(&payload, "{\"iss\":\"" ISS "\",\"aud\":\"api://gate\"%s%s}", *wrong[i] ? "," : "", wrong[i]);
        assert_row(judge_payload(&usual, buf_text(&payload), NOW) == JWT_REJECTED, wrong[i]);
        buf_release(&payload);
    }
    assert_int_equal(judge_payload(&usual, CLAIMS("\"exp\":253402300799,\"nbf\":-1e300,\"iat\":1e300"), NOW),
                     JWT_ACCEPTED);
    // A number that is out of range does not matter in another claim.
    assert_int_equal(judge_payload(&usual, CLAIMS("\"exp\":1700000060,\"n\":18446744073709551616"), NOW), JWT_ACCEPTED);
}

static void J8_the_claims_of_an_accepted_token_are_returned(void **state)
{
    (void)state;
    struct buf token = {0};
    struct jwt_claims claims = {0};
    struct err err = {0};
    put_token(&token, "{\"alg\":\"EdDSA\",\"kid\":\"4\"}",
              CLAIMS("\"exp\":1700000060,\"jti\":\"t1\",\"a~/b\":{\"c\":[1]}"), EDDSA);
    assert_int_equal(jwt_verify(&usual, set, buf_span(&token), NOW, &claims, &err), JWT_ACCEPTED);
    buf_release(&token);  // the claims do not refer to it
    assert_string_equal(claims.subject, "alice");
    assert_string_equal(claims.token_id, "t1");
    assert_int_equal(claims.expires, 1700000090);
    assert_non_null(json_object_get(claims.tree, "a~/b"));
    jwt_claims_release(&claims);
    assert_null(claims.subject);
}

static void J8_the_subject_is_absent_or_a_plain_string(void **state)
{
    (void)state;
    static const struct {
        const char *sub;
        enum jwt_outcome want;
    } rows[] = {
        {"", JWT_ACCEPTED},
        {",\"sub\":\"auth0|5f7c8ec7c33c6c004bbafe82\"", JWT_ACCEPTED},
        {",\"sub\":\"J\xC3\xB6rg\"", JWT_ACCEPTED},
        {",\"sub\":\"\"", JWT_REJECTED},
        {",\"sub\":7", JWT_REJECTED},
        {",\"sub\":null", JWT_REJECTED},
        {",\"sub\":[\"alice\"]", JWT_REJECTED},
        {",\"sub\":\"alice\\n\"", JWT_REJECTED},
        {",\"sub\":\"alice\\u0000admin\"", JWT_REJECTED},
        {",\"sub\":\"alice\\u007f\"", JWT_REJECTED},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf payload = {0};
        buf_printf(&payload, "{\"iss\":\"" ISS "\",\"aud\":\"api://gate\",\"exp\":1700000060%s}", rows[i].sub);
        assert_row(judge_payload(&usual, buf_text(&payload), NOW) == rows[i].want, rows[i].sub);
        buf_release(&payload);
    }
    for (int len = 256; len <= 257; len++) {
        struct buf payload = {0};
        buf_printf(&payload, "{\"iss\":\"" ISS "\",\"aud\":\"api://gate\",\"exp\":1700000060,\"sub\":\"%0*d\"}", len,
                   0);
        assert_int_equal(judge_payload(&usual, buf_text(&payload), NOW), len == 256 ? JWT_ACCEPTED : JWT_REJECTED);
        buf_release(&payload);
    }
}

// Each token has SECRET in another place, which the detail for the operator must not contain.
static void J8_error_details_never_quote_the_token(void **state)
{
    (void)state;
    static const char *const headers[] = {
        "{\"alg\":\"SECRET\"}",
        "{\"alg\":\"EdDSA\",\"kid\":\"SECRET\"}",
        "{\"alg\":\"EdDSA\",\"typ\":\"SECRET\"}",
        "{\"alg\":\"EdDSA\",\"crit\":[\"SECRET\"]}",
        "{\"alg\":SECRET}",
        "{\"SECRET\":1,\"SECRET\":1}",
        "SECRET",
    };
    for (size_t i = 0; i < COUNT(headers); i++) {
        assert_int_not_equal(judge_header(headers[i]), JWT_ACCEPTED);
        assert_int_equal(why.code, ERR_UNAUTHENTICATED);
        assert_row(why.detail[0] && !strstr(why.detail, "SECRET"), headers[i]);
    }
    static const char *const payloads[] = {
        CLAIMS("\"exp\":\"SECRET\""),
        CLAIMS("\"exp\":SECRET"),
        CLAIMS("\"exp\":1,\"x\":\"SECRET\""),
        "{\"iss\":\"SECRET\"}",
        "{\"iss\":\"" ISS "\",\"aud\":\"SECRET\"}",
        "{\"iss\":\"" ISS "\",\"aud\":[1,\"SECRET\"]}",
        "{\"iss\":\"" ISS "\",\"aud\":\"api://gate\",\"exp\":1700000060,\"sub\":\"\\u0001SECRET\"}",
        CLAIMS("\"exp\":1700000060,\"x\":\"SECRET\\u0000\""),
        CLAIMS("\"SECRET\":1,\"SECRET\":1"),
        "\"SECRET\"",
    };
    for (size_t i = 0; i < COUNT(payloads); i++) {
        assert_int_equal(judge_payload(&usual, payloads[i], NOW), JWT_REJECTED);
        assert_int_equal(why.code, ERR_UNAUTHENTICATED);
        assert_row(why.detail[0] && !strstr(why.detail, "SECRET"), payloads[i]);
    }
}

// ---- J10: the lifetime of a key set ---------------------------------------------------------

static void J10_a_key_set_is_valid_for_its_max_age_between_5_minutes_and_a_day(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        int64_t seconds;
    } rows[] = {
        {NULL, 300},
        {"", 300},
        {"max-age=0", 300},
        {"max-age=299", 300},
        {"max-age=301", 301},
        {"public, max-age=3600", 3600},
        {"Max-Age=3600, must-revalidate", 3600},
        {"max-age=\"3600\"", 3600},
        {"s-maxage=7200,max-age=600", 600},
        {"x-max-age=7200", 300},
        {"max-age=86400", 86400},
        {"max-age=86401", 86400},
        {"max-age=99999999999999999999999", 86400},
        {"max-age=-5", 300},
        {"max-age=soon", 300},
        {"max-age", 300},
        {"no-store, max-age=3600", 300},
        {"max-age=3600, no-cache", 300},
        {",,, ,", 300},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_row(jwks_lifetime(rows[i].header) == rows[i].seconds, rows[i].header);
}

// ---- J17 ------------------------------------------------------------------------------------

static void J17_the_self_test_of_the_verifier_passes(void **state)
{
    (void)state;
    struct err err = {0};
    bool ok = jwt_self_test(&err);
    if (!ok)
        print_error("%s\n", err.detail);
    assert_true(ok);
    assert_int_equal(ERR_peek_error(), 0);
}

static int make_keys(void **state)
{
    (void)state;
    struct buf text = {0};
    buf_put_text(&text, "{\"keys\":[");
    for (int i = 0; i <= OTHER_RSA; i++) {
        char kid[32];
        if (strcmp(keys[i].kty, "RSA") == 0)
            keys[i].key = EVP_RSA_gen(2048);
        else
            keys[i].key = keys[i].kty[0] == 'E' ? EVP_EC_gen(keys[i].crv) : EVP_PKEY_Q_keygen(NULL, NULL, keys[i].crv);
        if (!keys[i].key)
            return -1;
        snprintf(kid, sizeof kid, ",\"kid\":\"%d\"", i);
        buf_put_text(&text, i && i != OTHER_RSA ? "," : "");
        if (i != OTHER_RSA)
            put_jwk(&text, &keys[i], kid);
    }
    buf_put_text(&text, "]}");
    set = parse_set(&text);
    return jwks_count(set) == OTHER_RSA ? 0 : -1;
}

static int drop_keys(void **state)
{
    (void)state;
    jwks_free(set);
    for (size_t i = 0; i < COUNT(keys); i++)
        EVP_PKEY_free(keys[i].key);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(J1_rules_without_an_issuer_audience_or_algorithm_are_refused),
        cmocka_unit_test(J1_algorithms_are_named_exactly),
        cmocka_unit_test(J1_a_token_without_a_required_claim_is_rejected),
        cmocka_unit_test(J2_an_audience_is_a_string_or_an_array_of_strings),
        cmocka_unit_test(J3_a_token_has_three_segments_in_strict_base64url),
        cmocka_unit_test(J3_a_token_has_at_most_16_KiB),
        cmocka_unit_test(J3_header_and_payload_must_be_objects_without_duplicate_keys),
        cmocka_unit_test(J3_a_parsed_token_has_the_members_that_select_its_rules),
        cmocka_unit_test(J4_a_token_with_alg_none_is_rejected),
        cmocka_unit_test(J4_a_token_signed_by_hmac_with_the_public_key_is_rejected),
        cmocka_unit_test(J4_a_token_of_an_algorithm_that_is_not_allowed_is_rejected_before_its_key_is_looked_up),
        cmocka_unit_test(J4_a_token_with_crit_is_rejected),
        cmocka_unit_test(J4_the_typ_of_a_token_is_absent_or_jwt_or_access_token),
        cmocka_unit_test(J4_keys_in_the_header_of_a_token_are_ignored),
        cmocka_unit_test(J5_a_token_with_an_unknown_kid_is_distinguished_from_a_rejected_one),
        cmocka_unit_test(J5_a_token_without_a_kid_needs_exactly_one_matching_key),
        cmocka_unit_test(J5_a_key_must_match_in_kid_type_curve_use_operations_and_alg),
        cmocka_unit_test(J6_an_rsa_key_with_an_unsafe_modulus_or_exponent_is_refused),
        cmocka_unit_test(J6_a_key_whose_point_is_not_on_its_curve_is_refused),
        cmocka_unit_test(J6_short_coordinates_of_a_key_are_padded),
        cmocka_unit_test(J6_private_members_and_keys_of_unknown_types_are_ignored),
        cmocka_unit_test(J6_a_key_set_has_at_most_64_keys_and_256_KiB),
        cmocka_unit_test(J6_a_document_that_is_not_a_key_set_is_an_error),
        cmocka_unit_test(J6_a_key_set_that_was_never_fetched_can_be_freed),
        cmocka_unit_test(J7_every_algorithm_accepts_its_signature_and_rejects_a_tampered_one),
        cmocka_unit_test(J7_a_signature_does_not_verify_under_another_algorithm),
        cmocka_unit_test(J7_an_ecdsa_signature_is_raw_and_of_exact_length),
        cmocka_unit_test(J7_the_pss_salt_is_as_long_as_the_digest),
        cmocka_unit_test(J7_published_signatures_verify),
        cmocka_unit_test(J8_the_issuer_is_compared_exactly),
        cmocka_unit_test(J8_times_are_compared_with_the_configured_skew),
        cmocka_unit_test(J8_times_must_be_numbers_and_saturate),
        cmocka_unit_test(J8_the_claims_of_an_accepted_token_are_returned),
        cmocka_unit_test(J8_the_subject_is_absent_or_a_plain_string),
        cmocka_unit_test(J8_error_details_never_quote_the_token),
        cmocka_unit_test(J10_a_key_set_is_valid_for_its_max_age_between_5_minutes_and_a_day),
        cmocka_unit_test(J17_the_self_test_of_the_verifier_passes),
    };
    return cmocka_run_group_tests(tests, make_keys, drop_keys);
}
