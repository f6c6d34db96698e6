// Owns `postern policy diff`: compares the access of callers under two policies.
//
// The comparison covers every caller and item that either policy names. A pattern stands for itself: the text
// "get_*" is a name that the pattern get_* matches, and no narrower pattern does. Where two patterns overlap,
// as get_* and *_secret do, their common part is included, too. With an inventory, so are all of its items.
//
// A caller has several principals: its name and its roles. Rules may allow an item to one of them and deny it to another. If
// a caller gains access, NEW allows the item to one of its principals. Either that principal gains it alone as well, or OLD
// denied the item to another principal of the caller. So it is enough to try each principal alone and each two together.
// The same holds for lost access, with OLD and NEW exchanged.
#include "base/glob.h"
#include "base/map.h"
#include "base/mem.h"
#include "cmd/base/fail.h"
#include "cmd/base/output.h"
#include "subcommands.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ITEMS_MAX 20000
#define OVERLAPS_MAX 1000000  // pairs of items whose common part is computed
#define JOINED_MAX 50000      // pairs of principals of one caller, tried for one item

// ---- items ----------------------------------------------------------------------------------

struct diff_items {
    struct policy_item *at;
    size_t count;
    struct map seen;
    bool too_many, too_wide;  // there are more items; some pairs were not combined
};

static void add_item(struct diff_items *items, const char *server, enum policy_kind kind, const char *name)
{
    struct buf key = {0};
    buf_printf(&key, "%s %s %s", server, policy_kind_text(kind), name);
    bool fresh = !map_find(&items->seen, buf_span(&key));
    items->too_many = items->too_many || (fresh && items->count == ITEMS_MAX);
    if (fresh && items->count < ITEMS_MAX) {
        map_put(&items->seen, buf_span(&key), items);
        if ((items->count & (items->count - 1)) == 0)  // full at 0 and at every power of two
            items->at = mem_resize(items->at, (items->count * 2 + 1) * sizeof *items->at);
        items->at[items->count++] = (struct policy_item){mem_string(server), mem_string(name), kind};
    }
    buf_release(&key);
}

// A literal as a name: without the backslashes.
static char *as_name(const char *pattern)
{
    struct buf name = {0};
    for (; *pattern; pattern++) {
        if (*pattern == '\\' && (pattern[1] == '*' || pattern[1] == '\\'))
            pattern++;
        buf_put_char(&name, *pattern);
    }
    return buf_take(&name, NULL);
}

static void add_rule_items(struct diff_items *items, const struct policy *policy, const struct policy_rule *rule)
{
    char **names = policy_rule_names(policy, rule);
    for (char **name = names; *name; name++) {
        char *plain = as_name(*name);
        for (char **server = rule->servers; *server; server++)
            for (char **kind = rule->kinds; *kind; kind++)
                for (int k = 0; k < POLICY_KINDS; k++)
                    if (strcmp(*kind, "*") == 0 || strcmp(*kind, policy_kind_text((enum policy_kind)k)) == 0)
                        add_item(items, *server, (enum policy_kind)k, plain);
        free(plain);
        free(*name);
    }
    free(names);
}

// The common part of two patterns, each of them also taken as a text. If neither matches the other and both have a
// star, and their ends fit: the longer start, a star, the longer end. NULL: nothing.
static char *common(const char *a, const char *b)
{
    if (glob_match(a, span_of(b)) || glob_match(b, span_of(a)))
        return mem_string(glob_match(a, span_of(b)) ? b : a);
    const char *first_a = strchr(a, '*'), *first_b = strchr(b, '*'), *last_a = strrchr(a, '*'),
               *last_b = strrchr(b, '*');
    if (!first_a || !first_b)
        return NULL;
    size_t head_a = (size_t)(first_a - a), head_b = (size_t)(first_b - b), tail_a = strlen(last_a + 1),
           tail_b = strlen(last_b + 1);
    size_t head = head_a < head_b ? head_a : head_b, tail = tail_a < tail_b ? tail_a : tail_b;
    if (strncmp(a, b, head) != 0 || strcmp(last_a + 1 + tail_a - tail, last_b + 1 + tail_b - tail) != 0)
        return NULL;
    struct buf both = {0};
    buf_put(&both, head_a > head_b ? a : b, head_a > head_b ? head_a : head_b);
    buf_put(&both, first_a, (size_t)(last_a - first_a) + 1);
    buf_put(&both, first_b + 1, (size_t)(last_b - first_b));
    buf_put_text(&both, tail_a > tail_b ? last_a + 1 : last_b + 1);
    return buf_take(&both, NULL);
}

