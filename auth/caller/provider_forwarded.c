// Owns the provider `forwarded-user`: a proxy in front authenticates the caller and names it in headers.
//
// The headers are as trustworthy as the connection that they arrive on. They are accepted only from the configured
// addresses, and beyond loopback and unix sockets only together with a secret or a client certificate. From any other
// address they are an error (400) and not ignored: the sender expects them to have an effect.
#include "provider_forwarded.h"
#include "base/mem.h"
#include "base/scan.h"
#include "base/secret.h"
#include <arpa/inet.h>
#include <stdlib.h>

#define SECRET_MIN 32
#define USER_MAX 256
#define GROUP_MAX 128
#define GROUPS_MAX 200

struct network {
    int family;
    unsigned char bytes[16];
    unsigned bits;
};

struct forwarded {
    const struct provider_config *config;
    struct network *networks;
    size_t network_count;
    bool unix_sockets;
    size_t first;  // index of this provider's headers in credentials.headers
};

enum { HEADER_USER, HEADER_SECRET, HEADER_GROUPS, HEADER_TENANT, HEADERS };

// ---- configuration --------------------------------------------------------------------------

static bool parse_network(const char *text, struct network *out)
{
    const char *slash = strchr(text, '/');
    char *address = mem_copy(text, slash ? (size_t)(slash - text) : strlen(text));
    out->family = strchr(address, ':') ? AF_INET6 : AF_INET;
    unsigned max = out->family == AF_INET6 ? 128 : 32;
    bool ok = inet_pton(out->family, address, out->bytes) == 1;
    free(address);
    out->bits = max;
    if (!ok || !slash)
        return ok;
    if (!slash[1] || strspn(slash + 1, "0123456789") != strlen(slash + 1) || strlen(slash + 1) > 3)
        return false;
    out->bits = (unsigned)strtoul(slash + 1, NULL, 10);
    return out->bits <= max;
}

static bool is_local(const struct network *network)
{
    static const unsigned char one[16] = {[15] = 1};
    return network->family == AF_INET ? network->bytes[0] == 127 && network->bits >= 8
                                      : network->bits == 128 && memcmp(network->bytes, one, 16) == 0;
}

bool provider_forwarded_check(const struct provider_config *config, const struct option_place *place, struct err *err)
{
    struct network network;
    bool remote = false, names = config->certificate_names && config->certificate_names[0];
    if (!config->trusted_proxies || !config->trusted_proxies[0])
        return err_set(err, ERR_CONFIG,
                       "%s: %s/trusted_proxies: name the addresses of the proxy, such as [\"10.0.0.5\"]; without them "
                       "any client could claim any identity",
                       place->file, place->path);
    for (char **text = config->trusted_proxies; *text; text++) {
        if (strcmp(*text, "unix") == 0)
            continue;
        if (!parse_network(*text, &network))
            return err_set(err, ERR_CONFIG, "%s: %s/trusted_proxies: \"%s\" is not an address or network", place->file,
                           place->path, *text);
        remote = remote || !is_local(&network);
    }
    if (config->secret && strlen(config->secret) < SECRET_MIN)
        return err_set(err, ERR_CONFIG, "%s: %s/secret: must have at least %d characters", place->file, place->path,
                       SECRET_MIN);
    if (remote && !config->secret && !names)
        return err_set(err, ERR_CONFIG,
                       "%s: %s/secret: a proxy beyond loopback must also present a secret or a client certificate "
                       "(certificate_names)",
                       place->file, place->path);
    return true;
}

void *provider_forwarded_open(const struct provider_config *config, const struct provider_world *world, struct err *err)
{
    (void)world;
    (void)err;
    struct forwarded *forwarded = mem_new(struct forwarded);
    forwarded->config = config;
    for (char **text = config->trusted_proxies; *text; text++) {
        struct network network = {0};
        if (strcmp(*text, "unix") == 0)
            forwarded->unix_sockets = true;
        else if (parse_network(*text, &network)) {
            size_t count = ++forwarded->network_count;
            forwarded->networks = mem_resize(forwarded->networks, count * sizeof *forwarded->networks);
            forwarded->networks[count - 1] = network;
        }
    }
    return forwarded;
}

