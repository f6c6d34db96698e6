// Closing the grant store at the end of a command.
#ifndef CMD_BASE_SAVING_H
#define CMD_BASE_SAVING_H

#include "auth/grant/store.h"

// Closes it, and says on standard error if a refreshed token is not stored yet, for which it waits, or is lost (F10): then
// EXIT_STORE, else EXIT_OK.
int saving_close(struct grant_store *store, struct loop *loop);

#endif
