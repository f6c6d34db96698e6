/* pattern.c: a long text without repetitions, so that lost, duplicated or reordered bytes are detected. */
#include "pattern.h"

#include "buf.h"

#include <stdint.h>

const char *pattern(size_t len)
{
    static struct buf text;
    static uint64_t state;

    while (text.len < len) {
        char letters[8];
        state = state * 6364136223846793005u + 1442695040888963407u;
        for (size_t i = 0; i < sizeof letters; i++)
            letters[i] = (char)('a' + (state >> (32 + 4 * i)) % 16);
        buf_append(&text, letters, sizeof letters);
    }
    return text.data;
}
