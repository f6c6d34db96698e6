// Credential extraction: from HTTP headers to struct credentials.
#ifndef FRONT_EXTRACT_H
#define FRONT_EXTRACT_H

#include "auth/caller/credentials.h"
#include <microhttpd.h>

// Fills out->headers with the wanted headers. `wanted` ends with NULL. Odd spellings are counted too.
void extract_headers(struct MHD_Connection *connection, const char *const *wanted, struct credentials *out);

#endif
