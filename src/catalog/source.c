// Owns one upstream's lists: fetches all pages, compares the result with the last one, and replaces whole lists.
//
// A list is pending from the time its server begins to start, or announces a change, until a later fetch has ended, with success or
// failure. A caller that comes while a list is pending waits for it (source_wait_until). It does not wait for changes that are
// announced later, so a server that announces changes without end does not block its callers (tests/e2e/servers/views.test.mjs).
//
// A call may have changed the lists of its server. The announcement may still be on its way on another connection, or the server may
// not announce changes at all. Until the list has been fetched again it is in doubt, and the next caller that needs it triggers a
// fetch (source_doubt): at most one fetch of each list for each answer of the server. Most calls change nothing, and a server that
// runs one call at a time answers that fetch only after a long call. So callers wait for it only for a short time.
//
// Lists may also be those of an earlier connection, from the catalogue cache (source_restore). They count as loaded. Callers do not wait
// while they are fetched again, except for a name that is not in them (source_confirm), so that a new tool of the server is found.
#include "catalog/source.h"
#include "base/arena.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/scan.h"
#include "base/secret.h"
#include "mcp/method.h"
#include <stdlib.h>

#define PAGES_MAX 1000
#define ITEMS_MAX 100000  // items of a list that are read, valid or not
#define LEFT_OUT_TOLD 20  // items of a list that are logged with their faults
#define BYTES_MAX ((size_t)64 << 20)
#define NAME_MAX_BYTES 1024
#define URI_MAX_BYTES 8000  // so that callers can send them with a prefix: PARAMS_URI_MAX
#define DEBOUNCE_MS 50
#define PUT_OFF_MAX_MS 300000
#define UNDER_WAY_MS 250  // after an answer, an announcement may still come on another connection

static const struct kind_row {
    enum method method;
    const char *member, *key;
} kind_rows[CATALOG_KINDS] = {
    [CATALOG_TOOLS] = {METHOD_TOOLS_LIST, "tools", "name"},
    [CATALOG_PROMPTS] = {METHOD_PROMPTS_LIST, "prompts", "name"},
    [CATALOG_RESOURCES] = {METHOD_RESOURCES_LIST, "resources", "uri"},
    [CATALOG_TEMPLATES] = {METHOD_RESOURCES_TEMPLATES, "resourceTemplates", "uriTemplate"},
};

struct source_list {
    struct arena text;
    struct source_item *at;
    size_t count, room;
    unsigned char digest[SECRET_MAC_BYTES];
};

// A pending fetch: its reason and its begin.
struct source_pending {
    int64_t since_ms;  // 0: no fetch is pending
    bool doubted;      // only because a call may have changed it
};

struct fetch {
    struct source *source;
    enum catalog_kind kind;
    struct upstream_request request;
    struct source_list list;
    struct buf seen;  // the text of all pages so far, for the digest
    unsigned pages;
    size_t index;                   // of the item at hand, over all pages
    size_t left_out;                // items with faults
    struct source_pending next;     // the fetch that has not begun
    struct source_pending running;  // the current fetch; 0: callers do not wait for it
};

struct source {
    struct loop *loop;
    struct upstream *upstream;
    source_change_fn *on_change;
    void *arg;
    struct source_list lists[CATALOG_KINDS];
    struct fetch fetches[CATALOG_KINDS];
    struct loop_timer debounce;
    int64_t starting_ms;  // when the server began to start, for the first load; 0: it is not starting
    int64_t answered_ms;  // when the server last answered a call; 0: not yet
    unsigned doubted;     // kinds that have not been fetched since
    unsigned running;     // kinds that are being fetched
    unsigned changed;     // kinds that are new, and not announced yet
    bool loaded, failed, tried;
    bool awaiting;       // the catalogue cache has not answered yet
    bool wanted;         // source_load() was called
    bool restored;       // the lists are from the catalogue cache
    int64_t not_before;  // the end of a pause that the server asked for (loop_now)
};

static void list_release(struct source_list *list)
{
    arena_release(&list->text);
    free(list->at);
    *list = (struct source_list){0};
}

static bool can(const struct source *source, enum catalog_kind kind)
{
    const struct upstream_abilities *abilities = upstream_abilities(source->upstream);
    return kind == CATALOG_TOOLS     ? abilities->tools
           : kind == CATALOG_PROMPTS ? abilities->prompts
                                     : abilities->resources;
}

