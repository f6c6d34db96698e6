// Owns the syntax of JSON Pointers.
#include "base/pointer.h"

bool pointer_step(const char **pointer, struct buf *step)
{
    const char *at = *pointer;
    buf_clear(step);
    if (*at++ != '/')
        return false;
    for (; *at && *at != '/'; at++) {
        char c = *at;
        if (c == '~' && *++at != '0' && *at != '1')
            return false;
        buf_put_char(step, c != '~' ? c : *at == '0' ? '~' : '/');
    }
    *pointer = at;
    return true;
}

bool pointer_is_valid(const char *pointer)
{
    struct buf step = {0};
    bool ok = *pointer != '\0';
    while (ok && *pointer)
        ok = pointer_step(&pointer, &step);
    buf_release(&step);
    return ok;
}
