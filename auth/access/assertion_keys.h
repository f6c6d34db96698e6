// One key that assertions are signed with.
#ifndef ASSERTION_KEYS_H
#define ASSERTION_KEYS_H

#include "auth/access/identity_assertion.h"
#include "auth/jose/signing_key.h"

struct assertion_key {
    struct signing_key sign;  // without a pem it is of no use, and `unusable` says why
    struct err unusable;
};

#endif
