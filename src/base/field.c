// Owns the characters that a header field of HTTP may contain: with a line break, a field would become two.
#include "base/field.h"

static const bool name_chars[256] = {
    ['0' ... '9'] = true, ['a' ... 'z'] = true, ['A' ... 'Z'] = true, ['!'] = true, ['#'] = true, ['$'] = true,
    ['%'] = true,         ['&'] = true,         ['\''] = true,        ['*'] = true, ['+'] = true, ['-'] = true,
    ['.'] = true,         ['^'] = true,         ['_'] = true,         ['`'] = true, ['|'] = true, ['~'] = true,
};

bool field_is_name_char(char c) { return name_chars[(unsigned char)c]; }

bool field_is_name(struct span name)
{
    for (size_t i = 0; i < name.len; i++)
        if (!field_is_name_char(name.at[i]))
            return false;
    return name.len > 0;
}

#define EACH_BYTE(value) (UINT64_MAX / 255 * (value))

// Whether one of eight bytes is below 0x20, or 0x7F.
static bool has_control(uint64_t bytes)
{
    uint64_t below = (bytes - EACH_BYTE(0x20)) & ~bytes, other = bytes ^ EACH_BYTE(0x7F);
    uint64_t del = (other - EACH_BYTE(0x01)) & ~other;
    return (below | del) & EACH_BYTE(0x80);
}

// Tokens are long, and every request has one. So eight bytes are checked at a time, and single bytes only where a tab
// may be.
bool field_is_value(struct span value)
{
    size_t i = 0;
    for (uint64_t bytes; value.len - i >= sizeof bytes; i += sizeof bytes) {
        memcpy(&bytes, value.at + i, sizeof bytes);
        if (has_control(bytes))
            break;
    }
    for (; i < value.len; i++) {
        unsigned char c = (unsigned char)value.at[i];
        if ((c < 0x20 && c != '\t') || c == 0x7F)
            return false;
    }
    return true;
}
