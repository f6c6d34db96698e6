// Owns audit rows that wait to be written.
#include "batch.h"
#include "base/mem.h"
#include <stdlib.h>

enum { KEPT_BYTES = 1 << 20 };

// The shared members before they are encoded as JSON: the lengths of all texts, then the texts, so that different members
// never make the same bytes. A text that will be cut has one byte more than the limit here, to mark that it is cut.
static struct span key_of(struct buf *key, const struct audit_record *record)
{
    uint32_t sizes[AUDIT_ROW_SHARED + 1] = {0};
    buf_clear(key);
    buf_put(key, sizes, sizeof sizes);
    for (size_t i = 0; i < AUDIT_ROW_SHARED; i++) {
        const struct audit_row_field *field = &audit_row_fields[i];
        const void *at = (const char *)record + field->offset;
        const struct span *text = at;
        if (field->type == AUDIT_ROW_WORD) {
            sizes[i] = *(const unsigned *)at;
        } else if (field->type == AUDIT_ROW_COUNT && *(const int64_t *)at) {
            sizes[i] = sizeof(int64_t);
            buf_put(key, at, sizeof(int64_t));
        } else if (field->type == AUDIT_ROW_TEXT && text->len) {
            size_t max = audit_row_text_max(field) + 1;
            sizes[i] = (uint32_t)(text->len < max ? text->len : max);
            buf_put(key, text->at, sizes[i]);
        }
    }
    if (record->who) {
        sizes[AUDIT_ROW_SHARED] = (uint32_t)strlen(record->who);
        buf_put(key, record->who, sizes[AUDIT_ROW_SHARED]);
    }
    memcpy(key->at, sizes, sizeof sizes);
    return buf_span(key);
}

// Usually the shared members are those of the previous row.
static size_t find_shared(struct audit_batch *batch, const struct audit_record *record)
{
    struct buf last = batch->key;
    batch->key = batch->last_key;
    batch->last_key = last;
    struct span key = key_of(&batch->key, record);
    if (batch->count && span_equal(key, buf_span(&last)))
        return batch->at[batch->count - 1].shared;
    uintptr_t known = (uintptr_t)map_find(&batch->known, key);
    if (known)
        return known - 1;
    if (batch->shared_count == batch->shared_room) {
        batch->shared_room = batch->shared_room ? batch->shared_room * 2 : 16;
        batch->shared_end = mem_resize(batch->shared_end, batch->shared_room * sizeof *batch->shared_end);
    }
    audit_row_put_shared(record, &batch->shared);
    batch->shared_end[batch->shared_count++] = batch->shared.len;
    (void)map_put(&batch->known, key, (void *)(uintptr_t)batch->shared_count);
    return batch->shared_count - 1;
}

void audit_batch_add(struct audit_batch *batch, const struct audit_record *record, int64_t time_ms)
{
    size_t start = batch->own.len;
    if (batch->count == batch->room) {
        batch->room = batch->room ? batch->room * 2 : 64;
        batch->at = mem_resize(batch->at, batch->room * sizeof *batch->at);
    }
    size_t shared = find_shared(batch, record);
    audit_row_put_own(record, &batch->own);
    enum audit_chain chain = audit_row_chain(record);
    batch->of_chain[chain]++;
    batch->at[batch->count++] = (struct audit_waiting){time_ms, chain, shared, batch->own.len - start};
}

struct span audit_batch_shared(const struct audit_batch *batch, size_t which)
{
    size_t start = which ? batch->shared_end[which - 1] : 0;
    return span_make(batch->shared.at + start, batch->shared_end[which] - start);
}

// Shared texts are stored twice, as a key and as JSON.
size_t audit_batch_bytes(const struct audit_batch *batch) { return batch->own.len + 2 * batch->shared.len; }

void audit_batch_clear(struct audit_batch *batch)
{
    if (batch->own.room + batch->shared.room > KEPT_BYTES)
        audit_batch_release(batch);
    map_release(&batch->known);
    buf_clear(&batch->own);
    buf_clear(&batch->shared);
    memset(batch->of_chain, 0, sizeof batch->of_chain);
    batch->count = batch->shared_count = 0;
}

void audit_batch_release(struct audit_batch *batch)
{
    map_release(&batch->known);
    buf_release(&batch->own);
    buf_release(&batch->shared);
    buf_release(&batch->key);
    buf_release(&batch->last_key);
    free(batch->shared_end);
    free(batch->at);
    *batch = (struct audit_batch){0};
}
