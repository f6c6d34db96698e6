/* load_options.c: reads the load generator's options and refuses addresses other than loopback. */
#include "load_options.h"

#include <arpa/inet.h>
#include <getopt.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOAD_CONNECTIONS_MAX = 20000, LOAD_SECONDS_MAX = 600, LOAD_REQUESTS_MAX = 10000000, LOAD_RATE_MAX = 100000 };

static const char load_usage[] =
    "usage: bench_load --url http://127.0.0.1:PORT/PATH (--body FILE | --mixed) "
    "(--seconds S | --requests N)\n"
    "       bench_load --url URL --hold [--connections C]\n"
    "  --connections C    connections, each with one call at a time (1)\n"
    "  --warmup S         seconds of calls before the measured ones (0)\n"
    "  --session          open an MCP session on each connection first\n"
    "  --rate R           calls per second over all connections, due at fixed times; the latency of a call includes\n"
    "                     the time it waits for the previous one (default: as many calls as possible)\n"
    "  --body FILE        the request; @ID@ stands for its id, and @NONCE@ and @MS@ may be used too\n"
    "  --mixed            alternate the tools small and sleep, each answer checked for its nonce\n"
    "  --tool-prefix P    prefix of those tool names\n"
    "  --header 'K: V'    add a header field to each request (repeatable)\n"
    "  --timeout S        longest time for an answer (10)\n"
    "  --min-bytes N      minimum size of an answer\n"
    "  --expect-text N    the answer contains the N bytes of text of the upstream's tool huge\n"
    "  --any-answer       count every answer, and do not check it\n"
    "  --cpu-of PID       also print the processor time of that process per call\n"
    "  --expect-tools N   number of tools in the first answer on each connection\n"
    "  --hold             open an event stream in a session on each connection, print the line \"holding C\",\n"
    "                     and drop all events until standard input ends\n";

static void fail(const char *why, const char *what)
{
    fprintf(stderr, "bench_load: %s%s%s\n", why, what ? ": " : "", what ? what : "");
    exit(2);
}

static bool loopback_v4(const char *host, struct in_addr *in)
{
    if (strcmp(host, "localhost") == 0)
        host = "127.0.0.1";
    return inet_pton(AF_INET, host, in) == 1 && ntohl(in->s_addr) >> 24 == 127;
}

static void read_url(struct load_options *o, const char *url)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)&o->address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&o->address;
    char host[64];
    int used = 0;
    unsigned port = 0;

    if (sscanf(url, "http://[%63[0-9a-fA-F:.]]:%5u%n", host, &port, &used) == 2 && used) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        o->address_len = sizeof *v6;
        if (inet_pton(AF_INET6, host, &v6->sin6_addr) != 1 || !IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr))
            fail("not a loopback address", host);
        snprintf(o->host, sizeof o->host, "[%s]:%u", host, port);
    } else if (sscanf(url, "http://%63[^:/@]:%5u%n", host, &port, &used) == 2 && used) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        o->address_len = sizeof *v4;
        if (!loopback_v4(host, &v4->sin_addr))
            fail("not a loopback address", host);
        snprintf(o->host, sizeof o->host, "%s:%u", host, port);
    } else {
        fail("not a URL of the form http://ADDRESS:PORT/PATH", url);
    }
    if (port == 0 || port > 65535)
        fail("not a port", url);
    o->path = url[used] == '/' ? url + used : "/";
}

static void read_body(struct load_options *o, const char *path)
{
    FILE *f = fopen(path, "r");
    size_t n;

    if (!f)
        fail("cannot read", path);
    while ((n = fread(buf_room(&o->body, 4096), 1, 4096, f)) > 0)
        o->body.len += n;
    fclose(f);
    if (!o->body.len || !memmem(o->body.data, o->body.len, "@ID@", 4))
        fail("no @ID@ in", path);
}

static double read_number(const char *text, double max)
{
    char *end;
    double n = strtod(text, &end);

    if (end == text || *end || !(n >= 0 && n <= max))
        fail("not a number in range", text);
    return n;
}

static void read_option(struct load_options *o, int option, const char *value)
{
    switch (option) {
    case 'u': read_url(o, value); break;
    case 'c': o->connections = (unsigned)read_number(value, LOAD_CONNECTIONS_MAX); break;
    case 's': o->seconds = read_number(value, LOAD_SECONDS_MAX); break;
    case 'n': o->requests = (unsigned long)read_number(value, LOAD_REQUESTS_MAX); break;
    case 'w': o->warmup = read_number(value, LOAD_SECONDS_MAX); break;
    case 't': o->timeout = read_number(value, LOAD_SECONDS_MAX); break;
    case 'b': read_body(o, value); break;
    case 'p': o->prefix = value; break;
    case 'm': o->mixed = true; break;
    case 'S': o->session = true; break;
    case 'R': o->rate = read_number(value, LOAD_RATE_MAX); break;
    case 'A': o->any_answer = true; break;
    case 'h': o->session = o->hold = true; break;
    case 'X': o->expect_text = (size_t)read_number(value, 1e9); break;
    case 'M': o->min_bytes = (size_t)read_number(value, 1e9); break;
    case 'C':
        if (clock_getcpuclockid((pid_t)read_number(value, 1e9), &o->cpu_clock) != 0)
            fail("no such process", value);
        o->with_cpu = true;
        break;
    case 'T': o->expect_tools = (size_t)read_number(value, 1e6); break;
    case 'H':
        if (strpbrk(value, "\r\n") || !strchr(value, ':'))
            fail("not a header field", value);
        buf_text(&o->headers, value);
        buf_text(&o->headers, "\r\n");
        break;
    default: fputs(load_usage, stderr); exit(2);
    }
}

void load_options_read(struct load_options *o, int argc, char **argv)
{
    static const struct option options[] = {
        {"url", required_argument, NULL, 'u'},
        {"connections", required_argument, NULL, 'c'},
        {"seconds", required_argument, NULL, 's'},
        {"requests", required_argument, NULL, 'n'},
        {"warmup", required_argument, NULL, 'w'},
        {"timeout", required_argument, NULL, 't'},
        {"body", required_argument, NULL, 'b'},
        {"header", required_argument, NULL, 'H'},
        {"session", no_argument, NULL, 'S'},
        {"rate", required_argument, NULL, 'R'},
        {"hold", no_argument, NULL, 'h'},
        {"mixed", no_argument, NULL, 'm'},
        {"tool-prefix", required_argument, NULL, 'p'},
        {"min-bytes", required_argument, NULL, 'M'},
        {"expect-text", required_argument, NULL, 'X'},
        {"any-answer", no_argument, NULL, 'A'},
        {"cpu-of", required_argument, NULL, 'C'},
        {"expect-tools", required_argument, NULL, 'T'},
        {NULL, 0, NULL, 0},
    };
    int option;

    *o = (struct load_options){.connections = 1, .timeout = 10, .prefix = ""};
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        read_option(o, option, optarg);
    if (optind != argc)
        fail("unexpected argument", argv[optind]);
    if (!o->address_len)
        fail("--url is missing", NULL);
    if (!o->connections)
        fail("--connections must be at least 1", NULL);
    if (o->hold)
        return;
    if (!o->body.len == !o->mixed)
        fail("give either --body or --mixed", NULL);
    if (o->seconds <= 0 && !o->requests)
        fail("give --seconds or --requests", NULL);
}
