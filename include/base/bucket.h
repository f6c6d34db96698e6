// Token buckets: how often, and how many at once, for each key of a bounded table.
//
// A full bucket without slots taken holds no information, so it is dropped. One that is not full is dropped only if the
// table is full; its key then begins with a full bucket. A bucket with slots taken is never dropped.
#ifndef BASE_BUCKET_H
#define BASE_BUCKET_H

#include "base/list.h"
#include "base/map.h"

struct bucket_rate {
    int64_t calls, window_ms;  // `calls` in each `window_ms`; calls 0: unlimited
    int64_t burst;             // calls at once
};

struct bucket;

struct bucket_table {
    struct map buckets;  // key -> bucket
    struct list free;    // those without slots taken, least recently used first
    size_t max;
};

void bucket_table_init(struct bucket_table *table, size_t max);
void bucket_table_release(struct bucket_table *table);

struct bucket *bucket_find(const struct bucket_table *table, struct span key);
// Takes a slot of the key's bucket, which begins full. NULL: the table is full.
struct bucket *bucket_hold(struct bucket_table *table, struct span key, const struct bucket_rate *rate, int64_t now_ms);
void bucket_leave(struct bucket *bucket);  // releases the slot
int64_t bucket_held(const struct bucket *bucket);
// The time until the bucket has a call, which bucket_take() then takes. 0: it has one now.
int64_t bucket_wait(struct bucket *bucket, int64_t now_ms);
void bucket_take(struct bucket *bucket);

#endif
