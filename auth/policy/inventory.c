// Owns the comparison of rules with the inventory and the configuration: warnings W5, W6, W9 and W10.
//
// An inventory is the output of `postern tools`, `resources` and `prompts`: JSON arrays, one after another, of items as the
// servers sent them, each with its "server". If a kind does not occur in it, the inventory was made without that kind, and
// rules for that kind are not checked.
#include "base/glob.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/scan.h"
#include "source.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define FILE_MAX ((size_t)64 << 20)
#define GROUP_DEPTH_MAX 32
#define NAMED_MAX 3  // names in one finding; the others are counted

struct item {
    char *server, *name;
    enum policy_kind kind;
    bool reads;  // declares readOnlyHint
};

struct policy_inventory {
    struct item *items;
    size_t count;
    size_t kinds[POLICY_KINDS];
    struct map seen;  // server, kind and name
};

// ---- reading --------------------------------------------------------------------------------

static bool text_of(struct span object, const char *key, char **out)
{
    struct span raw;
    struct buf text = {0};
    if (!scan_find(object, key, &raw) || !scan_is_string(raw))
        return false;
    scan_decode(raw, &text);
    bool whole = !scan_has_half(buf_span(&text));  // items with such names are never offered to callers
    if (whole)
        *out = buf_take(&text, NULL);
    buf_release(&text);
    return whole;
}

// The member that holds the name tells the kind.
static bool read_name(struct span object, struct item *item)
{
    struct span schema;
    if (text_of(object, "uri", &item->name))
        item->kind = POLICY_RESOURCE;
    else if (text_of(object, "uriTemplate", &item->name))
        item->kind = POLICY_TEMPLATE;
    else
        item->kind = scan_find(object, "inputSchema", &schema) ? POLICY_TOOL : POLICY_PROMPT;
    return item->name || text_of(object, "name", &item->name);
}

static void put_key(const struct item *item, struct buf *out)
{
    buf_put(out, item->server, strlen(item->server) + 1);
    buf_put_char(out, (char)('0' + item->kind));
    buf_put_text(out, item->name);
}

static bool has(const struct policy_inventory *inventory, const struct item *item)
{
    struct buf key = {0};
    put_key(item, &key);
    bool found = map_find(&inventory->seen, buf_span(&key)) != NULL;
    buf_release(&key);
    return found;
}

static bool add_item(struct policy_inventory *inventory, struct span object)
{
    struct item item = {0};
    struct span annotations, hint;
    struct buf key = {0};
    if (!scan_is_object(object) || !text_of(object, "server", &item.server) || !read_name(object, &item)) {
        free(item.server);
        return false;
    }
    item.reads = scan_find(object, "annotations", &annotations) && scan_is_object(annotations) &&
                 scan_find(annotations, "readOnlyHint", &hint) && span_is(hint, "true");
    put_key(&item, &key);
    map_put(&inventory->seen, buf_span(&key), inventory);
    buf_release(&key);
    inventory->kinds[item.kind]++;
    if ((inventory->count & (inventory->count - 1)) == 0)  // full at 0 and at every power of two
        inventory->items = mem_resize(inventory->items, (inventory->count * 2 + 1) * sizeof item);
    inventory->items[inventory->count++] = item;
    return true;
}

static bool read_lists(struct policy_inventory *inventory, struct span text)
{
    struct scan scan;
    struct span list, object;
    scan_start(&scan, text, true);
    for (scan_space(&scan); scan.at < scan.end; scan_space(&scan)) {
        if (!scan_value(&scan, &list) || !scan_is_array(list))
            return false;
        for (struct scan_walk walk = scan_walk(list); scan_element(&walk, &object);)
            if (!add_item(inventory, object))
                return false;
    }
    return inventory->count > 0;
}

