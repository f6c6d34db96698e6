// Output for people: aligned columns on a terminal.
#ifndef CMD_BASE_TABLE_H
#define CMD_BASE_TABLE_H

#include "base/buf.h"
#include "base/span.h"

#define TABLE_COLUMNS 8

struct table {
    struct table_row {
        char *cells[TABLE_COLUMNS];
    } * rows;
    size_t count;
    const char *const *titles;  // at most TABLE_COLUMNS, and NULL at the end
};

void table_add(struct table *table, const char *const *cells);  // one for each title; NULL may end them early
void table_print(const struct table *table);                    // the last column is cut at the terminal's width
void table_release(struct table *table);

#endif
