// Tests simple case folding: names that differ only in case, and names that only look like it.
#include "base/fold.h"
#include "unit.h"

static const struct row {
    const char *a, *b;
    bool equal;
} rows[] = {
    {"", "", true},
    {"name", "name", true},
    {"name", "NAME", true},
    {"taskId", "TASKID", true},
    {"name", "names", false},
    {"name", "nam", false},
    {"name", "", false},
    {"@[`{", "`{@[", false},  // the neighbours of the letters
    {"argument\u017f", "arguments", true},
    {"tas\u212aId", "taskid", true},
    {"\u017f", "S", true},
    {"\u212a", "K", true},
    {"\u0131d", "id", false},  // dotless i
    {"\u0130D", "id", false},  // I with a dot
    {"gr\u00f6\u00dfe", "GR\u00d6\u1e9eE", true},
    {"gr\u00f6\u00dfe", "GR\u00d6SSE", false},  // equal with full folding only
    {"gr\u00f6\u00dfe", "gr\u00fc\u00dfe", false},
    {"\u03c3", "\u03c2", true},  // sigma and final sigma
    {"\u03a3", "\u03c2", true},
    {"\u01c4", "\u01c5", true},  // a digraph and its title case
    {"\u01c6", "\u01c5", true},
    {"\u0101", "\u0100", true},  // in a range where every second character folds
    {"\u0101", "\u0102", false},
    {"\uab70", "\u13a0", true},  // which folds to upper case
    {"\ufb05", "\ufb06", true},
    {"\u00b5", "\u039c", true},
    {"\u540d\u524d", "\u4f4f\u6240", false},
    {"\U00010400", "\U00010428", true},  // beyond the first plane
    {"\U00010400", "\U00010429", false},
    {"\U0001e921", "\U0001e943", true},  // the last of the table
    {"\U0010ffff", "\U0010ffff", true},
};

static void names_fold_as_in_the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_row(fold_equal(span_of(rows[i].a), span_of(rows[i].b)) == rows[i].equal, rows[i].a);
        assert_row(fold_equal(span_of(rows[i].b), span_of(rows[i].a)) == rows[i].equal, rows[i].b);
    }
}

static void names_are_folded_beyond_zero_bytes(void **state)
{
    (void)state;
    assert_false(fold_equal(SPAN("name\0"), SPAN("name")));
    assert_true(fold_equal(SPAN("a\0b"), SPAN("A\0B")));
    assert_true(fold_equal((struct span){0}, SPAN("")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_fold_as_in_the_table),
                                       cmocka_unit_test(names_are_folded_beyond_zero_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
