// Owns counted, immutable byte runs.
#include "base/blob.h"
#include "base/mem.h"
#include <stdlib.h>

struct blob *blob_take(struct buf *buf)
{
    struct blob *blob = mem_new(struct blob);
    blob->refs = 1;
    blob->at = buf_take(buf, &blob->len);
    return blob;
}

struct blob *blob_copy(struct span bytes)
{
    struct blob *blob = mem_new(struct blob);
    blob->refs = 1;
    blob->len = bytes.len;
    blob->at = mem_span(bytes);
    return blob;
}

struct blob *blob_ref(struct blob *blob)
{
    blob->refs++;
    return blob;
}

void blob_unref(struct blob *blob)
{
    if (!blob || --blob->refs)
        return;
    free(blob->at);
    free(blob);
}
