// A gate as in `postern serve`, for tests that cover several rooms: a real loop, configuration, policy and audit log; arrivals
// that record their answers; and a server process whose messages the test writes.
//
// The server `s` copies between its pipes and two FIFOs of the test. The fixture answers the handshake and the lists. It records
// all other messages, and the test answers them.
#ifndef GATE_FIXTURE_H
#define GATE_FIXTURE_H

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "folder.h"
#include "gate/gate.h"
#include "gate/relay/relay.h"
#include "run_until.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// One arrival and its answer.
struct exchange {
    struct exchange *next;
    struct arrival arrival;
    int answers, streams;  // how often on_answer() and on_stream() were called
    int status;
    enum err_code code;
    char session[SESSION_ID_LEN + 1];  // from the answer to `initialize`
    struct stream *stream;
    struct buf text;  // the answer, or the messages of the stream, each with a line end
    int cuts;
};

static struct fixture {
    char audit_path[96];
    struct loop *loop;
    struct http_client *http;
    struct offload *background;
    struct config *config;
    struct config_chains *chains;
    struct audit *audit;
    struct gate *gate;
    struct exchange *exchanges;
    bool stopped;
    int log, stderr_copy;  // the log goes to a file, so tests print to standard output
    struct {
        int to, from;
        struct loop_watch watch;
        struct buf in;
        json_t *received;   // all messages except those of the handshake and the lists
        bool keeps_quiet;   // does not answer `initialize`
        bool tests_answer;  // subscriptions and log levels, which the fixture answers otherwise
        json_t *unstarted;  // an `initialize` without an answer
        const char *tools, *resources;
        unsigned listed;  // how often its tools were requested
    } server;
} f;

// ---- the loop -------------------------------------------------------------------------------

// Runs everything that is due now.
static inline void run_briefly(void) { run_loop_briefly(f.loop); }

#define run_until(condition) run_loop_until(f.loop, condition)

// ---- the server -----------------------------------------------------------------------------

static inline void server_says(const char *line)
{
    size_t len = strlen(line);
    assert_int_equal(write(f.server.to, line, len), len);
    assert_int_equal(write(f.server.to, "\n", 1), 1);
}

// The server answers the request with this result, which is JSON.
static inline void server_answers(const json_t *request, const char *result)
{
    struct buf line = {0};
    char *id = json_dumps(json_object_get(request, "id"), JSON_ENCODE_ANY);
    buf_printf(&line, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}", id, result);
    server_says(buf_text(&line));
    buf_release(&line);
    free(id);
}

static inline const char *fixture_method(const json_t *message)
{
    const char *method = json_string_value(json_object_get(message, "method"));
    return method ? method : "";
}

static inline void server_starts(void)
{
    server_answers(f.server.unstarted,
                   "{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"tools\":{\"listChanged\":true},"
                   "\"resources\":{\"subscribe\":true},\"logging\":{},\"tasks\":{\"list\":{},\"cancel\":{},"
                   "\"requests\":{\"tools\":{\"call\":{}}}}},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}");
    json_decref(f.server.unstarted);
    f.server.unstarted = NULL;
}

// Answers the handshake and the lists; false for all other messages.
static inline bool fixture_answer(json_t *message)
{
    char result[512];
    const char *method = fixture_method(message);
    if (strcmp(method, "initialize") == 0) {
        f.server.unstarted = json_incref(message);
        if (!f.server.keeps_quiet)
            server_starts();
    } else if (strcmp(method, "tools/list") == 0) {
        snprintf(result, sizeof result, "{\"tools\":%s}", f.server.tools);
        server_answers(message, result);
        f.server.listed++;
    } else if (strcmp(method, "resources/list") == 0) {
        snprintf(result, sizeof result, "{\"resources\":%s}", f.server.resources);
        server_answers(message, result);
    } else if (strcmp(method, "resources/templates/list") == 0) {
        server_answers(message, "{\"resourceTemplates\":[]}");
    } else {
        return strcmp(method, "notifications/initialized") == 0;
    }
    return true;
}

static inline void fixture_receive(struct span line)
{
    static const char *const acknowledged[] = {"logging/setLevel", "resources/subscribe", "resources/unsubscribe"};
    json_t *message = json_loadb(line.at, line.len, 0, NULL);
    assert_non_null(message);
    if (!fixture_answer(message)) {
        json_array_append(f.server.received, message);
        for (size_t i = 0; i < COUNT(acknowledged) && !f.server.tests_answer; i++)
            if (strcmp(fixture_method(message), acknowledged[i]) == 0)
                server_answers(message, "{}");
    }
    json_decref(message);
}

