// Owns answers that are no stream: their headers, the challenge, errors, and the documents that anybody may read.
#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/scan.h"
#include "face.h"
#include "guard.h"
#include "mcp/message.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LARGE_BLOCK 65536
#define RETRY_AFTER "3"  // seconds, with 503

void visit_add_cors(const struct visit *visit, struct MHD_Response *response)
{
    if (visit->anywhere)
        MHD_add_response_header(response, "Access-Control-Allow-Origin", "*");
    if (!visit->origin.at || visit->anywhere)
        return;
    char *origin = mem_span(visit->origin);
    MHD_add_response_header(response, "Access-Control-Allow-Origin", origin);
    MHD_add_response_header(response, "Access-Control-Expose-Headers", "Mcp-Session-Id");
    MHD_add_response_header(response, "Vary", "Origin");
    free(origin);
}

enum MHD_Result visit_queue(struct visit *visit, int status, struct MHD_Response *response)
{
    if (visit->face->quiesced && !MHD_get_response_header(response, "Connection"))
        MHD_add_response_header(response, "Connection", "close");
    enum MHD_Result result = MHD_queue_response(visit->connection, (unsigned)status, response);
    MHD_destroy_response(response);
    return result;
}

struct span visit_path(const char *url)
{
    struct span path = span_of(url);
    while (path.len > 1 && path.at[path.len - 1] == '/')
        path.len--;
    return path;
}

bool visit_is_endpoint(struct span path, const char *name, struct span *profile)
{
    size_t len = strlen(name);
    *profile = (struct span){0};
    if (span_is(path, name))
        return true;
    if (!span_starts(path, name) || path.at[len] != '/' || !gate_is_profile_name(span_after(path, len + 1)))
        return false;
    *profile = span_after(path, len + 1);
    return true;
}

void visit_put_path(const struct visit *visit, struct buf *out)
{
    struct span profile = visit->arrival.profile;
    buf_put_text(out, profile.at ? "/mcp/" : "/mcp");
    buf_put_span(out, profile);
}

// RFC 9728: where callers learn who gives tokens for this gateway.
#define METADATA_PATH "/.well-known/oauth-protected-resource"

static void put_base(const struct visit *visit, struct buf *out)
{
    const char *url = visit->face->config->public_url;
    size_t len = url ? strlen(url) : 0;
    if (len)
        buf_put(out, url, url[len - 1] == '/' ? len - 1 : len);
    else
        buf_printf(out, "%s://%.*s", visit->face->tls ? "https" : "http", SPAN_ARG(visit->host));
}

// All scopes at once: a caller that came back for each of them would never be done.
static void put_scopes(const struct visit *visit, struct buf *out)
{
    const char *const *scopes = provider_chain_scopes(visit->face->chain);
    for (size_t i = 0; scopes && scopes[i]; i++)
        buf_printf(out, "%s%s", i ? " " : "", scopes[i]);
}

static void add_challenge(const struct visit *visit, struct MHD_Response *response)
{
    struct buf value = {0};
    bool scope = visit->answer.code == ERR_SCOPE, shown = visit->arrival.credentials.authorization.at != NULL;
    buf_put_text(&value, "Bearer");
    if (provider_chain_issuers(visit->face->chain)[0]) {
        buf_put_text(&value, " resource_metadata=\"");
        put_base(visit, &value);
        buf_put_text(&value, METADATA_PATH);
        visit_put_path(visit, &value);
        buf_put_char(&value, '"');
    }
    if (shown)
        buf_printf(&value, "%s error=\"%s\"", value.len > 6 ? "," : "", scope ? "insufficient_scope" : "invalid_token");
    if (scope) {
        buf_put_text(&value, ", scope=\"");
        put_scopes(visit, &value);
        buf_put_char(&value, '"');
    }
    MHD_add_response_header(response, "WWW-Authenticate", buf_text(&value));
    buf_release(&value);
}

