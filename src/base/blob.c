// Owns counted, immutable texts.
#include "base/blob.h"
#include "budget.h"
#include "mem.h"
#include <stdlib.h>

struct blob *blob_take(struct buf *buf)
{
    struct blob *blob = mem_new(struct blob);
    blob->refs = 1;
    blob->at = buf_take(buf, &blob->len);
    return blob;
}

void blob_hold(struct blob *blob, struct budget_hold *held, size_t bytes)
{
    if (!held->budget)
        return;
    if (!blob->held)
        blob->held = mem_new(struct budget_hold);
    budget_split(held, blob->held, bytes);
}

bool blob_let_go(struct blob *blob)
{
    if (__atomic_load_n(&blob->refs, __ATOMIC_ACQUIRE) > 1)
        return false;
    if (blob->held)
        budget_close(blob->held);
    return true;
}

void blob_step_back(const struct blob *blob)
{
    if (blob->held)
        budget_step_back(blob->held);
    for (size_t i = 0; i < blob->part_count; i++)
        blob_step_back(blob->parts[i].owner);
}

struct blob *blob_ref(struct blob *blob)
{
    __atomic_add_fetch(&blob->refs, 1, __ATOMIC_RELAXED);
    return blob;
}

void blob_unref(struct blob *blob)
{
    if (!blob || __atomic_sub_fetch(&blob->refs, 1, __ATOMIC_ACQ_REL))
        return;
    for (size_t i = 0; i < blob->part_count; i++)
        blob_unref(blob->parts[i].owner);
    free(blob->parts);
    if (blob->held)
        budget_close(blob->held);
    free(blob->held);
    if (blob->wiped && blob->at)
        mem_wipe(blob->at, blob->len);
    free(blob->at);
    free(blob);
}

struct span blob_rest(const struct blob_reader *reader)
{
    bool more = reader->part < blob_count(reader->blob);
    return more ? span_after(blob_part(reader->blob, reader->part), reader->offset) : (struct span){"", 0};
}

void blob_skip(struct blob_reader *reader, size_t len)
{
    reader->offset += len;
    if (blob_rest(reader).len)
        return;
    reader->part++;
    reader->offset = 0;
}

size_t blob_read(struct blob_reader *reader, char *to, size_t room)
{
    size_t put = 0;
    for (struct span rest; put < room && (rest = blob_rest(reader)).len;) {
        size_t len = rest.len < room - put ? rest.len : room - put;
        memcpy(to + put, rest.at, len);
        put += len;
        blob_skip(reader, len);
    }
    return put;
}
