// Owns the warnings W1 and W2: an allow rule that another rule completely denies, or completely allows as well.
//
// Sets and groups are replaced by their contents. A selector that is covered only by several others together is not found.
#include "base/glob.h"
#include "base/map.h"
#include "base/mem.h"
#include "source.h"
#include <stdlib.h>

#define STEPS_MAX 4000000  // comparisons of two texts: more would delay a reload

struct expanded {
    const struct policy_rule *rule;
    struct map subjects;
    char **names;  // NULL at the end; the texts belong to the source
    size_t name_count;
};

struct overlap {
    struct expanded *at;
    size_t count, left;
};

// ---- contents of sets and groups ------------------------------------------------------------

static void add_subject(const struct policy_source *source, const char *subject, struct expanded *out)
{
    const struct policy_group *group =
        strncmp(subject, "group:", 6) == 0 ? policy_source_group(source, subject + 6) : NULL;
    for (char **member = group ? group->members : NULL; member && *member; member++)
        add_subject(source, *member, out);
    if (!group)
        map_put(&out->subjects, span_of(subject), out);
}

static void add_names(char *const *names, struct expanded *out)
{
    for (; *names; names++) {
        out->names = mem_resize(out->names, (out->name_count + 2) * sizeof *out->names);
        out->names[out->name_count++] = *names;
        out->names[out->name_count] = NULL;
    }
}

static struct expanded expand(const struct policy_source *source, const struct policy_rule *rule)
{
    struct expanded out = {.rule = rule, .names = mem_alloc(sizeof(char *))};
    for (char **subject = rule->subjects; *subject; subject++)
        add_subject(source, *subject, &out);
    for (char **name = rule->names; *name; name++) {
        const struct policy_set *set = strncmp(*name, "set:", 4) == 0 ? policy_source_set(source, *name + 4) : NULL;
        add_names(set ? set->names : (char *const[]){*name, NULL}, &out);
    }
    return out;
}

// ---- coverage -------------------------------------------------------------------------------

static bool takes_step(struct overlap *overlap)
{
    overlap->left -= overlap->left > 0;
    return overlap->left > 0;
}

static bool patterns_cover(struct overlap *overlap, char *const *wide, char *const *narrow)
{
    for (; *narrow; narrow++) {
        bool found = false;
        for (char *const *one = wide; *one && !found && takes_step(overlap); one++)
            found = strcmp(*one, *narrow) == 0 || (strchr(*one, '*') && glob_covers(*one, *narrow));
        if (!found)
            return false;
    }
    return true;
}

static bool takes_subject(const struct map *wide, struct span subject)
{
    bool every_caller = map_find(wide, span_of("*")), known = map_find(wide, span_of("authenticated"));
    if (span_is(subject, "*"))
        return every_caller || (known && map_find(wide, span_of("anonymous")));
    bool proven = span_starts(subject, "user:") || span_starts(subject, "role:");
    return every_caller || (known && proven) || map_find(wide, subject);
}

static bool subjects_cover(struct overlap *overlap, const struct map *wide, const struct map *narrow)
{
    struct span subject;
    for (size_t at = 0; map_next(narrow, &at, &subject, &(void *){NULL});)
        if (!takes_step(overlap) || !takes_subject(wide, subject))
            return false;
    return narrow->count > 0;
}

static bool covers(struct overlap *overlap, const struct expanded *wide, const struct expanded *narrow)
{
    const struct policy_rule *big = wide->rule, *small = narrow->rule;
    return !big->when && !big->mode && !big->expires && patterns_cover(overlap, big->servers, small->servers) &&
           patterns_cover(overlap, big->tenants, small->tenants) && patterns_cover(overlap, big->kinds, small->kinds) &&
           patterns_cover(overlap, wide->names, narrow->names) &&
           subjects_cover(overlap, &wide->subjects, &narrow->subjects);
}

static void compare(struct overlap *overlap, const struct expanded *one, struct policy_findings *findings)
{
    const struct policy_rule *rule = one->rule;
    for (size_t i = 0; rule->effect && !rule->mode && i < overlap->count; i++) {
        const struct policy_rule *other = overlap->at[i].rule;
        if (other == rule || !covers(overlap, &overlap->at[i], one))
            continue;
        policy_findings_add(
            findings, other->effect ? "W2" : "W1", rule->file, rule->line, rule->id,
            "/rules/%zu/effect: the rule %s, because \"%s\" %s everything that it applies to; remove one of them",
            rule->at, other->effect ? "adds nothing" : "never decides", other->id, other->effect ? "allows" : "denies");
    }
}

void policy_overlap_lint(const struct policy_source *source, struct policy_findings *findings)
{
    struct overlap overlap = {.left = STEPS_MAX};
    for (size_t i = 0; i < source->count; i++) {
        const struct policy_rule *rules = source->files[i].rules.at;
        size_t more = source->files[i].rules.count;
        overlap.at = mem_resize(overlap.at, (overlap.count + more + 1) * sizeof *overlap.at);
        for (size_t k = 0; k < more; k++)
            overlap.at[overlap.count++] = expand(source, &rules[k]);
    }
    for (size_t i = 0; i < overlap.count; i++)
        compare(&overlap, &overlap.at[i], findings);
    for (size_t i = 0; i < overlap.count; i++) {
        map_release(&overlap.at[i].subjects);
        free(overlap.at[i].names);
    }
    free(overlap.at);
}
