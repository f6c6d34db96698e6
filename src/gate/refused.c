// Owns the audit rows of requests that are refused before their caller is authenticated: no credential, a throttled address,
// framing that two parsers might read differently, unauthenticated browsers at the pages.
//
// The first request of each address and reason gets a row at once; those that follow within a minute get one row with their number. A
// refused credential gets a row of its own, up to ROWS_MAX in a minute. So a request flood cannot flood the audit log, not even from
// many addresses: the number of rows in a minute is bounded by ROWS_MAX and PLACES_MAX.
#include "refused.h"
#include "base/mem.h"
#include "gate/method/method.h"
#include "store/audit/audit.h"
#include <stdlib.h>

#define PLACES_MAX 1024  // beyond, addresses are counted together
#define ROWS_MAX 1024    // beyond, refused credentials are counted by address
#define TOGETHER_MS 60000

struct refused {
    enum err_code code;
    char *address;  // in its usual notation; "": several addresses, or unknown
    int64_t since_ms;
    int64_t more;  // requests since the last row
};

static void put_row(const struct gate *gate, const struct refused *refused, int64_t count)
{
    bool denied =
        refused->code == ERR_UNAUTHENTICATED || refused->code == ERR_AUTH_LIMITED || refused->code == ERR_SCOPE;
    (void)audit_put(gate->audit, &(struct audit_record){.event = AUDIT_AUTHENTICATION,
                                                        .peer = span_of(refused->address),
                                                        .status = denied ? AUDIT_DENIED : AUDIT_ERROR,
                                                        .reason = span_of(err_reason(refused->code)),
                                                        .count = count});
}

static void refused_free(struct refused *refused)
{
    free(refused->address);
    free(refused);
}

bool refused_is_row(struct gate *gate)
{
    int64_t now = loop_now(gate->loop);
    if (now - gate->refused_since_ms >= TOGETHER_MS) {
        gate->refused_since_ms = now;
        gate->refused_rows = 0;
    }
    return gate->refused_rows++ < ROWS_MAX;
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
        credentials_put_source(peer, &key);
        credentials_put_address(peer, &address);
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

// Writes rows for counted requests: those of a minute ago or earlier, or all if `last`.
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
