// Owns the merged view: exposed names, the way back from them to the servers, and the lists as they are sent.
//
// The exposed name is prefix, separator, name. Characters that model APIs refuse are replaced by '_'. A name of more than 64
// characters, or that is already taken, ends in a hash of (server, name), so that it is stable.
//
// A profile may omit tools and assign names to them. An assigned name is reserved for its tool, even if another server has a tool of
// that name, or the server of the tool is down. Without prefixes the first item with a name gets it; later ones keep their prefix.
#include "view.h"
#include "base/arena.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/scan.h"
#include "base/secret.h"
#include "mcp/rewrite.h"
#include "mcp/uri.h"
#include "profile.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define TOLD_MAX 100

struct view_table {
    struct view_entry *entries;
    size_t count;
    uint64_t generation;  // the number of builds
    struct arena names;
    struct map by_name;
    struct buf rendered;
    size_t *offsets;  // where each entry begins in `rendered`; one more for the end
};

struct view {
    struct view_naming naming;
    struct source **sources;
    size_t source_count;
    unsigned dirty;  // kinds that have to be rebuilt
    struct view_table tables[CATALOG_KINDS];
    struct map told;  // duplicate names that were logged
};

struct view *view_new(const struct view_naming *naming)
{
    struct view *view = mem_new(struct view);
    view->naming = *naming;
    view->dirty = ~0U;
    return view;
}

static void clear(struct view_table *table)
{
    free(table->entries);
    free(table->offsets);
    map_release(&table->by_name);
    buf_release(&table->rendered);
    arena_release(&table->names);
    *table = (struct view_table){.generation = table->generation};
}

void view_free(struct view *view)
{
    if (!view)
        return;
    for (int kind = 0; kind < CATALOG_KINDS; kind++)
        clear(&view->tables[kind]);
    map_release(&view->told);
    free(view->sources);
    free(view);
}

void view_add(struct view *view, struct source *source)
{
    view->sources = mem_resize(view->sources, (view->source_count + 1) * sizeof(struct source *));
    view->sources[view->source_count++] = source;
    view->dirty = ~0U;
}

void view_dirty(struct view *view, unsigned kinds) { view->dirty |= kinds; }

static const struct server *server_of(const struct source *source) { return upstream_server(source_upstream(source)); }

struct span view_prefix(const struct view *view, const struct source *source)
{
    const struct server *server = server_of(source);
    if (!view->naming.prefix)
        return (struct span){"", 0};
    return span_of(server->prefix ? server->prefix : server->name);
}

void view_put_uri(const struct view *view, const struct source *source, struct span uri, struct buf *out)
{
    struct span prefix = view_prefix(view, source);
    if (prefix.len)
        uri_wrap(prefix, uri, out);
    else
        buf_put_span(out, uri);
}

// ---- names ----------------------------------------------------------------------------------

static void put_hash(const struct source *source, struct span name, struct buf *out)
{
    unsigned char digest[SECRET_MAC_BYTES];
    struct buf canonical = {0};
    buf_put_text(&canonical, server_of(source)->name);
    buf_put_char(&canonical, '\0');
    buf_put_span(&canonical, name);
    secret_digest(buf_span(&canonical), digest);
    buf_printf(out, "_%02x%02x%02x%02x", digest[0], digest[1], digest[2], digest[3]);
    buf_release(&canonical);
}

static void shorten(struct buf *name, const struct source *source, struct span original)
{
    const size_t tail = 9;
    name->len = scan_cut(buf_span(name), VIEW_NAME_MAX - tail);
    put_hash(source, original, name);
}

static void put_name(const struct view *view, struct span prefix, const struct source *source, struct span original,
                     struct buf *name)
{
    if (!prefix.len) {
        buf_put_span(name, original);
        return;
    }
    buf_put_span(name, prefix);
    buf_put_text(name, view->naming.separator);
    size_t start = name->len;
    buf_put_span(name, original);
    for (size_t i = start; i < name->len; i++)
        if (!isalnum((unsigned char)name->at[i]) && !memchr("_.-/", name->at[i], 4))
            name->at[i] = '_';
    if (name->len > VIEW_NAME_MAX)
        shorten(name, source, original);
}

