// Tests rewriting by path: the members that a rule names change, and every other byte stays.
#include "base/scan.h"
#include "mcp/rewrite.h"
#include "unit.h"

enum { UPPER = 1, LEAVE = 2, NUMBER = 3, WRAP = 4 };

static const struct rewrite_rule rules[] = {
    {{"uri"}, UPPER},
    {{"contents", "*", "uri"}, UPPER},
    {{"contents", "*", "resource", "uri"}, UPPER},
    {{"rows", "*", "*"}, NUMBER},
    {{"a", "b", "c", "d", "e", "f"}, UPPER},
    {{"_meta", "left"}, LEAVE},
    {{"whole"}, WRAP},
    {{"blocks", "*:link", "uri"}, UPPER},
    {{"blocks", "*:outer", "inner", "uri"}, UPPER},
};

static bool change(void *arg, int what, struct span raw, struct buf *out)
{
    int *calls = arg;
    (*calls)++;
    switch (what) {
    case UPPER:
        if (!scan_is_string(raw))
            return false;
        for (size_t i = 0; i < raw.len; i++)
            buf_put_char(out, raw.at[i] >= 'a' && raw.at[i] <= 'z' ? (char)(raw.at[i] - 32) : raw.at[i]);
        return true;
    case NUMBER: buf_put_int(out, *calls); return true;
    case WRAP:
        buf_put_char(out, '[');
        buf_put_span(out, raw);
        buf_put_char(out, ']');
        return true;
    default: buf_put_text(out, "never used"); return false;
    }
}

static const struct {
    const char *before, *after;  // `after` NULL: unchanged
} rows[] = {
    {"{}", NULL},
    {"[]", NULL},
    {"1", NULL},
    {"\"uri\"", NULL},
    {"{\"other\":\"x\"}", NULL},
    {"{\"uri\":7}", NULL},
    {"{\"x\":{\"uri\":\"a\"}}", NULL},
    {"[{\"uri\":\"a\"}]", NULL},
    {"{\"_meta\":{\"left\":\"x\"}}", NULL},
    {"{\"contents\":{\"uri\":\"a\"}}", NULL},
    {"{\"contents\":[]}", NULL},
    {"{\"contents\":[[{\"uri\":\"a\"}]]}", NULL},
    {"{\"*\":{\"uri\":\"a\"}}", NULL},
    {"{\"uri\":\"a\"}", "{\"uri\":\"A\"}"},
    {"{\"\\u0075ri\":\"a\"}", "{\"\\u0075ri\":\"A\"}"},
    {"{ \"n\" : 1.00 ,\t\"uri\" :\n\"a\" , \"z\":[ ]\r}", "{ \"n\" : 1.00 ,\t\"uri\" :\n\"A\" , \"z\":[ ]\r}"},
    {"{\"uri\":\"a\",\"uri\":\"b\"}", "{\"uri\":\"A\",\"uri\":\"B\"}"},
    {"{\"contents\":[{\"uri\":\"a\"},{\"x\":1},{\"uri\":\"b\",\"resource\":{\"uri\":\"c\"}},3]}",
     "{\"contents\":[{\"uri\":\"A\"},{\"x\":1},{\"uri\":\"B\",\"resource\":{\"uri\":\"C\"}},3]}"},
    {"{\"rows\":[[9,\"x\"],[],[{}]]}", "{\"rows\":[[1,2],[],[3]]}"},
    {"{\"a\":{\"b\":{\"c\":{\"d\":{\"e\":{\"f\":\"deep\"}}}}}}",
     "{\"a\":{\"b\":{\"c\":{\"d\":{\"e\":{\"f\":\"DEEP\"}}}}}}"},
    {"{\"whole\":{\"k\":[1,\"}\"]}, \"n\":0}", "{\"whole\":[{\"k\":[1,\"}\"]}], \"n\":0}"},
    {"{\"whole\":null}", "{\"whole\":[null]}"},
    {"{\"uri\":\"\"}", "{\"uri\":\"\"}"},
    {"{\"blocks\":[{\"uri\":\"a\"},{\"type\":\"text\",\"uri\":\"a\"},{\"type\":[\"link\"],\"uri\":\"a\"},[{\"type\":"
     "\"link\",\"uri\":"
     "\"a\"}],\"link\"]}",
     NULL},
    {"{\"blocks\":[{\"type\":\"outer\",\"uri\":\"a\"},{\"type\":\"link\",\"inner\":{\"uri\":\"a\"}}]}", NULL},
    {"{\"blocks\":{\"x\":{\"type\":\"link\",\"uri\":\"a\"}},\"*:link\":{\"uri\":\"a\"}}", NULL},
    {"{\"blocks\":[1,{\"uri\":\"a\",\"type\":\"link\"},{\"type\":\"outer\",\"inner\":{\"uri\":\"b\"}}]}",
     "{\"blocks\":[1,{\"uri\":\"A\",\"type\":\"link\"},{\"type\":\"outer\",\"inner\":{\"uri\":\"B\"}}]}"},
    {"{\"blocks\":{\"uri\":\"a\",\"type\":\"lin\\u006b\"}}", "{\"blocks\":{\"uri\":\"A\",\"type\":\"lin\\u006b\"}}"},
};

