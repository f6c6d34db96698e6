// Tests the classes of addresses, and which addresses the gateway may connect to for a URL that it discovered (N3, N4).
#include "address.h"
#include "unit.h"
#include <arpa/inet.h>
#include <netinet/in.h>

static struct sockaddr_storage address_of(const char *text)
{
    struct sockaddr_storage out = {0};
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &four.sin_addr) == 1)
        memcpy(&out, &four, sizeof four);
    else if (inet_pton(AF_INET6, text, &six.sin6_addr) == 1)
        memcpy(&out, &six, sizeof six);
    return out;
}

static void N4_addresses_have_the_classes_of_the_table(void **state)
{
    (void)state;
    static const struct {
        const char *address;
        enum address_class class;
    } rows[] = {
        {"93.184.216.34", ADDRESS_PUBLIC},
        {"127.0.0.1", ADDRESS_LOOPBACK},
        {"127.255.0.1", ADDRESS_LOOPBACK},
        {"10.0.0.1", ADDRESS_PRIVATE},
        {"172.16.0.1", ADDRESS_PRIVATE},
        {"172.31.255.255", ADDRESS_PRIVATE},
        {"172.32.0.1", ADDRESS_PUBLIC},
        {"192.168.1.1", ADDRESS_PRIVATE},
        {"100.64.0.1", ADDRESS_PRIVATE},
        {"100.128.0.1", ADDRESS_PUBLIC},
        {"169.254.169.254", ADDRESS_LINK},
        {"0.0.0.0", ADDRESS_UNUSABLE},
        {"0.1.2.3", ADDRESS_UNUSABLE},
        {"224.0.0.1", ADDRESS_UNUSABLE},
        {"240.0.0.1", ADDRESS_UNUSABLE},
        {"255.255.255.255", ADDRESS_UNUSABLE},
        {"::1", ADDRESS_LOOPBACK},
        {"::", ADDRESS_UNUSABLE},
        {"fe80::1", ADDRESS_LINK},
        {"fd00::1", ADDRESS_PRIVATE},
        {"fc00::1", ADDRESS_PRIVATE},
        {"fec0::1", ADDRESS_PRIVATE},
        {"ff02::1", ADDRESS_UNUSABLE},
        {"2001:4860:4860::8888", ADDRESS_PUBLIC},
        {"::ffff:127.0.0.1", ADDRESS_LOOPBACK},
        {"::ffff:169.254.169.254", ADDRESS_LINK},
        {"::ffff:8.8.8.8", ADDRESS_PUBLIC},
        {"64:ff9b::a9fe:a9fe", ADDRESS_LINK},
        {"64:ff9b::10.0.0.1", ADDRESS_PRIVATE},
        {"2002:7f00:1::", ADDRESS_LOOPBACK},
        {"2002:a9fe:a9fe::1", ADDRESS_LINK},
        {"::127.0.0.1", ADDRESS_LOOPBACK},
        {"4000::1", ADDRESS_UNUSABLE},
        {"no address", ADDRESS_UNUSABLE},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct sockaddr_storage address = address_of(rows[i].address);
        assert_row(address_classify((const struct sockaddr *)&address) == rows[i].class, rows[i].address);
    }
}

static bool allows(struct address_policy *policy, const char *text)
{
    struct sockaddr_storage address = address_of(text);
    return address_policy_allows(policy, (const struct sockaddr *)&address);
}

static void N4_a_public_server_may_not_lead_to_an_internal_address(void **state)
{
    (void)state;
    struct address_policy policy = {.learning = true};
    assert_true(allows(&policy, "10.0.0.1"));  // while it learns, every address is allowed
    assert_true(allows(&policy, "93.184.216.34"));
    address_policy_learn(&policy, "93.184.216.34");
    policy.learning = false;
    static const char *const inside[] = {"127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1", "0.0.0.0"};
    for (size_t i = 0; i < COUNT(inside); i++)
        assert_row(!allows(&policy, inside[i]), inside[i]);
    assert_true(allows(&policy, "8.8.8.8"));
}