static bool is_taken(const struct view *view, enum catalog_kind kind, struct span name)
{
    return map_find(&view->tables[kind].by_name, name) ||
           (kind == CATALOG_TOOLS && view->naming.profile && profile_gives_name(view->naming.profile, name));
}

static void tell_collision(struct view *view, const struct source *source, struct span name)
{
    if (view->told.count >= TOLD_MAX || map_find(&view->told, name))
        return;
    map_put(&view->told, name, view);
    log_warn("duplicate name in a profile without prefixes: the later item keeps its prefix",
             LOG_STR("profile", view->naming.profile->name), LOG_STR("server", server_of(source)->name),
             LOG_SPAN("name", name));
}

static struct span exposed_name(struct view *view, enum catalog_kind kind, const struct source *source,
                                struct span original)
{
    struct buf name = {0};
    const struct server *server = server_of(source);
    put_name(view, view_prefix(view, source), source, original, &name);
    if (view->naming.profile && !view->naming.prefix && is_taken(view, kind, buf_span(&name))) {
        const char *prefix = server->prefix && *server->prefix ? server->prefix : server->name;
        tell_collision(view, source, buf_span(&name));
        buf_clear(&name);
        put_name(view, span_of(prefix), source, original, &name);
    }
    if (is_taken(view, kind, buf_span(&name)))
        shorten(&name, source, original);
    struct span kept = arena_span(&view->tables[kind].names, buf_span(&name));
    buf_release(&name);
    return kept;
}

static struct span exposed_uri(struct view *view, enum catalog_kind kind, const struct source *source,
                               struct span original)
{
    struct buf uri = {0};
    view_put_uri(view, source, original, &uri);
    struct span kept = arena_span(&view->tables[kind].names, buf_span(&uri));
    buf_release(&uri);
    return kept;
}

// ---- building -------------------------------------------------------------------------------

enum item_part { PART_NAME, PART_APP_URI, PART_TITLE, PART_DESCRIPTION };

// The last two are for overrides only.
enum { ITEM_RULES = 2, OVERRIDE_RULES = 4 };

static const struct rewrite_rule item_rules[CATALOG_KINDS][OVERRIDE_RULES] = {
    [CATALOG_TOOLS] = {{{"name"}, PART_NAME},
                       {{"_meta", "ui", "resourceUri"}, PART_APP_URI},
                       {{"title"}, PART_TITLE},
                       {{"description"}, PART_DESCRIPTION}},
    [CATALOG_PROMPTS] = {{{"name"}, PART_NAME}, {{"_meta", "ui", "resourceUri"}, PART_APP_URI}},
    [CATALOG_RESOURCES] = {{{"uri"}, PART_NAME}, {{"_meta", "ui", "resourceUri"}, PART_APP_URI}},
    [CATALOG_TEMPLATES] = {{{"uriTemplate"}, PART_NAME}, {{"_meta", "ui", "resourceUri"}, PART_APP_URI}},
};

struct render {
    struct view *view;
    const struct view_entry *entry;
    const struct profile_override *override;
    unsigned seen;  // overridden members that the item has
};

static const char *overridden(const struct profile_override *override, int what)
{
    return what == PART_TITLE ? override->title : override->description;
}

// A part that is not renamed also keeps its spelling.
static bool render_part(void *arg, int what, struct span raw, struct buf *out)
{
    struct render *render = arg;
    const struct view_entry *entry = render->entry;
    if (what == PART_NAME) {
        if (span_equal(entry->exposed, entry->original))
            return false;
        scan_encode(entry->exposed, out);
        return true;
    }
    if (what == PART_TITLE || what == PART_DESCRIPTION) {
        const char *text = overridden(render->override, what);
        render->seen |= 1U << what;
        if (text)
            scan_encode(span_of(text), out);
        return text != NULL;
    }
    if (!scan_is_string(raw) || !view_prefix(render->view, entry->source).len)
        return false;
    struct buf uri = {0}, wrapped = {0};
    scan_decode(raw, &uri);
    view_put_uri(render->view, entry->source, buf_span(&uri), &wrapped);
    scan_encode(buf_span(&wrapped), out);
    buf_release(&uri);
    buf_release(&wrapped);
    return true;
}

