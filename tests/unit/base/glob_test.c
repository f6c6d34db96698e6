// Tests glob matching against a backtracking matcher, on all patterns and texts of a few bytes, and on long texts.
#include "base/clock.h"
#include "base/glob.h"
#include "unit.h"

// Reads one pattern character at *at; returns its byte, or -1 for a star.
static int next(const char **at)
{
    char c = *(*at)++;
    if (c == '*')
        return -1;
    if (c == '\\' && (**at == '*' || **at == '\\'))
        c = *(*at)++;
    return (unsigned char)c;
}

// Backtracks to the last star; in the worst case the time is the length of the pattern times that of the text.
static bool match_slowly(const char *pattern, struct span text)
{
    const char *p = pattern, *star = NULL;
    size_t t = 0, star_text = 0;
    while (t < text.len) {
        int c = *p ? next(&p) : -2;
        if (c == -1) {
            star = p;
            star_text = t;
        } else if (c == (unsigned char)text.at[t]) {
            t++;
        } else if (star) {
            p = star;
            t = ++star_text;
        } else {
            return false;
        }
    }
    while (*p == '*')
        p++;
    return *p == '\0';
}

static unsigned random_below(unsigned *state, unsigned limit)
{
    *state = *state * 1103515245U + 12345U;
    return (*state >> 16) % limit;
}

static void the_glob_matcher_agrees_with_a_slow_matcher(void **state)
{
    (void)state;
    unsigned random = 20261117;
    int matched = 0;
    for (int i = 0; i < 300000; i++) {
        char pattern[12] = {0}, text[12];
        unsigned pattern_len = random_below(&random, 11), len = random_below(&random, 12);
        for (unsigned k = 0; k < pattern_len; k++)
            pattern[k] = "ab**\\"[random_below(&random, 5)];
        for (unsigned k = 0; k < len; k++)
            text[k] = "aab*\\\0"[random_below(&random, 6)];
        bool want = match_slowly(pattern, span_make(text, len));
        matched += want;
        assert_row(glob_match(pattern, span_make(text, len)) == want, pattern);
    }
    assert_true(matched > 10000);
}

static void globs_of_the_table_match_as_expected(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text;
        size_t len;
        bool want;
    } rows[] = {
        {"", LIT(""), true},           {"", LIT("a"), false},
        {"*", LIT(""), true},          {"**", LIT("a\0b"), true},
        {"a*b", LIT("ab"), true},      {"a*b", LIT("a"), false},
        {"a*a", LIT("a"), false},      {"*ab*ab", LIT("ab"), false},
        {"*ab*ab", LIT("abab"), true}, {"\\*", LIT("*"), true},
        {"*\\**", LIT("a*b"), true},   {"*\\**", LIT("ab"), false},
        {"*\\\\", LIT("a\\"), true},   {"*\\\\*c\\*", LIT("a\\bc*"), true},
        {"*x", LIT("a\0x"), true},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_row(glob_match(rows[i].pattern, span_make(rows[i].text, rows[i].len)) == rows[i].want, rows[i].pattern);
}

// Each of these would take minutes in time proportional to the pattern times the text.
static void a_glob_matches_a_long_text_in_one_pass(void **state)
{
    (void)state;
    enum { LENGTH = 4 << 20, PIECE = 4000 };
    struct buf text = {0}, piece = {0}, pattern = {0};
    for (int i = 0; i < LENGTH; i++)
        buf_put_char(&text, 'a');
    for (int i = 0; i < PIECE; i++)
        buf_put_char(&piece, 'a');
    buf_printf(&pattern, "*%sb*%sb*%sc", buf_text(&piece), buf_text(&piece), buf_text(&piece));
    int64_t began = clock_now_ms();
    for (int i = 0; i < 20; i++)
        assert_false(glob_match(buf_text(&pattern), buf_span(&text)));
    assert_true(clock_now_ms() - began < 20000);
    buf_release(&text);
    buf_release(&piece);
    buf_release(&pattern);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_glob_matcher_agrees_with_a_slow_matcher),
        cmocka_unit_test(globs_of_the_table_match_as_expected),
        cmocka_unit_test(a_glob_matches_a_long_text_in_one_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
