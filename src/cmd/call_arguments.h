// The arguments of a tool or prompt, as the command line gives them.
#ifndef CMD_CALL_ARGUMENTS_H
#define CMD_CALL_ARGUMENTS_H

#include "base/buf.h"
#include "base/err.h"

#define CALL_ARGUMENTS_SYNOPSIS "[JSON|@FILE|-|KEY=VALUE...]"

// Appends a JSON object. The words: none, one JSON text, @FILE, "-" (standard input), or KEY=VALUE each. A VALUE that is JSON stays
// as it is, unless `texts` (all values are texts); any other is a text.
bool call_arguments_read(const char *const *words, int count, bool texts, struct buf *out, struct err *err) MUST_CHECK;

#endif
