// Owns the life of each request: its path, headers and body, handing it to the gate, and its answer.
//
// A request that waits for the gate is suspended if the answer does not come soon (shard.c).
#include "base/mem.h"
#include "extract.h"
#include "face.h"
#include "guard.h"
#include "page.h"
#include <stdlib.h>

static const struct arrival_ops arrival_ops = {http_answer_on_answer, http_stream_on_stream};

static bool read_target(struct http_exchange *exchange, const char *url, const char *method,
                        const struct guard_headers *headers, struct err *err)
{
    struct span path = http_path(url);
    bool mcp = http_path_is_endpoint(path, "/mcp", &exchange->arrival.profile);
    bool sse = span_is(path, "/sse"), messages = span_is(path, "/messages");
    bool post = strcmp(method, "POST") == 0, get = strcmp(method, "GET") == 0, end = strcmp(method, "DELETE") == 0;
    struct arrival *arrival = &exchange->arrival;
    if (!mcp && !sse && !messages)
        return err_set(err, span_starts(path, "/mcp/") ? ERR_NO_PROFILE : ERR_NOT_FOUND, "%s %.200s", method, url);
    if ((mcp && !post && !get && !end) || (sse && !get) || (messages && !post))
        return err_set(err, ERR_BAD_METHOD, "%.20s %.200s", method, url);
    const char *in_query = MHD_lookup_connection_value(exchange->connection, MHD_GET_ARGUMENT_KIND, "sessionId");
    arrival->session_id = headers->session_id;
    arrival->version = headers->version;
    arrival->last_event_id = headers->last_event_id;
    arrival->credentials.authorization = headers->authorization;
    if (post && (messages || (in_query && !headers->session_id.at))) {
        arrival->pipe = true;
        arrival->session_id = in_query ? span_of(in_query) : (struct span){0};
    }
    arrival->op = post                             ? ARRIVAL_MESSAGE
                  : end                            ? ARRIVAL_END
                  : sse || !headers->session_id.at ? ARRIVAL_PIPE
                                                   : ARRIVAL_LISTEN;
    if (arrival->op == ARRIVAL_PIPE)
        exchange->endpoint = sse ? ENDPOINT_MESSAGES : ENDPOINT_MCP;
    return true;
}

static bool check_headers(const struct http_exchange *exchange, const struct guard_headers *headers, struct err *err)
{
    struct span accept = headers->accept[0].at ? headers->accept[0] : (struct span){"", 0};
    bool events = guard_accepts(headers, "text/event-stream");
    switch (exchange->arrival.op) {
    case ARRIVAL_MESSAGE:
        if (!exchange->arrival.pipe && (!events || !guard_accepts(headers, "application/json")))
            return err_set(err, ERR_NOT_ACCEPTABLE, "Accept: %.*s", SPAN_ARG(accept));
        if (!headers->content_type.at || !guard_is_json(headers->content_type))
            return err_set(err, ERR_MEDIA_TYPE, "Content-Type: %.*s", SPAN_ARG(headers->content_type));
        break;
    case ARRIVAL_LISTEN:
    case ARRIVAL_PIPE:
        if (!events)
            return err_set(err, ERR_NOT_ACCEPTABLE_GET, "Accept: %.*s", SPAN_ARG(accept));
        break;
    case ARRIVAL_UNREAD:
    case ARRIVAL_END: break;
    }
    return true;
}

static void begin(struct http_exchange *exchange, const struct guard_line *line)
{
    struct http_face *face = exchange->face;
    struct guard_headers headers;
    struct err err = {0};
    int64_t retry_ms;
    bool keys = document_is_keys(exchange, line);
    exchange->http_1_0 = strcmp(line->version, MHD_HTTP_VERSION_1_0) == 0;
    exchange->anywhere = keys || document_is_metadata(exchange, line);
    if (!guard_size(exchange->connection, &face->config, &err) ||
        !guard_read(exchange->connection, line, &headers, &err) || !guard_host(&face->config, &headers, &err) ||
        (!exchange->anywhere && !guard_origin(&face->config, &headers, &err))) {
        if (err.code == ERR_BAD_FRAMING)
            gate_refused(face->gate, exchange->arrival.credentials.peer, err.code);
        http_answer_set_error(exchange, &err);
        return;
    }
    exchange->origin = headers.origin;
    exchange->host = headers.host;
    extract_headers(exchange->connection, provider_chain_headers(face->chain), &exchange->arrival.credentials);
    if (strcmp(line->method, "OPTIONS") == 0) {
        http_exchange_set_state(exchange, EXCHANGE_ANSWERED);
        exchange->answer.status = 204;
    } else if (keys) {
        document_set_keys(exchange);
    } else if (document_is_health(line)) {
        document_set_health(exchange);
    } else if (exchange->anywhere) {
        document_set_metadata(exchange);
    } else if (page_begin(exchange, line, &headers)) {
        return;
    } else if (!read_target(exchange, line->url, line->method, &headers, &err) ||
               !check_headers(exchange, &headers, &err) || !http_body_measure(exchange, &headers, &err)) {
        http_answer_set_error(exchange, &err);
    } else if (!gate_admit(face->gate, &exchange->arrival, &retry_ms, &err)) {
        http_answer_refuse(exchange, &err, retry_ms);
    } else {
        http_body_begin(exchange, &headers);
    }
}

