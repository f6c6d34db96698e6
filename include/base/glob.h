// Name patterns of policies and profiles: '*' stands for any run of bytes, "\*" for the character.
#ifndef BASE_GLOB_H
#define BASE_GLOB_H

#include "base/span.h"

bool glob_match(const char *pattern, struct span text);                   // anchored at both ends, case-sensitive
bool glob_covers(const char *wide, const char *narrow);                   // takes all that the other takes
bool glob_is_literal(const char *pattern);                                // no '*' in it but escaped ones
bool glob_valid(const char *pattern);                                     // a backslash only before '*' or itself
struct span glob_unescape(const char *pattern, char *room, size_t size);  // of a literal pattern

#endif
