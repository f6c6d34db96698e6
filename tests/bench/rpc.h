/* rpc.h: the benchmark upstream's answer to each MCP message. */
#ifndef BENCH_RPC_H
#define BENCH_RPC_H

#include "buf.h"
#include "scan.h"

#include <stdbool.h>

/* Deliberate faults, each in every tenth tools/call, to prove that the load generator detects them. */
enum rpc_fault {
    RPC_FAULT_NONE,
    RPC_FAULT_ID,      /* another id */
    RPC_FAULT_ERROR,   /* a JSON-RPC error */
    RPC_FAULT_ISERROR, /* a result with isError */
    RPC_FAULT_NONCE,   /* another call's nonce */
    RPC_FAULT_SHORT,   /* JSON cut short */
    RPC_FAULT_HANG,    /* no answer at all */
    RPC_FAULT_STATUS,  /* HTTP 500 (served by serve_http.c) */
    RPC_FAULT_CLOSE    /* HTTP connection closed (served by serve_http.c) */
};

enum rpc_kind { RPC_NONE, RPC_NOW, RPC_LATER };

/* Unsolicited output of a server; over stdio only. */
enum rpc_flood { RPC_FLOOD_NONE, RPC_FLOOD_JUNK, RPC_FLOOD_NOTES };

struct rpc_outcome {
    enum rpc_kind kind;
    unsigned delay_ms;    /* RPC_LATER: how long to delay the answer */
    bool is_initialize;   /* the message opens a session */
    bool is_call;         /* a request: an answer is expected */
    enum rpc_flood flood; /* the flood to begin now */
    unsigned flood_ms;    /* and its duration */
    enum rpc_fault fault; /* the fault to produce for this message */
};

void rpc_setup(unsigned tools, enum rpc_fault fault);
bool rpc_fault_named(const char *name, enum rpc_fault *fault);
/* Appends the answer to message, if any, to out. */
struct rpc_outcome rpc_answer(struct span message, struct buf *out);

/* Appends lines of that kind to out until it has len bytes. */
void rpc_flood(enum rpc_flood kind, struct buf *out, size_t len);

#endif
