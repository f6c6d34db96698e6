// Owns writing lines to a descriptor without waiting for its reader: the queue, and the count of dropped lines.
//
// O_NONBLOCK is a flag of the open file, which the shell and other programs on the same terminal or pipe share. So a
// pipe or a terminal is opened again for the gateway alone; for a socket, each write has a flag. If it may not be
// opened (it belongs to another user), poll() says whether a pipe can take PIPE_BUF bytes.
#include "log_queue.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define GAP_ROOM 4096  // for the line that reports dropped lines

void log_queue_open(struct log_queue *queue, int fd)
{
    char path[32];
    struct stat is;
    *queue = (struct log_queue){.fd = fd};
    if (fstat(fd, &is) < 0 || S_ISREG(is.st_mode))
        return;
    if (S_ISSOCK(is.st_mode)) {
        queue->sink = LOG_SINK_SOCKET;
        return;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    queue->sink = own < 0 ? LOG_SINK_POLLED : LOG_SINK_OPENED;
    queue->fd = own < 0 ? fd : own;
}

void log_queue_close(struct log_queue *queue)
{
    if (queue->sink == LOG_SINK_OPENED)
        close(queue->fd);
    buf_release(&queue->waiting);
}

static ssize_t write_polled(int fd, struct span text)
{
    struct pollfd wish = {.fd = fd, .events = POLLOUT};
    if (poll(&wish, 1, 0) <= 0) {
        errno = EAGAIN;
        return -1;
    }
    return write(fd, text.at, text.len < PIPE_BUF ? text.len : PIPE_BUF);
}

static ssize_t write_some(const struct log_queue *queue, struct span text)
{
    switch (queue->sink) {
    case LOG_SINK_SOCKET: return send(queue->fd, text.at, text.len, MSG_DONTWAIT | MSG_NOSIGNAL);
    case LOG_SINK_POLLED: return write_polled(queue->fd, text);
    case LOG_SINK_FILE:
    case LOG_SINK_OPENED: break;
    }
    return write(queue->fd, text.at, text.len);
}

// Writes one line and returns how many of its bytes are finished with: not all of them if the line has to wait.
static size_t write_line(struct log_queue *queue, struct span line)
{
    size_t done = 0;
    while (done < line.len) {
        ssize_t put = write_some(queue, span_after(line, done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return done;
        queue->broken = put < 0;
        if (queue->broken) {
            queue->dropped++;
            return line.len;
        }
        done += (size_t)put;
    }
    return done;
}

bool log_queue_flush(struct log_queue *queue)
{
    struct span left = buf_span(&queue->waiting);
    while (left.len) {
        const char *end = memchr(left.at, '\n', left.len);
        size_t len = end ? (size_t)(end - left.at) + 1 : left.len, done = write_line(queue, span_make(left.at, len));
        left = span_after(left, done);
        if (done < len)
            break;
    }
    if (left.len)
        buf_drop_front(&queue->waiting, queue->waiting.len - left.len);
    else
        buf_release(&queue->waiting);
    return left.len == 0;
}

void log_queue_put(struct log_queue *queue, struct span line)
{
    if (log_queue_flush(queue))
        line = span_after(line, write_line(queue, line));
    if (queue->waiting.len + line.len <= LOG_QUEUE_MAX)
        buf_put_span(&queue->waiting, line);
    else
        queue->dropped++;
}

uint64_t log_queue_gap(struct log_queue *queue)
{
    if (queue->dropped == queue->told || queue->broken || queue->waiting.len + GAP_ROOM > LOG_QUEUE_MAX)
        return 0;
    uint64_t gap = queue->dropped - queue->told;
    queue->told = queue->dropped;
    return gap;
}
