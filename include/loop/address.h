// What kind of network an address belongs to, and which kinds may be talked to when a stranger names the host (N3, N4).
//
// Judged when a socket is about to be opened, on the address the name resolved to: spelling tricks and names that
// resolve to something else the second time make no difference.
#ifndef AUTH_ADDRESS_H
#define AUTH_ADDRESS_H

#include "base/span.h"
#include <stdbool.h>

struct sockaddr;

enum address_class {
    ADDRESS_UNUSABLE,  // 0/8, multicast, reserved, not IP: never
    ADDRESS_LINK,      // link-local, where clouds keep their metadata
    ADDRESS_LOOPBACK,
    ADDRESS_PRIVATE,  // RFC 1918, carrier-grade NAT, unique local
    ADDRESS_PUBLIC,
};

// "10.0.0.0/8", "fd00::/8", "192.0.2.7": is that a block?
bool address_block_valid(const char *block);

// Of an address as text, with or without the brackets of an IPv6 one; a name is public, but for localhost.
enum address_class address_of_host(struct span host);

// Public addresses are always allowed. What a user configured is allowed and learned from; a host that was discovered may
// be in the same kind of network as the one it was discovered from, in a block that the configuration allows, and
// nowhere else that is not public.
struct address_policy {
    bool learning;         // the next connections are to what was configured
    unsigned learned;      // 1 << enum address_class
    char *const *allowed;  // blocks, NULL at the end; or NULL
};

// It was this address that answered: what counts is not which ones a name leads to as well. Nothing, unless it is learning.
void address_policy_learn(struct address_policy *policy, const char *address);

// For http_target_guard(); arg is a struct address_policy.
bool address_policy_allows(void *policy, const struct sockaddr *address);

#endif
