// Owns the names of the methods.
#include "mcp/method.h"

static const char *const names[METHODS] = {"",
#define X(name, text) text,
                                           METHOD_TABLE(X)
#undef X
};

enum method method_find(struct span text)
{
    for (int i = 1; i < METHODS; i++)
        if (span_is(text, names[i]))
            return (enum method)i;
    return METHOD_UNKNOWN;
}

const char *method_text(enum method method) { return names[method]; }
