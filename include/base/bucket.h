// Token buckets: how often, and how many at once, for each key of a bounded table.
//
// A full bucket that nobody holds says nothing, so it is dropped; one that is not full is dropped only to
// make room for another (and its key then begins anew). A bucket with slots taken is never dropped.
#ifndef BASE_BUCKET_H
#define BASE_BUCKET_H

#include "base/list.h"
#include "base/map.h"

struct bucket_rate {
    int64_t calls, window_ms;  // so many in so long; calls 0: any number
    int64_t burst;             // of them at once
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
// Takes a slot of the key's bucket, which begins full. NULL: there is no room for another bucket.
struct bucket *bucket_hold(struct bucket_table *table, struct span key, const struct bucket_rate *rate, int64_t now_ms);
void bucket_leave(struct bucket *bucket);  // gives the slot back
int64_t bucket_held(const struct bucket *bucket);
// How long until there is a call in it; 0: there is one, which bucket_take() takes.
int64_t bucket_wait(struct bucket *bucket, int64_t now_ms);
void bucket_take(struct bucket *bucket);

#endif
