// Pseudo-random numbers that are the same in every run, so that a failure can be reproduced.
#ifndef DRAW_H
#define DRAW_H

#include <stdint.h>

static inline unsigned draw(unsigned below)
{
    static uint64_t state = 88172645463325252ULL;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state % below);
}

#endif
