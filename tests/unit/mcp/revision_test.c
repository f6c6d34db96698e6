// Tests protocol revisions (names, order, negotiation) and the method table.
#include "mcp/method.h"
#include "mcp/revision.h"
#include "unit.h"

static void revisions_are_known_by_name_and_in_order(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum revision parsed, negotiated;
    } rows[] = {
        {"2024-11-05", REVISION_2024_11_05, REVISION_2024_11_05},
        {"2025-03-26", REVISION_2025_03_26, REVISION_2025_03_26},
        {"2025-06-18", REVISION_2025_06_18, REVISION_2025_06_18},
        {"2025-11-25", REVISION_2025_11_25, REVISION_2025_11_25},
        {"2023-01-01", REVISION_NONE, REVISION_LATEST},
        {"2099-01-01", REVISION_NONE, REVISION_LATEST},
        {"2025-11-25 ", REVISION_NONE, REVISION_LATEST},
        {"2025-11-2", REVISION_NONE, REVISION_LATEST},
        {"DRAFT", REVISION_NONE, REVISION_LATEST},
        {"", REVISION_NONE, REVISION_LATEST},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_row(revision_parse(span_of(rows[i].text)) == rows[i].parsed, rows[i].text);
        assert_row(revision_negotiate(span_of(rows[i].text)) == rows[i].negotiated, rows[i].text);
        if (rows[i].parsed)
            assert_string_equal(revision_text(rows[i].parsed), rows[i].text);
        if (i && rows[i].parsed)
            assert_true(rows[i].parsed > rows[i - 1].parsed);
    }
    assert_int_equal(revision_parse((struct span){NULL, 0}), REVISION_NONE);
}

static void methods_are_found_by_their_whole_name(void **state)
{
    (void)state;
    for (int i = 1; i < METHODS; i++)
        assert_int_equal(method_find(span_of(method_text((enum method)i))), i);
    static const char *const unknown[] = {"", "tools", "tools/", "tools/callx", "Tools/call", "tools/call "};
    for (size_t i = 0; i < COUNT(unknown); i++)
        assert_row(method_find(span_of(unknown[i])) == METHOD_UNKNOWN, unknown[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(revisions_are_known_by_name_and_in_order),
        cmocka_unit_test(methods_are_found_by_their_whole_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
