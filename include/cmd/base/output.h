// Output of commands: text of servers made safe for a terminal, and JSON.
#ifndef CMD_BASE_OUTPUT_H
#define CMD_BASE_OUTPUT_H

#include "base/buf.h"
#include "base/json.h"
#include "cmd/base/options.h"

// Makes text of a server safe for a terminal: control characters become spaces, except the allowed ones, and the result
// is UTF-8.
void output_tame(char *text, size_t len, const char *allowed);
// A text member of what a server sent, made safe like this; "" if it is not a text. The caller frees it.
char *output_text_of(struct span object, const char *key);
// Shows the last lines of a failed server's stderr, if any.
void output_stderr_of(const char *server, const char *lines);
bool output_wants_json(const struct flags *flags);
void output_put_duration(int64_t seconds, struct buf *out);  // "3h 20m"
void output_json(json_t *tree);                              // and drops the reference
// JSON as it is, or on a terminal without what the terminal acts on.
void output_json_text(struct span json);

#endif