// Adds common parts whose start and end share bytes, such as get_secret of get_* and *_secret.
static void add_tight(struct diff_items *items, const char *server, struct policy_item a, struct policy_item b,
                      const char *both)
{
    const char *first = strchr(both, '*'), *last = strrchr(both, '*');
    size_t head = first ? (size_t)(first - both) : 0, tail = first ? strlen(last + 1) : 0;
    for (size_t shared = 1; shared <= head && shared <= tail; shared++) {
        struct buf name = {0};
        buf_put(&name, both, head);
        buf_put_text(&name, last + 1 + shared);
        if (glob_match(a.name, buf_span(&name)) && glob_match(b.name, buf_span(&name)))
            add_item(items, server, a.kind, buf_text(&name));
        buf_release(&name);
    }
}

static void combine_two(struct diff_items *items, struct policy_item a, struct policy_item b)
{
    char *server = a.kind == b.kind ? common(a.server, b.server) : NULL;
    char *name = server ? common(a.name, b.name) : NULL;
    if (name) {
        add_item(items, server, a.kind, name);
        add_tight(items, server, a, b, name);
    }
    free(server);
    free(name);
}

// Two items without a star are equal or have nothing in common, so one of them must have a star.
static void combine(struct diff_items *items)
{
    size_t count = items->count, left = OVERLAPS_MAX;
    for (size_t i = 0; i < count; i++) {
        bool wide = strchr(items->at[i].server, '*') || strchr(items->at[i].name, '*');
        for (size_t k = 0; wide && k < count; k++) {
            if (left-- == 0) {
                items->too_wide = true;
                return;
            }
            combine_two(items, items->at[i], items->at[k]);
        }
    }
}

static void add_items(struct diff_items *items, const struct policy *policy)
{
    for (size_t i = 0; i < policy_rule_count(policy); i++)
        add_rule_items(items, policy, policy_rule_at(policy, i));
    for (size_t i = 0; i < policy_test_count(policy); i++) {
        const struct policy_test *test = policy_test_at(policy, i);
        add_item(items, test->server, (enum policy_kind)test->kind, test->name);
    }
}

static void add_inventory(struct diff_items *items, const struct policy_inventory *inventory)
{
    for (size_t i = 0; inventory && i < policy_inventory_count(inventory); i++) {
        struct policy_question item = policy_inventory_at(inventory, i);
        add_item(items, item.server, item.kind, item.name.at);
    }
}

static void items_release(struct diff_items *items)
{
    for (size_t i = 0; i < items->count; i++) {
        free(items->at[i].server);
        free(items->at[i].name);
    }
    free(items->at);
    map_release(&items->seen);
}

// ---- comparing ------------------------------------------------------------------------------

enum side { OLD, NEW };
enum change { CHANGE_NONE, CHANGE_GAINED, CHANGE_LOST, CHANGE_CONDITIONS, CHANGES };

struct comparison {
    struct policy *sides[2];
    struct policy_memo *memos[2];
    json_t *rows;
    size_t counts[CHANGES], joined;  // joined: how often two principals were tried together
};

// The access of one caller to one item under both policies.
struct stand {
    enum change change;
    uint64_t allows[2], denies[2];  // policy_stance() of each policy
};

struct extent {
    enum policy_extent at;
    struct buf conditions;
};

static enum change change_of(const struct extent *extent)
{
    if (extent[OLD].at != extent[NEW].at)
        return extent[OLD].at < extent[NEW].at ? CHANGE_GAINED : CHANGE_LOST;
    bool same = span_equal(buf_span(&extent[OLD].conditions), buf_span(&extent[NEW].conditions));
    return same ? CHANGE_NONE : CHANGE_CONDITIONS;
}

static void tell(struct comparison *all, const struct policy_asker *asker, const struct policy_item *item,
                 struct extent *extent)
{
    static const char *const words[] = {"deny", "depends", "allow"};
    static const char *const signs[] = {"", "+", "-", "~"};
    struct extent *old = &extent[OLD], *new = &extent[NEW];
    all->counts[change_of(extent)]++;
    json_array_append_new(all->rows,
                          json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s*,s:s*}", "change", signs[change_of(extent)],
                                    "tenant", asker->identity->tenant, "principal", asker->label, "server",
                                    item->server, "kind", policy_kind_text(item->kind), "name", item->name, "before",
                                    words[old->at], "after", words[new->at], "conditions_before",
                                    old->conditions.len ? buf_text(&old->conditions) : NULL, "conditions_after",
                                    new->conditions.len ? buf_text(&new->conditions) : NULL));
}

