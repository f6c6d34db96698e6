// The merged view of several sources: it makes names unique, renders lists, and finds the server of a name or URI. A
// view is rebuilt when one of its sources has changed, which invalidates all pointers into it.
#ifndef CATALOG_VIEW_H
#define CATALOG_VIEW_H

#include "base/buf.h"
#include "catalog/profile.h"
#include "catalog/source.h"
#include <stdbool.h>

#define VIEW_NAME_MAX 64

struct view;

struct view_naming {
    const char *separator;
    bool prefix;                    // false: names and URIs stay as the servers have them
    const struct profile *profile;  // selects and renames tools; NULL: all tools, with the usual names
};

struct view_entry {
    struct source *source;
    struct span original;
    struct span exposed;
};

struct view *view_new(const struct view_naming *naming);
void view_free(struct view *view);
void view_add(struct view *view, struct source *source);              // in the order of the configuration
void view_dirty(struct view *view, unsigned kinds);                   // a bit for each list that changed
uint64_t view_generation(struct view *view, enum catalog_kind kind);  // grows when the list changes

const struct view_entry *view_find(struct view *view, enum catalog_kind kind, struct span exposed);
size_t view_count(struct view *view, enum catalog_kind kind);
const struct view_entry *view_entry_at(struct view *view, enum catalog_kind kind, size_t i);
// The source that would own an unknown name, among those whose lists were never loaded; `original` is its own name for it.
struct source *view_unlisted(const struct view *view, enum catalog_kind kind, struct span exposed,
                             struct span *original);
// True if an unknown name or URI may belong to this server once its lists are loaded.
bool view_may_have(const struct view *view, enum catalog_kind kind, const struct source *source, struct span exposed);
// Appends the rendered items from..to, separated by commas, for a list result.
void view_render(struct view *view, enum catalog_kind kind, size_t from, size_t to, struct buf *out);

// The source that a URI (listed or not) belongs to; the server's own spelling is appended to `original`.
struct source *view_route_uri(struct view *view, struct span uri, struct buf *original);
// The prefix of a server's names in this view; empty: no prefix, and its URIs stay unchanged.
struct span view_prefix(const struct view *view, const struct source *source);

#endif
