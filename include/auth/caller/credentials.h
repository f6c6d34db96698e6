// What a caller showed of itself, as the face that received it saw it. Only the extraction code of a
// face fills this in; providers never see HTTP.
#ifndef AUTH_CREDENTIALS_H
#define AUTH_CREDENTIALS_H

#include "base/buf.h"
#include "base/span.h"
#include <stdbool.h>
#include <sys/socket.h>

enum peer_name_kind { PEER_NAME_NONE, PEER_NAME_DNS, PEER_NAME_URI, PEER_NAME_EMAIL };

struct peer_name {
    enum peer_name_kind kind;
    char *text;
};

// The other end of the caller's connection; everything here was seen by us, nothing was said in a header.
struct peer {
    // AF_INET (also for IPv4 that came to an IPv6 socket), AF_INET6 or AF_UNIX; AF_UNSPEC if it cannot be told.
    struct sockaddr_storage address;
    bool loopback;            // an address of this host that no network reaches; never for AF_UNIX
    bool tls;                 // what it sends is encrypted on its way to us
    bool certified;           // it showed a certificate that the listener's client_ca vouches for
    struct peer_name *names;  // of that certificate: DNS, URI and email SANs; none unless certified
    size_t name_count;
};

// What counts as one address: an IPv4 address, or the first 64 bits of an IPv6 one, which is what one subscriber has.
struct peer_source {
    sa_family_t family;
    unsigned char bytes[8];
};

// A header that a provider asked to see (provider_chain_headers()).
struct credential_header {
    struct span value;  // of the first that came
    unsigned count;     // how many came, odd spellings included
    bool odd;           // one was spelt so that only a lenient parser takes it for this header
};

#define CREDENTIAL_HEADERS_MAX 8

struct provider_chain;

struct credentials {
    struct provider_chain *chain;  // the providers of the listener it came to; NULL: nobody gets in
    bool local;                    // came over loopback, a unix socket or a pipe of our own
    struct span authorization;     // scheme and credential, as in the Authorization header; at is NULL without
    // NULL for a pipe of our own. Belongs to the connection: gone when the arrival is answered or gone.
    const struct peer *peer;
    // In the order of provider_chain_headers().
    struct credential_header headers[CREDENTIAL_HEADERS_MAX];
};

// False: it has no address (a unix socket, a pipe of our own). All bytes of `out` are set, so it can be a key.
bool credentials_source(const struct peer *peer, struct peer_source *out);
void credentials_put_source(const struct peer *peer,
                            struct buf *out);  // the same as bytes of a key; nothing if it has none
void credentials_put_address(const struct peer *peer,
                             struct buf *out);                  // the whole address as text; "unix" for a socket
bool credentials_shown(const struct credentials *credentials);  // anything that is to prove who it is
// The token after "Bearer "; at is NULL if there is none of that kind.
struct span credentials_bearer(const struct credentials *credentials);

#endif
