/* load_hold.c: idle callers, each with an event stream whose events are counted and dropped. */
#include "load_hold.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { HOLD_EVENTS = 256, HOLD_READ = 256 * 1024 };

static char hold_bytes[HOLD_READ];

static bool hold_open(struct load_conn *conns, const struct load_options *o, int epoll)
{
    for (unsigned i = 0; i < o->connections; i++) {
        struct load_conn *c = &conns[i];
        const char *why = load_conn_open(c, o) ? load_conn_handshake(c, o) : "cannot connect";
        if (!why && !load_conn_listen(c, o))
            why = "the event stream was not opened";
        if (why) {
            fprintf(stderr, "bench_load: stream %u: %s\n", i, why);
            return false;
        }
        epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &(struct epoll_event){.events = EPOLLIN, .data.ptr = c});
    }
    return epoll_ctl(epoll, EPOLL_CTL_ADD, STDIN_FILENO, &(struct epoll_event){.events = EPOLLIN}) == 0;
}

/* Returns the number of bytes received, or -1 when the stream has ended. */
static ssize_t hold_read(struct load_conn *c)
{
    ssize_t n = recv(c->fd, hold_bytes, sizeof hold_bytes, MSG_DONTWAIT);

    if (n > 0)
        return n;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    load_conn_close(c);
    return -1;
}

int load_hold(const struct load_options *o, struct load_conn *conns, int epoll)
{
    unsigned lost = 0;
    uint64_t bytes = 0;

    if (!hold_open(conns, o, epoll))
        return 1;
    printf("holding %u\n", o->connections);
    fflush(stdout);
    for (bool over = false; !over;) {
        struct epoll_event events[HOLD_EVENTS];
        int n = epoll_wait(epoll, events, HOLD_EVENTS, -1);
        for (int i = 0; i < n; i++) {
            struct load_conn *c = events[i].data.ptr;
            ssize_t got = c ? hold_read(c) : read(STDIN_FILENO, hold_bytes, sizeof hold_bytes);
            over |= !c && got <= 0;
            lost += c && got < 0;
            bytes += c && got > 0 ? (uint64_t)got : 0;
        }
    }
    printf("{\"streams\":%u,\"lost\":%u,\"bytes\":%llu}\n", o->connections, lost, (unsigned long long)bytes);
    return lost ? 1 : 0;
}