// Adds the title and description of a profile to an item without such members.
static void render_missing(const struct render *render, struct buf *out)
{
    static const struct {
        enum item_part part;
        const char *key;
    } members[] = {{PART_TITLE, ",\"title\":"}, {PART_DESCRIPTION, ",\"description\":"}};
    for (size_t i = 0; render->override && i < sizeof members / sizeof *members; i++) {
        const char *text = overridden(render->override, (int)members[i].part);
        if (!text || render->seen >> members[i].part & 1)
            continue;
        out->len--;  // the closing brace; an item has at least a name
        buf_put_text(out, members[i].key);
        scan_encode(span_of(text), out);
        buf_put_char(out, '}');
    }
}

static const struct profile_tools *selection(const struct view *view, enum catalog_kind kind,
                                             const struct source *source)
{
    const struct profile *profile = kind == CATALOG_TOOLS ? view->naming.profile : NULL;
    return profile ? profile_tools_find(profile, server_of(source)->name) : NULL;
}

static void add_entry(struct view *view, enum catalog_kind kind, struct source *source, const struct source_item *item)
{
    struct view_table *table = &view->tables[kind];
    struct view_entry *entry = &table->entries[table->count];
    const struct profile_tools *selected = selection(view, kind, source);
    const struct profile_override *override = profile_override_find(selected, item->name);
    bool named = kind == CATALOG_TOOLS || kind == CATALOG_PROMPTS, given = override && override->name;
    if (!profile_tools_allow(selected, item->name))
        return;
    entry->source = source;
    entry->original =
        arena_span(&table->names, item->name);  // the source may free its list before view_dirty() is called
    entry->exposed = given   ? span_of(override->name)
                     : named ? exposed_name(view, kind, source, item->name)
                             : exposed_uri(view, kind, source, item->name);
    if (given ? map_find(&table->by_name, entry->exposed) != NULL : is_taken(view, kind, entry->exposed))
        return;  // a duplicate resource: the first one is used
    map_put(&table->by_name, entry->exposed, (void *)(table->count + 1));
    if (table->count)
        buf_put_char(&table->rendered, ',');
    table->offsets[table->count++] = table->rendered.len;
    struct render render = {view, entry, override, 0};
    if (!rewrite_json(item->json, item_rules[kind], override ? OVERRIDE_RULES : ITEM_RULES, render_part, &render,
                      &table->rendered))
        buf_put_span(&table->rendered, item->json);
    render_missing(&render, &table->rendered);
}

static void build(struct view *view, enum catalog_kind kind)
{
    struct view_table *table = &view->tables[kind];
    size_t total = 0;
    clear(table);
    table->generation++;
    for (size_t i = 0; i < view->source_count; i++)
        total += source_count(view->sources[i], kind);
    table->entries = mem_alloc((total + 1) * sizeof *table->entries);
    table->offsets = mem_alloc((total + 1) * sizeof *table->offsets);
    for (size_t i = 0; i < view->source_count; i++) {
        const struct source_item *items = source_items(view->sources[i], kind);
        for (size_t k = 0; k < source_count(view->sources[i], kind); k++)
            add_entry(view, kind, view->sources[i], &items[k]);
    }
    table->offsets[table->count] = table->rendered.len + 1;
}

static void rebuild(struct view *view)
{
    unsigned dirty = view->dirty;
    view->dirty = 0;
    for (int kind = 0; dirty && kind < CATALOG_KINDS; kind++)
        if (dirty >> kind & 1)
            build(view, (enum catalog_kind)kind);
}

uint64_t view_generation(struct view *view, enum catalog_kind kind)
{
    rebuild(view);
    return view->tables[kind].generation;
}

const struct view_entry *view_find(struct view *view, enum catalog_kind kind, struct span exposed)
{
    rebuild(view);
    struct view_table *table = &view->tables[kind];
    size_t index = (size_t)map_find(&table->by_name, exposed);
    return index ? &table->entries[index - 1] : NULL;
}

static bool has_prefix(const struct view *view, const struct source *source, struct span exposed)
{
    struct span prefix = view_prefix(view, source);
    return prefix.len && exposed.len > prefix.len && memcmp(exposed.at, prefix.at, prefix.len) == 0 &&
           span_starts(span_after(exposed, prefix.len), view->naming.separator);
}

