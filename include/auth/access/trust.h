// Authorities of the operator's own, whose certificates servers may show beside those the system trusts.
#ifndef AUTH_TRUST_H
#define AUTH_TRUST_H

#include "base/err.h"
#include <stdbool.h>

// The file can be read and holds certificates in PEM, all of them sound. The connections read it themselves.
bool trust_check(const char *path, struct err *err) MUST_CHECK;

#endif