static inline void fixture_on_line(struct loop_watch *watch, unsigned events)
{
    (void)events;
    char bytes[4096];
    struct buf *in = &f.server.in;
    ssize_t got = read(watch->fd, bytes, sizeof bytes);
    if (got > 0)
        buf_put(in, bytes, (size_t)got);
    for (char *end; in->len && (end = memchr(in->at, '\n', in->len));) {
        size_t len = (size_t)(end - in->at);
        fixture_receive(span_make(in->at, len));
        memmove(in->at, end + 1, in->len - len - 1);
        in->len -= len + 1;
    }
}

// The last message with this method that the server received, or NULL. The method "" stands for answers.
static inline json_t *server_received(const char *method)
{
    for (size_t i = json_array_size(f.server.received); i--;) {
        json_t *message = json_array_get(f.server.received, i);
        if (strcmp(fixture_method(message), method) == 0)
            return message;
    }
    return NULL;
}

static inline size_t server_received_count(const char *method)
{
    size_t i, count = 0;
    json_t *message;
    json_array_foreach(f.server.received, i, message)
        count += strcmp(fixture_method(message), method) == 0;
    return count;
}

static inline void assert_json_at(const json_t *got, const char *want, const char *file, int line)
{
    json_t *wanted = json_loads(want, JSON_DECODE_ANY, NULL);
    if (!json_equal(got, wanted)) {
        char *text = got ? json_dumps(got, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
        print_message("got %s, want %s\n", text ? text : "nothing", want);
        free(text);
        json_decref(wanted);
        _fail(file, line);
    }
    json_decref(wanted);
}

#define assert_json(got, want) assert_json_at((got), (want), __FILE__, __LINE__)

static inline int fixture_fifo(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    assert_true(mkfifo(path, 0600) == 0 || errno == EEXIST);
    int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static inline struct link *server_link(void)
{
    void *value = NULL;
    size_t at = 0;
    (void)map_next(&f.gate->links, &at, NULL, &value);
    return value;
}

static inline bool server_is_up(void)
{
    return server_link() && upstream_state(server_link()->upstream) == UPSTREAM_READY &&
           source_loaded(server_link()->source);
}

// Ends the process of the server. The next request starts another process.
static inline void server_dies(void)
{
    close(f.server.to);
    run_until(upstream_state(server_link()->upstream) == UPSTREAM_DOWN);
    f.server.to = fixture_fifo("to");
}

// ---- callers --------------------------------------------------------------------------------

static inline void fixture_put_blob(struct buf *out, const struct blob *blob)
{
    for (size_t i = 0; i < blob_count(blob); i++)
        buf_put_span(out, blob_part(blob, i));
}

static inline void on_answer(struct arrival *arrival, struct answer *answer)
{
    struct exchange *exchange = arrival->arg;
    exchange->answers++;
    exchange->status = answer->status;
    exchange->code = answer->code;
    snprintf(exchange->session, sizeof exchange->session, "%s", answer->session_id ? answer->session_id : "");
    buf_put_span(&exchange->text, buf_span(&answer->body));
    buf_release(&answer->body);
    if (answer->large)
        fixture_put_blob(&exchange->text, answer->large);
    blob_unref(answer->large);
}

static inline void fixture_on_wake(void *arg)
{
    struct exchange *exchange = arg;
    struct stream_item item;
    while (stream_pull(exchange->stream, &item))
        if (item.message) {
            fixture_put_blob(&exchange->text, item.message);
            buf_put_char(&exchange->text, '\n');
        }
}

static inline void fixture_on_cut(void *arg) { ((struct exchange *)arg)->cuts++; }

static inline void on_stream(struct arrival *arrival, struct stream *stream, const char *session_id)
{
    struct exchange *exchange = arrival->arg;
    exchange->streams++;
    snprintf(exchange->session, sizeof exchange->session, "%s", session_id ? session_id : "");
    exchange->stream = stream_ref(stream);
    stream_attach(stream, &(struct stream_sink){fixture_on_wake, fixture_on_cut, exchange});
    fixture_on_wake(exchange);
}

// Makes an arrival that has not arrived, so that the test can change it.
static inline struct exchange *exchange_new(enum arrival_op op, const char *session, const char *body)
{
    static const struct arrival_ops ops = {on_answer, on_stream};
    struct exchange *exchange = mem_new(struct exchange);
    exchange->next = f.exchanges;
    f.exchanges = exchange;
    exchange->arrival = (struct arrival){.op = op, .ops = &ops, .arg = exchange};
    exchange->arrival.credentials =
        (struct credentials){.chain = config_chains_of(f.chains, f.config, NULL), .local = true};
    exchange->arrival.session_id = session ? span_of(session) : (struct span){0};
    if (body)
        buf_put_text(&exchange->arrival.body, body);
    return exchange;
}

static inline struct exchange *arrive(enum arrival_op op, const char *session, const char *body)
{
    struct exchange *exchange = exchange_new(op, session, body);
    gate_arrive(f.gate, &exchange->arrival);
    return exchange;
}

static inline struct exchange *send_message(const char *session, const char *body)
{
    return arrive(ARRIVAL_MESSAGE, session, body);
}

static inline bool is_over(const struct exchange *exchange)
{
    return exchange->answers || (exchange->stream && stream_over(exchange->stream));
}

static inline const char *text_of(struct exchange *exchange) { return buf_text(&exchange->text); }

// The caller disconnects.
static inline void hang_up(struct exchange *exchange)
{
    gate_gone(f.gate, &exchange->arrival);
    if (exchange->stream)
        stream_detach(exchange->stream, exchange);
}

// Opens and initializes a session; `capabilities` is JSON.
static inline char *open_session(const char *revision, const char *capabilities)
{
    char body[512];
    snprintf(body, sizeof body,
             "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"%s\","
             "\"capabilities\":%s,\"clientInfo\":{\"name\":\"t\",\"version\":\"1\"}}}",
             revision, capabilities);
    struct exchange *exchange = send_message(NULL, body);
    assert_int_equal(exchange->status, 200);
    assert_int_equal(strlen(exchange->session), SESSION_ID_LEN);
    struct exchange *ready =
        send_message(exchange->session, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}");
    assert_int_equal(ready->status, 202);
    return exchange->session;
}

static inline struct session *session_of(const char *id) { return session_find(f.gate, span_of(id)); }

static inline struct exchange *listen_to(const char *session)
{
    struct exchange *exchange = arrive(ARRIVAL_LISTEN, session, NULL);
    assert_int_equal(exchange->streams, 1);
    return exchange;
}

// Calls the tool of the server; returns when the server has received the call.
static inline struct exchange *call_tool(const char *session, const char *id)
{
    char body[256];
    size_t before = server_received_count("tools/call");
    snprintf(body, sizeof body,
             "{\"jsonrpc\":\"2.0\",\"id\":%s,\"method\":\"tools/call\",\"params\":{\"name\":\"s__go\","
             "\"arguments\":{}}}",
             id);
    struct exchange *exchange = send_message(session, body);
    run_until(server_received_count("tools/call") > before);
    return exchange;
}

// ---- policies -------------------------------------------------------------------------------

// A policy with one rule, which allows anonymous callers these names of the server, or all names if NULL.
static inline struct policy *policy_allowing(const char *kind, const char *name)
{
    struct err err = {0};
    struct policy_findings findings = {0};
    json_t *tree = json_pack("{s:i,s:s,s:[{s:s,s:s,s:s,s:[s],s:[s],s:[s],s:[s],s:[s]}]}", "version", 1, "description",
                             "A policy of a test", "rules", "id", "only", "effect", "allow", "description",
                             "the only rule of this test", "tenants", "*", "subjects", "anonymous", "servers", "s",
                             "kinds", kind, "names", name);
    char *text = json_dumps(tree, 0);
    struct policy_load how = {.path = write_in_directory("policy.json", text), .now = (int64_t)time(NULL)};
    struct policy *policy = policy_load(&how, &findings, &err);
    free(text);
    json_decref(tree);
    assert_row(policy != NULL, err.detail);
    policy_findings_release(&findings);
    return policy;
}

static inline void set_policy(struct policy *policy)
{
    gate_set_policy(f.gate, "default", policy);
    policy_unref(policy);
}

// ---- records --------------------------------------------------------------------------------

// Counts the rows of calls with this method in the audit log; `status` gets the status of the last one.
static inline int audit_rows(const char *method, enum audit_status *status)
{
    struct err err = {0};
    struct audit_row row;
    int count = 0;
    enum audit_next next;
    run_until(audit_stats(f.audit).queued == 0);
    struct audit_reader *reader = audit_reader_open(f.audit_path, &(struct audit_filter){0}, &err);
    assert_row(reader != NULL, err.detail);
    while ((next = audit_reader_next(reader, &row, &err)) == AUDIT_READ_ROW)
        if (row.record.event == AUDIT_CALL && span_is(row.record.method, method)) {
            count++;
            *status = row.record.status;
        }
    assert_int_equal(next, AUDIT_READ_END);
    audit_reader_close(reader);
    return count;
}

// Counts the log lines about calls that contain both texts.
static inline int log_lines(const char *one, const char *other)
{
    struct buf text = {0};
    char bytes[4096], *rest;
    int count = 0;
    off_t at = 0;
    for (ssize_t got; (got = pread(f.log, bytes, sizeof bytes, at)) > 0; at += got)
        buf_put(&text, bytes, (size_t)got);
    for (char *line = strtok_r(buf_text(&text), "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        count += (strstr(line, "\"msg\":\"call\"") || strstr(line, "\"msg\":\"call failed\"")) && strstr(line, one) &&
                 strstr(line, other);
    buf_release(&text);
    return count;
}

// ---- beginning and end ----------------------------------------------------------------------

#define FIXTURE_SCRIPT "exec 3<&0; (cat <&3 >\"$2\"; kill $$) & exec cat \"$1\""

static inline json_t *fixture_server(void)
{
    char to[64], from[64];
    snprintf(to, sizeof to, "%s/to", directory);
    snprintf(from, sizeof from, "%s/from", directory);
    f.server.to = fixture_fifo("to");
    f.server.from = fixture_fifo("from");
    f.server.watch = (struct loop_watch){.fd = f.server.from, .on_ready = fixture_on_line};
    assert_true(loop_watch(f.loop, &f.server.watch, LOOP_READ, &(struct err){0}));
    return json_pack("{s:{s:s,s:[s,s,s,s,s]}}", "s", "command", "sh", "args", "-c", FIXTURE_SCRIPT, "sh", to, from);
}

// `options` is JSON: the configuration without its servers.
static inline void fixture_configure(const char *options, bool with_server)
{
    struct err err = {0};
    json_t *tree = json_loads(options, 0, NULL);
    assert_non_null(tree);
    json_object_set_new(tree, "mcpServers", with_server ? fixture_server() : json_object());
    json_object_set_new(tree, "audit", json_pack("{s:s}", "path", f.audit_path));
    f.config = config_parse(tree, "p.json", &err);
    assert_row(f.config != NULL, err.detail);
    f.config->timeouts.shutdown_ms = 100;
    json_decref(tree);
}

static inline void fixture_catch_log(void)
{
    f.log = memfd_create("log", MFD_CLOEXEC);
    f.stderr_copy = dup(STDERR_FILENO);
    dup2(f.log, STDERR_FILENO);
    log_setup(LOG_DEBUG, LOG_FORMAT_JSON);
}

static inline void fixture_open(const char *options, bool with_server)
{
    struct err err = {0};
    memset(&f, 0, sizeof f);
    assert_int_equal(make_directory(NULL), 0);
    snprintf(f.audit_path, sizeof f.audit_path, "%s/audit.db", directory);
    f.server.received = json_array();
    f.server.tools = "[{\"name\":\"go\",\"inputSchema\":{\"type\":\"object\"}}]";
    f.server.resources = "[{\"uri\":\"x://a\",\"name\":\"a\"},{\"uri\":\"x://b\",\"name\":\"b\"}]";
    fixture_catch_log();
    f.loop = loop_new(&err);
    f.http = http_client_new(f.loop, &err);
    f.background = offload_new(f.loop, 16, &err);
    fixture_configure(options, with_server);
    f.audit = audit_open(f.loop, &f.config->audit, &err);
    f.chains = config_chains_new(f.config, &(struct provider_world){f.loop, f.http, f.config->folder}, &err);
    assert_row(f.http && f.background && f.audit && f.chains, err.detail);
    struct policy *policy = policy_allow_all();
    f.gate = gate_new(&(struct gate_parts){.loop = f.loop,
                                           .http = f.http,
                                           .config = f.config,
                                           .chains = f.chains,
                                           .audit = f.audit,
                                           .policies = &policy,
                                           .background = f.background});
    policy_unref(policy);
}

static inline void fixture_on_stopped(void *arg) { *(bool *)arg = true; }

static inline void shut_down(void)
{
    gate_shutdown(f.gate, fixture_on_stopped, &f.stopped);
    run_until(f.stopped);
}

static inline void exchange_free(struct exchange *exchange)
{
    hang_up(exchange);
    stream_unref(exchange->stream);
    identity_unref(exchange->arrival.who);
    buf_release(&exchange->text);
    free(exchange);
}

static inline int fixture_close(void **state)
{
    if (!f.stopped)
        shut_down();
    for (struct exchange *next; f.exchanges; f.exchanges = next) {
        next = f.exchanges->next;
        exchange_free(f.exchanges);
    }
    gate_free(f.gate);
    offload_free(f.background);
    config_chains_unref(f.chains);
    audit_close(f.audit);
    http_client_free(f.http);
    if (f.server.watch.added) {
        loop_unwatch(f.loop, &f.server.watch);
        close(f.server.from);
        close(f.server.to);
    }
    loop_free(f.loop);
    config_unref(f.config);
    buf_release(&f.server.in);
    json_decref(f.server.received);
    json_decref(f.server.unstarted);
    dup2(f.stderr_copy, STDERR_FILENO);
    close(f.stderr_copy);
    close(f.log);
    return remove_directory(state);
}

// Set-ups of tests without a server, and of tests with a server that can be started.
static inline int open_alone(void **state)
{
    (void)state;
    fixture_open("{}", false);
    return 0;
}

static inline int open_with_server(void **state)
{
    (void)state;
    fixture_open("{}", true);
    return 0;
}

#endif
