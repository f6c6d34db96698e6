// The kind of network an address belongs to, and which kinds may be contacted when another party names the host (N3,
// N4).
//
// The policy is applied to the resolved address when a socket is about to be opened. So it makes no difference how the
// host is spelled, or whether its name resolves to another address the second time.
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

// Whether the text is a block, such as "10.0.0.0/8", "fd00::/8" or "192.0.2.7".
bool address_block_valid(const char *block);

// The class of an address in text form, with or without the brackets of an IPv6 address. A name is public, except
// localhost.
enum address_class address_of_host(struct span host);

// Public addresses are always allowed. The class of a host that a user configured is allowed and learned. A host that
// was discovered may be in a network of the same class as the host it was discovered from, or in a block that the
// configuration allows; other addresses that are not public are refused.
struct address_policy {
    bool learning;         // the next connections are to a configured host
    unsigned learned;      // 1 << enum address_class
    char *const *allowed;  // blocks, NULL at the end; or NULL
};

// Learns the class of the address that answered; other addresses of the same name do not count. Without `learning`,
// does nothing.
void address_policy_learn(struct address_policy *policy, const char *address);

// For http_target_guard(); arg is a struct address_policy.
bool address_policy_allows(void *policy, const struct sockaddr *address);

#endif
