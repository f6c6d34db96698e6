/* rpc.c: the benchmark upstream's answers to initialize, ping, tools/list and tools/call. */
#include "rpc.h"

#include "pattern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RPC_BIG_BYTES = 100 * 1024, RPC_FAULT_EVERY = 10, RPC_MS_MAX = 60000, RPC_BYTES_MAX = 256 * 1024 * 1024 };

static struct buf rpc_list; /* the result of tools/list */
static struct buf rpc_big;  /* the result of tools/call big */
static enum rpc_fault rpc_fault;
static unsigned long rpc_calls;

static const char rpc_hello[] =
    "{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"logging\":{},\"tools\":{\"listChanged\":true}},"
    "\"serverInfo\":{\"name\":\"bench_upstream\",\"version\":\"1\"}}";

static const char rpc_schema[] = "{\"type\":\"object\",\"properties\":{"
                                 "\"nonce\":{\"type\":\"string\",\"description\":\"Echoed in the answer\"},"
                                 "\"ms\":{\"type\":\"integer\",\"minimum\":0,\"description\":\"Milliseconds to wait\"},"
                                 "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
                                 "\"mode\":{\"type\":\"string\",\"enum\":[\"fast\",\"full\",\"none\"]}},"
                                 "\"additionalProperties\":true}";

bool rpc_fault_named(const char *name, enum rpc_fault *fault)
{
    static const char *const names[] = {"none", "id", "error", "iserror", "nonce", "short", "hang", "status", "close"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) {
            *fault = (enum rpc_fault)i;
            return true;
        }
    }
    return false;
}

static void add_tool(struct buf *b, const char *name)
{
    buf_text(b, "{\"name\":\"");
    buf_text(b, name);
    buf_text(b, "\",\"title\":\"Benchmark tool ");
    buf_text(b, name);
    buf_text(b, "\",\"description\":\"One of the tools of the benchmark upstream. It takes the "
                "arguments below, all optional, and answers with a short text.\","
                "\"inputSchema\":");
    buf_text(b, rpc_schema);
    buf_text(b, "}");
}

void rpc_setup(unsigned tools, enum rpc_fault fault)
{
    static const char *const always[] = {"small", "big", "sleep", "huge", "flood"};
    const unsigned least = sizeof always / sizeof *always;

    rpc_fault = fault;
    buf_text(&rpc_list, "{\"tools\":[");
    for (unsigned i = 0; i < tools || i < least; i++) {
        char name[32];
        snprintf(name, sizeof name, "tool_%03u", i + 1);
        if (i)
            buf_text(&rpc_list, ",");
        add_tool(&rpc_list, i < least ? always[i] : name);
    }
    buf_text(&rpc_list, "]}");

    buf_text(&rpc_big, "{\"content\":[{\"type\":\"text\",\"text\":\"");
    for (size_t i = 0; i < RPC_BIG_BYTES; i++) /* lines of 80, each newline escaped */
        buf_append(&rpc_big, i % 80 == 78 ? "\\" : i % 80 == 79 ? "n" : &"etaoinshr "[i % 10], 1);
    buf_text(&rpc_big, "\"}],\"isError\":false}");
}

static void open_answer(struct buf *out, struct span id)
{
    buf_text(out, "{\"jsonrpc\":\"2.0\",\"id\":");
    buf_append(out, id.at, id.len);
}

static void give_result(struct buf *out, struct span id, const char *result, size_t len)
{
    open_answer(out, id);
    buf_text(out, ",\"result\":");
    buf_append(out, result, len);
    buf_text(out, "}");
}

static void give_error(struct buf *out, struct span id, int code, const char *message)
{
    char tail[160];

    snprintf(tail, sizeof tail, ",\"error\":{\"code\":%d,\"message\":\"%s\"}}", code, message);
    open_answer(out, id);
    buf_text(out, tail);
}

/* About 100 bytes of text, with the caller's nonce if it sent one. */
static void give_text(struct buf *out, struct span id, struct span nonce, bool is_error)
{
    open_answer(out, id);
    buf_text(out, ",\"result\":{\"content\":[{\"type\":\"text\",\"text\":\""
                  "The benchmark upstream answers this call with about a hundred bytes of text, "
                  "and the nonce=");
    buf_append(out, nonce.at, nonce.len);
    buf_text(out, is_error ? "\"}],\"isError\":true}}" : "\"}],\"isError\":false}}");
}

static struct span nonce_of(struct span arguments)
{
    struct span value;

    if (!scan_member(arguments, "nonce", &value))
        return (struct span){"none", 4};
    if (*value.at == '"')
        return scan_string(value);
    if (*value.at == '{' || *value.at == '[')
        return (struct span){"none", 4};
    return value;
}

static unsigned number_of(struct span arguments, const char *key, unsigned max)
{
    struct span value;
    unsigned long n = 0;

    if (!scan_member(arguments, key, &value))
        return 0;
    for (size_t i = 0; i < value.len && value.at[i] >= '0' && value.at[i] <= '9'; i++)
        if (n < max)
            n = n * 10 + (unsigned long)(value.at[i] - '0');
    return (unsigned)(n < max ? n : max);
}

