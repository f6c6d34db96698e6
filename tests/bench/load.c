/* load.c: a bounded, loopback-only load generator for MCP; its event loop and its figures. */
#include "check.h"
#include "histogram.h"
#include "load_conn.h"
#include "load_hold.h"
#include "load_options.h"
#include "template.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>

enum { LOAD_EVENTS = 256, LOAD_ERRORS_SHOWN = 5, LOAD_ERRORS_MAX = 1000 };

static struct load_options load_opts;
static struct load_conn *load_conns;
static int load_epoll;
static struct buf load_body;         /* the request being made */
static struct buf load_templates[2]; /* mixed mode: small, sleep */
static unsigned long load_next;      /* number of the next call, over all connections */
static unsigned long load_issued;    /* measured calls sent */
static unsigned long load_calls;     /* measured calls with a right answer */
static unsigned long load_answers;   /* answers to all calls, warm-up included */
static unsigned long load_errors;
static unsigned load_busy; /* connections with a call under way */
static uint64_t load_start_ns, load_end_ns, load_last_ns;
static uint64_t load_gap_ns; /* with a rate: time between two calls on a connection; otherwise 0 */
static uint64_t load_cpu_ns; /* processor time of the process of --cpu-of, for all calls */

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec ts = {0};

    clock_gettime(clock, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
static uint64_t cpu_ns(void) { return load_opts.with_cpu ? clock_ns(load_opts.cpu_clock) : 0; }

static void report(const struct load_conn *c, const char *why)
{
    if (++load_errors <= LOAD_ERRORS_SHOWN)
        fprintf(stderr, "bench_load: connection %td, call %s: %s\n", c - load_conns, c->id, why);
}

static bool is_over(uint64_t now)
{
    if (load_errors >= LOAD_ERRORS_MAX)
        return true;
    if (load_opts.requests && load_issued >= load_opts.requests)
        return true;
    return load_end_ns && now >= load_end_ns;
}

static void watch(struct load_conn *c, int op, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = c};

    epoll_ctl(load_epoll, op, c->fd, &ev);
}

/* With sessions, each connection counts its ids from 1, so that the ids of different clients collide;
 * in mixed mode every other connection uses strings as ids. */
static void make_request(struct load_conn *c)
{
    unsigned long number = load_next++;
    unsigned long id = load_opts.session ? c->serial + 1 : number + 1;
    bool quoted = load_opts.mixed && (c - load_conns) % 2;
    const struct buf *body = load_opts.mixed ? &load_templates[c->serial % 2] : &load_opts.body;

    snprintf(c->id, sizeof c->id, quoted ? "\"%lu\"" : "%lu", id);
    snprintf(c->nonce, sizeof c->nonce, "nonce=n%luz", number);
    struct template_values values = {
        .id = {c->id, strlen(c->id)}, .nonce = {c->nonce + 6, strlen(c->nonce) - 6}, .ms = 1 + number % 8};
    load_body.len = 0;
    template_render(&load_body, (struct span){body->data, body->len}, &values);
    load_conn_post(c, &load_body);
    c->serial++;
}

static void start_call(struct load_conn *c, uint64_t now);

/* Replaces c with a new connection. */
static void replace_conn(struct load_conn *c)
{
    load_conn_close(c);
    if (is_over(now_ns()))
        return;
    if (!load_conn_open(c, &load_opts)) {
        report(c, "cannot reconnect");
        return;
    }
    watch(c, EPOLL_CTL_ADD, EPOLLIN);
    start_call(c, now_ns());
}

/* Counts an error after which the connection cannot be used. */
static void fail_conn(struct load_conn *c, const char *why)
{
    report(c, why);
    load_busy -= c->busy;
    replace_conn(c);
}

static void flush_call(struct load_conn *c)
{
    switch (load_conn_flush(c)) {
    case LOAD_CONN_FAILED: fail_conn(c, "the request could not be sent"); break;
    case LOAD_CONN_AGAIN: watch(c, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT); break;
    case LOAD_CONN_DONE: break;
    }
}

/* Starts the next call, or leaves it to start_due(). The latency of a call that is due while the previous call is still
 * under way counts from the time it was due: a slow answer counts for every call that it delays. */
