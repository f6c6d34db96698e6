// Owns answers that are not streams: their headers, the challenge and errors.
#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/scan.h"
#include "face.h"
#include "mcp/message.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LARGE_BLOCK 65536
#define RETRY_AFTER "3"  // seconds, with 503

void http_answer_add_cors(const struct http_exchange *exchange, struct MHD_Response *response)
{
    if (exchange->anywhere)
        MHD_add_response_header(response, "Access-Control-Allow-Origin", "*");
    if (!exchange->origin.at || exchange->anywhere)
        return;
    char *origin = mem_span(exchange->origin);
    MHD_add_response_header(response, "Access-Control-Allow-Origin", origin);
    MHD_add_response_header(response, "Access-Control-Expose-Headers", "Mcp-Session-Id");
    MHD_add_response_header(response, "Vary", "Origin");
    free(origin);
}

enum MHD_Result http_answer_queue(struct http_exchange *exchange, int status, struct MHD_Response *response)
{
    if (exchange->face->quiesced && !MHD_get_response_header(response, "Connection"))
        MHD_add_response_header(response, "Connection", "close");
    enum MHD_Result result = MHD_queue_response(exchange->connection, (unsigned)status, response);
    MHD_destroy_response(response);
    return result;
}

// All scopes are named at once, so that a caller does not need one more authorization for each of them.
static void put_scopes(const struct http_exchange *exchange, struct buf *out)
{
    const char *const *scopes = provider_chain_scopes(exchange->face->chain);
    for (size_t i = 0; scopes && scopes[i]; i++)
        buf_printf(out, "%s%s", i ? " " : "", scopes[i]);
}

static void add_challenge(const struct http_exchange *exchange, struct MHD_Response *response)
{
    struct buf value = {0};
    bool scope = exchange->answer.code == ERR_SCOPE, shown = exchange->arrival.credentials.authorization.at != NULL;
    buf_put_text(&value, "Bearer");
    if (provider_chain_issuers(exchange->face->chain)[0]) {
        buf_put_text(&value, " resource_metadata=\"");
        http_path_put_base(exchange, &value);
        buf_put_text(&value, DOCUMENT_METADATA_PATH);
        http_path_put(exchange, &value);
        buf_put_char(&value, '"');
    }
    if (shown)
        buf_printf(&value, "%s error=\"%s\"", value.len > 6 ? "," : "", scope ? "insufficient_scope" : "invalid_token");
    if (scope) {
        buf_put_text(&value, ", scope=\"");
        put_scopes(exchange, &value);
        buf_put_char(&value, '"');
    }
    MHD_add_response_header(response, "WWW-Authenticate", buf_text(&value));
    buf_release(&value);
}

static void add_retry_after(struct MHD_Response *response, int64_t retry_ms)
{
    char seconds[24];
    snprintf(seconds, sizeof seconds, "%" PRId64, (retry_ms + 999) / 1000);
    MHD_add_response_header(response, "Retry-After", seconds);
}

static void forget_large(void *arg) { blob_unref(arg); }

// A blob in one part, which the library sends together with the head.
static struct MHD_Response *response_of_run(struct blob *large)
{
    struct span text = blob_part(large, 0);
    return MHD_create_response_from_buffer_with_free_callback_cls(text.len, (void *)(uintptr_t)text.at, forget_large,
                                                                  large);
}

// A blob in several parts, sent without copying. By default the library sends the head in a segment of its own, which would
// wake the caller too early, so the connection is corked.
static struct MHD_Response *response_of_parts(struct http_exchange *exchange, struct blob *large)
{
    size_t count = blob_count(large);
    struct MHD_IoVec *parts = mem_alloc(count * sizeof *parts);
    for (size_t i = 0; i < count; i++)
        parts[i] = (struct MHD_IoVec){blob_part(large, i).at, blob_part(large, i).len};
    struct MHD_Response *response = MHD_create_response_from_iovec(parts, (unsigned)count, forget_large, large);
    CHECK(response);  // a blob is below the size limit of the library
    free(parts);
    exchange->corked = true;
    caller_cork(exchange->caller, true);
    return response;
}

static ssize_t read_large(void *arg, uint64_t position, char *to, size_t room)
{
    (void)position;
    struct http_exchange *exchange = arg;
    exchange->caller->shard->active = true;
    return (ssize_t)blob_read(&exchange->rest, to, room);
}

