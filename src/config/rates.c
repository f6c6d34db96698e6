// Owns the option rows of limits.rates, and their checks.
#include "base/glob.h"
#include "tables.h"
#include <string.h>

#define DAY_MS (24 * 3600 * 1000LL)

static bool check_rate(void *object, const struct option_place *place, struct err *err)
{
    struct config_rate *rate = object;
    const char *subject = rate->subject;
    if (!rate->calls && !rate->concurrent)
        return err_set(err, ERR_CONFIG, "%s: %s: give \"calls\", \"concurrent\" or both", place->file, place->path);
    if (rate->burst && !rate->calls)
        return err_set(err, ERR_CONFIG, "%s: %s/burst: requires \"calls\"", place->file, place->path);
    if (rate->tool && (!*rate->tool || !glob_valid(rate->tool)))
        return err_set(err, ERR_CONFIG,
                       "%s: %s/tool: must be a name, in which * matches any text and \\* is a literal star",
                       place->file, place->path);
    if (subject && strncmp(subject, "role:", 5) != 0 &&
        (strncmp(subject, "user:", 5) != 0 || !strchr(subject + 5, ':')))
        return err_set(err, ERR_CONFIG, "%s: %s/subject: must be user:PROVIDER:NAME or role:ROLE", place->file,
                       place->path);
    if (!rate->burst)
        rate->burst = rate->calls;
    return true;
}

static const char *const pers[] = {"tenant", "identity", NULL};  // enum config_per

#define AT(member) offsetof(struct config_rate, member)
static const struct option rows[] = {
    {.name = "server",
     .type = OPTION_STRING,
     .offset = AT(server),
     .help = "Only calls to this server; all servers if absent."},
    {.name = "tool",
     .type = OPTION_STRING,
     .offset = AT(tool),
     .help = "Only calls of this tool, by the server's own name for it; `*` matches any text."},
    {.name = "subject",
     .type = OPTION_STRING,
     .offset = AT(subject),
     .help = "Only calls of the caller `user:PROVIDER:NAME`, or of callers with the role `role:ROLE`."},
    {.name = "per",
     .type = OPTION_ENUM,
     .offset = AT(per),
     .fallback = "\"tenant\"",
     .choices = pers,
     .help =
         "Which calls are counted together: the calls of all callers of the tenant, or the calls of each identity."},
    {.name = "calls",
     .type = OPTION_INT,
     .offset = AT(calls),
     .fallback = "0",
     .min = 0,
     .max = 1000000,
     .help = "Number of calls allowed in a `window`; 0: unlimited."},
    {.name = "window",
     .type = OPTION_DURATION,
     .offset = AT(window_ms),
     .fallback = "60",
     .min = 1,
     .max = DAY_MS,
     .help = "The period in which `calls` are counted."},
    {.name = "burst",
     .type = OPTION_INT,
     .offset = AT(burst),
     .fallback = "0",
     .min = 0,
     .max = 1000000,
     .help = "How many of the `calls` may arrive at once after a pause; 0: all of them."},
    {.name = "concurrent",
     .type = OPTION_INT,
     .offset = AT(concurrent),
     .fallback = "0",
     .min = 0,
     .max = 1000000,
     .help = "Number of calls allowed in flight at once; 0: unlimited."},
    {0},
};
#undef AT

const struct option_table config_rates_options = {"A limit on calls (limits.rates[])", sizeof(struct config_rate), rows,
                                                  check_rate};

static bool same_text(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

bool config_rates_check(const struct option_items *rates, const struct option_items *servers,
                        const struct option_place *place, struct err *err)
{
    const struct config_rate *at = rates->at;
    for (size_t i = 0; i < rates->count; i++) {
        if (at[i].server && !server_find(servers, span_of(at[i].server)))
            return err_set(err, ERR_CONFIG, "%s: %s/limits/rates/%zu/server: server \"%s\" does not exist", place->file,
                           place->path, i, at[i].server);
        for (size_t k = 0; k < i; k++)
            if (at[i].per == at[k].per && same_text(at[i].server, at[k].server) && same_text(at[i].tool, at[k].tool) &&
                same_text(at[i].subject, at[k].subject))
                return err_set(err, ERR_CONFIG,
                               "%s: %s/limits/rates/%zu: limits the same calls as rates/%zu; remove one of them",
                               place->file, place->path, i, k);
    }
    return true;
}
