// What a caller showed of itself, as the face that received it saw it. Only the extraction code of a
// face fills this in; providers never see HTTP.
#ifndef AUTH_CREDENTIALS_H
#define AUTH_CREDENTIALS_H

#include "base/span.h"
#include <stdbool.h>

struct credentials {
    bool local;  // came over loopback or a pipe of our own
};

#endif
