// Reports to the service manager that started this process, as in sd_notify(3), and its file descriptor store. Process-wide; without
// $NOTIFY_SOCKET nothing is sent.
#ifndef LOOP_NOTIFY_H
#define LOOP_NOTIFY_H

#include <stdbool.h>

void notify_open(void);      // reads $NOTIFY_SOCKET, and removes it from the environment
bool notify_is_open(void);   // a service manager listens
void notify_ready(void);     // callers are accepted
void notify_stopping(void);  // and no longer
// The service manager keeps a listening socket for the next process of this service, or keeps it no longer. Storing it twice is
// storing it once.
void notify_store(int fd);
void notify_forget(int fd);

#endif
