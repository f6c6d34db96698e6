// Owns profiles: their option rows, their checks, and the lookup of tools in them.
#include "profile.h"
#include "base/glob.h"
#include "base/mem.h"
#include "catalog/view.h"
#include "upstream/server.h"
#include <ctype.h>
#include <stdlib.h>

#define NAME_MAX_LEN 48

#define AT(member) offsetof(struct profile_override, member)
static const struct option override_rows[] = {
    {.name = "name",
     .type = OPTION_STRING,
     .offset = AT(name),
     .help = "The name of the tool in this profile, without a prefix. It replaces the server's own name. 1 to 64 "
             "letters, digits or `_ - . /`."},
    {.name = "title", .type = OPTION_STRING, .offset = AT(title), .help = "The title of the tool."},
    {.name = "description", .type = OPTION_STRING, .offset = AT(description), .help = "The description of the tool."},
    {0},
};
#undef AT
static const struct option_table override_options = {"An overridden tool (profiles.NAME.tools.SERVER.override.TOOL)",
                                                     sizeof(struct profile_override), override_rows, NULL};

#define AT(member) offsetof(struct profile_tools, member)
static const struct option tools_rows[] = {
    {.name = "allow",
     .type = OPTION_STRINGS,
     .offset = AT(allow),
     .help = "Patterns of the tools to include, matched against the server's own names; `*` matches any text. All "
             "tools if absent, no tools if empty."},
    {.name = "override",
     .type = OPTION_NAMED_OBJECTS,
     .offset = AT(override),
     .fallback = "{}",
     .sub = &override_options,
     .help = "Changes to the names, titles and descriptions of tools. The key is the server's own name of the tool."},
    {0},
};
#undef AT
static const struct option_table tools_options = {"Tools of one server in a profile (profiles.NAME.tools.SERVER)",
                                                  sizeof(struct profile_tools), tools_rows, NULL};

#define AT(member) offsetof(struct profile, member)
static const struct option rows[] = {
    {.name = "servers",
     .type = OPTION_STRINGS,
     .offset = AT(servers),
     .help = "The servers to include with their tools, resources and prompts, in the order of the merged lists; all "
             "servers of the tenant if absent."},
    {.name = "tools",
     .type = OPTION_NAMED_OBJECTS,
     .offset = AT(tools),
     .fallback = "{}",
     .sub = &tools_options,
     .help = "The tools to include, and changes to them, by server. For a server without an entry, all tools are "
             "included unchanged."},
    {.name = "prefix",
     .type = OPTION_BOOL,
     .offset = AT(prefix),
     .fallback = "true",
     .help = "Put the servers' prefixes before names, and wrap resource URIs; overrides the top-level `prefix`. If "
             "false, a tool or prompt whose name is already taken keeps its prefix."},
    {0},
};
#undef AT
const struct option_table profile_options = {"A profile (profiles.NAME)", sizeof(struct profile), rows, NULL};

// ---- looking up -----------------------------------------------------------------------------

bool profile_name_valid(struct span name)
{
    for (size_t i = 0; i < name.len; i++)
        if (!isalnum((unsigned char)name.at[i]) && !memchr("._-", name.at[i], 3))
            return false;
    return name.len >= 1 && name.len <= NAME_MAX_LEN && name.at[0] != '.';  // no ".." in a path
}

const struct profile *profile_find(const struct option_items *profiles, struct span name)
{
    const struct profile *all = profiles->at;
    for (size_t i = 0; i < profiles->count; i++)
        if (span_is(name, all[i].name))
            return &all[i];
    return NULL;
}

const struct profile_tools *profile_tools_find(const struct profile *profile, const char *server)
{
    const struct profile_tools *all = profile->tools.at;
    for (size_t i = 0; i < profile->tools.count; i++)
        if (strcmp(all[i].server, server) == 0)
            return &all[i];
    return NULL;
}

bool profile_tools_allow(const struct profile_tools *tools, struct span tool)
{
    if (!tools || !tools->allow)
        return true;
    for (char *const *pattern = tools->allow; *pattern; pattern++)
        if (glob_match(*pattern, tool))
            return true;
    return false;
}

const struct profile_override *profile_override_find(const struct profile_tools *tools, struct span tool)
{
    const struct profile_override *all = tools ? tools->override.at : NULL;
    for (size_t i = 0; all && i < tools->override.count; i++)
        if (span_is(tool, all[i].tool))
            return &all[i];
    return NULL;
}

bool profile_gives_name(const struct profile *profile, struct span name)
{
    const struct profile_tools *tools = profile->tools.at;
    for (size_t i = 0; i < profile->tools.count; i++) {
        const struct profile_override *all = tools[i].override.at;
        for (size_t k = 0; k < tools[i].override.count; k++)
            if (all[k].name && span_is(name, all[k].name))
                return true;
    }
    return false;
}