static void only_members_that_a_rule_names_are_rewritten(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf out = {0};
        int calls = 0;
        buf_put_text(&out, "<");
        bool changed = rewrite_json(span_of(rows[i].before), rules, COUNT(rules), change, &calls, &out);
        assert_row(changed == (rows[i].after != NULL), rows[i].before);
        assert_span(span_after(buf_span(&out), 1), span_of(changed ? rows[i].after : ""), rows[i].before);
        buf_release(&out);
    }
}

// The same texts with a large part, which is shared and not copied.
static void shared_text_is_rewritten_like_any_other(void **state)
{
    (void)state;
    static char filler[5000];
    memset(filler, ' ', sizeof filler);
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf text = {0}, got = {0};
        struct pieces out = {0};
        int calls = 0;
        buf_put(&text, filler, sizeof filler);
        buf_put_text(&text, rows[i].before);
        struct blob *owner = blob_take(&text);
        pieces_share(&out, owner, span_make(owner->at, sizeof filler));
        rewrite_shared(owner, span_after(blob_span(owner), sizeof filler), rules, COUNT(rules), change, &calls, &out);
        blob_unref(owner);
        struct blob *whole = pieces_take(&out);
        struct blob_reader reader = {.blob = whole};
        buf_reserve(&got, whole->len);
        got.len = blob_read(&reader, got.at, whole->len);
        assert_span(span_after(buf_span(&got), sizeof filler), span_of(rows[i].after ? rows[i].after : rows[i].before),
                    rows[i].before);
        blob_unref(whole);
        buf_release(&got);
    }
}

static void a_rewrite_without_rules_changes_nothing(void **state)
{
    (void)state;
    struct buf out = {0};
    int calls = 0;
    assert_false(rewrite_json(SPAN("{\"uri\":\"a\"}"), rules, 0, change, &calls, &out));
    assert_int_equal(calls, 0);
    assert_int_equal(out.len, 0);
}

static void a_rewrite_follows_thirty_two_rules(void **state)
{
    (void)state;
    static const char names[32][4] = {"a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "b0", "b1", "b2",
                                      "b3", "b4", "b5", "b6", "b7", "c0", "c1", "c2", "c3", "c4", "c5",
                                      "c6", "c7", "d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7"};
    struct rewrite_rule many[32];
    struct buf before = {0}, after = {0}, out = {0};
    for (int i = 0; i < 32; i++) {
        many[i] = (struct rewrite_rule){{names[i]}, NUMBER};
        buf_printf(&before, "%c\"%s\":\"x\"", i ? ',' : '{', names[i]);
        buf_printf(&after, "%c\"%s\":%d", i ? ',' : '{', names[i], i + 1);
    }
    buf_put_char(&before, '}');
    buf_put_char(&after, '}');
    int calls = 0;
    assert_true(rewrite_json(buf_span(&before), many, 32, change, &calls, &out));
    assert_span(buf_span(&out), buf_span(&after), "32 rules");
    buf_release(&before);
    buf_release(&after);
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_members_that_a_rule_names_are_rewritten),
        cmocka_unit_test(shared_text_is_rewritten_like_any_other),
        cmocka_unit_test(a_rewrite_without_rules_changes_nothing),
        cmocka_unit_test(a_rewrite_follows_thirty_two_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
