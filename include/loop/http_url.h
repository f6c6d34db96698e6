// Parts of URLs.
#ifndef LOOP_HTTP_URL_H
#define LOOP_HTTP_URL_H

#include <stdbool.h>

// Resolves `reference` against `base`. The caller frees the result. NULL: not a valid URL.
char *http_url_resolve(const char *base, const char *reference);
bool http_url_same_origin(const char *a, const char *b);
bool http_url_valid(const char *url);        // absolute http or https, without user and password
bool http_url_is_loopback(const char *url);  // by its text: "localhost", 127.x, [::1]

#endif
