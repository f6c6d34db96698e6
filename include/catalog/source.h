// What one upstream offers, drained page by page and kept until it changes.
#ifndef CATALOG_SOURCE_H
#define CATALOG_SOURCE_H

#include "base/span.h"
#include "upstream/upstream.h"
#include <stdbool.h>

enum catalog_kind { CATALOG_TOOLS, CATALOG_PROMPTS, CATALOG_RESOURCES, CATALOG_TEMPLATES, CATALOG_KINDS };

// One tool, prompt, resource or template.
struct source_item {
    struct span name;  // decoded: the name, URI or URI template
    struct span json;  // as the server sent it
};

struct source;

// Some lists of the source are new; `kinds` has a bit for each that really changed. Also called, with
// 0, when a first load ended without success.
typedef void source_change_fn(void *arg, struct source *source, unsigned kinds);

struct source *source_new(struct loop *loop, struct upstream *upstream, source_change_fn *on_change, void *arg);
void source_free(struct source *source);

void source_load(struct source *source);           // begins, unless loaded or on its way
bool source_settled(const struct source *source);  // its first load has ended, well or not
bool source_loaded(const struct source *source);
void source_changed(struct source *source, enum catalog_kind kind);  // the server said list_changed
// A server nobody was logged in to: perhaps somebody is now. It is settled again when that is known.
void source_look_again(struct source *source);
void source_refresh(struct source *source);    // the server is ready, anew: fetch everything
void source_went_down(struct source *source);  // keeps the lists; reloads when it is back

struct upstream *source_upstream(const struct source *source);
size_t source_count(const struct source *source, enum catalog_kind kind);
const struct source_item *source_items(const struct source *source, enum catalog_kind kind);

#endif
