// Who is calling, and how that was proven. A zeroed identity is nobody.
#ifndef AUTH_IDENTITY_H
#define AUTH_IDENTITY_H

#include <stdbool.h>

enum identity_proof { IDENTITY_NONE, IDENTITY_UNPROVEN };

struct identity {
    enum identity_proof proof;
    char tenant[64];
    char provider[32];
    char subject[256];
};

bool identity_same(const struct identity *a, const struct identity *b);

#endif
