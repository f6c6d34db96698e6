// Owns what the audit is told of requests that are turned away before they are calls: too many failed authentications,
// framing that two parsers might read differently, strangers at the pages.
//
// Of each address and reason the first one is a row at once; those that follow within a minute are one row with their
// number. Whoever floods the door does not flood the audit.
#include "refused.h"
#include "base/mem.h"
#include "state.h"
#include "store/audit.h"
#include <stdlib.h>

#define PLACES_MAX 1024  // beyond, addresses are counted together
#define TOGETHER_MS 60000

struct refused {
    enum err_code code;
    char *address;  // as people write it; "": several, or none
    int64_t since_ms;
    int64_t more;  // after the row that was written
};

static void put_row(const struct gate *gate, const struct refused *refused, int64_t count)
{
    bool framing = refused->code == ERR_BAD_FRAMING;
    (void)audit_put(gate->audit, &(struct audit_record){.event = AUDIT_AUTHENTICATION,
                                                        .peer = span_of(refused->address),
                                                        .status = framing ? AUDIT_ERROR : AUDIT_DENIED,
                                                        .reason = span_of(err_reason(refused->code)),
                                                        .count = count});
}

static void refused_free(struct refused *refused)
{
    free(refused->address);
    free(refused);
}

void refused_note(struct gate *gate, const struct peer *peer, enum err_code code)
{
    struct buf key = {0}, address = {0};
    if (!gate->audit)
        return;
    bool full = gate->refused.count >= PLACES_MAX;
    buf_printf(&key, "%d ", (int)code);
    size_t head = key.len;
    if (peer) {
        door_put_address(peer, &key);
        door_put_address_text(peer, &address);
    }
    if (full && !map_find(&gate->refused, buf_span(&key))) {
        key.len = head;
        buf_clear(&address);
    }
    struct refused *found = map_find(&gate->refused, buf_span(&key));
    if (found) {
        found->more++;
    } else {
        found = mem_new(struct refused);
        *found = (struct refused){code, mem_span(buf_span(&address)), loop_now(gate->loop), 0};
        map_put(&gate->refused, buf_span(&key), found);
        put_row(gate, found, 0);
    }
    buf_release(&key);
    buf_release(&address);
}

// Rows for what was counted; all of it when `last`.
static void settle(struct gate *gate, bool last)
{
    void *value;
    struct span key;
    int64_t now = loop_now(gate->loop);
    for (size_t at = 0; map_next(&gate->refused, &at, &key, &value);) {
        struct refused *refused = value;
        if (!last && now - refused->since_ms < TOGETHER_MS)
            continue;
        if (refused->more)
            put_row(gate, refused, refused->more);
        if (refused->more && !last) {
            refused->more = 0;
            refused->since_ms = now;
            continue;
        }
        map_remove(&gate->refused, key);
        refused_free(refused);
        at = 0;
    }
}

void refused_sweep(struct gate *gate) { settle(gate, false); }

void refused_release(struct gate *gate)
{
    settle(gate, true);
    map_release(&gate->refused);
}
