// Owns fetching an issuer's keys: discovery, refresh, back-off, and a rate-limited fetch when a key is missing.
//
// Keys are kept as long as the issuer allows (Cache-Control), within bounds, and fetched again after four fifths of
// that time.
//
//   IDLE ── start, due, or a missing key ──► DISCOVERING ──► FETCHING ──► IDLE (new keys, or the old ones stay)
//
// If they cannot be fetched again, keys remain in use for 24 hours after the last successful fetch. Waiting calls are
// resumed when a fetch ends, and after three seconds in any case; the loop never waits.
#include "jwks_source.h"
#include "base/log.h"
#include "base/mem.h"
#include "jwks_misses.h"
#include "loop/address.h"
#include "loop/http_url.h"
#include <stdlib.h>
#include <strings.h>

#define WAIT_MS 3000
#define FETCH_TIMEOUT_MS 5000
#define RETRY_FIRST_MS 1000
#define RETRY_MAX_MS (60 * 1000)
#define STALE_MS (24LL * 3600 * 1000)

struct jwks_source {
    struct loop *loop;
    struct http_client *http;
    char *issuer, *uri;
    bool discovered;  // uri is from the issuer's metadata
    struct address_policy addresses;
    struct http_target *target;
    struct http_transfer *transfer;
    bool discovering;
    int status;
    struct buf body, last;  // last: the document that `keys` was parsed from
    struct jwks *keys;
    int64_t keys_at_ms, retry_ms, lifetime_ms;
    uint64_t failures;  // since the last successful fetch
    struct jwks_misses misses;
    struct loop_timer due, deadline;
    struct list waiting;
    void (*on_change)(void *arg);
    void *arg;
};

static const struct http_events events;

static void wake(struct jwks_source *source)
{
    loop_timer_stop(source->loop, &source->deadline);
    while (!list_empty(&source->waiting)) {
        struct provider_wait *wait = list_entry(source->waiting.next, struct provider_wait, node);
        list_remove(&wait->node);
        wait->waited = true;
        wait->resume(wait->arg);
    }
}

static void on_deadline(struct loop_timer *timer) { wake(timer->arg); }

// A configured URL may have any address. A URL from the metadata may have a public address, or the address that the
// configured URL has (J13, N3, N4).
static void get(struct jwks_source *source, const char *url)
{
    struct http_request request = {
        .method = HTTP_GET, .timeout_ms = FETCH_TIMEOUT_MS, .events = &events, .arg = source};
    buf_clear(&source->body);
    source->body.max = JWKS_TEXT_MAX;
    source->status = 0;
    http_target_free(source->target);
    source->target = http_target_new(source->http, url, FETCH_TIMEOUT_MS);
    if (!source->discovered)
        source->addresses = (struct address_policy){.learning = true};
    else
        source->addresses.learning = false;
    http_target_guard(source->target, address_policy_allows, &source->addresses);
    http_target_header(source->target, "Accept", "application/json");
    source->transfer = http_transfer_start(source->target, &request);
}

static void begin(struct jwks_source *source)
{
    if (source->transfer)
        return;
    loop_timer_stop(source->loop, &source->due);
    source->discovering = source->uri == NULL;
    if (!source->discovering) {
        get(source, source->uri);
        return;
    }
    struct buf url = {0};
    size_t len = strlen(source->issuer);
    bool slash = len && source->issuer[len - 1] == '/';
    buf_printf(&url, "%s%s.well-known/openid-configuration", source->issuer, slash ? "" : "/");
    get(source, buf_text(&url));
    buf_release(&url);
}

static void on_due(struct loop_timer *timer) { begin(timer->arg); }

static void failed(struct jwks_source *source, const char *why)
{
    log_warn("cannot fetch the keys of an issuer", LOG_STR("issuer", source->issuer), LOG_STR("detail", why),
             LOG_STR("keys", source->keys ? "old keys stay in use" : "none"));
    source->failures++;
    source->retry_ms = source->retry_ms ? source->retry_ms * 2 : RETRY_FIRST_MS;
    if (source->retry_ms > RETRY_MAX_MS)
        source->retry_ms = RETRY_MAX_MS;
    if (source->discovered) {  // the keys may have moved: discover them again
        free(source->uri);
        source->uri = NULL;
        source->discovered = false;
    }
    loop_timer_set(source->loop, &source->due, source->retry_ms);
    wake(source);
}

static void take_keys(struct jwks_source *source)
{
    struct err err = {0};
    bool same = source->keys && span_equal(buf_span(&source->body), buf_span(&source->last));
    struct jwks *keys =
        same ? NULL : jwks_parse(buf_span(&source->body), &err);  // parsing checks every key, which is expensive
    if (!same && !keys) {
        failed(source, err.detail);
        return;
    }
    source->retry_ms = 0;
    source->failures = 0;
    source->keys_at_ms = loop_now(source->loop);
    loop_timer_set(source->loop, &source->due, source->lifetime_ms / 5 * 4);
    if (same) {
        wake(source);
        return;
    }
    jwks_free(source->keys);
    source->keys = keys;
    buf_clear(&source->last);
    buf_put_span(&source->last, buf_span(&source->body));
    log_info("fetched the keys of an issuer", LOG_STR("issuer", source->issuer), LOG_INT("keys", jwks_count(keys)),
             LOG_INT("skipped", jwks_skipped(keys)), LOG_STR("problem", jwks_problem(keys) ? jwks_problem(keys) : "-"));
    source->on_change(source->arg);
    wake(source);
}