static bool announces(const struct source *source, enum catalog_kind kind)
{
    const struct upstream_abilities *abilities = upstream_abilities(source->upstream);
    return kind == CATALOG_TOOLS     ? abilities->tools_changed
           : kind == CATALOG_PROMPTS ? abilities->prompts_changed
                                     : abilities->resources_changed;
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
    upstream_request_reserve(fetch->source->upstream, &fetch->request);
    upstream_request_send(&fetch->request, method_text(kind_rows[fetch->kind].method), buf_span(&params));
    buf_release(&params);
}

// Resources and templates change together: they are fetched and announced together.
static unsigned together(unsigned kinds)
{
    const unsigned both = 1U << CATALOG_RESOURCES | 1U << CATALOG_TEMPLATES;
    return kinds & both ? kinds | both : kinds;
}

// Starts fetches, except for kinds that are being fetched: the end of a fetch starts the next one.
static void begin(struct source *source, unsigned kinds)
{
    unsigned idle = kinds & ~together(source->running);
    for (int kind = 0; kind < CATALOG_KINDS; kind++) {
        struct fetch *fetch = &source->fetches[kind];
        if (!(idle >> kind & 1) || !can(source, (enum catalog_kind)kind))
            continue;
        source->running |= 1U << kind;
        source->doubted &= ~(1U << kind);
        fetch->running = fetch->next;
        fetch->next = (struct source_pending){0};
        fetch->pages = 0;
        fetch->index = fetch->left_out = 0;
        list_release(&fetch->list);
        buf_clear(&fetch->seen);
        send_page(fetch, (struct span){0});
    }
}

static void begin_stale(struct source *source)
{
    unsigned stale = 0;
    if (upstream_state(source->upstream) != UPSTREAM_READY)
        return;  // everything is fetched when the server is ready
    for (int kind = 0; kind < CATALOG_KINDS; kind++)
        stale |= source->fetches[kind].next.since_ms ? 1U << kind : 0;
    begin(source, stale);
}

static void mark_stale(struct source *source, unsigned kinds, struct source_pending why)
{
    for (int kind = 0; kind < CATALOG_KINDS; kind++) {
        struct source_pending *next = &source->fetches[kind].next;
        if (!(kinds >> kind & 1) || !can(source, (enum catalog_kind)kind))
            continue;
        if (!next->since_ms)
            *next = why;
        next->doubted &= why.doubted;
    }
}

// A list with a lone surrogate is valid, but many JSON parsers refuse it, and with it the items of all other servers.
static void warn_of_half(const struct fetch *fetch)
{
    struct buf masked = {0};
    for (size_t i = 0; i < fetch->list.count; i++)
        if (scan_mask_halves(fetch->list.at[i].json, &masked)) {
            log_warn("list item contains a lone surrogate: clients with a strict JSON parser cannot read the list; "
                     "correct it, or override its description in a profile",
                     LOG_STR("server", upstream_server(fetch->source->upstream)->name),
                     LOG_STR("what", kind_rows[fetch->kind].member), LOG_SPAN("item", fetch->list.at[i].name));
            break;
        }
    buf_release(&masked);
}

static void replace(struct source *source, struct fetch *fetch)
{
    struct source_list *old = &source->lists[fetch->kind];
    secret_digest(buf_span(&fetch->seen), fetch->list.digest);
    bool empty = !old->count && !fetch->list.count;
    if (empty || memcmp(old->digest, fetch->list.digest, sizeof old->digest) == 0)
        return;
    warn_of_half(fetch);
    list_release(old);
    *old = fetch->list;
    fetch->list = (struct source_list){0};
    source->changed |= 1U << fetch->kind;
}

static void end(struct fetch *fetch, bool ok)
{
    struct source *source = fetch->source;
    unsigned ended = together(1U << fetch->kind);
    source->running &= ~(1U << fetch->kind);
    fetch->running = (struct source_pending){0};
    if (ok) {
        replace(source, fetch);
        source->loaded = true;
    } else {
        source->failed = true;
    }
    list_release(&fetch->list);
    buf_release(&fetch->seen);
    source->tried |= !source->running;
    source->restored &= source->running != 0 || source->failed;
    if (source->running & ended)
        return;
    unsigned changed = source->changed & ended;
    source->changed &= ~ended;
    source->on_change(source->arg, source, changed);
    if (!source->debounce.slot)
        begin_stale(source);
}