static void N4_a_server_on_this_host_may_name_one_on_this_host(void **state)
{
    (void)state;
    struct address_policy policy = {.learning = true};
    assert_true(allows(&policy, "127.0.0.1"));
    address_policy_learn(&policy, "127.0.0.1");
    policy.learning = false;
    assert_true(allows(&policy, "::1"));
    assert_false(allows(&policy, "10.0.0.1"));
    assert_false(allows(&policy, "169.254.169.254"));
}

static void N4_the_class_of_a_host_follows_from_its_text(void **state)
{
    (void)state;
    static const struct {
        const char *host;
        enum address_class class;
    } rows[] = {
        {"localhost", ADDRESS_LOOPBACK}, {"127.0.0.1", ADDRESS_LOOPBACK},
        {"[::1]", ADDRESS_LOOPBACK},     {"10.1.2.3", ADDRESS_PRIVATE},
        {"[fd00::1]", ADDRESS_PRIVATE},  {"8.8.8.8", ADDRESS_PUBLIC},
        {"example.com", ADDRESS_PUBLIC}, {"", ADDRESS_PUBLIC},
        {"169.254.1.1", ADDRESS_LINK},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_row(address_of_host(span_of(rows[i].host)) == rows[i].class, rows[i].host);
}

static void N4_blocks_contain_their_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *block, *address;
        bool valid, inside;
    } rows[] = {
        {"10.0.0.0/8", "10.1.2.3", true, true},
        {"10.0.0.0/8", "11.0.0.1", true, false},
        {"10.128.0.0/9", "10.127.0.1", true, false},
        {"10.128.0.0/9", "10.200.0.1", true, true},
        {"192.0.2.7", "192.0.2.7", true, true},
        {"192.0.2.7", "192.0.2.8", true, false},
        {"0.0.0.0/0", "8.8.8.8", true, true},
        {"0.0.0.0/0", "::1", true, false},
        {"fd00::/8", "fd12::1", true, true},
        {"fd00::/8", "fe80::1", true, false},
        {"fd00::/7", "fc00::1", true, true},
        {"10.0.0.0/33", "10.0.0.1", false, false},
        {"10.0.0.0/", "10.0.0.1", false, false},
        {"10.0.0/8", "10.0.0.1", false, false},
        {"", "10.0.0.1", false, false},
        {"example.com", "10.0.0.1", false, false},
        {"10.0.0.0/-1", "10.0.0.1", false, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct sockaddr_storage address = address_of(rows[i].address);
        assert_row(address_block_valid(rows[i].block) == rows[i].valid, rows[i].block);
        assert_row(address_in_block((const struct sockaddr *)&address, rows[i].block) == rows[i].inside, rows[i].block);
    }
}

static void N4_an_allowed_block_opens_only_its_own_addresses(void **state)
{
    (void)state;
    struct address_policy policy = {.allowed = (char *const[]){"10.0.0.0/8", "0.0.0.0/8", NULL}};
    assert_true(allows(&policy, "10.1.1.1"));
    assert_false(allows(&policy, "192.168.0.1"));
    assert_false(allows(&policy, "0.0.0.0"));  // not even in an allowed block
}

static void a_zeroed_address_policy_allows_only_public_addresses(void **state)
{
    (void)state;
    struct address_policy policy = {0};
    assert_true(allows(&policy, "8.8.8.8"));
    assert_false(allows(&policy, "127.0.0.1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(N4_addresses_have_the_classes_of_the_table),
        cmocka_unit_test(N4_a_public_server_may_not_lead_to_an_internal_address),
        cmocka_unit_test(N4_a_server_on_this_host_may_name_one_on_this_host),
        cmocka_unit_test(N4_the_class_of_a_host_follows_from_its_text),
        cmocka_unit_test(N4_blocks_contain_their_addresses),
        cmocka_unit_test(N4_an_allowed_block_opens_only_its_own_addresses),
        cmocka_unit_test(a_zeroed_address_policy_allows_only_public_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
