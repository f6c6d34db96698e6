// Closing the grant store at the end of a command.
#ifndef CMD_BASE_SAVING_H
#define CMD_BASE_SAVING_H

#include "auth/grant/store.h"

// Closes the store. If a refreshed token is not stored yet, reports it on standard error and waits. Returns EXIT_STORE
// if the token is lost (F10), else EXIT_OK.
int saving_close(struct grant_store *store, struct loop *loop);

#endif
