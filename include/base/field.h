// The syntax of header fields of HTTP (RFC 9110 §5), of requests and responses: names and values.
#ifndef BASE_FIELD_H
#define BASE_FIELD_H

#include "base/span.h"
#include <strings.h>

bool field_is_name_char(char c);         // of a token
bool field_is_name(struct span name);    // a token
bool field_is_value(struct span value);  // no line break, no NUL, no other control character but the tab

// Ignores case.
static inline bool field_is_named(struct span name, const char *known)
{
    return name.len == strlen(known) && strncasecmp(name.at, known, name.len) == 0;
}

#endif
