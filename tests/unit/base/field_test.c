// Tests which bytes are valid in header fields: each byte, at every place of a short and of a long value.
#include "base/field.h"
#include "unit.h"

static bool is_good_in_a_value(int c) { return c == '\t' || (c >= 0x20 && c != 0x7F); }

static void field_values_allow_the_same_bytes_at_every_offset(void **state)
{
    (void)state;
    char value[40];
    for (size_t len = 1; len <= sizeof value; len++)
        for (size_t at = 0; at < len; at++)
            for (int c = 0; c < 256; c++) {
                memset(value, (int)(' ' + len), len);
                value[at] = (char)c;
                assert_int_equal(field_is_value(span_make(value, len)), is_good_in_a_value(c));
            }
}

static void a_tab_in_a_field_value_does_not_hide_a_bad_byte_after_it(void **state)
{
    (void)state;
    assert_true(field_is_value(SPAN("")));
    assert_true(field_is_value(SPAN("a\tb, and more than eight bytes\t")));
    assert_false(field_is_value(SPAN("a\tb, and more than eight bytes\r\nX: y")));
    assert_false(field_is_value(SPAN("12345678\n")));
    assert_true(field_is_value(SPAN("\x80\xFF gr\xC3\xBC\xC3\x9F")));
}

static void field_names_must_be_tokens(void **state)
{
    (void)state;
    for (int c = 1; c < 256; c++) {
        char name[] = {'X', (char)c, '-', 'y'};
        bool good = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                    (c < 0x80 && strchr("!#$%&'*+-.^_`|~", c));
        assert_int_equal(field_is_name(span_make(name, sizeof name)), good);
    }
    assert_false(field_is_name(SPAN("")));
    assert_false(field_is_name(span_make("a\0b", 3)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(field_values_allow_the_same_bytes_at_every_offset),
        cmocka_unit_test(a_tab_in_a_field_value_does_not_hide_a_bad_byte_after_it),
        cmocka_unit_test(field_names_must_be_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
