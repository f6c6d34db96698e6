// A file of the configuration while it is read: its text, and its problems.
#ifndef CONFIG_TEXT_FILE_H
#define CONFIG_TEXT_FILE_H

#include "base/option.h"

struct text_file {
    const char *path;
    struct buf text;
    struct option_problems problems;  // of this file, without positions
    struct option_pairs renamed;      // paths of keys of other programs: ours, and that in the file
};

// Reads the file into the struct that the table describes.
bool text_file_read(struct text_file *file, const struct option_table *table, void *into,
                    const struct option_place *place, struct err *err) MUST_CHECK;
// Moves the problems, and the error if it is set, to `all`, and releases the text. Each has its position then: "FILE: /KEY: what"
// becomes "FILE:LINE:COLUMN: /KEY: what", with the key that the file has.
void text_file_close(struct text_file *file, struct option_problems *all, struct err *err);

#endif
