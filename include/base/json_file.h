// JSON files that people write: comments, a comma after the last member, and the position of each value.
#ifndef BASE_JSON_FILE_H
#define BASE_JSON_FILE_H

#include "base/buf.h"
#include "base/json.h"

struct json_position {
    size_t line, column;  // of bytes, from 1
};

// `text` becomes the content of the file, with spaces in place of comments and such commas; buf_wipe() it.
json_t *json_file_parse(const char *path, struct buf *text, struct err *err) MUST_CHECK;
// Where the value is that a path such as /servers/0/url names, or its key if it has one. If it does not exist: the innermost
// value on the path that does.
struct json_position json_file_position(struct span text, const char *path);

#endif
