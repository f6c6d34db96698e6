// Owns one upstream's lists: fetching all pages, comparing with what was there, replacing whole lists.
#include "catalog/source.h"
#include "base/arena.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/scan.h"
#include "base/secret.h"
#include "mcp/method.h"
#include <stdlib.h>

#define PAGES_MAX 1000
#define ITEMS_MAX 100000
#define BYTES_MAX ((size_t)64 << 20)
#define NAME_MAX_BYTES 1024
#define URI_MAX_BYTES 8000  // so that callers can send them with a prefix: PARAMS_URI_MAX
#define DEBOUNCE_MS 50

static const struct kind_row {
    enum method method;
    const char *member, *key;
} kinds[CATALOG_KINDS] = {
    [CATALOG_TOOLS] = {METHOD_TOOLS_LIST, "tools", "name"},
    [CATALOG_PROMPTS] = {METHOD_PROMPTS_LIST, "prompts", "name"},
    [CATALOG_RESOURCES] = {METHOD_RESOURCES_LIST, "resources", "uri"},
    [CATALOG_TEMPLATES] = {METHOD_RESOURCES_TEMPLATES, "resourceTemplates", "uriTemplate"},
};

struct items {
    struct arena text;
    struct source_item *at;
    size_t count, room;
    unsigned char digest[SECRET_MAC_BYTES];
};

struct fetch {
    struct source *source;
    enum catalog_kind kind;
    struct upstream_request request;
    struct items items;
    struct buf seen;  // everything so far, for the digest
    unsigned pages;
    bool running, again;
};

struct source {
    struct loop *loop;
    struct upstream *upstream;
    source_change_fn *on_change;
    void *arg;
    struct items lists[CATALOG_KINDS];
    struct fetch fetches[CATALOG_KINDS];
    struct loop_timer debounce;
    unsigned to_fetch;  // kinds that changed, waiting for the debounce
    unsigned running;
    unsigned changed;
    bool loading, loaded, failed, tried;
};

static void items_release(struct items *items)
{
    arena_release(&items->text);
    free(items->at);
    *items = (struct items){0};
}

static bool can(const struct source *source, enum catalog_kind kind)
{
    const struct upstream_abilities *abilities = upstream_abilities(source->upstream);
    return kind == CATALOG_TOOLS     ? abilities->tools
           : kind == CATALOG_PROMPTS ? abilities->prompts
                                     : abilities->resources;
}

// ---- fetching -------------------------------------------------------------------------------

static void send_page(struct fetch *fetch, struct span cursor)
{
    struct buf params = {0};
    if (cursor.len) {
        buf_put_text(&params, "{\"cursor\":");
        buf_put_span(&params, cursor);
        buf_put_char(&params, '}');
    }
    upstream_reserve(fetch->source->upstream, &fetch->request);
    upstream_send(&fetch->request, method_text(kinds[fetch->kind].method), buf_span(&params));
    buf_release(&params);
}

static void begin(struct source *source, enum catalog_kind kind)
{
    struct fetch *fetch = &source->fetches[kind];
    if (fetch->running) {
        fetch->again = true;
        return;
    }
    fetch->running = true;
    fetch->again = false;
    fetch->pages = 0;
    source->running++;
    items_release(&fetch->items);
    buf_clear(&fetch->seen);
    send_page(fetch, (struct span){0});
}

static void settle(struct source *source)
{
    if (source->running)
        return;
    unsigned changed = source->changed;
    bool first = source->loading;
    source->changed = 0;
    source->loading = false;
    source->tried = true;
    if (changed || first)
        source->on_change(source->arg, source, changed);
}

static void end(struct fetch *fetch, bool ok)
{
    struct source *source = fetch->source;
    fetch->running = false;
    source->running--;
    if (ok) {
        secret_digest(buf_span(&fetch->seen), fetch->items.digest);
        struct items *old = &source->lists[fetch->kind];
        if (memcmp(old->digest, fetch->items.digest, sizeof old->digest) != 0) {
            items_release(old);
            *old = fetch->items;
            fetch->items = (struct items){0};
            source->changed |= 1U << fetch->kind;
        }
        source->loaded = true;
    } else {
        source->failed = true;
    }
    items_release(&fetch->items);
    buf_release(&fetch->seen);
    if (fetch->again && upstream_state(source->upstream) == UPSTREAM_READY)
        begin(source, fetch->kind);
    settle(source);
}

static void add_item(struct fetch *fetch, struct span json)
{
    struct span raw;
    struct items *items = &fetch->items;
    if (!scan_find(json, kinds[fetch->kind].key, &raw) || !scan_is_string(raw) || items->count >= ITEMS_MAX)
        return;
    bool named = fetch->kind == CATALOG_TOOLS || fetch->kind == CATALOG_PROMPTS;
    size_t max = named ? NAME_MAX_BYTES : URI_MAX_BYTES;
    if (raw.len - 2 > max) {
        log_warn("item left out: its name or URI is too long",
                 LOG_STR("server", upstream_server(fetch->source->upstream)->name),
                 LOG_STR("what", kinds[fetch->kind].member), LOG_INT("bytes", raw.len - 2), LOG_INT("max", max));
        return;
    }
    if (items->count == items->room) {
        items->room = items->room ? items->room * 2 : 16;
        items->at = mem_resize(items->at, items->room * sizeof *items->at);
    }
    struct buf name = {0};
    scan_decode(raw, &name);
    items->at[items->count++] =
        (struct source_item){arena_span(&items->text, buf_span(&name)), arena_span(&items->text, json)};
    buf_release(&name);
    buf_put_span(&fetch->seen, json);
}

