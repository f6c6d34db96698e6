// Subscriptions, for the dispatcher.
#ifndef GATE_SUBSCRIPTION_H
#define GATE_SUBSCRIPTION_H

#include "state.h"

struct subscription {
    struct link *link;
    char *uri;  // the server's own, which has no NUL in it (route_resource)
};

bool subscription_is_first(const struct link *link, struct span uri);
void subscription_add(struct session *session, struct link *link, struct span uri);
void subscription_give_up(struct link *link, struct span uri);  // at the server, unless another session has it
void subscription_remove(struct session *session, struct link *link, struct span uri);  // harmless if it has none

#endif
