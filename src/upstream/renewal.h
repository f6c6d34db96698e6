// Requests whose token the server refused.
#ifndef UPSTREAM_RENEWAL_H
#define UPSTREAM_RENEWAL_H

#include "upstream.h"

// The server refused the token of this version. The request is sent again with a new token, or one with more scope, or fails.
void renewal_on_refused(struct upstream_request *request, enum upstream_retry with, unsigned version);
void renewal_on_token(struct access_wait *wait, const struct err *err);  // upstream->renewal

#endif
