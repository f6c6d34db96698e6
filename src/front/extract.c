// Owns credential extraction: the only code that reads the headers that identify a caller.
//
// `X_Forwarded_User` and `X-Forwarded-User` are two headers here, but some proxies treat them as one. So every spelling
// that such a proxy would accept is counted, and marked as odd.
#include "extract.h"
#include <ctype.h>

struct extraction {
    const char *const *wanted;
    struct credentials *out;
};

// Compares without regard to case; with `loose`, '_' equals '-', and blanks are ignored.
static bool is_name(const char *name, size_t len, const char *wanted, bool loose)
{
    size_t i = 0;
    for (; *wanted; wanted++, i++) {
        while (loose && i < len && (name[i] == ' ' || name[i] == '\t'))
            i++;
        if (i >= len)
            return false;
        char c = loose && name[i] == '_' ? '-' : name[i];
        char w = loose && *wanted == '_' ? '-' : *wanted;
        if (tolower((unsigned char)c) != tolower((unsigned char)w))
            return false;
    }
    while (loose && i < len && (name[i] == ' ' || name[i] == '\t'))
        i++;
    return i == len;
}

static enum MHD_Result on_header(void *arg, enum MHD_ValueKind kind, const char *key, size_t key_len, const char *value,
                                 size_t value_len)
{
    (void)kind;
    struct extraction *extraction = arg;
    for (size_t i = 0; extraction->wanted[i] && i < CREDENTIAL_HEADERS_MAX; i++) {
        struct credential_header *header = &extraction->out->headers[i];
        if (!is_name(key, key_len, extraction->wanted[i], true))
            continue;
        header->odd = header->odd || !is_name(key, key_len, extraction->wanted[i], false);
        if (header->count++ == 0)
            header->value = span_make(value ? value : "", value ? value_len : 0);
    }
    return MHD_YES;
}

void extract_headers(struct MHD_Connection *connection, const char *const *wanted, struct credentials *out)
{
    struct extraction extraction = {wanted, out};
    if (wanted[0])
        MHD_get_connection_values_n(connection, MHD_HEADER_KIND, on_header, &extraction);
}
