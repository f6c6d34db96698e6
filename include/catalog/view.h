// The merged view of several sources: names made unique, lists rendered, names and URIs led back to
// their server. A view is rebuilt when one of its sources changed; nothing in it outlives that.
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
    bool prefix;                    // false: names and URIs as the servers have them
    const struct profile *profile;  // which tools, and what they are called; NULL: all, by the rules
};

struct view_entry {
    struct source *source;
    struct span original;
    struct span exposed;
};

struct view *view_new(const struct view_naming *naming);
void view_free(struct view *view);
void view_add(struct view *view, struct source *source);              // in the order of the configuration
void view_dirty(struct view *view, unsigned kinds);                   // a bit for each list that is another one now
uint64_t view_generation(struct view *view, enum catalog_kind kind);  // another one when the list is

const struct view_entry *view_find(struct view *view, enum catalog_kind kind, struct span exposed);
size_t view_count(struct view *view, enum catalog_kind kind);
const struct view_entry *view_entry_at(struct view *view, enum catalog_kind kind, size_t i);
// Who would have a name that is not there, had its lists ever come; `original` is what it would call the thing.
struct source *view_unlisted(const struct view *view, enum catalog_kind kind, struct span exposed,
                             struct span *original);
// Whether a name or URI that is not there may be this server's once its lists are.
bool view_may_have(const struct view *view, enum catalog_kind kind, const struct source *source, struct span exposed);
// The rendered items from..to, comma between, for a list result.
void view_render(struct view *view, enum catalog_kind kind, size_t from, size_t to, struct buf *out);

// Which server a URI (listed or not) belongs to; its own spelling is appended to `original`.
struct source *view_route_uri(struct view *view, struct span uri, struct buf *original);
// What stands before a server's names here; empty: nothing, and its URIs are left alone.
struct span view_prefix(const struct view *view, const struct source *source);

#endif
