// Requests whose token a server does not take.
#ifndef UPSTREAM_RENEWAL_H
#define UPSTREAM_RENEWAL_H

#include "upstream.h"

// The server does not take the token of this version: once more with another one, or with one of more scope, or it fails.
void renewal_on_refused(struct upstream_request *request, enum upstream_retry with, unsigned version);
void renewal_on_token(struct access_wait *wait, const struct err *err);  // upstream->renewal

#endif