static enum MHD_Result send_preflight(struct http_exchange *exchange)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, POST, DELETE");
    MHD_add_response_header(response, "Access-Control-Allow-Headers",
                            "Accept, Authorization, Content-Type, Last-Event-ID, Mcp-Session-Id, MCP-Protocol-Version");
    MHD_add_response_header(response, "Access-Control-Max-Age", "600");
    http_answer_add_cors(exchange, response);
    return http_answer_queue(exchange, 204, response);
}

static enum MHD_Result next_step(struct http_exchange *exchange)
{
    if (exchange->state >= EXCHANGE_WAITING)
        list_remove(&exchange->caller->listening);
    switch (exchange->state) {
    case EXCHANGE_ANSWERED:
        deadline_send(exchange->caller);
        if (exchange->page)
            return page_send(exchange);
        return exchange->answer.status == 204 ? send_preflight(exchange) : http_answer_send(exchange);
    case EXCHANGE_STREAMING: deadline_send(exchange->caller); return http_stream_send(exchange);
    case EXCHANGE_WAITING: shard_wait(exchange); return MHD_YES;
    case EXCHANGE_BODY:
    case EXCHANGE_SKIPPING: break;
    }
    return MHD_YES;
}

static struct http_exchange *exchange_new(struct http_face *face, struct MHD_Connection *connection)
{
    struct http_exchange *exchange = mem_new(struct http_exchange);
    struct caller *caller = caller_of(connection);
    if (face->tls && !caller->peer_known)
        tls_read_peer(connection, &caller->peer);
    caller->peer_known = true;
    caller->exchange = exchange;
    eviction_begin(caller);
    deadline_body(caller);
    exchange->face = face;
    exchange->connection = connection;
    exchange->caller = caller;
    exchange->arrival.ops = &arrival_ops;
    exchange->arrival.arg = exchange;
    exchange->chains = config_chains_ref(face->chains);
    exchange->arrival.credentials.chain = face->chain;
    exchange->arrival.credentials.local = face->listener.local;
    exchange->arrival.credentials.peer = &caller->peer;
    return exchange;
}

// The body is complete, or was skipped.
static void end_body(struct http_exchange *exchange)
{
    deadline_none(exchange->caller);
    if (exchange->state == EXCHANGE_SKIPPING) {
        http_exchange_set_state(exchange, EXCHANGE_ANSWERED);
        return;
    }
    http_exchange_set_state(exchange, EXCHANGE_WAITING);
    if (exchange->page)
        page_arrive(exchange);
    else
        gate_arrive(exchange->face->gate, &exchange->arrival);
}

enum MHD_Result request_on_request(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                                   const char *version, const char *upload, size_t *upload_size, void **state)
{
    struct http_exchange *exchange = *state;
    if (exchange && list_linked(&exchange->node))  // it is still waiting
        return MHD_YES;
    ((struct shard *)arg)->active = true;
    if (!exchange) {
        *state = exchange = exchange_new(((struct shard *)arg)->face, connection);
        begin(exchange, &(struct guard_line){method, url, version});
        return exchange->state == EXCHANGE_ANSWERED ? next_step(exchange) : MHD_YES;
    }
    if (exchange->state < EXCHANGE_WAITING && *upload_size) {
        exchange->received += *upload_size;
        http_body_take(exchange, span_make(upload, *upload_size));
        *upload_size = 0;
        return MHD_YES;
    }
    if (exchange->state < EXCHANGE_WAITING)
        end_body(exchange);
    return next_step(exchange);
}

static void exchange_free(void *object)
{
    struct http_exchange *exchange = object;
    page_free(exchange->page);
    buf_release(&exchange->arrival.body);
    identity_unref(exchange->arrival.who);
    config_chains_unref(exchange->chains);
    buf_release(&exchange->answer.body);
    blob_unref(exchange->answer.large);
    buf_release(&exchange->out);
    blob_unref(exchange->large);
    free(exchange);
}

void request_on_completed(void *arg, struct MHD_Connection *connection, void **state,
                          enum MHD_RequestTerminationCode why)
{
    (void)connection;
    (void)why;
    struct http_exchange *exchange = *state;
    ((struct shard *)arg)->active = true;
    if (!exchange)
        return;
    struct http_face *face = exchange->face;
    *state = NULL;
    list_remove(&exchange->node);
    page_gone(exchange);
    gate_gone(face->gate, &exchange->arrival);
    budget_close(&exchange->arrival.held);
    budget_close(&exchange->held);
    if (exchange->corked)
        caller_cork(exchange->caller, false);
    list_remove(&exchange->beat);
    if (exchange->stream) {
        stream_detach(exchange->stream, exchange);
        loop_unwatch(face->loop, &exchange->caller->hangup);
        stream_unref(exchange->stream);
        if (exchange->endpoint)  // an HTTP+SSE session lives as long as its stream
            gate_pipe_closed(face->gate, span_of(exchange->session_id));
    }
    eviction_end(exchange->caller);
    exchange->caller->exchange = NULL;
    deadline_idle(exchange->caller);
    if (!list_linked(&exchange->caller->listening))
        list_append(&face->listening, &exchange->caller->listening);
    loop_reap(face->loop, exchange, exchange_free);
}
