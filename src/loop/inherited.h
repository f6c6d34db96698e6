// The address of a listening socket, as a text.
#ifndef INHERITED_H
#define INHERITED_H

#include "loop/inherited.h"

enum { INHERITED_NAME_CHARS = 160 };

// 127.0.0.1:8080, [::1]:8080 or unix:/run/postern.sock; "" if it has no such address.
void inherited_name(int fd, char name[INHERITED_NAME_CHARS]);

#endif
