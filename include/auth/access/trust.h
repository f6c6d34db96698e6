// Certificate authorities that the operator configures for servers, in addition to those that the system trusts.
#ifndef AUTH_TRUST_H
#define AUTH_TRUST_H

#include "base/err.h"
#include <stdbool.h>

// Checks that the file can be read and contains only valid certificates in PEM. Connections read the file themselves.
bool trust_check(const char *path, struct err *err) MUST_CHECK;

#endif
