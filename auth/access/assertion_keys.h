// A key that signs assertions.
#ifndef ASSERTION_KEYS_H
#define ASSERTION_KEYS_H

#include "auth/access/identity_assertion.h"
#include "auth/jose/signing_key.h"

struct assertion_key {
    struct signing_key sign;  // unusable without a pem; then `unusable` has the reason
    struct err unusable;
};

#endif
