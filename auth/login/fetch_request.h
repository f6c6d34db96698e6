// Requests of the login room that are not forms: metadata and registrations.
#ifndef AUTH_LOGIN_FETCH_REQUEST_H
#define AUTH_LOGIN_FETCH_REQUEST_H

#include "auth/login/fetch.h"

struct login_fetch_request {
    const char *url;
    const char *type;           // Content-Type of a POST; NULL: GET
    bool put;                   // a PUT instead
    struct span body;           // copied; the caller wipes it
    const char *authorization;  // NULL: none
    const char *accept;         // NULL: JSON
    const char *revision;       // MCP-Protocol-Version; NULL: none
    int64_t timeout_ms;
    struct address_policy *policy;
    const char *ca_file;  // certificate authorities in addition to the system's; NULL: none
};

// D5: reports whether the answer means that the metadata are not at this place, so that the search goes on. Any other
// answer ends the search.
bool login_fetch_is_absent(const struct login_fetch *fetch);
void login_fetch_start(struct login_fetch *fetch, struct http_client *http, const struct login_fetch_request *wish);

#endif
