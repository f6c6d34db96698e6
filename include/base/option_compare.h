// Comparing two objects of the same option table: whether they are equal, and which options differ, by JSON pointer.
#ifndef BASE_OPTION_COMPARE_H
#define BASE_OPTION_COMPARE_H

#include "base/option.h"

enum option_difference_kind { OPTION_CHANGED, OPTION_ADDED, OPTION_REMOVED, OPTION_REORDERED };

// One difference. A named object that only one side has is one difference; within other objects, each option is.
struct option_difference {
    enum option_difference_kind kind;
    const char *path;        // JSON pointer
    json_t *before, *after;  // as option_show() shows them, secrets as "***"; NULL: absent
    bool fixed;              // a running gateway cannot change the option
    bool text;               // of any text, in which variables of the environment may have been expanded
};

typedef void option_compare_fn(void *arg, const struct option_difference *difference);

bool option_compare_equal(const struct option_table *table, const void *one, const void *other);
bool option_compare_items_equal(const struct option_table *table, const struct option_items *one,
                                const struct option_items *other);
// Appends bytes that are the same for equal objects and different for others. They contain the object's secrets.
void option_compare_put(const struct option_table *table, const void *object, struct buf *out);
// Calls `report` for each difference, in the order of the rows.
void option_compare(const struct option_table *table, const void *before, const void *after,
                    option_compare_fn *on_difference, void *arg);

#endif