static void start_call(struct load_conn *c, uint64_t now)
{
    uint64_t from = now;

    if (is_over(now) || (load_gap_ns && c->due_ns > now))
        return;
    if (load_gap_ns) {
        from = c->due_ns;
        c->due_ns += load_gap_ns;
    }
    make_request(c);
    c->busy = true;
    load_busy++;
    c->measured = now >= load_start_ns;
    load_issued += c->measured;
    c->started_ns = from;
    flush_call(c);
}

/* Starts the calls that are due on idle connections; returns how many milliseconds the loop may wait for the next one.
 * A delay within the granularity of the loop does not count as latency. */
static int start_due(uint64_t now)
{
    uint64_t next = now + 100000000;

    for (unsigned i = 0; load_gap_ns && i < load_opts.connections; i++) {
        struct load_conn *c = &load_conns[i];
        if (c->fd < 0 || c->busy)
            continue;
        if (c->due_ns <= now) {
            start_call(c, now);
            c->started_ns = now;
        } else if (c->due_ns < next) {
            next = c->due_ns;
        }
    }
    return (int)((next - now) / 1000000) + 1;
}

static void count_call(uint64_t since, uint64_t now)
{
    load_calls++;
    load_last_ns = now;
    histogram_add((now - since) / 1000);
}

/* With a rate, calls that this one delayed beyond the end are never made; their wait until now is counted. */
static void count_delayed(struct load_conn *c, uint64_t now)
{
    for (; load_gap_ns && load_end_ns && now > load_end_ns && c->due_ns < load_end_ns; c->due_ns += load_gap_ns)
        count_call(c->due_ns, now);
}

static void finish_call(struct load_conn *c, const struct http1_message *m)
{
    uint64_t now = now_ns();
    struct check_want want = {
        .id = {c->id, strlen(c->id)},
        .nonce = {c->nonce, load_opts.mixed ? strlen(c->nonce) : 0},
        .min_bytes = load_opts.min_bytes,
        .text = load_opts.expect_text,
        .tools = c->listed ? 0 : load_opts.expect_tools,
    };
    const char *why = load_opts.any_answer ? NULL : check_answer(m, &want);

    c->listed = true;
    c->busy = false;
    load_busy--;
    load_answers++;
    if (why) {
        report(c, why);
        if (load_errors <= LOAD_ERRORS_SHOWN)
            fprintf(stderr, "  HTTP %d: %.*s\n", m->status, m->body.len < 300 ? (int)m->body.len : 300, m->body.at);
    } else if (c->measured && (!load_end_ns || load_gap_ns || now <= load_end_ns)) {
        count_call(c->started_ns, now);
        count_delayed(c, now);
    }
    buf_drop(&c->in, m->total);
    if (c->in.len)
        fail_conn(c, "bytes follow the answer");
    else if (m->close || c->out.len) /* an answer before the whole request was sent ends the connection, too */
        replace_conn(c);
    else
        start_call(c, now);
}

static void handle_event(struct load_conn *c, uint32_t events)
{
    struct http1_message m;

    if (c->fd < 0)
        return;
    if (events & EPOLLOUT) {
        watch(c, EPOLL_CTL_MOD, EPOLLIN);
        flush_call(c);
    }
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    enum load_conn_io io = load_conn_receive(c, &m);
    if (io == LOAD_CONN_FAILED && !c->busy)
        load_conn_close(c); /* the run is over: a server may close idle connections */
    else if (io == LOAD_CONN_FAILED)
        fail_conn(c, "the connection ended or the response is malformed");
    else if (io == LOAD_CONN_DONE && !c->busy)
        fail_conn(c, "an answer without a call");
    else if (io == LOAD_CONN_DONE)
        finish_call(c, &m);
}

static void check_timeouts(uint64_t now)
{
    uint64_t limit = (uint64_t)(load_opts.timeout * 1e9);

    for (unsigned i = 0; i < load_opts.connections; i++) {
        struct load_conn *c = &load_conns[i];
        if (c->fd >= 0 && c->busy && now > c->started_ns + limit)
            fail_conn(c, "no answer in time");
    }
}

