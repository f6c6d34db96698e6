/* upstream.c: a very fast MCP server to put behind the gateway; its options and its start. */
#include "rpc.h"
#include "serve.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int usage(void)
{
    fputs("usage: bench_upstream http|sse PORT [--tools N] [--fault KIND]\n"
          "       bench_upstream stdio [--tools N] [--fault KIND]\n"
          "KIND: id error iserror nonce short hang status close\n",
          stderr);
    return 2;
}

int main(int argc, char **argv)
{
    unsigned long tools = 0;
    enum rpc_fault fault = RPC_FAULT_NONE;
    bool events = false;
    int port = -1;
    int at = 2;

    if (argc < 2)
        return usage();
    events = strcmp(argv[1], "sse") == 0;
    if ((events || strcmp(argv[1], "http") == 0) && argc > 2) {
        port = atoi(argv[2]);
        at = 3;
    } else if (strcmp(argv[1], "stdio") != 0) {
        return usage();
    }
    for (; at + 1 < argc; at += 2) {
        if (strcmp(argv[at], "--tools") == 0)
            tools = strtoul(argv[at + 1], NULL, 10);
        else if (strcmp(argv[at], "--fault") != 0 || !rpc_fault_named(argv[at + 1], &fault))
            return usage();
    }
    if (at != argc || port > 65535 || tools > 10000)
        return usage();
    signal(SIGPIPE, SIG_IGN);
    rpc_setup((unsigned)tools, fault);
    return port < 0 ? serve_stdio() : serve_http(port, events);
}
