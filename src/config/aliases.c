// Owns the keys that other programs use for a server, as one table.
//
// The table is applied to the tree before its rows are parsed, so that no other code knows these keys. A key that would hide tools
// is refused, because ignoring it would offer more than its author wanted.
#include "aliases.h"
#include "base/mem.h"
#include "base/scan.h"
#include <ctype.h>
#include <stdlib.h>
#include <strings.h>

#define NAME_MAX_BYTES 48
#define SECONDS_MAX 3600  // a larger number of seconds as `timeout` is taken for milliseconds

struct work {
    const struct option_place *place;
    struct buf unused;  // keys of clients, separated by ", "
    const char *path;   // of the server in the file
    const char *now;    // its path with our keys
    const char *key;    // that is being changed, in the file
    struct option_pairs *renamed;
};

struct alias {
    const char *theirs;
    const char *ours;                                                          // NULL: the key has no effect
    bool (*change)(const struct work *work, json_t **value, struct err *err);  // NULL: the value stays
    bool remark;                                                               // for people, so not reported
};

static char *join(const char *path, const char *key)
{
    struct buf joined = {0};
    buf_printf(&joined, "%s/%s", path, key);
    return buf_take(&joined, NULL);
}

// The name of the pair is the path with our keys, its value the path in the file.
static void note_renamed(const struct work *work, struct option_pair paths)
{
    struct option_pairs *all = work->renamed;
    all->at = mem_resize(all->at, (all->count + 1) * sizeof *all->at);
    all->at[all->count++] = paths;
}

static bool refuse(const struct work *work, const char *key, const char *why, struct err *err)
{
    return err_set(err, ERR_CONFIG, "%s: %s/%s: %s", work->place->file, work->path, key, why);
}

// ---- values ---------------------------------------------------------------------------------

static bool negate(const struct work *work, json_t **value, struct err *err)
{
    if (!json_is_boolean(*value))
        return refuse(work, work->key, "must be true or false", err);
    *value = json_boolean(!json_is_true(*value));
    return true;
}

static bool refuse_hiding(const struct work *work, json_t **value, struct err *err)
{
    (void)value;
    return refuse(work, work->key, "hides tools at a client; here, select them in /profiles or in the policy", err);
}

static bool same_word(const char *a, const char *b)
{
    for (;; a++, b++) {
        while (*a == '-' || *a == '_')
            a++;
        if (tolower((unsigned char)*a) != *b)
            return false;
        if (!*b)
            return true;
    }
}

// Other spellings of the transports. An unknown word stays, for the row of `type` to refuse it.
static bool spell_type(const struct work *work, json_t **value, struct err *err)
{
    static const char *const words[][2] = {
        {"streamablehttp", "http"}, {"streamable", "http"}, {"http", "http"},   {"sse", "sse"},
        {"httpsse", "sse"},         {"stdio", "stdio"},     {"local", "stdio"}, {"remote", "auto"}};
    const char *word = json_string_value(*value);
    (void)work;
    (void)err;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (word && same_word(word, words[i][0])) {
            *value = json_string(words[i][1]);
            return true;
        }
    json_incref(*value);
    return true;
}

static bool take_token(const struct work *work, json_t **value, struct err *err)
{
    const char *token = json_string_value(*value);
    if (!token || !*token)
        return refuse(work, work->key, "must be a token, with or without \"Bearer \" before it", err);
    if (strncasecmp(token, "Bearer ", 7) == 0)
        token += 7;
    *value = json_pack("{s:s,s:s}", "mode", "static", "token", token);
    return true;
}

