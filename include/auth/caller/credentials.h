// The credentials of a caller, as the face that received them saw them. Only the extraction code of a face fills this
// in; providers never see HTTP.
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

// The other end of the caller's connection, as the gateway itself sees it; nothing here is taken from a header.
struct peer {
    // AF_INET (also for IPv4 that came to an IPv6 socket), AF_INET6 or AF_UNIX; AF_UNSPEC if it is not known.
    struct sockaddr_storage address;
    bool loopback;            // an address of this host that no network reaches; never for AF_UNIX
    bool tls;                 // the connection is encrypted up to the gateway
    bool certified;           // it presented a certificate that the listener's client_ca signed
    struct peer_name *names;  // of that certificate: DNS, URI and email SANs; none unless certified
    size_t name_count;
};

// What counts as one address: an IPv4 address, or the first 64 bits of an IPv6 address, which one subscriber has.
struct peer_source {
    sa_family_t family;
    unsigned char bytes[8];
};

// A header that a provider reads (provider_chain_headers()).
struct credential_header {
    struct span value;  // of the first occurrence
    unsigned count;     // occurrences, odd spellings included
    bool odd;           // an occurrence has a spelling that only a lenient parser takes for this header
};

#define CREDENTIAL_HEADERS_MAX 8

struct provider_chain;

struct credentials {
    struct provider_chain *chain;  // the providers of the listener that received the request; NULL: all are rejected
    bool local;                    // received over loopback, a unix socket or the gateway's own pipe
    struct span authorization;     // scheme and credential, as in the Authorization header; at is NULL if absent
    // NULL for the gateway's own pipe. Belongs to the connection: valid until the arrival is answered or dropped.
    const struct peer *peer;
    // In the order of provider_chain_headers().
    struct credential_header headers[CREDENTIAL_HEADERS_MAX];
};

// False: the peer has no address (a unix socket, the gateway's own pipe). Sets all bytes of `out`, so it can be a key.
bool credentials_source(const struct peer *peer, struct peer_source *out);
void credentials_put_source(const struct peer *peer,
                            struct buf *out);  // the same as bytes of a key; empty without an address
void credentials_put_address(const struct peer *peer,
                             struct buf *out);                  // the whole address as text; "unix" for a socket
bool credentials_shown(const struct credentials *credentials);  // true if there is any credential
// The token after "Bearer "; at is NULL if the credential is of another kind.
struct span credentials_bearer(const struct credentials *credentials);

#endif
