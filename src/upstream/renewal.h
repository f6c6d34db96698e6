// Requests whose token a server does not take.
#ifndef UPSTREAM_RENEWAL_H
#define UPSTREAM_RENEWAL_H

#include "upstream.h"

// The server does not take the token of this version: once more with another one, or it fails.
void renewal_on_refused(struct upstream_request *request, unsigned version);
// It wants one with more scope: once more with that, or it fails.
void renewal_on_narrow(struct upstream_request *request, unsigned version);
void renewal_on_token(struct access_wait *wait, const struct err *err);  // upstream->renewal

#endif
