// Fuzzes the answer of a device authorization endpoint: the code and URLs that a user sees are printable, bounded and secure.
#include "auth/oauth/oauth.h"
#include "fuzz.h"

static void is_printable(const char *text)
{
    for (; *text; text++)
        REQUIRE((unsigned char)*text >= ' ' && (unsigned char)*text < 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct arena arena = {0};
    struct oauth_answer answer = {len % 7 ? 200 : 400, span_of("application/json"), {(const char *)bytes, len}};
    struct oauth_device device;
    struct err err = {0};
    if (oauth_device_parse(&answer, &arena, &device, &err)) {
        REQUIRE(answer.status == 200 && device.device_code && *device.device_code);
        REQUIRE(oauth_url_secure(device.url) && (!device.whole_url || oauth_url_secure(device.whole_url)));
        REQUIRE(*device.user_code && strlen(device.user_code) <= 64);
        REQUIRE(device.interval_s >= 1 && device.interval_s <= 300);
        REQUIRE(device.lifetime_s >= 1 && device.lifetime_s <= 86400);
        is_printable(device.user_code);
        is_printable(device.url);
        is_printable(device.whole_url ? device.whole_url : "");
    } else {
        REQUIRE(err.code);
        for (const char *at = err.detail; *at; at++)
            REQUIRE((unsigned char)*at >= ' ' && *at != 0x7f);
    }
    arena_release(&arena);
    return 0;
}
