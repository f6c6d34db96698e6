// The building blocks of an address policy, for its tests: the class of an address, and the block that it is in.
#ifndef ADDRESS_H
#define ADDRESS_H

#include "loop/address.h"

// An IPv6 address that stands for an IPv4 address (mapped, NAT64, 6to4) has the class of the IPv4 address.
enum address_class address_classify(const struct sockaddr *address);
bool address_in_block(const struct sockaddr *address, const char *block);

#endif
