// Owns token buckets: their arithmetic, and the table that bounds their number.
//
// The arithmetic has whole numbers only. The content of a bucket is counted in parts of a call: a call is `window_ms`
// parts, and each millisecond adds `calls` parts. So a rate such as 7 calls in 60 s is exact, and so is the time to
// wait.
#include "base/bucket.h"
#include "base/check.h"
#include "base/mem.h"
#include <stdlib.h>

#define IDLE_LOOKED_AT 2  // for each new bucket, so that idle buckets are dropped faster than new ones come

struct bucket {
    struct bucket_table *table;
    struct list node;  // in table->free, unless held
    struct bucket_rate rate;
    int64_t parts, filled_ms;  // the content at the time `filled_ms`
    int64_t held;
    size_t key_len;
    char key[];
};

// ---- the arithmetic -------------------------------------------------------------------------

static int64_t parts_of_full(const struct bucket *bucket) { return bucket->rate.burst * bucket->rate.window_ms; }

static void fill(struct bucket *bucket, int64_t now_ms)
{
    int64_t full = parts_of_full(bucket), passed = now_ms - bucket->filled_ms;
    if (!bucket->rate.calls || passed <= 0)
        return;
    bucket->filled_ms = now_ms;
    if (passed > (full - bucket->parts) / bucket->rate.calls)  // checked first, so that nothing overflows
        bucket->parts = full;
    else
        bucket->parts += passed * bucket->rate.calls;
}

static bool is_full(struct bucket *bucket, int64_t now_ms)
{
    fill(bucket, now_ms);
    return bucket->parts == parts_of_full(bucket);
}

int64_t bucket_wait(struct bucket *bucket, int64_t now_ms)
{
    fill(bucket, now_ms);
    int64_t missing = bucket->rate.window_ms - bucket->parts;
    if (!bucket->rate.calls || missing <= 0)
        return 0;
    return (missing + bucket->rate.calls - 1) / bucket->rate.calls;
}

void bucket_take(struct bucket *bucket)
{
    if (!bucket->rate.calls)
        return;
    CHECK(bucket->parts >= bucket->rate.window_ms);
    bucket->parts -= bucket->rate.window_ms;
}

// ---- the table ------------------------------------------------------------------------------

void bucket_table_init(struct bucket_table *table, size_t max)
{
    *table = (struct bucket_table){.max = max};
    list_init(&table->free);
}

void bucket_table_release(struct bucket_table *table)
{
    void *value;
    for (size_t at = 0; map_next(&table->buckets, &at, NULL, &value);)
        free(value);
    map_release(&table->buckets);
}

struct bucket *bucket_find(const struct bucket_table *table, struct span key) { return map_find(&table->buckets, key); }

static void drop(struct bucket *bucket)
{
    list_remove(&bucket->node);
    (void)map_remove(&bucket->table->buckets, span_make(bucket->key, bucket->key_len));
    free(bucket);
}

// Frees a place for a bucket: drops full buckets that are not in use, and if necessary the least recently used one.
static bool make_room(struct bucket_table *table, int64_t now_ms)
{
    int looked_at = 0;
    list_each(node, &table->free) {
        struct bucket *oldest = list_entry(node, struct bucket, node);
        bool idle = looked_at++ < IDLE_LOOKED_AT && is_full(oldest, now_ms);
        if (!idle && table->buckets.count < table->max)
            break;
        drop(oldest);
    }
    return table->buckets.count < table->max;
}

static struct bucket *add(struct bucket_table *table, struct span key, const struct bucket_rate *rate, int64_t now_ms)
{
    if (!make_room(table, now_ms))
        return NULL;
    struct bucket *bucket = mem_alloc(sizeof *bucket + key.len);
    bucket->table = table;
    bucket->rate = *rate;
    bucket->parts = parts_of_full(bucket);
    bucket->filled_ms = now_ms;
    bucket->key_len = key.len;
    if (key.len)
        memcpy(bucket->key, key.at, key.len);
    (void)map_put(&table->buckets, key, bucket);
    return bucket;
}

struct bucket *bucket_hold(struct bucket_table *table, struct span key, const struct bucket_rate *rate, int64_t now_ms)
{
    struct bucket *bucket = bucket_find(table, key);
    if (!bucket && !(bucket = add(table, key, rate, now_ms)))
        return NULL;
    list_remove(&bucket->node);
    bucket->held++;
    return bucket;
}

void bucket_leave(struct bucket *bucket)
{
    CHECK(bucket->held > 0);
    if (--bucket->held == 0)
        list_append(&bucket->table->free, &bucket->node);
}

int64_t bucket_held(const struct bucket *bucket) { return bucket->held; }
