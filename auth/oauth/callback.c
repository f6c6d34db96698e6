// Owns parsing requests to a redirect URI: each parameter occurs once, and is limited in length.
#include "auth/oauth/oauth.h"

#define QUERY_MAX ((size_t)16 << 10)

struct query_reading {
    struct arena *arena;
    struct oauth_callback *callback;
    unsigned states;
};

static bool take_pair(void *arg, struct span name, struct span value)
{
    struct query_reading *reading = arg;
    struct oauth_callback *callback = reading->callback;
    const struct {
        const char *name;
        const char **slot;
    } rows[] = {{"state", &callback->state},
                {"code", &callback->code},
                {"iss", &callback->iss},
                {"error", &callback->error},
                {"error_description", &callback->description}};
    reading->states += span_is(name, "state");
    if (value.len > OAUTH_VALUE_MAX) {
        callback->malformed = true;
        return true;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (span_is(name, rows[i].name)) {
            callback->malformed |= *rows[i].slot != NULL;
            *rows[i].slot = arena_copy(reading->arena, value);
        }
    return true;
}

void oauth_callback_parse(struct span query, struct arena *arena, struct oauth_callback *out)
{
    struct query_reading reading = {.arena = arena, .callback = out};
    *out = (struct oauth_callback){0};
    if (query.len && query.at[0] == '?')
        query = span_after(query, 1);
    if (query.len > QUERY_MAX || !oauth_form_walk(query, take_pair, &reading) || reading.states != 1)
        *out = (struct oauth_callback){.malformed = true};
}