void provider_forwarded_close(void *state)
{
    struct forwarded *forwarded = state;
    free(forwarded->networks);
    free(forwarded);
}

size_t provider_forwarded_headers(void *state, const char **names, size_t first)
{
    struct forwarded *forwarded = state;
    const struct provider_config *config = forwarded->config;
    forwarded->first = first;
    names[HEADER_USER] = config->user_header ? config->user_header : "X-Forwarded-User";
    names[HEADER_SECRET] = config->secret_header ? config->secret_header : "X-Postern-Secret";
    names[HEADER_GROUPS] = config->groups_header ? config->groups_header : "X-Forwarded-Groups";
    names[HEADER_TENANT] = config->tenant_header ? config->tenant_header : "X-Forwarded-Tenant";
    return HEADERS;
}

// ---- the hop --------------------------------------------------------------------------------

static bool in_network(const struct network *network, const struct sockaddr_storage *address)
{
    struct sockaddr_in6 v6;
    struct sockaddr_in v4;
    const unsigned char *bytes;
    if (address->ss_family != network->family)
        return false;
    if (network->family == AF_INET6) {
        memcpy(&v6, address, sizeof v6);
        bytes = v6.sin6_addr.s6_addr;
    } else {
        memcpy(&v4, address, sizeof v4);
        bytes = (const unsigned char *)&v4.sin_addr;
    }
    unsigned whole = network->bits / 8, rest = network->bits % 8;
    if (memcmp(bytes, network->bytes, whole) != 0)
        return false;
    return !rest || (bytes[whole] ^ network->bytes[whole]) >> (8 - rest) == 0;
}

static bool from_proxy(const struct forwarded *forwarded, const struct peer *peer)
{
    if (!peer)
        return false;
    if (peer->address.ss_family == AF_UNIX)
        return forwarded->unix_sockets;
    for (size_t i = 0; i < forwarded->network_count; i++)
        if (in_network(&forwarded->networks[i], &peer->address))
            return true;
    return false;
}

static bool shows_certificate(const struct forwarded *forwarded, const struct peer *peer)
{
    for (char **name = forwarded->config->certificate_names; name && *name; name++)
        for (size_t i = 0; peer->certified && i < peer->name_count; i++)
            if (strcmp(peer->names[i].text, *name) == 0)
                return true;
    return false;
}

static bool shows_secret(const struct forwarded *forwarded, const struct credential_header *header)
{
    unsigned char given[SECRET_MAC_BYTES], known[SECRET_MAC_BYTES];
    if (!forwarded->config->secret || header->count != 1)
        return false;
    secret_digest(header->value, given);
    secret_digest(span_of(forwarded->config->secret), known);
    return secret_equal(given, known, sizeof given);
}

static bool hop_is_proven(const struct forwarded *forwarded, const struct credentials *credentials)
{
    bool names = forwarded->config->certificate_names && forwarded->config->certificate_names[0];
    if (!forwarded->config->secret && !names)  // checked at load: then only loopback and unix sockets are trusted
        return true;
    return shows_secret(forwarded, &credentials->headers[forwarded->first + HEADER_SECRET]) ||
           shows_certificate(forwarded, credentials->peer);
}

bool provider_forwarded_is_proxy(void *state, const struct peer *peer) { return from_proxy(state, peer); }

bool provider_forwarded_relays(void *state, const struct credentials *credentials)
{
    const struct forwarded *forwarded = state;
    return from_proxy(forwarded, credentials->peer) && hop_is_proven(forwarded, credentials);
}

// ---- the identity ---------------------------------------------------------------------------