struct policy_inventory *policy_inventory_read(const char *path, struct err *err)
{
    struct buf text = {.max = FILE_MAX};
    char block[65536];
    ssize_t got = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && (got = read(fd, block, sizeof block)) > 0)
        buf_put(&text, block, (size_t)got);
    int problem = errno;
    if (fd >= 0)
        close(fd);
    struct policy_inventory *inventory = mem_new(struct policy_inventory);
    bool ok = false;
    if (got < 0)
        (void)err_set(err, ERR_CONFIG, "%s: %s", path, strerror(problem));
    else if (text.overflow)
        (void)err_set(err, ERR_CONFIG, "%s: larger than %zu bytes", path, FILE_MAX);
    else if (!(ok = read_lists(inventory, buf_span(&text))))
        (void)err_set(
            err, ERR_CONFIG,
            "%s: not an inventory; expected the JSON that `postern tools`, `postern resources` and `postern prompts` "
            "print, one array after another",
            path);
    buf_release(&text);
    if (ok)
        return inventory;
    policy_inventory_free(inventory);
    return NULL;
}

void policy_inventory_free(struct policy_inventory *inventory)
{
    if (!inventory)
        return;
    for (size_t i = 0; i < inventory->count; i++) {
        free(inventory->items[i].server);
        free(inventory->items[i].name);
    }
    free(inventory->items);
    map_release(&inventory->seen);
    free(inventory);
}

size_t policy_inventory_count(const struct policy_inventory *inventory) { return inventory->count; }

struct policy_question policy_inventory_at(const struct policy_inventory *inventory, size_t i)
{
    const struct item *item = &inventory->items[i];
    return (struct policy_question){.server = item->server, .kind = item->kind, .name = span_of(item->name)};
}

// ---- rules and items -------------------------------------------------------------------------

struct inventory_lint {
    const struct policy_source *source;
    const struct policy_load *load;
    struct policy_findings *findings;
};

static bool any_takes(char *const *patterns, const char *text)
{
    for (; *patterns; patterns++)
        if (glob_match(*patterns, span_of(text)))
            return true;
    return false;
}

// The names and patterns behind one entry of a rule's names, NULL at the end: the entry itself, or those of its set.
static char *const *names_at(const struct policy_source *source, char *const *name, char *one[2])
{
    const struct policy_set *set = strncmp(*name, "set:", 4) == 0 ? policy_source_set(source, *name + 4) : NULL;
    one[0] = *name;
    one[1] = NULL;
    return set ? set->names : one;
}

static bool takes(const struct policy_rule *rule, const char *pattern, const struct item *item)
{
    return any_takes(rule->kinds, policy_kind_text(item->kind)) && any_takes(rule->servers, item->server) &&
           glob_match(pattern, span_of(item->name));
}

static bool takes_some(const struct policy_rule *rule, const char *pattern, const struct policy_inventory *inventory)
{
    for (size_t i = 0; i < inventory->count; i++)
        if (takes(rule, pattern, &inventory->items[i]))
            return true;
    return false;
}

static bool takes_item(const struct policy_source *source, const struct policy_rule *rule, const struct item *item)
{
    for (char **name = rule->names; *name; name++) {
        char *one[2];
        for (char *const *pattern = names_at(source, name, one); *pattern; pattern++)
            if (takes(rule, *pattern, item))
                return true;
    }
    return false;
}

// True if the inventory has all kinds that the rule applies to.
static bool is_known(const struct policy_rule *rule, const struct policy_inventory *inventory)
{
    for (int kind = 0; kind < POLICY_KINDS; kind++)
        if (any_takes(rule->kinds, policy_kind_text((enum policy_kind)kind)) && !inventory->kinds[kind])
            return false;
    return true;
}

static bool is_inert(const struct inventory_lint *lint, const struct policy_rule *rule)
{
    return rule->expires_at && rule->expires_at <= lint->load->now;
}

// A list of the first few items, and how many more there are.
struct naming {
    struct buf text;
    size_t count;
};

static void name_item(struct naming *naming, const struct item *item)
{
    if (naming->count < NAMED_MAX)
        buf_printf(&naming->text, "%s%s %s", naming->count ? ", " : "", item->server, item->name);
    naming->count++;
}

static const char *named(struct naming *naming)
{
    if (naming->count > NAMED_MAX)
        buf_printf(&naming->text, " and %zu more", naming->count - NAMED_MAX);
    return buf_text(&naming->text);
}

