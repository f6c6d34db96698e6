// Owns tickets and states: a ticket is random, and the state of its login is derived from it, so that either finds the one
// record in the store, which has digests only.
#include "base/clock.h"
#include "base/secret.h"
#include "state.h"

// One-way: the authorization server sees the state, and must not be able to derive the ticket from it.
void connect_ticket_put_state(struct span ticket, struct buf *out)
{
    unsigned char mac[SECRET_MAC_BYTES];
    secret_mac(ticket.at ? ticket.at : "", ticket.len, span_of("state"), mac);
    secret_encode(out, span_make((const char *)mac, sizeof mac));
    secret_wipe(mac, sizeof mac);
}

struct attempt *connect_ticket_new(const struct connect *connect, const struct identity *identity,
                                   const struct server *server, struct buf *ticket, struct buf *state)
{
    struct attempt *attempt = attempt_new(identity, server->name, server->url);
    attempt->expires_ms = clock_wall_ms() + connect->parts.config->hosted.lifetime_ms;
    secret_put_random(ticket, CONNECT_SECRET_BYTES);
    connect_ticket_put_state(buf_span(ticket), state);
    return attempt;
}
