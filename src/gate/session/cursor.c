// Owns list cursors: opaque, sealed with the gate's key, valid for one generation of one list.
#include "base/secret.h"
#include "gate/session/state.h"

#define MAC_BYTES 12

struct cursor {
    uint64_t generation, offset, kind;
    unsigned char scope[16];  // digest of the key of the scope that the list belongs to
};

static void seal(const struct gate *gate, const struct cursor *cursor, unsigned char mac[SECRET_MAC_BYTES])
{
    secret_mac(gate->key, sizeof gate->key, span_make((const char *)cursor, sizeof *cursor), mac);
}

static void put_scope(const struct scope *scope, struct cursor *cursor)
{
    unsigned char digest[SECRET_MAC_BYTES];
    secret_digest(span_of(scope->key), digest);
    memcpy(cursor->scope, digest, sizeof cursor->scope);
}

void cursor_put(const struct scope *scope, enum catalog_kind kind, uint64_t generation, size_t offset, struct buf *out)
{
    struct cursor cursor = {generation, offset, (uint64_t)kind, {0}};
    put_scope(scope, &cursor);
    unsigned char mac[SECRET_MAC_BYTES];
    struct buf sealed = {0};
    seal(scope->gate, &cursor, mac);
    buf_put(&sealed, &cursor, sizeof cursor);
    buf_put(&sealed, mac, MAC_BYTES);
    secret_encode(out, buf_span(&sealed));
    buf_release(&sealed);
}

bool cursor_read(const struct scope *scope, enum catalog_kind kind, uint64_t generation, struct span text,
                 size_t *offset)
{
    struct cursor cursor, wanted = {0};
    unsigned char mac[SECRET_MAC_BYTES];
    struct buf sealed = {.max = 256};
    bool ok = secret_decode(&sealed, text) && !sealed.overflow && sealed.len == sizeof cursor + MAC_BYTES;
    if (ok) {
        memcpy(&cursor, sealed.at, sizeof cursor);
        seal(scope->gate, &cursor, mac);
        put_scope(scope, &wanted);
        ok = secret_equal(mac, sealed.at + sizeof cursor, MAC_BYTES) && cursor.kind == (uint64_t)kind &&
             cursor.generation == generation && memcmp(cursor.scope, wanted.scope, sizeof wanted.scope) == 0;
        *offset = (size_t)cursor.offset;
    }
    buf_release(&sealed);
    return ok;
}
