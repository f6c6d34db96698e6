// Owns the turn at a login: a kernel lock (flock) on a file beside the store, so that the turn ends with its process in any
// case. The file names the holder, and the time when a browser was last started. Its name is a digest of tenant, user and
// server, so that none of them is in a path (S4).
//
// A logout may remove the file while a process waits for its lock. So a process that gets the lock checks whether the name
// still leads to that file.
#include "turn.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/secret.h"
#include "store/record.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "login-"
#define SUFFIX ".lock"
enum { TAB_SECONDS = 600, NAME_BYTES = 16, TEXT_MAX = 128 };

static char *folder_of(const struct config *config)
{
    char *path = record_place(config ? &config->store : &(struct record_config){0});
    char *slash = strrchr(path, '/');
    if (slash)
        slash[1] = '\0';
    else
        *path = '\0';
    return path;
}

void login_turn_init(struct login_turn *turn, const struct config *config, const char *const key[3])
{
    unsigned char digest[SECRET_MAC_BYTES];
    struct buf text = {0}, path = {0};
    for (int i = 0; i < 3; i++)
        buf_printf(&text, "%zu:%s,", strlen(key[i]), key[i]);
    secret_digest(buf_span(&text), digest);
    char *folder = folder_of(config);
    buf_put_text(&path, folder);
    buf_put_text(&path, PREFIX);
    for (size_t i = 0; i < NAME_BYTES; i++)
        buf_printf(&path, "%02x", digest[i]);
    buf_put_text(&path, SUFFIX);
    *turn = (struct login_turn){.path = buf_take(&path, NULL), .fd = -1};
    buf_release(&text);
    free(folder);
}

// "pid 12\nopened 34\n"; other content is ignored.
static void read_file(struct login_turn *turn, int fd)
{
    char text[TEXT_MAX + 1];
    ssize_t got = pread(fd, text, TEXT_MAX, 0);
    text[got > 0 ? got : 0] = '\0';
    const char *pid = strstr(text, "pid "), *opened = strstr(text, "opened ");
    turn->holder = pid ? strtol(pid + 4, NULL, 10) : 0;
    turn->opened_at = opened ? strtoll(opened + 7, NULL, 10) : 0;
}

// The content is only shown to users, so a failure to write it is ignored.
static void write_file(struct login_turn *turn)
{
    char text[TEXT_MAX];
    int len = snprintf(text, sizeof text, "pid %ld\nopened %lld\n", turn->holder, (long long)turn->opened_at);
    if (ftruncate(turn->fd, 0) == 0)
        (void)!pwrite(turn->fd, text, (size_t)len, 0);
}

static bool is_there(const char *path, int fd)
{
    struct stat named, held;
    return stat(path, &named) == 0 && fstat(fd, &held) == 0 && named.st_ino == held.st_ino &&
           named.st_dev == held.st_dev;
}

enum login_turn_answer login_turn_take(struct login_turn *turn, struct err *err)
{
    for (;;) {
        int fd = open(turn->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        int failure = fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0 ? errno : 0;
        if (failure == EWOULDBLOCK)
            read_file(turn, fd);
        if (failure) {
            if (fd >= 0)
                close(fd);
            if (failure == EWOULDBLOCK)
                return LOGIN_TURN_BUSY;
            // S13: without locks, two processes would log in at once and invalidate each other's grant.
            (void)err_set(err, ERR_SYSTEM, "%s: cannot be locked: %s", turn->path, strerror(failure));
            return LOGIN_TURN_FAILED;
        }
        if (is_there(turn->path, fd)) {
            turn->fd = fd;
            read_file(turn, fd);
            turn->holder = (long)getpid();
            write_file(turn);
            return LOGIN_TURN_MINE;
        }
        close(fd);
    }
}

bool login_turn_may_open(const struct login_turn *turn, int64_t *ago)
{
    *ago = clock_wall_s() - turn->opened_at;
    return !turn->opened_at || *ago < 0 || *ago >= TAB_SECONDS;
}

void login_turn_opened(struct login_turn *turn)
{
    turn->opened_at = clock_wall_s();
    write_file(turn);
}

void login_turn_release(struct login_turn *turn)
{
    if (turn->path && turn->fd >= 0)
        close(turn->fd);
    free(turn->path);
    *turn = (struct login_turn){.fd = -1};
}

static void forget(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && is_there(path, fd))
        unlink(path);
    close(fd);
}

static int is_lock(const struct dirent *entry)
{
    size_t len = strlen(entry->d_name), suffix = sizeof SUFFIX - 1;
    return len > suffix && strncmp(entry->d_name, PREFIX, sizeof PREFIX - 1) == 0 &&
           strcmp(entry->d_name + len - suffix, SUFFIX) == 0;
}

void login_turn_forget(const struct config *config, const char *const key[3])
{
    struct dirent **entries = NULL;
    if (key) {
        struct login_turn turn;
        login_turn_init(&turn, config, key);
        forget(turn.path);
        login_turn_release(&turn);
        return;
    }
    char *folder = folder_of(config);
    int count = scandir(*folder ? folder : ".", &entries, is_lock, NULL);
    for (int i = 0; i < count; i++) {
        struct buf path = {0};
        buf_printf(&path, "%s%s", folder, entries[i]->d_name);
        forget(buf_text(&path));
        buf_release(&path);
        free(entries[i]);
    }
    free(entries);
    free(folder);
}
