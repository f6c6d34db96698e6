// Owns counts by identity: the current number of sessions, or of server processes, of each identity.
#include "base/mem.h"
#include "gate/session/state.h"
#include <stdlib.h>

void tally_put_key(const struct identity *identity, struct buf *out)
{
    const char *const parts[] = {identity->tenant, identity->provider, identity->subject};
    for (size_t i = 0; i < 3; i++)
        buf_put(out, parts[i], strlen(parts[i]) + 1);
}

size_t tally_count(const struct map *tally, const struct identity *identity)
{
    struct buf key = {0};
    tally_put_key(identity, &key);
    const size_t *count = map_find(tally, buf_span(&key));
    buf_release(&key);
    return count ? *count : 0;
}

void tally_add(struct map *tally, const struct identity *identity)
{
    struct buf key = {0};
    tally_put_key(identity, &key);
    size_t *count = map_find(tally, buf_span(&key));
    if (!count)
        map_put(tally, buf_span(&key), count = mem_new(size_t));
    ++*count;
    buf_release(&key);
}

void tally_drop(struct map *tally, const struct identity *identity)
{
    struct buf key = {0};
    tally_put_key(identity, &key);
    size_t *count = map_find(tally, buf_span(&key));
    if (--*count == 0)
        free(map_remove(tally, buf_span(&key)));
    buf_release(&key);
}
