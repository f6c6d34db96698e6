// Owns the classes of IP addresses and the policy that uses them.
#include "address.h"
#include "base/span.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

// clang-format off
static const struct {
    uint32_t net, mask;
    enum address_class class;
} blocks[] = {
    {0x00000000, 0xff000000, ADDRESS_UNUSABLE},  // 0/8
    {0x0a000000, 0xff000000, ADDRESS_PRIVATE},   // 10/8
    {0x64400000, 0xffc00000, ADDRESS_PRIVATE},   // 100.64/10
    {0x7f000000, 0xff000000, ADDRESS_LOOPBACK},  // 127/8
    {0xa9fe0000, 0xffff0000, ADDRESS_LINK},      // 169.254/16
    {0xac100000, 0xfff00000, ADDRESS_PRIVATE},   // 172.16/12
    {0xc0000000, 0xffffff00, ADDRESS_UNUSABLE},  // 192.0.0/24
    {0xc0a80000, 0xffff0000, ADDRESS_PRIVATE},   // 192.168/16
    {0xc6120000, 0xfffe0000, ADDRESS_PRIVATE},   // 198.18/15
    {0xe0000000, 0xe0000000, ADDRESS_UNUSABLE},  // 224/4 and 240/4
};
// clang-format on

static enum address_class classify4(uint32_t address)
{
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if ((address & blocks[i].mask) == blocks[i].net)
            return blocks[i].class;
    return ADDRESS_PUBLIC;
}

static uint32_t four_at(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static enum address_class classify6(const unsigned char a[16])
{
    static const unsigned char zero[16] = {0}, nat64[12] = {0, 0x64, 0xff, 0x9b};
    if (memcmp(a, zero, 15) == 0 && a[15] <= 1)
        return a[15] ? ADDRESS_LOOPBACK : ADDRESS_UNUSABLE;
    if (memcmp(a, zero, 10) == 0 && a[10] == 0xff && a[11] == 0xff)
        return classify4(four_at(a + 12));  // ::ffff:a.b.c.d
    if (memcmp(a, zero, 12) == 0 || memcmp(a, nat64, 12) == 0)
        return classify4(four_at(a + 12));  // ::a.b.c.d, 64:ff9b::/96
    if (a[0] == 0x20 && a[1] == 0x02)
        return classify4(four_at(a + 2));  // 2002::/16
    if (a[0] == 0xfe)
        return (a[1] & 0xc0) == 0x80 ? ADDRESS_LINK : (a[1] & 0xc0) == 0xc0 ? ADDRESS_PRIVATE : ADDRESS_UNUSABLE;
    if ((a[0] & 0xfe) == 0xfc)
        return ADDRESS_PRIVATE;
    return (a[0] & 0xe0) == 0x20 ? ADDRESS_PUBLIC : ADDRESS_UNUSABLE;  // 2000::/3 is the only range in use
}

enum address_class address_classify(const struct sockaddr *address)
{
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    if (address->sa_family == AF_INET) {
        memcpy(&four, address, sizeof four);
        return classify4(ntohl(four.sin_addr.s_addr));
    }
    if (address->sa_family != AF_INET6)
        return ADDRESS_UNUSABLE;
    memcpy(&six, address, sizeof six);
    return classify6(six.sin6_addr.s6_addr);
}

// ---- blocks ---------------------------------------------------------------------------------

struct block {
    int family;
    unsigned char bytes[16];
    unsigned bits;
};

static bool parse_block(const char *text, struct block *out)
{
    char address[INET6_ADDRSTRLEN];
    size_t len = strcspn(text, "/");
    uint64_t bits;
    if (len == 0 || len >= sizeof address)
        return false;
    memcpy(address, text, len);
    address[len] = '\0';
    out->family = strchr(address, ':') ? AF_INET6 : AF_INET;
    unsigned most = out->family == AF_INET6 ? 128 : 32;
    if (inet_pton(out->family, address, out->bytes) != 1)
        return false;
    out->bits = most;
    if (!text[len])
        return true;
    if (!span_to_u64(span_of(text + len + 1), &bits) || bits > most)
        return false;
    out->bits = (unsigned)bits;
    return true;
}

bool address_block_valid(const char *block)
{
    struct block ignored;
    return parse_block(block, &ignored);
}

bool address_in_block(const struct sockaddr *address, const char *text)
{
    struct block block;
    unsigned char bytes[16] = {0};
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    if (!parse_block(text, &block) || address->sa_family != block.family)
        return false;
    if (block.family == AF_INET) {
        memcpy(&four, address, sizeof four);
        memcpy(bytes, &four.sin_addr, sizeof four.sin_addr);
    } else {
        memcpy(&six, address, sizeof six);
        memcpy(bytes, &six.sin6_addr, sizeof six.sin6_addr);
    }
    unsigned whole = block.bits / 8, rest = block.bits % 8;
    unsigned char mask = (unsigned char)(0xff00U >> rest);
    return memcmp(bytes, block.bytes, whole) == 0 && (!rest || ((bytes[whole] ^ block.bytes[whole]) & mask) == 0);
}

enum address_class address_of_host(struct span host)
{
    char text[INET6_ADDRSTRLEN];
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    if (host.len > 1 && host.at[0] == '[' && host.at[host.len - 1] == ']')
        host = span_make(host.at + 1, host.len - 2);
    if (host.len == 9 && strncasecmp(host.at, "localhost", 9) == 0)
        return ADDRESS_LOOPBACK;
    if (host.len >= sizeof text)
        return ADDRESS_PUBLIC;
    memcpy(text, host.at, host.len);
    text[host.len] = '\0';
    if (inet_pton(AF_INET, text, &four.sin_addr) == 1)
        return address_classify((const struct sockaddr *)&four);
    if (inet_pton(AF_INET6, text, &six.sin6_addr) == 1)
        return address_classify((const struct sockaddr *)&six);
    return ADDRESS_PUBLIC;
}

// ---- the policy -----------------------------------------------------------------------------

void address_policy_learn(struct address_policy *policy, const char *address)
{
    if (policy->learning && address)
        policy->learned = 1U << address_of_host(span_of(address));
}

bool address_policy_allows(void *arg, const struct sockaddr *address)
{
    struct address_policy *policy = arg;
    enum address_class class = address_classify(address);
    if (class == ADDRESS_UNUSABLE)
        return false;
    if (class == ADDRESS_PUBLIC || policy->learning || policy->learned & 1U << class)
        return true;
    for (char *const *block = policy->allowed; block && *block; block++)
        if (address_in_block(address, *block))
            return true;
    return false;
}