// The fault of an item that cannot be offered, or NULL. Sets `raw` to its name or URI.
static const char *find_fault(const struct fetch *fetch, struct span json, struct span *raw)
{
    bool named = fetch->kind == CATALOG_TOOLS || fetch->kind == CATALOG_PROMPTS;
    if (!scan_is_object(json))
        return "it is not an object, or not valid JSON";
    if (!scan_find(json, kind_rows[fetch->kind].key, raw) || !scan_is_string(*raw))
        return "it has no name or URI";
    return raw->len - 2 > (named ? NAME_MAX_BYTES : URI_MAX_BYTES) ? "its name or URI is too long" : NULL;
}

static void leave_out(struct fetch *fetch, const char *fault)
{
    if (++fetch->left_out <= LEFT_OUT_TOLD)
        log_warn("list item left out", LOG_STR("server", upstream_server(fetch->source->upstream)->name),
                 LOG_STR("what", kind_rows[fetch->kind].member), LOG_INT("index", fetch->index),
                 LOG_STR("detail", fault));
}

static void add_item(struct fetch *fetch, struct span json)
{
    struct span raw;
    struct source_list *list = &fetch->list;
    struct buf name = {0};
    const char *fault = find_fault(fetch, json, &raw);
    if (!fault) {
        scan_decode(raw, &name);
        if (scan_has_half(buf_span(&name)))  // servers and callers may decode it differently
            fault = "its name or URI contains a lone surrogate";
    }
    if (fault) {
        leave_out(fetch, fault);
    } else {
        if (list->count == list->room) {
            list->room = list->room ? list->room * 2 : 16;
            list->at = mem_resize(list->at, list->room * sizeof *list->at);
        }
        list->at[list->count++] =
            (struct source_item){arena_span(&list->text, buf_span(&name)), arena_span(&list->text, json)};
        buf_put_span(&fetch->seen, json);
    }
    fetch->index++;
    buf_release(&name);
}

// True: the list exceeds ITEMS_MAX, and the rest is ignored.
static bool add_items(struct fetch *fetch, struct span list)
{
    struct scan_walk walk = scan_walk(list);
    struct span item;
    while (scan_element(&walk, &item)) {
        if (fetch->index == ITEMS_MAX)
            return true;
        add_item(fetch, item);
    }
    return false;
}

// Delays the next fetch by the server's Retry-After.
static void put_off(struct source *source, const struct upstream_reply *reply)
{
    int64_t ms = reply->failure ? reply->failure->retry_after_ms : reply->retry_after_ms;
    if (ms)
        source->not_before = loop_now(source->loop) + (ms < PUT_OFF_MAX_MS ? ms : PUT_OFF_MAX_MS);
}

static void on_page(struct upstream_request *request, const struct upstream_reply *reply)
{
    struct fetch *fetch = request->arg;
    struct span list, item, cursor;
    const char *server = upstream_server(fetch->source->upstream)->name;
    if (reply->failure || !reply->result.at || !scan_find(reply->result, kind_rows[fetch->kind].member, &list) ||
        !scan_is_array(list)) {
        // After "method not found" the list is empty. Any other error may be temporary.
        bool none = reply->error.at && scan_find(reply->error, "code", &item) && span_is(item, "-32601");
        if (!none)
            log_warn("cannot list", LOG_STR("server", server), LOG_STR("what", kind_rows[fetch->kind].member),
                     LOG_STR("detail", reply->failure ? reply->failure->detail : "the server answered with an error"));
        put_off(fetch->source, reply);
        end(fetch, none);
        return;
    }
    bool rest = add_items(fetch, list);
    // An empty string is a valid cursor; the last page has no nextCursor.
    bool more = scan_find(reply->result, "nextCursor", &cursor) && scan_is_string(cursor);
    bool full = rest || (more && (++fetch->pages >= PAGES_MAX || fetch->seen.len > BYTES_MAX));
    if (full)
        log_warn("server lists too many items, the rest is left out", LOG_STR("server", server),
                 LOG_STR("what", kind_rows[fetch->kind].member), LOG_INT("items", fetch->index));
    if (full || !more) {
        if (fetch->left_out > LEFT_OUT_TOLD)
            log_warn("list items left out", LOG_STR("server", server), LOG_STR("what", kind_rows[fetch->kind].member),
                     LOG_INT("count", fetch->left_out));
        end(fetch, true);
        return;
    }
    char *copy = mem_span(cursor);
    send_page(fetch, span_make(copy, cursor.len));
    free(copy);
}