static void open_all(void)
{
    for (unsigned i = 0; i < load_opts.connections; i++) {
        struct load_conn *c = &load_conns[i];
        if (!load_conn_open(c, &load_opts)) {
            fprintf(stderr, "bench_load: connect: %s\n", strerror(errno));
            exit(1);
        }
        const char *why = load_conn_handshake(c, &load_opts);
        if (why) {
            fprintf(stderr, "bench_load: handshake: %s\n", why);
            exit(1);
        }
        watch(c, EPOLL_CTL_ADD, EPOLLIN);
    }
}

static void close_all(void)
{
    for (unsigned i = 0; i < load_opts.connections; i++) {
        struct load_conn *c = &load_conns[i];
        if (!load_conn_farewell(c, &load_opts))
            report(c, "the session could not be ended");
        if (c->fd >= 0)
            load_conn_close(c);
    }
}

static void run(void)
{
    uint64_t now = now_ns();
    uint64_t checked = now;
    uint64_t cpu = cpu_ns();

    load_start_ns = now + (uint64_t)(load_opts.warmup * 1e9);
    if (load_opts.seconds > 0)
        load_end_ns = load_start_ns + (uint64_t)(load_opts.seconds * 1e9);
    if (load_opts.rate > 0)
        load_gap_ns = (uint64_t)(1e9 * load_opts.connections / load_opts.rate);
    for (unsigned i = 0; i < load_opts.connections; i++) {
        load_conns[i].due_ns = now + load_gap_ns * i / load_opts.connections;
        start_call(&load_conns[i], now_ns());
    }
    while (load_busy || (load_gap_ns && !is_over(now))) {
        struct epoll_event events[LOAD_EVENTS];
        int n = epoll_wait(load_epoll, events, LOAD_EVENTS, start_due(now));
        for (int i = 0; i < n; i++)
            handle_event(events[i].data.ptr, events[i].events);
        now = now_ns();
        if (now - checked > 200000000) {
            check_timeouts(now);
            checked = now;
        }
    }
    load_cpu_ns = cpu_ns() - cpu;
}

static void print_figures(void)
{
    bool timed = load_end_ns && !(load_opts.requests && load_issued >= load_opts.requests);
    uint64_t end = timed && load_errors < LOAD_ERRORS_MAX ? load_end_ns : load_last_ns;
    double seconds = end > load_start_ns ? (double)(end - load_start_ns) / 1e9 : 0;

    printf("{\"calls\":%lu,\"errors\":%lu,\"seconds\":%.3f,\"rps\":%.0f,\"p50_us\":%llu,"
           "\"p99_us\":%llu,\"max_us\":%llu",
           load_calls, load_errors, seconds, seconds > 0 ? (double)load_calls / seconds : 0.0,
           (unsigned long long)histogram_quantile(0.50), (unsigned long long)histogram_quantile(0.99),
           (unsigned long long)histogram_max());
    if (load_opts.with_cpu && load_answers)
        printf(",\"cpu_us\":%.1f", (double)load_cpu_ns / 1e3 / (double)load_answers);
    puts("}");
}

static void make_mixed(void)
{
    static const char *const calls[] = {"small\",\"arguments\":{\"nonce\":\"@NONCE@\"}}}",
                                        "sleep\",\"arguments\":{\"ms\":@MS@,"
                                        "\"nonce\":\"@NONCE@\"}}}"};

    for (size_t i = 0; i < 2; i++) {
        buf_text(&load_templates[i], "{\"jsonrpc\":\"2.0\",\"id\":@ID@,\"method\":\"tools/call\","
                                     "\"params\":{\"name\":\"");
        buf_text(&load_templates[i], load_opts.prefix);
        buf_text(&load_templates[i], calls[i]);
    }
}

int main(int argc, char **argv)
{
    struct rlimit files;

    load_options_read(&load_opts, argc, argv);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    make_mixed();
    load_epoll = epoll_create1(EPOLL_CLOEXEC);
    load_conns = calloc(load_opts.connections, sizeof *load_conns);
    if (load_epoll < 0 || !load_conns) {
        perror("bench_load");
        return 1;
    }
    if (load_opts.hold)
        return load_hold(&load_opts, load_conns, load_epoll);
    open_all();
    run();
    close_all();
    print_figures();
    return load_calls && !load_errors ? 0 : 1;
}