static struct policy_question question_of(const struct policy_asker *asker, const struct policy_item *item)
{
    return (struct policy_question){asker->identity, item->server, item->kind, span_of(item->name), NULL};
}

// Compares one caller's access to one item. Changes of a kind in `said`, or of a caller in `asked` (if not NULL), are not
// reported again.
static enum change compare(struct comparison *all, const struct policy_asker *asker, const struct policy_item *item,
                           const bool *said, const struct policy_askers *asked)
{
    struct policy_question question = question_of(asker, item);
    struct extent extent[2] = {0};
    for (int side = OLD; side <= NEW; side++)
        extent[side].at = policy_askers_extent(all->memos[side], &question, &extent[side].conditions);
    enum change change = change_of(extent);
    if (!said[change] && !(asked && policy_askers_has(asked, asker->label, asker->identity->tenant)))
        tell(all, asker, item, extent);
    buf_release(&extent[OLD].conditions);
    buf_release(&extent[NEW].conditions);
    return change;
}

static struct stand ask(struct comparison *all, const struct policy_asker *asker, const struct policy_item *item)
{
    struct policy_question question = question_of(asker, item);
    struct stand stand = {.change = compare(all, asker, item, (const bool[CHANGES]){[CHANGE_NONE] = true}, NULL)};
    for (int side = OLD; side <= NEW; side++) {
        stand.allows[side] = policy_stance(all->memos[side], &question, VERDICT_ALLOW);
        stand.denies[side] = policy_stance(all->memos[side], &question, VERDICT_DENY);
    }
    return stand;
}

// May a caller with the principals of both `a` and `d` gain or lose access that neither does alone? One side allows it to `a`
// and the other denies it to `d`, differently on the two sides, and each for more than being of the tenant.
static bool may_differ(const struct stand *a, const struct stand *d, const struct stand *unknown)
{
    for (int side = OLD; side <= NEW && d->denies[OLD] != d->denies[NEW]; side++)
        if (a->allows[side] != unknown->allows[side] && d->denies[!side] != unknown->denies[!side])
            return true;
    return false;
}

// Tries every caller for one item, then pairs of principals that one caller may have. `unknowns`: for each caller, the index
// of the caller of the same tenant without a name or role. False: there were too many.
static bool ask_all(struct comparison *all, const struct policy_askers *askers, const size_t *unknowns,
                    const struct policy_item *item)
{
    struct stand *stands = mem_alloc((askers->count + 1) * sizeof *stands);
    struct policy_asker both;
    for (size_t i = 0; i < askers->count; i++)
        stands[i] = ask(all, &askers->at[i], item);
    for (size_t d = 0; d < askers->count; d++)
        for (size_t a = 0; a < askers->count; a++) {
            if (unknowns[a] != unknowns[d] || !may_differ(&stands[a], &stands[d], &stands[unknowns[d]]) ||
                !policy_askers_join(&askers->at[d], &askers->at[a], &both))
                continue;
            bool said[CHANGES] = {[CHANGE_NONE] = true};
            said[stands[a].change] = said[stands[d].change] = true;
            if (all->joined++ < JOINED_MAX)
                compare(all, &both, item, said, askers);
            policy_askers_release_one(&both);
        }
    free(stands);
    return all->joined <= JOINED_MAX;
}

static size_t *find_unknowns(const struct policy_askers *askers)
{
    size_t *all = mem_alloc((askers->count + 1) * sizeof *all);
    for (size_t i = 0; i < askers->count; i++)
        for (size_t k = 0; k < askers->count; k++)
            if (policy_askers_is_unnamed(&askers->at[k]) &&
                strcmp(askers->at[k].identity->tenant, askers->at[i].identity->tenant) == 0)
                all[i] = k;
    return all;
}

static const char *text_of(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text ? text : "";
}

static void put_change(struct buf *out, const json_t *row)
{
    const char *before = text_of(row, "conditions_before"), *after = text_of(row, "conditions_after");
    buf_printf(out, "%s %s: %s %s %s: %s → %s", text_of(row, "change"), text_of(row, "tenant"), text_of(row, "server"),
               text_of(row, "kind"), text_of(row, "name"), text_of(row, "before"), text_of(row, "after"));
    if (*before || *after)
        buf_printf(out, " [%s → %s]", *before ? before : "none", *after ? after : "none");
}

