/* pattern.c: a long text without repetitions, so that bytes lost, doubled or exchanged on the way are noticed. */
#include "pattern.h"

#include <stdint.h>
#include <string.h>

enum { PATTERN_STEP = 8 }; /* letters made from one number */

static void next_letters(uint64_t *state, char letters[PATTERN_STEP])
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    for (int i = 0; i < PATTERN_STEP; i++)
        letters[i] = (char)('a' + (*state >> (32 + 4 * i)) % 16);
}

void pattern_fill(char *out, size_t len)
{
    uint64_t state = 0;
    char letters[PATTERN_STEP];

    for (size_t at = 0; at < len; at += PATTERN_STEP) {
        next_letters(&state, letters);
        memcpy(out + at, letters, len - at < PATTERN_STEP ? len - at : PATTERN_STEP);
    }
}

bool pattern_matches(const char *text, size_t len)
{
    uint64_t state = 0;
    char letters[PATTERN_STEP];

    for (size_t at = 0; at < len; at += PATTERN_STEP) {
        next_letters(&state, letters);
        if (memcmp(text + at, letters, len - at < PATTERN_STEP ? len - at : PATTERN_STEP) != 0)
            return false;
    }
    return true;
}