static void take_metadata(struct jwks_source *source)
{
    struct err err = {0};
    json_t *tree = json_parse(buf_span(&source->body), "metadata", &err);
    const char *issuer = json_string_value(json_object_get(tree, "issuer"));
    const char *uri = json_string_value(json_object_get(tree, "jwks_uri"));
    if (!issuer || strcmp(issuer, source->issuer) != 0)
        failed(source, tree ? "the issuer's metadata name another issuer" : err.detail);
    else if (!uri || !http_url_valid(uri) || !jwks_source_may_fetch(uri, source->issuer))
        failed(source, "the issuer's metadata do not contain a jwks_uri that the gateway may fetch");
    else {
        source->uri = mem_string(uri);
        source->discovered = true;
        begin(source);
    }
    json_decref(tree);
}

static void on_head(void *arg, struct http_transfer *transfer, int status)
{
    struct jwks_source *source = arg;
    source->status = status;
    address_policy_learn(&source->addresses, http_transfer_address(transfer));
    source->lifetime_ms = jwks_lifetime(http_transfer_header(transfer, "Cache-Control")) * 1000;
}

static bool on_data(void *arg, struct span bytes)
{
    struct jwks_source *source = arg;
    buf_put_span(&source->body, bytes);
    return !source->body.overflow;
}

static void on_done(void *arg, const struct err *err)
{
    struct jwks_source *source = arg;
    source->transfer = NULL;
    struct err problem = {0};
    if (!err && source->status != 200)
        (void)err_set(&problem, ERR_UNAVAILABLE, "the server answered HTTP %d", source->status);
    else if (err && source->body.overflow)
        (void)err_set(&problem, ERR_UNAVAILABLE, "the document is larger than %zu bytes", source->body.max);
    else if (err)
        problem = *err;
    if (problem.code)
        failed(source, problem.detail);
    else if (source->discovering)
        take_metadata(source);
    else
        take_keys(source);
}

static const struct http_events events = {on_head, on_data, on_done, NULL, NULL};

bool jwks_source_may_fetch(const char *url, const char *on_word_of)
{
    bool local = http_url_is_loopback(url);
    bool plain = strncasecmp(url, "http://", 7) == 0, secure = strncasecmp(url, "https://", 8) == 0;
    return (secure || (plain && local)) && (!local || http_url_is_loopback(on_word_of));
}

struct jwks_source *jwks_source_new(const struct provider_world *world, const char *issuer, const char *jwks_uri,
                                    void (*on_change)(void *arg), void *arg)
{
    struct jwks_source *source = mem_new(struct jwks_source);
    source->loop = world->loop;
    source->http = world->http;
    source->issuer = mem_string(issuer);
    source->uri = mem_string(jwks_uri);
    source->on_change = on_change;
    source->arg = arg;
    source->due = (struct loop_timer){.on_due = on_due, .arg = source, .name = "key fetch"};
    source->deadline = (struct loop_timer){.on_due = on_deadline, .arg = source, .name = "key fetch"};
    list_init(&source->waiting);
    begin(source);
    return source;
}

void jwks_source_free(struct jwks_source *source)
{
    if (!source)
        return;
    if (source->transfer)
        http_transfer_cancel(source->transfer);
    http_target_free(source->target);
    loop_timer_stop(source->loop, &source->due);
    loop_timer_stop(source->loop, &source->deadline);
    jwks_free(source->keys);
    buf_release(&source->body);
    buf_release(&source->last);
    free(source->issuer);
    free(source->uri);
    free(source);
}

const struct jwks *jwks_source_keys(const struct jwks_source *source)
{
    bool stale = loop_now(source->loop) - source->keys_at_ms > STALE_MS;
    return stale ? NULL : source->keys;
}

bool jwks_source_miss(struct jwks_source *source, struct span kid)
{
    if (source->transfer)
        return true;
    if (!jwks_misses_may_fetch(&source->misses, kid, loop_now(source->loop)))
        return false;
    begin(source);
    return true;
}

bool jwks_source_fetching(const struct jwks_source *source) { return source->transfer != NULL; }
bool jwks_source_failing(const struct jwks_source *source) { return source->failures != 0; }

void jwks_source_health(const struct jwks_source *source, struct provider_health *out)
{
    out->failures = source->failures;
    out->keys_age_ms = source->keys ? loop_now(source->loop) - source->keys_at_ms : -1;
}

void jwks_source_wait(struct jwks_source *source, struct provider_wait *wait)
{
    list_append(&source->waiting, &wait->node);
    if (!source->deadline.slot)
        loop_timer_set(source->loop, &source->deadline, WAIT_MS);
}