// Whoever asks, from whatever page: how to get a token is no secret. Every profile that could be is answered for: which
// there are is not told here.
bool visit_is_metadata(struct visit *visit, const struct guard_line *line)
{
    struct span path = visit_path(line->url);
    bool asked = span_is(path, METADATA_PATH) || visit_is_endpoint(path, METADATA_PATH "/mcp", &visit->arrival.profile);
    return asked && provider_chain_issuers(visit->face->chain)[0] &&
           (strcmp(line->method, "GET") == 0 || strcmp(line->method, "HEAD") == 0 ||
            strcmp(line->method, "OPTIONS") == 0);
}

void visit_set_metadata(struct visit *visit)
{
    struct buf base = {0}, *out = &visit->answer.body;
    const char *const *issuers = provider_chain_issuers(visit->face->chain);
    put_base(visit, &base);
    visit_put_path(visit, &base);
    visit->state = VISIT_ANSWERED;
    visit->answer.status = 200;
    buf_put_text(out, "{\"resource\":");
    scan_encode_lossy(buf_span(&base), out);
    buf_put_text(out, ",\"authorization_servers\":[");
    for (size_t i = 0; issuers[i]; i++) {
        buf_put_text(out, i ? "," : "");
        scan_encode_lossy(span_of(issuers[i]), out);
    }
    const char *const *scopes = provider_chain_scopes(visit->face->chain);
    for (size_t i = 0; scopes && scopes[i]; i++) {
        buf_put_text(out, i ? "," : "],\"scopes_supported\":[");
        scan_encode_lossy(span_of(scopes[i]), out);
    }
    buf_put_text(out, "],\"bearer_methods_supported\":[\"header\"]}");
    buf_release(&base);
}

// What a server checks with who calls (auth.assertion): public, and the same for a while.
#define KEYS_PATH "/.well-known/jwks.json"

bool visit_is_keys(const struct visit *visit, const struct guard_line *line)
{
    return span_is(visit_path(line->url), KEYS_PATH) && gate_keys(visit->face->gate).len &&
           (strcmp(line->method, "GET") == 0 || strcmp(line->method, "HEAD") == 0 ||
            strcmp(line->method, "OPTIONS") == 0);
}

void visit_set_keys(struct visit *visit)
{
    visit->keys = true;
    visit->state = VISIT_ANSWERED;
    visit->answer.status = 200;
    buf_put_span(&visit->answer.body, gate_keys(visit->face->gate));
}

// How it is doing: one word for anybody. More is for those on this host who came by no proxy, as far as can be seen.
bool visit_is_health(const struct guard_line *line)
{
    return span_is(visit_path(line->url), "/healthz") &&
           (strcmp(line->method, "GET") == 0 || strcmp(line->method, "HEAD") == 0);
}

static bool is_at_home(const struct visit *visit)
{
    static const char *const marks[] = {"Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"};
    const struct peer *peer = &visit->caller->peer;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (MHD_lookup_connection_value(visit->connection, MHD_HEADER_KIND, marks[i]))
            return false;
    return (peer->loopback || peer->address.ss_family == AF_UNIX) && guard_is_loopback(visit->host);
}

void visit_set_health(struct visit *visit)
{
    visit->health = true;
    visit->state = VISIT_ANSWERED;
    visit->answer.status = gate_health(visit->face->gate, is_at_home(visit), &visit->answer.body) ? 200 : 503;
}

static void add_retry_after(struct MHD_Response *response, int64_t retry_ms)
{
    char seconds[24];
    snprintf(seconds, sizeof seconds, "%" PRId64, (retry_ms + 999) / 1000);
    MHD_add_response_header(response, "Retry-After", seconds);
}

static void forget_large(void *arg) { blob_unref(arg); }

// In parts, sent from where it is. Left to itself the library sends the head alone, and wakes the caller for it.
static struct MHD_Response *response_of_parts(struct visit *visit, struct blob *large)
{
    size_t count = blob_count(large);
    struct MHD_IoVec *parts = mem_alloc(count * sizeof *parts);
    for (size_t i = 0; i < count; i++)
        parts[i] = (struct MHD_IoVec){blob_part(large, i).at, blob_part(large, i).len};
    struct MHD_Response *response = MHD_create_response_from_iovec(parts, (unsigned)count, forget_large, large);
    CHECK(response);  // a blob is never as large as the library minds
    free(parts);
    visit->corked = true;
    caller_cork(visit->caller, true);
    return response;
}