// ---- checking -------------------------------------------------------------------------------

struct checking {
    const struct profile *profile;
    const struct option_items *servers;
    const struct option_place *place;
    struct err *err;
};

// "FILE: /profiles/NAME" and what follows.
#define wrong(c, format, ...)                                                                                          \
    err_set((c)->err, ERR_CONFIG, "%s: %s/profiles/%s" format, (c)->place->file, (c)->place->path, (c)->profile->name, \
            __VA_ARGS__)

static bool unknown_server(const struct checking *c, const char *where, const char *name)
{
    const struct server *servers = c->servers->at;
    const char **names = mem_alloc((c->servers->count + 1) * sizeof *names);
    for (size_t i = 0; i < c->servers->count; i++)
        names[i] = servers[i].name;
    const char *near = option_nearest(name, names);
    free(names);
    return wrong(c, "%s: server \"%s\" does not exist in this tenant%s%s%s", where, name,
                 near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static bool check_servers(const struct checking *c)
{
    char *const *names = c->profile->servers;
    if (names && !names[0])
        return wrong(c, "/servers: %s", "the list is empty; omit it to include all servers");
    for (size_t i = 0; names && names[i]; i++) {
        if (!server_find(c->servers, span_of(names[i])))
            return unknown_server(c, "/servers", names[i]);
        for (size_t k = 0; k < i; k++)
            if (strcmp(names[i], names[k]) == 0)
                return wrong(c, "/servers: \"%s\" is listed twice", names[i]);
    }
    return true;
}

static bool has_server(const struct profile *profile, const char *name)
{
    for (char *const *at = profile->servers; at && *at; at++)
        if (strcmp(*at, name) == 0)
            return true;
    return !profile->servers;
}

static bool is_tool_name(const char *name)
{
    size_t len = strlen(name);
    for (const char *at = name; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr("_.-/", *at))
            return false;
    return len >= 1 && len <= VIEW_NAME_MAX;
}

// An earlier override with the same name, as the name of its tool, or NULL.
static const char *given_before(const struct profile *profile, const struct profile_override *override)
{
    const struct profile_tools *tools = profile->tools.at;
    for (size_t i = 0; i < profile->tools.count; i++) {
        const struct profile_override *all = tools[i].override.at;
        for (size_t k = 0; k < tools[i].override.count; k++) {
            if (&all[k] == override)
                return NULL;
            if (all[k].name && strcmp(all[k].name, override->name) == 0)
                return all[k].tool;
        }
    }
    return NULL;
}

static bool check_override(const struct checking *c, const struct profile_tools *tools,
                           const struct profile_override *override)
{
    const char *other;
    if (!profile_tools_allow(tools, span_of(override->tool)))
        return wrong(c, "/tools/%s/override/%s: this tool matches no pattern in \"allow\"", tools->server,
                     override->tool);
    if (override->name && !is_tool_name(override->name))
        return wrong(c, "/tools/%s/override/%s/name: must be 1 to %d letters, digits or _ - . /", tools->server,
                     override->tool, VIEW_NAME_MAX);
    if (override->name && (other = given_before(c->profile, override)))
        return wrong(c, "/tools/%s/override/%s/name: \"%s\" is already the name of \"%s\"", tools->server,
                     override->tool, override->name, other);
    return true;
}

static bool check_tools(const struct checking *c, const struct profile_tools *tools)
{
    const struct profile_override *overrides = tools->override.at;
    if (!server_find(c->servers, span_of(tools->server)))
        return unknown_server(c, "/tools", tools->server);
    if (!has_server(c->profile, tools->server))
        return wrong(c, "/tools/%s: this server is not in \"servers\"", tools->server);
    for (char *const *pattern = tools->allow; pattern && *pattern; pattern++)
        if (!**pattern || !glob_valid(*pattern))
            return wrong(c, "/tools/%s/allow: \"%s\" is not a valid pattern: '*' matches any text, \"\\*\" an asterisk",
                         tools->server, *pattern);
    for (size_t i = 0; i < tools->override.count; i++)
        if (!check_override(c, tools, &overrides[i]))
            return false;
    return true;
}

bool profile_check_all(const struct option_items *profiles, const struct option_items *servers,
                       const struct option_place *place, struct err *err)
{
    const struct profile *all = profiles->at;
    for (size_t i = 0; i < profiles->count; i++) {
        const struct checking c = {&all[i], servers, place, err};
        const struct profile_tools *tools = all[i].tools.at;
        if (!profile_name_valid(span_of(all[i].name)))
            return wrong(&c, ": a profile's name is 1 to %d letters, digits, '.', '_' or '-', not beginning with '.'",
                         NAME_MAX_LEN);
        if (!check_servers(&c))
            return false;
        for (size_t k = 0; k < all[i].tools.count; k++)
            if (!check_tools(&c, &tools[k]))
                return false;
    }
    return true;
}