/* The first bytes of the text of pattern.h. */
static void give_pattern(struct buf *out, struct span id, size_t bytes)
{
    open_answer(out, id);
    buf_text(out, ",\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"");
    buf_append(out, pattern(bytes), bytes);
    buf_text(out, "\"}],\"isError\":false}}");
}

/* Answers the call, and makes the transport send junk lines or notifications for the given time. */
static void give_flood(struct buf *out, struct span id, struct span arguments, struct rpc_outcome *o)
{
    struct span kind;

    o->flood =
        scan_member(arguments, "mode", &kind) && scan_is(scan_string(kind), "notes") ? RPC_FLOOD_NOTES : RPC_FLOOD_JUNK;
    o->flood_ms = number_of(arguments, "ms", RPC_MS_MAX);
    give_text(out, id, (struct span){"none", 4}, false);
}

void rpc_flood(enum rpc_flood kind, struct buf *out, size_t len)
{
    static unsigned long count;

    while (out->len < len) {
        bool changed = kind == RPC_FLOOD_NOTES && ++count % 64 == 0;
        buf_text(out, kind == RPC_FLOOD_JUNK ? "not a message: "
                      : changed              ? "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}"
                                             : "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{"
                                               "\"level\":\"error\",\"logger\":\"flood\",\"data\":\"one of many\"}}");
        if (kind == RPC_FLOOD_JUNK)
            buf_number(out, ++count);
        buf_text(out, "\n");
    }
}

/* Appends the faulty answer; false when the fault does not concern the answer itself. */
static bool give_fault(struct buf *out, struct span id, struct rpc_outcome *o)
{
    struct span nonce = {"mismatch", 8};

    switch (o->fault) {
    case RPC_FAULT_ID: give_text(out, (struct span){"987654321", 9}, nonce, false); return true;
    case RPC_FAULT_ERROR: give_error(out, id, -32603, "deliberate fault"); return true;
    case RPC_FAULT_ISERROR: give_text(out, id, nonce, true); return true;
    case RPC_FAULT_NONCE: give_text(out, id, nonce, false); return true;
    case RPC_FAULT_SHORT:
        give_text(out, id, nonce, false);
        out->len -= 2;
        return true;
    case RPC_FAULT_HANG: o->kind = RPC_NONE; return true;
    default: return false;
    }
}

static void call_tool(struct buf *out, struct span id, struct span params, struct rpc_outcome *o)
{
    struct span name = {0};
    struct span arguments = {"{}", 2};

    scan_member(params, "arguments", &arguments);
    if (!scan_member(params, "name", &name)) {
        give_error(out, id, -32602, "no tool name");
        return;
    }
    name = scan_string(name);
    if (rpc_fault && ++rpc_calls % RPC_FAULT_EVERY == 0) {
        o->fault = rpc_fault;
        if (give_fault(out, id, o))
            return;
    }
    if (scan_is(name, "big")) {
        give_result(out, id, rpc_big.data, rpc_big.len);
    } else if (scan_is(name, "sleep")) {
        o->kind = RPC_LATER;
        o->delay_ms = number_of(arguments, "ms", RPC_MS_MAX);
        give_text(out, id, nonce_of(arguments), false);
    } else if (scan_is(name, "huge")) {
        give_pattern(out, id, number_of(arguments, "bytes", RPC_BYTES_MAX));
    } else if (scan_is(name, "flood")) {
        give_flood(out, id, arguments, o);
    } else if (scan_is(name, "small") || (name.len > 5 && memcmp(name.at, "tool_", 5) == 0)) {
        give_text(out, id, nonce_of(arguments), false);
    } else {
        give_error(out, id, -32602, "unknown tool");
    }
}

struct rpc_outcome rpc_answer(struct span message, struct buf *out)
{
    struct rpc_outcome o = {.kind = RPC_NOW};
    struct span id, method;
    struct span params = {"{}", 2};
    bool has_id = scan_member(message, "id", &id);

    if (!scan_member(message, "method", &method)) {
        if (has_id) /* a response, but this server sends no requests */
            o.kind = RPC_NONE;
        else
            give_error(out, (struct span){"null", 4}, -32600, "not a JSON-RPC message");
        return o;
    }
    if (!has_id) {
        o.kind = RPC_NONE;
        return o;
    }
    method = scan_string(method);
    scan_member(message, "params", &params);
    o.is_call = true;
    if (scan_is(method, "tools/call")) {
        call_tool(out, id, params, &o);
    } else if (scan_is(method, "tools/list")) {
        give_result(out, id, rpc_list.data, rpc_list.len);
    } else if (scan_is(method, "initialize")) {
        o.is_initialize = true;
        give_result(out, id, rpc_hello, sizeof rpc_hello - 1);
    } else if (scan_is(method, "ping")) {
        give_result(out, id, "{}", 2);
    } else {
        give_error(out, id, -32601, "method not found");
    }
    return o;
}
