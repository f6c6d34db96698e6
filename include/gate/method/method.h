// The methods of callers: finding the server that a message is for, and handling the message here or at that server.
#ifndef GATE_METHOD_METHOD_H
#define GATE_METHOD_METHOD_H

#include "gate/relay/relay.h"

// ---- dispatch.c
phase_fn dispatch_route, dispatch_call;
void dispatch_abandon(struct call *call, const char *reason);  // cancels the call's requests to servers

// ---- caller_token.c: the caller's own token, for servers that exchange it
bool caller_token_wanted(const struct config *config);
void caller_token_keep(struct call *call);   // once its identity is known
void caller_token_begin(struct call *call);  // once it is known which servers there are
void caller_token_end(struct call *call);
void caller_token_explain(struct call *call);  // for a call with ERR_LOGIN: puts the reason into the error

// ---- login_offer.c: connect links for calls that failed for want of a grant
// Puts a connect link into the error of a call with ERR_LOGIN. True: the link is being made, and call_resume() follows.
bool login_offer_start(struct call *call);
void login_offer_drop(struct call *call);  // when the call is over

#endif