// ---- W5: matches nothing --------------------------------------------------------------------

static bool has_server(const struct policy_inventory *inventory, const char *pattern)
{
    for (size_t i = 0; i < inventory->count; i++)
        if (glob_match(pattern, span_of(inventory->items[i].server)))
            return true;
    return false;
}

static void check_typos(const struct inventory_lint *lint, const struct policy_rule *rule)
{
    const struct policy_inventory *inventory = lint->load->inventory;
    bool servers = true;
    for (size_t i = 0; rule->servers[i]; i++)
        if (!has_server(inventory, rule->servers[i])) {
            policy_findings_add(lint->findings, "W5", rule->file, rule->line, rule->id,
                                "/rules/%zu/servers/%zu: \"%s\" matches no server of the inventory; correct it, or "
                                "regenerate the inventory",
                                rule->at, i, rule->servers[i]);
            servers = false;
        }
    for (size_t i = 0; servers && rule->names[i]; i++)
        if (strncmp(rule->names[i], "set:", 4) != 0 && !takes_some(rule, rule->names[i], inventory))
            policy_findings_add(lint->findings, "W5", rule->file, rule->line, rule->id,
                                "/rules/%zu/names/%zu: \"%s\" matches nothing in the inventory; correct or remove it",
                                rule->at, i, rule->names[i]);
}

// True if a rule that uses the set matches an item by this name of it, or if the inventory cannot tell.
static bool is_useful(const struct inventory_lint *lint, const struct policy_set *set, const char *name)
{
    bool used = false;
    for (size_t i = 0; i < lint->source->count; i++) {
        const struct policy_rule *rules = lint->source->files[i].rules.at;
        for (size_t k = 0; k < lint->source->files[i].rules.count; k++)
            for (char **one = rules[k].names; *one; one++) {
                if (strncmp(*one, "set:", 4) != 0 || strcmp(*one + 4, set->name) != 0)
                    continue;
                used = true;
                if (!is_known(&rules[k], lint->load->inventory) || takes_some(&rules[k], name, lint->load->inventory))
                    return true;
            }
    }
    return !used;
}

static void check_sets(const struct inventory_lint *lint, const struct policy_file *file)
{
    const struct policy_set *sets = file->sets.at;
    for (size_t i = 0; i < file->sets.count; i++)
        for (size_t k = 0; sets[i].names[k]; k++)
            if (!is_useful(lint, &sets[i], sets[i].names[k]))
                policy_findings_add(lint->findings, "W5", file->path, 0, NULL,
                                    "/sets/%s/names/%zu: \"%s\" matches nothing in the inventory; correct or remove it",
                                    sets[i].name, k, sets[i].names[k]);
}

// ---- W6: matches more than it did -----------------------------------------------------------

static bool is_pattern_for(const struct policy_rule *rule, const char *name, const struct item *item)
{
    if (!glob_is_literal(name))
        return true;
    for (char **server = rule->servers; *server; server++)
        if (glob_is_literal(*server) && glob_match(*server, span_of(item->server)))
            return false;  // server and name are written out: the rule means this item
    return true;
}

static void check_drift(const struct inventory_lint *lint, const struct policy_rule *rule)
{
    const struct policy_inventory *now = lint->load->inventory;
    for (size_t i = 0; rule->names[i]; i++) {
        struct naming naming = {0};
        char *one[2];
        for (size_t k = 0; k < now->count; k++) {
            bool taken = false;
            for (char *const *name = names_at(lint->source, &rule->names[i], one); *name && !taken; name++)
                taken = takes(rule, *name, &now->items[k]) && is_pattern_for(rule, *name, &now->items[k]);
            if (taken && !has(lint->load->before, &now->items[k]))
                name_item(&naming, &now->items[k]);
        }
        if (naming.count)
            policy_findings_add(
                lint->findings, "W6", rule->file, rule->line, rule->id,
                "/rules/%zu/names/%zu: \"%s\" now also matches new items: %s; deny them, or list the intended names",
                rule->at, i, rule->names[i], named(&naming));
        buf_release(&naming.text);
    }
}

