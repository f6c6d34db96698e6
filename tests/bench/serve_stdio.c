/* serve_stdio.c: the benchmark upstream over stdin and stdout, many messages per system call. */
#include "buf.h"
#include "rpc.h"
#include "serve.h"
#include "timer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

enum { STDIO_READ = 256 * 1024, STDIO_BACKLOG = 8 * 1024 * 1024, STDIO_FLOOD = 64 * 1024 };

static struct buf stdio_in, stdio_out;
static size_t stdio_seen; /* bytes of stdio_in without a newline: not searched again while a long line arrives */
static size_t stdio_sent; /* bytes of stdio_out already written */

static enum rpc_flood stdio_flood;
static uint64_t stdio_flood_end_ms;

static size_t pending(void) { return stdio_out.len - stdio_sent; }

static void answer_line(struct span line)
{
    if (line.len == 0)
        return;
    size_t before = stdio_out.len;
    struct rpc_outcome o = rpc_answer(line, &stdio_out);
    if (o.flood) {
        stdio_flood = o.flood;
        stdio_flood_end_ms = timer_now_ms() + o.flood_ms;
    }
    if (o.kind == RPC_NONE)
        return;
    buf_text(&stdio_out, "\n");
    if (o.kind == RPC_LATER) {
        timer_add(o.delay_ms, 0, 0, stdio_out.data + before, stdio_out.len - before);
        stdio_out.len = before;
    }
}

static void answer_lines(void)
{
    size_t at = 0;

    while (stdio_seen < stdio_in.len) {
        char *line = stdio_in.data + at;
        char *nl = memchr(stdio_in.data + stdio_seen, '\n', stdio_in.len - stdio_seen);
        if (!nl)
            break;
        answer_line((struct span){line, (size_t)(nl - line)});
        at = stdio_seen = (size_t)(nl - stdio_in.data) + 1;
    }
    buf_drop(&stdio_in, at);
    stdio_seen = stdio_in.len;
}

/* False at the end of the input. */
static bool read_input(void)
{
    ssize_t n = read(STDIN_FILENO, buf_room(&stdio_in, STDIO_READ), STDIO_READ);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    stdio_in.len += (size_t)n;
    return n > 0;
}

/* False when the reader has closed the pipe. */
static bool write_output(void)
{
    while (pending()) {
        ssize_t n = write(STDOUT_FILENO, stdio_out.data + stdio_sent, pending());
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        if (n < 0)
            break;
        stdio_sent += (size_t)n;
    }
    if (stdio_sent >= pending()) { /* moving the rest costs less than the bytes already written */
        buf_drop(&stdio_out, stdio_sent);
        stdio_sent = 0;
    }
    return true;
}

static void keep_flooding(void)
{
    if (stdio_flood && timer_now_ms() >= stdio_flood_end_ms)
        stdio_flood = RPC_FLOOD_NONE;
    if (stdio_flood)
        rpc_flood(stdio_flood, &stdio_out, stdio_sent + STDIO_FLOOD);
}

int serve_stdio(void)
{
    fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
    fcntl(STDOUT_FILENO, F_SETFL, fcntl(STDOUT_FILENO, F_GETFL) | O_NONBLOCK);
    for (;;) {
        struct pollfd fds[2] = {
            {.fd = STDIN_FILENO, .events = pending() < STDIO_BACKLOG ? POLLIN : 0},
            {.fd = pending() || stdio_flood ? STDOUT_FILENO : -1, .events = POLLOUT},
        };
        if (poll(fds, 2, timer_wait_ms()) < 0 && errno != EINTR)
            return 1;
        if (fds[0].revents && pending() < STDIO_BACKLOG && !read_input())
            return 0;
        answer_lines();
        struct timer due;
        while (timer_take(&due)) {
            buf_append(&stdio_out, due.text.data, due.text.len);
            buf_free(&due.text);
        }
        keep_flooding();
        if (!write_output())
            return 0;
    }
}