// ---- loading --------------------------------------------------------------------------------

// Lists of kinds that the server does not have any more.
static unsigned drop_lost(struct source *source)
{
    unsigned lost = 0;
    for (int kind = 0; kind < CATALOG_KINDS; kind++)
        if (source->lists[kind].count && !can(source, (enum catalog_kind)kind)) {
            list_release(&source->lists[kind]);
            lost |= 1U << kind;
        }
    return lost;
}

// Fetches all lists of a server that is ready. `since_ms`: when callers began to wait for them; 0: they do not wait.
static void fetch_all(struct source *source, int64_t since_ms)
{
    source->starting_ms = 0;
    source->failed = false;
    if (since_ms)
        mark_stale(source, ~0U, (struct source_pending){since_ms, false});
    unsigned lost = drop_lost(source);
    begin(source, ~0U);
    if (!source->running) {  // the server has no lists
        source->loaded = source->tried = true;
        source->restored = false;
    }
    if (lost || !source->running)
        source->on_change(source->arg, source, lost);
}

// `asked_ms`: when the first caller may have begun to wait.
static void load(struct source *source, int64_t asked_ms)
{
    enum upstream_state state = upstream_state(source->upstream);
    if (source->starting_ms || source->running || (source->loaded && !source->failed))
        return;
    if (state == UPSTREAM_BACKOFF || state == UPSTREAM_CLOSING || loop_now(source->loop) < source->not_before)
        return;
    int64_t since_ms = source->tried ? 0 : asked_ms;
    if (state == UPSTREAM_READY) {
        fetch_all(source, since_ms);
    } else {
        source->starting_ms = since_ms;
        upstream_start(source->upstream);  // when it is ready, source_refresh() is called
    }
}

void source_load(struct source *source)
{
    source->wanted = true;
    load(source, loop_now(source->loop));
}

void source_look_again(struct source *source)
{
    enum upstream_state state = upstream_state(source->upstream);
    bool looking = state == UPSTREAM_STARTING;  // it is being started by its own retry timer
    if ((state != UPSTREAM_BACKOFF && !looking) || !upstream_refusal(source->upstream))
        return;
    source->tried = source->failed = false;
    if (!source->starting_ms)
        source->starting_ms = loop_now(source->loop);
    if (!looking)
        upstream_start(source->upstream);
}

void source_refresh(struct source *source)
{
    int64_t since_ms = source->awaiting ? 0 : source->starting_ms;
    fetch_all(source, since_ms || source->restored ? since_ms : loop_now(source->loop));
}

void source_rests(struct source *source)
{
    loop_timer_stop(source->loop, &source->debounce);
    for (int kind = 0; kind < CATALOG_KINDS; kind++)
        source->fetches[kind].next = (struct source_pending){0};
    source->on_change(source->arg, source, 0);
}

void source_went_down(struct source *source)
{
    source->failed = true;
    source->tried |= source->starting_ms != 0;
    source->starting_ms = 0;
    source_rests(source);
}

// ---- what was kept --------------------------------------------------------------------------

void source_await_kept(struct source *source)
{
    source->awaiting = true;
    source->starting_ms = loop_now(source->loop);
}

static void restore_list(struct source *source, enum catalog_kind kind, struct span kept)
{
    struct fetch *fetch = &source->fetches[kind];
    struct span list;
    if (!can(source, kind) || !scan_find(kept, kind_rows[kind].member, &list) || !scan_is_array(list))
        return;
    fetch->index = fetch->left_out = 0;
    buf_clear(&fetch->seen);
    (void)add_items(fetch, list);
    replace(source, fetch);
    list_release(&fetch->list);
    buf_release(&fetch->seen);
}

static bool restore(struct source *source, struct span kept)
{
    struct span greeting;
    if (!kept.len || source->loaded || source->running || !scan_find(kept, "initialize", &greeting) ||
        !upstream_restore(source->upstream, greeting))
        return false;
    for (int kind = 0; kind < CATALOG_KINDS; kind++)
        restore_list(source, (enum catalog_kind)kind, kept);
    return source->loaded = source->tried = source->restored = true;
}

bool source_restore(struct source *source, struct span kept)
{
    int64_t since_ms = source->starting_ms ? source->starting_ms : loop_now(source->loop);
    source->awaiting = false;
    source->starting_ms = 0;
    bool restored = restore(source, kept);
    unsigned changed = source->changed;
    source->changed = 0;
    if (source->wanted)
        load(source, since_ms);  // those who waited for the lookup wait for the server now
    source->on_change(source->arg, source, changed);
    return restored;
}