// A very large blob is sent block by block. Otherwise the library would write as much as the socket takes in one turn and block
// the loop for tens of milliseconds.
static struct MHD_Response *response_in_blocks(struct http_exchange *exchange, struct blob *large)
{
    exchange->large = large;
    exchange->rest = (struct blob_reader){.blob = large};
    return MHD_create_response_from_callback(large->len, LARGE_BLOCK, read_large, exchange, NULL);
}

static struct MHD_Response *response_of(struct http_exchange *exchange)
{
    struct answer *answer = &exchange->answer;
    struct blob *large = answer->large;
    size_t len = 0;
    exchange->answer_bytes = large ? large->len : answer->body.len;
    answer->large = NULL;
    if (large && large->len > MESSAGE_LARGE)
        return response_in_blocks(exchange, large);
    if (large)
        return blob_count(large) == 1 ? response_of_run(large) : response_of_parts(exchange, large);
    if (!answer->body.len)
        return MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    char *text = buf_take(&answer->body, &len);
    return MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);
}

enum MHD_Result http_answer_send(struct http_exchange *exchange)
{
    struct answer *answer = &exchange->answer;
    bool body = answer->body.len > 0 || answer->large;
    if (!body && answer->status == 202 && !exchange->origin.at && !*exchange->session_id && !exchange->face->quiesced)
        return MHD_queue_response(exchange->connection, 202, exchange->face->accepted);
    struct MHD_Response *response = response_of(exchange);
    if (body)
        MHD_add_response_header(response, "Content-Type",
                                exchange->keys ? "application/jwk-set+json" : "application/json");
    if (exchange->keys)
        MHD_add_response_header(response, "Cache-Control", "public, max-age=300");
    if (exchange->health)
        MHD_add_response_header(response, "Cache-Control", "no-store");
    if (*exchange->session_id)
        MHD_add_response_header(response, "Mcp-Session-Id", exchange->session_id);
    if (answer->status == 401 || answer->code == ERR_SCOPE)
        add_challenge(exchange, response);
    if (answer->retry_ms)
        add_retry_after(response, answer->retry_ms);
    else if (answer->status == 503)
        MHD_add_response_header(response, "Retry-After", RETRY_AFTER);
    if (answer->status == 405)
        MHD_add_response_header(response, "Allow", "GET, POST, DELETE, OPTIONS");
    if (answer->status >= 400 && answer->status != 404 && answer->status != 405)
        MHD_add_response_header(response, "Connection", "close");
    http_answer_add_cors(exchange, response);
    return http_answer_queue(exchange, answer->status, response);
}

void http_answer_on_answer(struct arrival *arrival, struct answer *answer)
{
    struct http_exchange *exchange = arrival->arg;
    http_exchange_set_state(exchange, EXCHANGE_ANSWERED);
    exchange->answer = *answer;
    exchange->answer.session_id = NULL;
    answer->body = (struct buf){0};
    answer->large = NULL;
    if (answer->held)
        budget_hand_over(answer->held, &exchange->held);
    if (answer->session_id)
        snprintf(exchange->session_id, sizeof exchange->session_id, "%s", answer->session_id);
    http_exchange_resume(exchange);
}

static void put_refusal(struct http_exchange *exchange, const struct err *err, int64_t retry_ms)
{
    struct buf members = {0};
    if (retry_ms)
        buf_printf(&members, "\"retryAfterMs\":%" PRId64, retry_ms);
    exchange->answer = (struct answer){.status = err_http_status(err->code), .retry_ms = retry_ms};
    message_put_error(&exchange->answer.body, (struct span){0}, err->code, buf_span(&members));
    buf_release(&members);
    const struct identity *who = exchange->arrival.who;
    log_info("request refused", LOG_STR("subject", who ? who->subject : "-"), LOG_STR("reason", err_reason(err->code)),
             LOG_STR("detail", err->detail));
}

void http_answer_refuse(struct http_exchange *exchange, const struct err *err, int64_t retry_ms)
{
    http_exchange_set_state(exchange, EXCHANGE_ANSWERED);
    put_refusal(exchange, err, retry_ms);
}

void http_answer_refuse_body(struct http_exchange *exchange, const struct err *err, int64_t retry_ms)
{
    http_exchange_set_state(exchange, EXCHANGE_SKIPPING);
    put_refusal(exchange, err, retry_ms);
}

void http_answer_set_error(struct http_exchange *exchange, const struct err *err)
{
    http_answer_refuse(exchange, err, 0);
}
