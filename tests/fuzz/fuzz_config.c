// Fuzzes the configuration: any JSON is accepted, or refused with a message; no memory leaks; a shown configuration parses again.
#include "config/config.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct err err = {0};
    json_t *tree = json_parse(span_make((const char *)bytes, len), "fuzz.json", &err);
    if (!tree) {
        REQUIRE(err.code == ERR_PARSE && strncmp(err.detail, "fuzz.json:", 10) == 0);
        return 0;
    }
    struct config *config = config_parse(tree, "fuzz.json", &err);
    if (!config) {
        REQUIRE(err.code == ERR_CONFIG && strncmp(err.detail, "fuzz.json: ", 11) == 0);
        json_decref(tree);
        return 0;
    }
    REQUIRE(config->limits.max_body >= 1024 && config->timeouts.list_ms >= 1 && config->separator);
    for (size_t i = 0; i < config->servers.count; i++) {
        const struct server *server = (const struct server *)config->servers.at + i;
        REQUIRE((server->command != NULL) != (server->url != NULL));
        REQUIRE(config_tenant_find_server(config, "default", server->name) == server);
    }
    // The configuration as shown (without secrets) is valid, and is shown the same again. A value that was expanded from
    // the environment may contain "${", which would be expanded once more; such configurations are left out.
    json_t *shown = option_show(&config_options, config);
    char *text = json_dumps(shown, 0);
    if (text && !strstr(text, "${")) {
        struct config *again = config_parse(shown, "shown.json", &err);
        if (!again) {
            fprintf(stderr, "%s\n", err.detail);
            abort();
        }
        json_t *twice = option_show(&config_options, again);
        REQUIRE(json_equal(shown, twice));
        json_decref(twice);
        config_unref(again);
    }
    free(text);
    json_decref(shown);
    config_unref(config);
    json_decref(tree);
    return 0;
}