// ---- W9: all callers may write --------------------------------------------------------------

static bool takes_every_caller(const struct policy_source *source, char *const *subjects, int depth)
{
    for (; subjects && *subjects && depth <= GROUP_DEPTH_MAX; subjects++) {
        const struct policy_group *group =
            strncmp(*subjects, "group:", 6) == 0 ? policy_source_group(source, *subjects + 6) : NULL;
        if (strcmp(*subjects, "*") == 0 || strcmp(*subjects, "authenticated") == 0 ||
            (group && takes_every_caller(source, group->members, depth + 1)))
            return true;
    }
    return false;
}

static void check_writes(const struct inventory_lint *lint, const struct policy_rule *rule)
{
    const struct policy_inventory *inventory = lint->load->inventory;
    struct naming naming = {0};
    if (!takes_every_caller(lint->source, rule->subjects, 0))
        return;
    for (size_t i = 0; i < inventory->count; i++)
        if (inventory->items[i].kind == POLICY_TOOL && !inventory->items[i].reads &&
            takes_item(lint->source, rule, &inventory->items[i]))
            name_item(&naming, &inventory->items[i]);
    if (naming.count)
        policy_findings_add(
            lint->findings, "W9", rule->file, rule->line, rule->id,
            "/rules/%zu/subjects: every caller may call tools that do not declare readOnlyHint: %s; restrict "
            "the subjects, or name only tools that declare it",
            rule->at, named(&naming));
    buf_release(&naming.text);
}

// ---- W10: a deny that never denies ----------------------------------------------------------

static bool takes_one_of(char *const *patterns, const char *const *texts)
{
    for (; *texts; texts++)
        if (any_takes(patterns, *texts))
            return true;
    return false;
}

// Why the rule cannot match, with the selector that fails in `part`; NULL if it can match.
static const char *idle_because(const struct inventory_lint *lint, const struct policy_rule *rule, const char **part)
{
    const struct policy_load *load = lint->load;
    *part = "tenants";
    if (load->tenants && !takes_one_of(rule->tenants, load->tenants))
        return "no such tenant in the configuration; correct or remove the rule";
    *part = "servers";
    if (load->servers && !takes_one_of(rule->servers, load->servers))
        return "no such server in the configuration; correct or remove the rule";
    *part = "names";
    if (!load->inventory || !is_known(rule, load->inventory))
        return NULL;
    for (size_t i = 0; i < load->inventory->count; i++)
        if (takes_item(lint->source, rule, &load->inventory->items[i]))
            return NULL;
    return "matches nothing in the inventory; correct or remove the rule";
}

static bool check_idle(const struct inventory_lint *lint, const struct policy_rule *rule)
{
    const char *part, *why = idle_because(lint, rule, &part);
    if (why)
        policy_findings_add(lint->findings, "W10", rule->file, rule->line, rule->id,
                            "/rules/%zu/%s: the rule never denies: %s", rule->at, part, why);
    return why != NULL;
}

// ---- all of it ------------------------------------------------------------------------------

static void check_rule(const struct inventory_lint *lint, const struct policy_rule *rule)
{
    const struct policy_inventory *inventory = lint->load->inventory;
    if (is_inert(lint, rule) || (!rule->effect && check_idle(lint, rule)) || !inventory)
        return;
    if (is_known(rule, inventory))
        check_typos(lint, rule);
    if (rule->effect && lint->load->before)
        check_drift(lint, rule);
    if (rule->effect)
        check_writes(lint, rule);
}

void policy_inventory_lint(const struct policy_source *source, const struct policy_load *load,
                           struct policy_findings *findings)
{
    struct inventory_lint lint = {source, load, findings};
    for (size_t i = 0; i < source->count; i++) {
        const struct policy_rule *rules = source->files[i].rules.at;
        for (size_t k = 0; k < source->files[i].rules.count; k++)
            check_rule(&lint, &rules[k]);
        if (load->inventory)
            check_sets(&lint, &source->files[i]);
    }
}