static ssize_t read_large(void *arg, uint64_t position, char *to, size_t room)
{
    (void)position;
    struct visit *visit = arg;
    visit->caller->shard->active = true;
    return (ssize_t)blob_read(&visit->rest, to, room);
}

// Left to itself the library sends as much as the caller takes, and holds up the loop for tens of milliseconds: block by block.
static struct MHD_Response *response_in_blocks(struct visit *visit, struct blob *large)
{
    visit->large = large;
    visit->rest = (struct blob_reader){.blob = large};
    return MHD_create_response_from_callback(large->len, LARGE_BLOCK, read_large, visit, NULL);
}

static struct MHD_Response *response_of(struct visit *visit)
{
    struct answer *answer = &visit->answer;
    struct blob *large = answer->large;
    size_t len = 0;
    visit->answer_bytes = large ? large->len : answer->body.len;
    answer->large = NULL;
    if (large)
        return large->len > MESSAGE_LARGE ? response_in_blocks(visit, large) : response_of_parts(visit, large);
    if (!answer->body.len)
        return MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    char *text = buf_take(&answer->body, &len);
    return MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);
}

enum MHD_Result visit_send_answer(struct visit *visit)
{
    struct answer *answer = &visit->answer;
    bool body = answer->body.len > 0 || answer->large;
    if (!body && answer->status == 202 && !visit->origin.at && !*visit->session_id && !visit->face->quiesced)
        return MHD_queue_response(visit->connection, 202, visit->face->accepted);
    struct MHD_Response *response = response_of(visit);
    if (body)
        MHD_add_response_header(response, "Content-Type",
                                visit->keys ? "application/jwk-set+json" : "application/json");
    if (visit->keys)
        MHD_add_response_header(response, "Cache-Control", "public, max-age=300");
    if (visit->health)
        MHD_add_response_header(response, "Cache-Control", "no-store");
    if (*visit->session_id)
        MHD_add_response_header(response, "Mcp-Session-Id", visit->session_id);
    if (answer->status == 401 || answer->code == ERR_SCOPE)
        add_challenge(visit, response);
    if (answer->retry_ms)
        add_retry_after(response, answer->retry_ms);
    else if (answer->status == 503)
        MHD_add_response_header(response, "Retry-After", RETRY_AFTER);
    if (answer->status == 405)
        MHD_add_response_header(response, "Allow", "GET, POST, DELETE, OPTIONS");
    if (answer->status >= 400 && answer->status != 404 && answer->status != 405)
        MHD_add_response_header(response, "Connection", "close");
    visit_add_cors(visit, response);
    return visit_queue(visit, answer->status, response);
}

void visit_on_answer(struct arrival *arrival, struct answer *answer)
{
    struct visit *visit = arrival->arg;
    visit->state = VISIT_ANSWERED;
    visit->answer = *answer;
    visit->answer.session_id = NULL;
    answer->body = (struct buf){0};
    answer->large = NULL;
    if (answer->held)
        budget_hand_over(answer->held, &visit->held);
    if (answer->session_id)
        snprintf(visit->session_id, sizeof visit->session_id, "%s", answer->session_id);
    visit_resume(visit);
}

void visit_refuse(struct visit *visit, const struct err *err, int64_t retry_ms)
{
    struct buf members = {0};
    if (retry_ms)
        buf_printf(&members, "\"retryAfterMs\":%" PRId64, retry_ms);
    visit->state = VISIT_ANSWERED;
    visit->answer = (struct answer){.status = err_http_status(err->code), .retry_ms = retry_ms};
    message_put_error(&visit->answer.body, (struct span){0}, err->code, buf_span(&members));
    buf_release(&members);
    const struct identity *who = visit->arrival.who;
    log_info("request refused", LOG_STR("subject", who ? who->subject : "-"), LOG_STR("reason", err_reason(err->code)),
             LOG_STR("detail", err->detail));
}

void visit_set_error(struct visit *visit, const struct err *err) { visit_refuse(visit, err, 0); }