// One line for each change, with all callers that it applies to.
static void print_rows(const json_t *rows)
{
    struct map seen = {0};
    struct buf *lines = mem_alloc((json_array_size(rows) + 1) * sizeof *lines);
    size_t i, count = 0;
    const json_t *row;
    json_array_foreach(rows, i, row) {
        struct buf change = {0};
        put_change(&change, row);
        struct buf *line = map_find(&seen, buf_span(&change));
        if (!line) {
            line = &lines[count++];
            buf_put_span(line, buf_span(&change));
            map_put(&seen, buf_span(&change), line);
            buf_put_text(line, "\n    ");
        } else {
            buf_put_text(line, ", ");
        }
        buf_put_text(line, text_of(row, "principal"));
        buf_release(&change);
    }
    for (i = 0; i < count; i++) {
        puts(buf_text(&lines[i]));
        buf_release(&lines[i]);
    }
    free(lines);
    map_release(&seen);
}

#define NOT_WHOLE "postern: policy diff: the result is incomplete, compare fewer files at a time: "

static int report(const struct flags *flags, const struct comparison *all, const struct diff_items *items)
{
    const size_t *counts = all->counts;
    bool whole = !items->too_many && !items->too_wide && all->joined <= JOINED_MAX;
    if (flags->json)
        output_json(json_incref(all->rows));
    else
        print_rows(all->rows);
    if (!flags->json)
        printf("%zu gained, %zu lost, %zu with other conditions\n", counts[CHANGE_GAINED], counts[CHANGE_LOST],
               counts[CHANGE_CONDITIONS]);
    if (items->too_many)
        fprintf(stderr, NOT_WHOLE "only the first %d items were compared\n", ITEMS_MAX);
    if (items->too_wide)
        fprintf(stderr, NOT_WHOLE "only the first %d overlaps of patterns were computed\n", OVERLAPS_MAX);
    if (all->joined > JOINED_MAX)
        fprintf(stderr, NOT_WHOLE "only the first %d callers with two of the principals were tried\n", JOINED_MAX);
    // A human must decide whether a changed condition is wider, so it counts as new access, and so do skipped comparisons.
    bool more = counts[CHANGE_GAINED] || counts[CHANGE_CONDITIONS] || !whole;
    return flags->fail_on_new_access && more ? EXIT_NEGATIVE : EXIT_OK;
}

static struct policy *open_side(const char *side, int *code)
{
    bool here = access(side, F_OK) == 0;
    if (!here && !strchr(side, ':')) {
        *code = fail_with(EXIT_CONFIG, "%s: no such file or folder; for a git revision, write REVISION:PATH", side);
        return NULL;
    }
    char *folder = here ? NULL : policy_checkout(side, code);
    if (!here && !folder)
        return NULL;
    struct policy *policy = policy_open(here ? side : folder, side, code);
    if (folder)
        policy_checkout_remove(folder);
    free(folder);
    return policy;
}

int policy_diff(const struct flags *flags)
{
    int code = EXIT_OK;
    struct comparison all = {.rows = json_array()};
    struct policy_askers askers = {0};
    struct diff_items items = {0};
    struct policy_inventory *inventory = flags->inventory ? policy_open_inventory(flags->inventory, &code) : NULL;
    all.sides[OLD] = code == EXIT_OK ? open_side(flags->args[1], &code) : NULL;
    all.sides[NEW] = all.sides[OLD] ? open_side(flags->args[2], &code) : NULL;
    if (all.sides[NEW]) {
        all.memos[OLD] = policy_memo_new(all.sides[OLD]);
        all.memos[NEW] = policy_memo_new(all.sides[NEW]);
        policy_askers_add(&askers, all.sides[OLD], all.sides[NEW], NULL);
        add_items(&items, all.sides[OLD]);
        add_items(&items, all.sides[NEW]);
        combine(&items);
        add_inventory(&items, inventory);
        size_t *unknowns = find_unknowns(&askers);
        for (size_t i = 0; i < items.count && ask_all(&all, &askers, unknowns, &items.at[i]); i++) {}
        free(unknowns);
        code = report(flags, &all, &items);
    }
    items_release(&items);
    policy_inventory_free(inventory);
    policy_askers_release(&askers);
    policy_memo_free(all.memos[OLD]);
    policy_memo_free(all.memos[NEW]);
    policy_unref(all.sides[OLD]);
    policy_unref(all.sides[NEW]);
    json_decref(all.rows);
    return code;
}