static void on_page(struct upstream_request *request, const struct upstream_reply *reply)
{
    struct fetch *fetch = request->arg;
    struct span list, item, cursor;
    const char *server = upstream_server(fetch->source->upstream)->name;
    if (reply->failure || !reply->result.at || !scan_find(reply->result, kinds[fetch->kind].member, &list) ||
        !scan_is_array(list)) {
        // A server that answers "no such method" has none of that kind; any other error may pass.
        bool none = reply->error.at && scan_find(reply->error, "code", &item) && span_is(item, "-32601");
        if (!none)
            log_warn("cannot list", LOG_STR("server", server), LOG_STR("what", kinds[fetch->kind].member),
                     LOG_STR("detail", reply->failure ? reply->failure->detail : "the server answered with an error"));
        end(fetch, none);
        return;
    }
    struct scan_walk walk = scan_walk(list);
    while (scan_element(&walk, &item))
        add_item(fetch, item);
    // An empty string is a cursor like any other; only its absence is the end.
    if (!scan_find(reply->result, "nextCursor", &cursor) || !scan_is_string(cursor)) {
        end(fetch, true);
        return;
    }
    if (++fetch->pages >= PAGES_MAX || fetch->seen.len > BYTES_MAX) {
        log_warn("server has too many pages, the rest is left out", LOG_STR("server", server),
                 LOG_STR("what", kinds[fetch->kind].member));
        end(fetch, true);
        return;
    }
    char *copy = mem_span(cursor);
    send_page(fetch, span_make(copy, cursor.len));
    free(copy);
}

// ---- loading --------------------------------------------------------------------------------

static void fetch_all(struct source *source)
{
    source->running++;  // hold the settling until all are under way
    for (int kind = 0; kind < CATALOG_KINDS; kind++)
        if (can(source, (enum catalog_kind)kind))
            begin(source, (enum catalog_kind)kind);
    source->running--;
    if (!source->running) {
        source->loaded = true;
        settle(source);
    }
}

void source_load(struct source *source)
{
    enum upstream_state state = upstream_state(source->upstream);
    if (source->loading || (source->loaded && !source->failed))
        return;
    if (state == UPSTREAM_BACKOFF || state == UPSTREAM_CLOSING)
        return;
    source->loading = true;
    source->failed = false;
    if (state == UPSTREAM_READY)
        fetch_all(source);
    else
        upstream_start(source->upstream);  // whoever hears of its state calls again
}

void source_look_again(struct source *source)
{
    enum upstream_state state = upstream_state(source->upstream);
    bool looking = state == UPSTREAM_STARTING;  // of itself, after a pause
    if ((state != UPSTREAM_BACKOFF && !looking) || !upstream_refusal(source->upstream))
        return;
    source->tried = source->failed = false;
    source->loading = true;
    if (!looking)
        upstream_start(source->upstream);
}

void source_refresh(struct source *source)
{
    source->failed = false;
    if (!source->running)
        fetch_all(source);
}

void source_went_down(struct source *source)
{
    bool first = source->loading;
    source->failed = true;
    if (first && !source->running) {
        source->loading = false;
        source->tried = true;
        source->on_change(source->arg, source, 0);
    }
}

static void on_debounce(struct loop_timer *timer)
{
    struct source *source = timer->arg;
    unsigned wanted = source->to_fetch;
    source->to_fetch = 0;
    if (upstream_state(source->upstream) != UPSTREAM_READY)
        return;
    for (int kind = 0; kind < CATALOG_KINDS; kind++)
        if (wanted >> kind & 1 && can(source, (enum catalog_kind)kind))
            begin(source, (enum catalog_kind)kind);
}

void source_changed(struct source *source, enum catalog_kind kind)
{
    source->to_fetch |= 1U << kind;
    if (kind == CATALOG_RESOURCES)
        source->to_fetch |= 1U << CATALOG_TEMPLATES;
    if (!source->debounce.slot)
        loop_timer_set(source->loop, &source->debounce, DEBOUNCE_MS);
}

struct source *source_new(struct loop *loop, struct upstream *upstream, source_change_fn *on_change, void *arg)
{
    struct source *source = mem_new(struct source);
    *source = (struct source){.loop = loop, .upstream = upstream, .on_change = on_change, .arg = arg};
    source->debounce = (struct loop_timer){.on_due = on_debounce, .arg = source, .name = "list refresh"};
    for (int kind = 0; kind < CATALOG_KINDS; kind++) {
        struct fetch *fetch = &source->fetches[kind];
        fetch->source = source;
        fetch->kind = (enum catalog_kind)kind;
        fetch->request.on_reply = on_page;
        fetch->request.arg = fetch;
    }
    return source;
}

void source_free(struct source *source)
{
    if (!source)
        return;
    loop_timer_stop(source->loop, &source->debounce);
    for (int kind = 0; kind < CATALOG_KINDS; kind++) {
        upstream_cancel(&source->fetches[kind].request, "closing");
        items_release(&source->fetches[kind].items);
        buf_release(&source->fetches[kind].seen);
        items_release(&source->lists[kind]);
    }
    free(source);
}

bool source_settled(const struct source *source) { return source->tried; }
bool source_loaded(const struct source *source) { return source->loaded; }
struct upstream *source_upstream(const struct source *source) { return source->upstream; }
size_t source_count(const struct source *source, enum catalog_kind kind) { return source->lists[kind].count; }
const struct source_item *source_items(const struct source *source, enum catalog_kind kind)
{
    return source->lists[kind].at;
}