static const struct alias aliases[] = {
    {"enabled", "disabled", negate, false},
    {"type", "type", spell_type, false},
    {"transport", "type", spell_type, false},
    {"transportType", "type", spell_type, false},
    {"uri", "url", NULL, false},
    {"serverUrl", "url", NULL, false},
    {"httpUrl", "url", NULL, false},
    {"envFile", "env_file", NULL, false},
    {"authorizationToken", "auth", take_token, false},
    {"disabledTools", NULL, refuse_hiding, false},
    {"enabledTools", NULL, refuse_hiding, false},
    {"excludeTools", NULL, refuse_hiding, false},
    {"includeTools", NULL, refuse_hiding, false},
    {"description", NULL, NULL, true},
    {"notes", NULL, NULL, true},
    {"source", NULL, NULL, true},
    {"name", NULL, NULL, true},
    {"alwaysAllow", NULL, NULL, false},
    {"autoApprove", NULL, NULL, false},
    {"autoStart", NULL, NULL, false},
    {"fromGalleryId", NULL, NULL, false},
    {"gallery", NULL, NULL, false},
    {"icon", NULL, NULL, false},
    {"iconPath", NULL, NULL, false},
    {"trust", NULL, NULL, false},
};

// ---- one server -----------------------------------------------------------------------------

static void note_unused(struct work *work, const char *key)
{
    struct buf *unused = &work->unused;
    size_t len = strlen(key);
    for (const char *at = buf_text(unused); (at = strstr(at, key)); at += len)
        if (at[len] == ',' || !at[len])
            return;
    buf_printf(unused, "%s%s", unused->len ? ", " : "", key);
}

static bool apply(struct work *work, json_t *server, const struct alias *alias, struct err *err)
{
    json_t *value = json_object_get(server, alias->theirs);
    if (!value)
        return true;
    bool renamed = !alias->ours || strcmp(alias->theirs, alias->ours) != 0;
    work->key = alias->theirs;
    if (!alias->ours) {
        if (alias->change && !alias->change(work, &value, err))
            return false;
        if (!alias->remark)
            note_unused(work, alias->theirs);
        return json_object_del(server, alias->theirs) == 0;
    }
    if (renamed && json_object_get(server, alias->ours)) {
        struct buf why = {0};
        buf_printf(&why, "the same as \"%s\", which is given too; remove one of them", alias->ours);
        (void)refuse(work, work->key, buf_text(&why), err);
        buf_release(&why);
        return false;
    }
    json_t *changed = value;
    if (!alias->change)
        json_incref(changed);
    else if (!alias->change(work, &changed, err))
        return false;
    if (renamed) {
        json_object_del(server, alias->theirs);
        note_renamed(work, (struct option_pair){join(work->now, alias->ours), join(work->path, alias->theirs)});
    }
    return json_object_set_new(server, alias->ours, changed) == 0;
}

// Numbers and words of JSON become the text that a program finds in its environment.
static void spell_env(json_t *env)
{
    const char *name;
    json_t *value;
    void *next;
    json_object_foreach_safe(env, next, name, value) {
        char *text = json_is_number(value) || json_is_boolean(value) ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
        if (text)
            json_object_set_new(env, name, json_string(text));
        free(text);
    }
}

static bool check_timeout(struct work *work, const json_t *timeout, struct err *err)
{
    double seconds = json_number_value(timeout);
    if (!json_is_number(timeout) || seconds <= SECONDS_MAX)
        return true;
    struct buf why = {0};
    buf_printf(&why, "%.0f would be seconds; for milliseconds write \"%.0fms\" or %g, for seconds \"%.0fs\"", seconds,
               seconds, seconds / 1000, seconds);
    (void)refuse(work, "timeout", buf_text(&why), err);
    buf_release(&why);
    return false;
}

static bool ends_with_sse(const char *url)
{
    size_t len = url ? strcspn(url, "?#") : 0;
    return len > 4 && strncmp(url + len - 4, "/sse", 4) == 0;
}

// Removes a key with a problem. Whether to go on.
static bool drop(const struct work *work, json_t *server, const char *key, struct err *err)
{
    json_object_del(server, key);
    return option_note_problem(work->place, err);
}

static bool adapt(struct work *work, json_t *server, struct err *err)
{
    bool ok = true;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (!apply(work, server, &aliases[i], err)) {
            ok = false;
            if (!drop(work, server, aliases[i].theirs, err))
                return false;
        }
    if (!json_object_get(server, "type") && ends_with_sse(json_string_value(json_object_get(server, "url"))))
        json_object_set_new(server, "type", json_string("sse"));
    spell_env(json_object_get(server, "env"));
    if (!check_timeout(work, json_object_get(server, "timeout"), err)) {
        ok = false;
        (void)drop(work, server, "timeout", err);
    }
    return ok;
}