// Finds the server's own name that would be exposed under this one.
static bool would_be(const struct view *view, enum catalog_kind kind, const struct source *source, struct span exposed,
                     struct span *original)
{
    const struct profile_tools *selected = selection(view, kind, source);
    const struct profile_override *overrides = selected ? selected->override.at : NULL;
    struct span prefix = view_prefix(view, source);
    for (size_t i = 0; overrides && i < selected->override.count; i++)
        if (overrides[i].name && span_is(exposed, overrides[i].name)) {
            *original = span_of(overrides[i].tool);
            return true;
        }
    if (!has_prefix(view, source, exposed))
        return false;
    *original = span_after(exposed, prefix.len + strlen(view->naming.separator));
    const struct profile_override *override = profile_override_find(selected, *original);
    return profile_tools_allow(selected, *original) && !(override && override->name);
}

struct source *view_unlisted(const struct view *view, enum catalog_kind kind, struct span exposed,
                             struct span *original)
{
    for (size_t i = 0; i < view->source_count; i++)
        if (!source_loaded(view->sources[i]) && would_be(view, kind, view->sources[i], exposed, original))
            return view->sources[i];
    return NULL;
}

// A name that a profile assigns, or that begins with the prefix of a server, belongs to that server. Any other name may belong to
// each server without a prefix.
bool view_may_have(const struct view *view, enum catalog_kind kind, const struct source *source, struct span exposed)
{
    bool bare = view_prefix(view, source).len == 0;
    struct span original;
    if (kind == CATALOG_RESOURCES || kind == CATALOG_TEMPLATES)  // view_route_uri() knows all prefixes
        return bare;
    if (kind == CATALOG_TOOLS && view->naming.profile && profile_gives_name(view->naming.profile, exposed))
        return would_be(view, kind, source, exposed, &original);
    for (size_t i = 0; bare && i < view->source_count; i++)
        if (has_prefix(view, view->sources[i], exposed))
            return false;
    return bare || has_prefix(view, source, exposed);
}

size_t view_count(struct view *view, enum catalog_kind kind)
{
    rebuild(view);
    return view->tables[kind].count;
}

const struct view_entry *view_entry_at(struct view *view, enum catalog_kind kind, size_t i)
{
    rebuild(view);
    return &view->tables[kind].entries[i];
}

void view_render(struct view *view, enum catalog_kind kind, size_t from, size_t to, struct buf *out)
{
    const struct view_table *table = &view->tables[kind];
    if (from < to)
        buf_put(out, table->rendered.at + table->offsets[from], table->offsets[to] - 1 - table->offsets[from]);
}

// ---- URIs -----------------------------------------------------------------------------------

static struct source *by_prefix(const struct view *view, struct span key)
{
    for (size_t i = 0; i < view->source_count; i++)
        if (span_equal(view_prefix(view, view->sources[i]), key))
            return view->sources[i];
    return NULL;
}

static struct source *by_template(struct view *view, struct span uri)
{
    const struct view_table *table = &view->tables[CATALOG_TEMPLATES];
    for (size_t i = 0; i < table->count; i++)
        if (view_prefix(view, table->entries[i].source).len == 0 &&
            uri_matches_template(uri, table->entries[i].original))
            return table->entries[i].source;
    return NULL;
}

// The server whose URIs are not wrapped, if there is exactly one.
static struct source *only_bare(const struct view *view)
{
    struct source *found = NULL;
    for (size_t i = 0; i < view->source_count; i++)
        if (view_prefix(view, view->sources[i]).len == 0) {
            if (found)
                return NULL;
            found = view->sources[i];
        }
    return found;
}

struct source *view_route_uri(struct view *view, struct span uri, struct buf *original)
{
    struct span key;
    size_t start = original->len;
    rebuild(view);
    if (uri_unwrap(uri, &key, original)) {
        struct source *source = key.len ? by_prefix(view, key) : NULL;
        if (source)
            return source;
        original->len = start;
    }
    const struct view_entry *entry = view_find(view, CATALOG_RESOURCES, uri);
    if (!entry)
        entry = view_find(view, CATALOG_TEMPLATES, uri);  // completion names the template itself
    if (entry) {
        buf_put_span(original, entry->original);
        return entry->source;
    }
    struct source *source = by_template(view, uri);
    if (!source)
        source = only_bare(view);
    if (source)
        buf_put_span(original, uri);
    return source;
}
