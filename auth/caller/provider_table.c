// Owns the table of providers: a new one is a file and a row.
#include "provider_table.h"
#include "provider_bearer.h"
#include "provider_forwarded.h"
#include "provider_jwt.h"
#include "provider_none.h"

const struct provider provider_table[PROVIDER_TYPES] = {
    [PROVIDER_NONE] = {.open = provider_none_open, .close = provider_none_close, .authenticate = provider_none},
    [PROVIDER_BEARER] = {.proves = true,
                         .open = provider_bearer_open,
                         .close = provider_bearer_close,
                         .authenticate = provider_bearer,
                         .poll = provider_bearer_poll,
                         .stands = provider_bearer_stands},
    [PROVIDER_FORWARDED] = {.proves = true,
                            .check = provider_forwarded_check,
                            .open = provider_forwarded_open,
                            .close = provider_forwarded_close,
                            .inspect = provider_forwarded_inspect,
                            .authenticate = provider_forwarded,
                            .headers = provider_forwarded_headers,
                            .is_proxy = provider_forwarded_is_proxy,
                            .relays = provider_forwarded_relays},
    [PROVIDER_JWT] = {.proves = true,
                      .many = true,
                      .check = provider_jwt_check,
                      .open = provider_jwt_open,
                      .close = provider_jwt_close,
                      .authenticate = provider_jwt,
                      .health = provider_jwt_health},
};
