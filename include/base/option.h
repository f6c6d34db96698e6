// Options as tables: a row has the name, type, bounds, default and help of an option. Parsing, `config show`, the JSON
// Schema and docs/config.md all read the same rows.
//
// A table describes a C struct: each row has the offset of its value. After parsing, the struct owns the memory that it
// points to; option_release() frees it.
#ifndef BASE_OPTION_H
#define BASE_OPTION_H

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_type {
    OPTION_BOOL,             // bool
    OPTION_INT,              // int64_t
    OPTION_SIZE,             // int64_t bytes: 4096, "64KiB", "4MiB"
    OPTION_DURATION,         // int64_t milliseconds: a number is seconds, or "500ms", "15s", "2m", "1h"
    OPTION_STRING,           // char *
    OPTION_STRING_OR_FALSE,  // char *; false gives ""
    OPTION_ENUM,             // int, the index in choices
    OPTION_STRINGS,          // char **, NULL at the end
    OPTION_PAIRS,            // struct option_pairs: an object of strings
    OPTION_JSON,             // json_t *, any value, unchanged
    OPTION_OBJECT,           // the sub table's struct, in place
    OPTION_OBJECTS,          // struct option_items: an array of objects
    OPTION_NAMED_OBJECTS,    // struct option_items: an object of objects; each struct begins with char *name
};

struct option_pairs {
    struct option_pair {
        char *name, *value;
    } * at;
    size_t count;
};

struct option_items {
    void *at;
    size_t count;
};

struct option_table;

struct option {
    const char *name;
    enum option_type type;
    size_t offset;
    const char *fallback;  // JSON text; NULL: zero if absent
    int64_t min, max;      // for the numeric types; both 0: unlimited
    // NULL at the end. OPTION_ENUM: the words. OPTION_DURATION: words that stand for -1, -2, …; NULL: none
    const char *const *choices;
    const struct option_table *sub;
    bool secret;  // its value is never shown
    bool fixed;   // a running gateway cannot change it: a reload that changes it is refused
    const char *help;
};

// Variables that are not set.
struct option_unset {
    struct buf names;  // one on each line, without duplicates
    size_t uses;
};

#define OPTION_PROBLEMS_MAX 100

// Problems of a file, in the form of err.detail. Parsing ends at the largest number of them, because finding the position of each
// walks the whole file.
struct option_problems {
    struct buf lines;
    size_t count;
    enum err_code code;  // of the first that is not about the content: the file cannot be read or parsed
};

// The position of a value, for messages.
struct option_place {
    const char *file;
    const char *path;  // JSON pointer
    bool literal;      // "${" is plain text: variables are not expanded in this file
    // If not NULL, a variable that is not set is left as written and noted here. The check of an object with such a
    // value may fail, because the value is not known.
    struct option_unset *unset;
    // If not NULL, parsing goes on after a problem, which is added here. Then option_parse() fails without an error.
    struct option_problems *problems;
    struct buf *notes;  // lines that are not errors, but that a person should know; may be NULL
};

struct option_table {
    const char *title;
    size_t size;
    const struct option *rows;  // ends with a row without a name
    // Checks the whole object after its rows have been parsed; may be NULL.
    bool (*check)(void *object, const struct option_place *place, struct err *err);
};

bool option_parse(const struct option_table *table, const json_t *tree, void *into, const struct option_place *place,
                  struct err *err) MUST_CHECK;
// Whether parsing may go on after a failure: if problems are collected. The error, if there is one, moves there.
bool option_note_problem(const struct option_place *place, struct err *err);
void option_release(const struct option_table *table, void *object);
json_t *option_show(const struct option_table *table, const void *object);  // secrets as "***"
json_t *option_schema(const struct option_table *table);
void option_markdown(const struct option_table *table, struct buf *out);

const char *option_type_text(enum option_type type);  // "a string"

// The closest of the names; NULL: none is similar.
const char *option_nearest(const char *word, const char *const *names);
bool option_duration(const char *text, int64_t *ms);

#endif
