// Owns tables on a terminal.
#include "cmd/base/table.h"
#include "base/mem.h"
#include "cmd/base/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

static size_t columns_of(const struct table *table)
{
    size_t count = 0;
    while (count < TABLE_COLUMNS && table->titles[count])
        count++;
    return count;
}

void table_add(struct table *table, const char *const *cells)
{
    table->rows = mem_resize(table->rows, (table->count + 1) * sizeof *table->rows);
    struct table_row *row = &table->rows[table->count++];
    *row = (struct table_row){0};
    for (size_t i = 0; i < columns_of(table) && cells[i]; i++) {
        row->cells[i] = mem_string(cells[i]);
        output_tame(row->cells[i], strlen(row->cells[i]), "");  // a cell is one line
    }
}

static size_t width_of(const char *text)
{
    size_t width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

static void print_cut(const char *text, size_t width)
{
    size_t cut = width_of(text) > width && width > 1 ? width - 1 : width, seen = 0;
    for (; *text; text++) {
        bool start = ((unsigned char)*text & 0xC0) != 0x80;
        if (start && seen++ == cut) {
            fputs("…", stdout);
            return;
        }
        putchar(*text);
    }
}

static void print_row(const char *const *cells, const size_t *widths, size_t columns, size_t room)
{
    size_t used = 0;
    for (size_t i = 0; i < columns; i++) {
        const char *cell = cells[i] ? cells[i] : "";
        if (i + 1 == columns) {
            print_cut(cell, room > used + 8 ? room - used : 8);
            break;
        }
        printf("%s%*s", cell, (int)(widths[i] - width_of(cell) + 2), "");
        used += widths[i] + 2;
    }
    putchar('\n');
}

void table_print(const struct table *table)
{
    struct winsize size;
    size_t widths[TABLE_COLUMNS] = {0}, columns = columns_of(table);
    size_t room = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 100;
    for (size_t i = 0; i < columns; i++) {
        widths[i] = width_of(table->titles[i]);
        for (size_t k = 0; k < table->count; k++) {
            size_t width = table->rows[k].cells[i] ? width_of(table->rows[k].cells[i]) : 0;
            if (width > widths[i])
                widths[i] = width;
        }
    }
    const char *terminal = getenv("TERM"), *plain = getenv("NO_COLOR");
    bool bold = isatty(STDOUT_FILENO) && !(plain && *plain) && !(terminal && strcmp(terminal, "dumb") == 0);
    fputs(bold ? "\033[1m" : "", stdout);
    print_row(table->titles, widths, columns, room);
    fputs(bold ? "\033[0m" : "", stdout);
    for (size_t k = 0; k < table->count; k++)
        print_row((const char *const *)table->rows[k].cells, widths, columns, room);
}

void table_release(struct table *table)
{
    for (size_t k = 0; k < table->count; k++)
        for (size_t i = 0; i < TABLE_COLUMNS; i++)
            free(table->rows[k].cells[i]);
    free(table->rows);
    *table = (struct table){0};
}
