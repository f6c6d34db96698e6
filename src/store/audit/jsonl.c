// Owns a file of JSON lines: appending whole lines, and reopening it after log rotation moved it.
#include "jsonl.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATIENCE_MS = 5000, STEP_MS = 100 };

static bool reopen(struct jsonl *out, struct err *err)
{
    struct stat file;
    int fd = open(out->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
    if (fd < 0 || fstat(fd, &file) < 0) {
        (void)err_set(err, ERR_CONFIG, "%s: %s", out->path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return false;
    }
    if (out->fd >= 0)
        close(out->fd);
    out->fd = fd;
    out->device = file.st_dev;
    out->inode = file.st_ino;
    return true;
}

bool jsonl_open(struct jsonl *out, const char *path, struct err *err)
{
    *out = (struct jsonl){.fd = -1};
    if (strcmp(path, "-") == 0) {
        out->fd = STDOUT_FILENO;
        return true;
    }
    out->path = mem_string(path);
    if (reopen(out, err))
        return true;
    jsonl_close(out);
    return false;
}

void jsonl_close(struct jsonl *out)
{
    if (out->path && out->fd >= 0)
        close(out->fd);
    free(out->path);
    *out = (struct jsonl){.fd = -1};
}

static bool follow_path(struct jsonl *out, struct err *err)
{
    struct stat now;
    if (!out->path || (stat(out->path, &now) == 0 && now.st_dev == out->device && now.st_ino == out->inode))
        return true;
    out->torn = false;
    return reopen(out, err);
}

static bool wait_for_room(const struct jsonl *out, const atomic_bool *hurry)
{
    struct pollfd room = {.fd = out->fd, .events = POLLOUT};
    for (int waited = 0; waited < PATIENCE_MS; waited += STEP_MS)
        if (poll(&room, 1, STEP_MS) > 0)
            return true;
        else if (atomic_load(hurry))
            break;
    return false;
}

// Writes in pieces small enough for a pipe to accept completely once it is writable.
// Leaves the rest in *bytes if it fails.
static bool write_all(struct jsonl *out, struct span *bytes, const atomic_bool *hurry, struct err *err)
{
    const char *name = out->path ? out->path : "standard output";
    while (bytes->len) {
        if (!wait_for_room(out, hurry))
            return err_set(err, ERR_SYSTEM, "%s: the reader of the audit log does not accept data", name);
        ssize_t wrote = write(out->fd, bytes->at, bytes->len < PIPE_BUF ? bytes->len : PIPE_BUF);
        if (wrote < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (wrote < 0)
            return err_set(err, ERR_SYSTEM, "%s: %s", name, strerror(errno));
        if (wrote > 0)
            out->torn = bytes->at[wrote - 1] != '\n';
        *bytes = span_after(*bytes, (size_t)wrote);
    }
    return true;
}

static size_t count_lines(struct span text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.len; i++)
        count += text.at[i] == '\n';
    return count;
}

bool jsonl_write(struct jsonl *out, struct span lines, const atomic_bool *hurry, struct err *err)
{
    struct span newline = span_of("\n");
    if (!lines.len)
        return true;
    bool ok = follow_path(out, err) && (!out->torn || write_all(out, &newline, hurry, err)) &&
              write_all(out, &lines, hurry, err);
    if (!ok)
        out->lost += count_lines(lines);
    return ok;
}
