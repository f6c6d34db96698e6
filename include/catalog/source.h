// The lists that one upstream offers, fetched page by page and kept until they change.
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

// Called after a fetch; `kinds` has a bit for each list that changed. Also called, with 0, when the server went down.
typedef void source_change_fn(void *arg, struct source *source, unsigned kinds);

struct source *source_new(struct loop *loop, struct upstream *upstream, source_change_fn *on_change, void *arg);
void source_free(struct source *source);

void source_load(struct source *source);           // starts a fetch, unless the lists are loaded or being fetched
bool source_settled(const struct source *source);  // its first load has ended, with success or failure
bool source_loaded(const struct source *source);
void source_changed(struct source *source, enum catalog_kind kind);  // the server sent list_changed
// How long callers wait for a list, from the time it became pending.
struct source_patience {
    int64_t known_ms;    // if the server starts, or has announced a change
    int64_t doubted_ms;  // if the list may not have changed at all: source_doubt()
};
// The time until which a caller that came at `asked_ms` waits for a pending list; 0: it need not wait.
int64_t source_wait_until(const struct source *source, enum catalog_kind kind, int64_t asked_ms,
                          const struct source_patience *patience);
// To be called when a caller waits: fetches an announced change without the usual pause.
void source_hurry(struct source *source);
// The server answered a call, which may have changed its lists.
void source_answered(struct source *source);
// To be called when a caller needs the list: fetches it again if a call may have changed it.
void source_doubt(struct source *source, enum catalog_kind kind);
// Retries a server that needed a login, because the user may have logged in since. It is not settled until the result is known.
void source_look_again(struct source *source);
void source_refresh(struct source *source);    // the server is ready again: fetches everything
void source_went_down(struct source *source);  // keeps the lists; reloads when it is back
void source_rests(
    struct source *source);  // it was ended because it is not used: keeps the lists, which are still valid

// The lists of an earlier connection are being looked up in the catalogue cache. Until source_restore() callers wait, and
// source_load() does not start the server.
void source_await_kept(struct source *source);
// The lookup has ended. `kept` is the text that source_save() wrote, valid JSON, or empty if the cache has no entry. Its contents are
// checked like answers of the server. False: nothing is restored, and the server is started if source_load() was called.
bool source_restore(struct source *source, struct span kept);
bool source_awaits_kept(const struct source *source);
// The lists, or some of them, are still those of an earlier connection. `wanted`: source_load() was called, so that they are worth
// fetching in the background (source_renew()), for which no caller waits.
bool source_is_restored(const struct source *source, bool *wanted);
bool source_is_busy(const struct source *source);  // its server is starting, or its lists are being fetched
void source_renew(struct source *source);
// A caller needs a name that is not in the restored lists: callers wait until they are fetched.
void source_confirm(struct source *source);
// Appends a JSON object for source_restore(). False: some of the lists were not fetched over the present connection.
bool source_save(const struct source *source, struct buf *out) MUST_CHECK;

struct upstream *source_upstream(const struct source *source);
size_t source_count(const struct source *source, enum catalog_kind kind);
const struct source_item *source_items(const struct source *source, enum catalog_kind kind);

#endif
