// Faults of the environment, preloaded into the gateway: a full disk, and a system clock that is set to another time.
//
// No real peer can do this. A disk can be filled only where the tests may mount one, and then only for all files on it, and nothing but
// CAP_SYS_TIME sets the clock, for the whole machine. Here both concern one process, begin and end when the test says so, and need no
// privileges.
//
// $POSTERN_FAULTS names a file of two 64-bit integers that the test writes and this library maps, so that a fault begins at once and
// also when the process has no descriptors left:
//
//     [0]  seconds that CLOCK_REALTIME is ahead; other clocks are correct
//     [1]  1: the disk is full for regular files below $POSTERN_FAULTS_FOLDER
//
// Descendants of the process are not affected.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { CLOCK_AHEAD, DISK_FULL, FAULTS };

static const volatile int64_t none[FAULTS];
static const volatile int64_t *faults = none;
static char folder[PATH_MAX];

__attribute__((constructor)) static void begin(void)
{
    const char *file = getenv("POSTERN_FAULTS"), *below = getenv("POSTERN_FAULTS_FOLDER");
    int fd = file && below && strlen(below) < sizeof folder ? open(file, O_RDONLY | O_CLOEXEC) : -1;
    void *map = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof none, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        perror("POSTERN_FAULTS, POSTERN_FAULTS_FOLDER");
        abort();
    }
    close(fd);
    strcpy(folder, below);
    faults = map;
    unsetenv("LD_PRELOAD");
}

// Reports whether this write finds the disk full.
static int is_full(int fd)
{
    char link[64], path[PATH_MAX];
    struct stat is;
    if (!faults[DISK_FULL] || fstat(fd, &is) != 0 || !S_ISREG(is.st_mode))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len < 0 || strncmp(path, folder, strlen(folder)) != 0)
        return 0;
    errno = ENOSPC;
    return 1;
}

ssize_t write(int fd, const void *from, size_t len) { return is_full(fd) ? -1 : syscall(SYS_write, fd, from, len); }

ssize_t writev(int fd, const struct iovec *from, int count)
{
    return is_full(fd) ? -1 : syscall(SYS_writev, fd, from, count);
}

ssize_t pwrite64(int fd, const void *from, size_t len, off64_t at)
{
    return is_full(fd) ? -1 : syscall(SYS_pwrite64, fd, from, len, at);
}

ssize_t pwrite(int fd, const void *from, size_t len, off_t at) { return pwrite64(fd, from, len, at); }

int ftruncate64(int fd, off64_t len) { return is_full(fd) ? -1 : (int)syscall(SYS_ftruncate, fd, len); }

int ftruncate(int fd, off_t len) { return ftruncate64(fd, len); }

int fallocate64(int fd, int mode, off64_t at, off64_t len)
{
    return is_full(fd) ? -1 : (int)syscall(SYS_fallocate, fd, mode, at, len);
}

int fallocate(int fd, int mode, off_t at, off_t len) { return fallocate64(fd, mode, at, len); }

int fsync(int fd) { return is_full(fd) ? -1 : (int)syscall(SYS_fsync, fd); }

int fdatasync(int fd) { return is_full(fd) ? -1 : (int)syscall(SYS_fdatasync, fd); }

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int done = (int)syscall(SYS_clock_gettime, clock, now);
    if (done == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += faults[CLOCK_AHEAD];
    return done;
}

time_t time(time_t *now)
{
    struct timespec is;
    clock_gettime(CLOCK_REALTIME, &is);
    if (now)
        *now = is.tv_sec;
    return is.tv_sec;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec is;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &is);
    *now = (struct timeval){is.tv_sec, is.tv_nsec / 1000};
    return 0;
}
