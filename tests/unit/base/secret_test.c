// Tests base64url, digests and comparison against published vectors (RFC 4648, RFC 4231, FIPS 180).
#include "base/secret.h"
#include "unit.h"

static void base64url_encodes_and_decodes_to_the_same_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
        const char *text;
    } rows[] = {
        {LIT(""), ""},           {LIT("f"), "Zg"},          {LIT("fo"), "Zm8"},          {LIT("foo"), "Zm9v"},
        {LIT("foob"), "Zm9vYg"}, {LIT("fooba"), "Zm9vYmE"}, {LIT("foobar"), "Zm9vYmFy"}, {LIT("\xFB\xFF\xFE"), "-__-"},
        {LIT("\0"), "AA"},       {LIT("\xFF"), "_w"},       {LIT("\0\0\0\0"), "AAAAAA"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf text = {0}, bytes = {0};
        secret_encode(&text, span_make(rows[i].bytes, rows[i].len));
        assert_span(buf_span(&text), span_of(rows[i].text), "encoded");
        assert_true(secret_decode(&bytes, buf_span(&text)));
        assert_span(buf_span(&bytes), span_make(rows[i].bytes, rows[i].len), rows[i].text);
        buf_release(&text);
        buf_release(&bytes);
    }
}

static void every_byte_survives_base64url_at_every_offset(void **state)
{
    (void)state;
    for (int c = 0; c < 256; c++)
        for (size_t at = 0; at < 6; at++) {
            struct buf text = {0}, back = {0};
            char bytes[6] = {1, 2, 3, 4, 5, 6};
            bytes[at] = (char)c;
            secret_encode(&text, span_make(bytes, sizeof bytes));
            assert_true(secret_decode(&back, buf_span(&text)));
            assert_span(buf_span(&back), span_make(bytes, sizeof bytes), "round trip");
            buf_release(&text);
            buf_release(&back);
        }
}

static void base64url_decoding_accepts_one_spelling_of_each_value(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len;
    } wrong[] = {
        {LIT("Z")},
        {LIT("Zm9vY")},
        {LIT("Zg==")},
        {LIT("Zg=")},
        {LIT("Zh")},
        {LIT("Zm9")},
        {LIT("+_8")},
        {LIT("Zm9v\n")},
        {LIT("Zm 9v")},
        {LIT("Z/8")},
        {LIT("\0AA")},
        {LIT("AA\0")},
        {LIT("\xFF"
             "AA")},
        {LIT("____Z")},
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct buf bytes = {0};
        assert_row(!secret_decode(&bytes, span_make(wrong[i].text, wrong[i].len)), wrong[i].text);
        buf_release(&bytes);
    }
}

static void assert_hex(const unsigned char *bytes, const char *hex)
{
    struct buf text = {0};
    for (size_t i = 0; i < SECRET_MAC_BYTES; i++)
        buf_printf(&text, "%02x", bytes[i]);
    assert_span(buf_span(&text), span_of(hex), "digest");
    buf_release(&text);
}

static void digests_match_published_test_vectors(void **state)
{
    (void)state;
    unsigned char out[SECRET_MAC_BYTES];
    secret_digest(SPAN("abc"), out);
    assert_hex(out, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    secret_digest((struct span){NULL, 0}, out);
    assert_hex(out, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    secret_mac("Jefe", 4, SPAN("what do ya want for nothing?"), out);
    assert_hex(out, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    char key[131];
    memset(key, 0xAA, sizeof key);
    secret_mac(key, sizeof key, SPAN("Test Using Larger Than Block-Size Key - Hash Key First"), out);
    assert_hex(out, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

static void secrets_are_compared_and_wiped(void **state)
{
    (void)state;
    char a[] = "0123456789", b[] = "0123456789";
    assert_true(secret_equal(a, b, 10));
    assert_true(secret_equal(a, b, 0));
    for (size_t i = 0; i < 10; i++) {
        b[i] ^= 1;
        assert_false(secret_equal(a, b, 10));
        assert_true(secret_equal(a, b, i));
        b[i] ^= 1;
    }
    secret_wipe(a, 10);
    assert_memory_equal(a, "\0\0\0\0\0\0\0\0\0\0", 10);
}

static void random_bytes_differ_between_calls(void **state)
{
    (void)state;
    char a[32] = {0}, b[32] = {0};
    secret_random(a, sizeof a);
    secret_random(b, sizeof b);
    assert_memory_not_equal(a, b, sizeof a);
}

static void random_texts_differ_and_fill_their_buffer(void **state)
{
    (void)state;
    char a[SECRET_TEXT_SIZE(16)], b[SECRET_TEXT_SIZE(16)], whole[SECRET_TEXT_SIZE(47)];
    struct buf bytes = {0};
    secret_random_text(a, 16);
    secret_random_text(b, 16);
    assert_string_not_equal(a, b);
    assert_int_equal(strlen(a), sizeof a - 1);
    secret_random_text(whole, 47);
    assert_int_equal(strlen(whole), sizeof whole - 1);
    assert_true(secret_decode(&bytes, span_of(whole)));
    assert_int_equal(bytes.len, 47);
    buf_release(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base64url_encodes_and_decodes_to_the_same_bytes),
        cmocka_unit_test(every_byte_survives_base64url_at_every_offset),
        cmocka_unit_test(base64url_decoding_accepts_one_spelling_of_each_value),
        cmocka_unit_test(digests_match_published_test_vectors),
        cmocka_unit_test(secrets_are_compared_and_wiped),
        cmocka_unit_test(random_bytes_differ_between_calls),
        cmocka_unit_test(random_texts_differ_and_fill_their_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