static bool is_clean(struct span text, size_t max)
{
    if (text.len == 0 || text.len > max || text.at[0] == ' ' || text.at[text.len - 1] == ' ')
        return false;
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.at[i] < 0x20 || text.at[i] == 0x7f)
            return false;
    return scan_is_utf8(text);
}

static struct span trimmed(struct span text)
{
    while (text.len && (text.at[0] == ' ' || text.at[0] == '\t'))
        text = span_after(text, 1);
    while (text.len && (text.at[text.len - 1] == ' ' || text.at[text.len - 1] == '\t'))
        text.len--;
    return text;
}

// Too many or malformed groups are refused and never truncated: a policy may deny by one of them.
static bool add_groups(struct identity *identity, struct span list)
{
    while (list.len) {
        const char *comma = memchr(list.at, ',', list.len);
        struct span group = trimmed(comma ? span_make(list.at, (size_t)(comma - list.at)) : list);
        list = comma ? span_after(list, (size_t)(comma - list.at) + 1) : (struct span){"", 0};
        if (group.len == 0)
            continue;
        if (!is_clean(group, GROUP_MAX) || identity->role_count >= GROUPS_MAX)
            return false;
        identity_add_role(identity, group);
    }
    return true;
}

static enum provider_verdict make_identity(const struct forwarded *forwarded, const struct credential_header *headers,
                                           struct identity **out)
{
    const struct credential_header *tenant = &headers[HEADER_TENANT];
    bool by_header = forwarded->config->tenant_header != NULL;
    struct span user = headers[HEADER_USER].value;
    if (!is_clean(user, USER_MAX) || (by_header && (tenant->count != 1 || !is_clean(tenant->value, GROUP_MAX))))
        return PROVIDER_MALFORMED;
    char *subject = mem_span(user), *given = by_header ? mem_span(tenant->value) : NULL;
    const char *fixed = forwarded->config->tenant ? forwarded->config->tenant : "default";
    struct identity *identity =
        identity_new(IDENTITY_FORWARDED, given ? given : fixed, provider_name(forwarded->config), subject);
    free(subject);
    free(given);
    bool groups = forwarded->config->groups_header && headers[HEADER_GROUPS].count;
    if (groups && !add_groups(identity, headers[HEADER_GROUPS].value)) {
        identity_unref(identity);
        return PROVIDER_MALFORMED;
    }
    *out = identity;
    return PROVIDER_ACCEPT;
}

static unsigned count_shown(const struct credential_header *headers)
{
    unsigned shown = 0;
    for (int i = 0; i < HEADERS; i++)
        shown += headers[i].count;
    return shown;
}

// P13 and P14 hold for every request, also for one with a credential that another provider accepts: a caller that
// authenticates as one identity and names another in a header is refused.
enum provider_verdict provider_forwarded_inspect(void *state, const struct credentials *credentials)
{
    const struct forwarded *forwarded = state;
    const struct credential_header *headers = credentials->headers + forwarded->first;
    for (int i = 0; i < HEADERS; i++)
        if (headers[i].count > 1 || headers[i].odd)
            return PROVIDER_MALFORMED;
    return count_shown(headers) && !from_proxy(forwarded, credentials->peer) ? PROVIDER_MALFORMED : PROVIDER_PASS;
}

// After provider_forwarded_inspect().
enum provider_verdict provider_forwarded(void *state, const struct credentials *credentials, struct provider_wait *wait,
                                         struct identity **out)
{
    (void)wait;
    const struct forwarded *forwarded = state;
    const struct credential_header *headers = credentials->headers + forwarded->first;
    if (!from_proxy(forwarded, credentials->peer))
        return PROVIDER_PASS;
    if (headers[HEADER_USER].count == 0)
        return count_shown(headers) ? PROVIDER_REJECT : PROVIDER_PASS;
    if (!hop_is_proven(forwarded, credentials))
        return PROVIDER_REJECT;
    return make_identity(forwarded, headers, out);
}