bool source_awaits_kept(const struct source *source) { return source->awaiting; }

bool source_is_restored(const struct source *source, bool *wanted)
{
    *wanted = source->wanted;
    return source->restored;
}

bool source_is_busy(const struct source *source)
{
    return source->running || upstream_state(source->upstream) == UPSTREAM_STARTING;
}

void source_renew(struct source *source)
{
    if (source->restored && loop_now(source->loop) >= source->not_before)
        upstream_start(source->upstream);
}

void source_confirm(struct source *source)
{
    int64_t now = loop_now(source->loop);
    enum upstream_state state = upstream_state(source->upstream);
    if (!source->restored || state == UPSTREAM_BACKOFF || state == UPSTREAM_CLOSING || now < source->not_before)
        return;
    for (int kind = 0; kind < CATALOG_KINDS; kind++)
        if (source->running >> kind & 1 && !source->fetches[kind].running.since_ms)
            source->fetches[kind].running = (struct source_pending){now, false};
    if (state == UPSTREAM_READY)
        return;
    if (!source->starting_ms)
        source->starting_ms = now;
    upstream_start(source->upstream);
}

static void put_list(const struct source_list *list, struct buf *out)
{
    buf_put_char(out, '[');
    for (size_t i = 0; i < list->count; i++) {
        buf_put_text(out, i ? "," : "");
        buf_put_span(out, list->at[i].json);
    }
    buf_put_char(out, ']');
}

bool source_save(const struct source *source, struct buf *out)
{
    struct span greeting = upstream_greeting(source->upstream);
    if (!greeting.len || !source->loaded || source->failed || source->restored || source->running ||
        upstream_state(source->upstream) != UPSTREAM_READY)
        return false;
    buf_put_text(out, "{\"initialize\":");
    buf_put_span(out, greeting);
    for (int kind = 0; kind < CATALOG_KINDS; kind++) {
        buf_printf(out, ",\"%s\":", kind_rows[kind].member);
        put_list(&source->lists[kind], out);
    }
    buf_put_char(out, '}');
    return true;
}

static void on_debounce(struct loop_timer *timer) { begin_stale(timer->arg); }

void source_changed(struct source *source, enum catalog_kind kind)
{
    mark_stale(source, together(1U << kind), (struct source_pending){loop_now(source->loop), false});
    if (!source->debounce.slot)
        loop_timer_set(source->loop, &source->debounce, DEBOUNCE_MS);
}

void source_hurry(struct source *source)
{
    if (!source->debounce.slot)
        return;
    loop_timer_stop(source->loop, &source->debounce);
    begin_stale(source);
}

void source_answered(struct source *source)
{
    source->answered_ms = loop_now(source->loop);
    source->doubted = ~0U;
}

void source_doubt(struct source *source, enum catalog_kind kind)
{
    int64_t now = loop_now(source->loop);
    bool told = announces(source, kind) && now - source->answered_ms > UNDER_WAY_MS;
    if (upstream_state(source->upstream) != UPSTREAM_READY)
        return;
    if (told || !(source->doubted >> kind & 1) || now < source->not_before)
        return;
    mark_stale(source, together(1U << kind), (struct source_pending){now, true});
    begin_stale(source);
}

int64_t source_wait_until(const struct source *source, enum catalog_kind kind, int64_t asked_ms,
                          const struct source_patience *patience)
{
    int64_t until =
        source->starting_ms && source->starting_ms <= asked_ms ? source->starting_ms + patience->known_ms : 0;
    for (int i = 0; i < CATALOG_KINDS; i++) {
        const struct source_pending both[] = {source->fetches[i].running, source->fetches[i].next};
        for (size_t k = 0; together(1U << kind) >> i & 1 && k < 2; k++) {
            int64_t end = both[k].since_ms + (both[k].doubted ? patience->doubted_ms : patience->known_ms);
            if (both[k].since_ms && both[k].since_ms <= asked_ms && end > until)
                until = end;
        }
    }
    return until;
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
        fetch->request.list = kind_rows[kind].member;
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
        upstream_request_cancel(&source->fetches[kind].request, "closing");
        list_release(&source->fetches[kind].list);
        buf_release(&source->fetches[kind].seen);
        list_release(&source->lists[kind]);
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
