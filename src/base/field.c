// Owns what may stand in a header field of HTTP: a line break in one would begin another.
#include "base/field.h"
#include <strings.h>

bool field_is_name_char(char c)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           memchr(others, c, sizeof others - 1);
}

bool field_is_name(struct span name)
{
    for (size_t i = 0; i < name.len; i++)
        if (!field_is_name_char(name.at[i]))
            return false;
    return name.len > 0;
}

bool field_is_value(struct span value)
{
    bool ok = true;  // no early end, so that many bytes are looked at at once
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.at[i];
        ok &= (c >= 0x20 || c == '\t') & (c != 0x7f);
    }
    return ok;
}

bool field_is_named(struct span name, const char *known)
{
    return name.len == strlen(known) && strncasecmp(name.at, known, name.len) == 0;
}
