// What an address policy is made of, for its tests: the class of an address, and the block it is in.
#ifndef ADDRESS_H
#define ADDRESS_H

#include "loop/address.h"

// An IPv6 address that stands for an IPv4 one (mapped, NAT64, 6to4) is of that one's class.
enum address_class address_classify(const struct sockaddr *address);
bool address_in_block(const struct sockaddr *address, const char *block);

#endif