// ---- names ----------------------------------------------------------------------------------

// The name as a prefix of tools: other characters become '_'.
static char *usable_name(const char *name)
{
    struct buf out = {0};
    for (const char *c = name; *c && out.len < NAME_MAX_BYTES; c++)
        if (((unsigned char)*c & 0xC0) != 0x80)  // once for each character
            buf_put_char(&out, isalnum((unsigned char)*c) || strchr("._-", *c) ? *c : '_');
    return buf_take(&out, NULL);
}

static void note_name(const struct work *work, const char *name, const char *usable)
{
    struct buf *notes = work->place->notes;
    if (!notes)
        return;
    buf_put_text(notes, "server ");
    scan_encode(span_of(name), notes);  // in one line
    buf_printf(notes, " is called \"%s\" here, in names of tools and in policies\n", usable);
}

// The path of the server with our keys; NULL: its name here would be that of another server.
static char *place_of(const struct work *work, const char *at, const char *usable, bool taken, struct err *err)
{
    struct buf now = {0};
    if (taken)
        (void)err_set(err, ERR_CONFIG, "%s: %s: callers would see this server as \"%s\", like another one; rename it",
                      work->place->file, work->path, usable);
    else
        buf_printf(&now, "%s/mcpServers/%s", at, usable);
    return taken ? NULL : buf_take(&now, NULL);
}

// Puts the server into `into` under the name that it has here.
static bool adapt_one(struct work *work, const char *at, const char *name, json_t *server, const json_t *all,
                      json_t *into, struct err *err)
{
    char *usable = usable_name(name);
    bool same = strcmp(usable, name) == 0 || !*usable;
    const char *mine = same ? name : usable;
    bool taken = !same && (json_object_get(all, mine) || json_object_get(into, mine));
    char *now = place_of(work, at, mine, taken, err);
    work->now = now;
    bool ok = now && (!json_is_object(server) || adapt(work, server, err));
    if (now)
        json_object_set(into, mine, server);
    if (now && !same) {
        note_name(work, name, mine);
        note_renamed(work, (struct option_pair){mem_string(now), mem_string(work->path)});
    }
    free(now);
    free(usable);
    return ok;
}

// `at` is the path of the holder, and `key` what the file calls its servers.
static bool adapt_all(struct work *work, json_t *holder, const char *at, const char *key, struct err *err)
{
    json_t *servers = json_object_get(holder, "mcpServers"), *server;
    const char *name;
    bool ok = true;
    if (!json_is_object(servers))
        return true;
    json_t *into = json_object();
    json_object_foreach(servers, name, server) {
        struct buf path = {0};
        buf_printf(&path, "%s/%s/%s", at, key, name);
        work->path = buf_text(&path);
        bool good = adapt_one(work, at, name, server, servers, into, err);
        ok = ok && good;
        buf_release(&path);
        if (!good && !option_note_problem(work->place, err))
            break;
    }
    json_object_set_new(holder, "mcpServers", into);
    return ok;
}

bool aliases_apply(json_t *tree, const struct option_place *place, struct option_pairs *renamed, struct err *err)
{
    struct work work = {.place = place, .renamed = renamed};
    json_t *servers = json_object_get(tree, "servers"), *tenant;
    const char *name, *key = "mcpServers";
    if (json_is_object(servers) && !json_object_get(tree, key)) {
        json_object_set(tree, key, servers);
        json_object_del(tree, "servers");
        note_renamed(&work, (struct option_pair){mem_string("/mcpServers"), mem_string("/servers")});
        key = "servers";
    }
    bool ok = adapt_all(&work, tree, "", key, err);
    json_object_foreach(json_object_get(tree, "tenants"), name, tenant) {
        struct buf at = {0};
        buf_printf(&at, "/tenants/%s", name);
        ok = adapt_all(&work, tenant, buf_text(&at), "mcpServers", err) && ok;
        buf_release(&at);
    }
    if (work.unused.len && place->notes)
        buf_printf(place->notes, "%s: settings for clients, without effect in a gateway\n", buf_text(&work.unused));
    buf_release(&work.unused);
    return ok;
}
