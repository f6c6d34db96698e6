// Owns watching files with inotify: which folders to watch for a path, and merging bursts of events.
//
// inotify watches inodes, and an editor, git or a ConfigMap replaces files by renaming. So folders are watched, for the
// names in them that matter:
//
//   /etc/postern/policy.json     in /etc/postern: policy.json (any event); in /etc: postern (created, moved, deleted)
//   /etc/postern/policies        a folder: any name in it, and the two above
//   a symbolic link on the way   the link's own name in its folder, and all of this again for its target
//   a part that does not exist   its name in the folder where it would be
//
// After each burst all paths are followed again, since links and folders may have changed. A second event within
// QUIET_MS delays the report, by at most BURST_MS after the first. Guarded by tests/unit/loop/file_watch_test.c.
#include "loop/file_watch.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

enum { QUIET_MS = 50, BURST_MS = 500, WITHOUT_INOTIFY_MS = 500, LINKS_MAX = 40 };

#define MOVED_MASK (IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF)
#define WRITTEN_MASK (MOVED_MASK | IN_CLOSE_WRITE | IN_ATTRIB)

struct watched_folder {
    char *path;
    int descriptor;  // the watch descriptor of inotify
    uint32_t mask;
    bool all;          // every name in it matters
    struct buf names;  // names that matter, a NUL after each
    bool wanted;
};

struct file_watch {
    struct loop *loop;
    void (*on_change)(void *arg);
    void *arg;
    struct loop_watch events;  // fd -1: inotify is not available
    struct loop_timer report;
    int64_t burst_since_ms;  // 0: not in a burst
    char **paths;
    struct watched_folder *folders;
    size_t folder_count;
    bool incomplete;  // at least one folder cannot be watched
};

// ---- folders to watch -----------------------------------------------------------------------

static struct watched_folder *get_folder(struct file_watch *watch, const char *path)
{
    for (size_t i = 0; i < watch->folder_count; i++)
        if (strcmp(watch->folders[i].path, path) == 0)
            return &watch->folders[i];
    watch->folders = mem_resize(watch->folders, (watch->folder_count + 1) * sizeof *watch->folders);
    struct watched_folder *folder = &watch->folders[watch->folder_count++];
    *folder = (struct watched_folder){.path = mem_string(path), .descriptor = -1};
    return folder;
}

static bool has_name(const struct watched_folder *folder, const char *name)
{
    for (size_t at = 0; at < folder->names.len; at += strlen(folder->names.at + at) + 1)
        if (strcmp(folder->names.at + at, name) == 0)
            return true;
    return false;
}

// `name` NULL: every name.
static void want(struct file_watch *watch, const char *path, const char *name, uint32_t mask)
{
    struct watched_folder *folder = get_folder(watch, path);
    if (!folder->wanted) {
        folder->wanted = true;
        folder->all = false;
        folder->mask = 0;
        buf_clear(&folder->names);
    }
    folder->mask |= mask;
    folder->all = folder->all || !name;
    if (name && !has_name(folder, name))
        buf_put(&folder->names, name, strlen(name) + 1);
}

static void put_joined(struct buf *out, const char *folder, const char *name)
{
    buf_printf(out, "%s/%s", strcmp(folder, "/") == 0 ? "" : folder, name);
}

static size_t count_parts(const char *path)
{
    size_t count = 0;
    for (; *path; path += strcspn(path, "/"), count++)
        if (!*(path += strspn(path, "/")))
            break;
    return count;
}

static void follow(struct file_watch *watch, const char *path, int links);

static void follow_link(struct file_watch *watch, const char *link, const char *folder, const char *rest, int links)
{
    char target[PATH_MAX];
    struct buf next = {0};
    ssize_t len = readlink(link, target, sizeof target - 1);
    if (len <= 0 || links == 0)
        return;
    target[len] = '\0';
    if (target[0] == '/')
        buf_put_text(&next, target);
    else
        put_joined(&next, folder, target);
    if (*rest)
        buf_printf(&next, "/%s", rest);
    follow(watch, buf_text(&next), links - 1);
    buf_release(&next);
}

// Follows an absolute path, part by part.
static void follow(struct file_watch *watch, const char *path, int links)
{
    struct buf at = {0}, next = {0};
    const char *rest = path;
    struct stat is = {.st_mode = S_IFDIR};
    buf_put_char(&at, '/');
    for (size_t left = count_parts(path); left > 0; left--) {
        rest += strspn(rest, "/");
        size_t len = strcspn(rest, "/");
        char *name = mem_copy(rest, len);
        rest += len;
        buf_clear(&next);
        put_joined(&next, buf_text(&at), name);
        bool there = lstat(buf_text(&next), &is) == 0;
        if (left <= 2 || !there || S_ISLNK(is.st_mode))
            want(watch, buf_text(&at), name, left == 1 ? WRITTEN_MASK : MOVED_MASK);
        free(name);
        if (there && S_ISLNK(is.st_mode))
            follow_link(watch, buf_text(&next), buf_text(&at), rest + strspn(rest, "/"), links);
        if (!there || S_ISLNK(is.st_mode)) {
            is.st_mode = 0;
            break;
        }
        buf_clear(&at);
        buf_put_span(&at, buf_span(&next));
    }
    if (S_ISDIR(is.st_mode))
        want(watch, buf_text(&at), NULL, WRITTEN_MASK);
    buf_release(&at);
    buf_release(&next);
}

static void folder_release(struct watched_folder *folder)
{
    free(folder->path);
    buf_release(&folder->names);
}

// Two paths of one inode have the same descriptor; it must stay if a folder that is still wanted has it.
static bool is_shared(const struct file_watch *watch, const struct watched_folder *folder)
{
    for (size_t i = 0; i < watch->folder_count; i++)
        if (watch->folders[i].wanted && watch->folders[i].descriptor == folder->descriptor)
            return true;
    return false;
}

static void drop_unwanted(struct file_watch *watch)
{
    size_t kept = 0;
    for (size_t i = 0; i < watch->folder_count; i++) {
        struct watched_folder *folder = &watch->folders[i];
        if (folder->wanted) {
            watch->folders[kept++] = *folder;
            continue;
        }
        if (folder->descriptor >= 0 && !is_shared(watch, folder))
            (void)inotify_rm_watch(watch->events.fd, folder->descriptor);
        folder_release(folder);
    }
    watch->folder_count = kept;
}

static void add_wanted(struct file_watch *watch)
{
    bool incomplete = false;
    for (size_t i = 0; i < watch->folder_count; i++) {
        struct watched_folder *folder = &watch->folders[i];
        uint32_t mask = folder->mask | IN_ONLYDIR | IN_MASK_ADD;
        folder->descriptor = inotify_add_watch(watch->events.fd, folder->path, mask);
        if (folder->descriptor < 0 && errno != ENOENT && errno != ENOTDIR) {
            if (!watch->incomplete && !incomplete)
                log_warn("cannot watch a folder for changes: polling it twice a second instead",
                         LOG_STR("folder", folder->path), LOG_STR("detail", strerror(errno)));
            incomplete = true;
        }
    }
    watch->incomplete = incomplete;
}

static void follow_all(struct file_watch *watch)
{
    if (watch->events.fd < 0)
        return;
    for (size_t i = 0; i < watch->folder_count; i++)
        watch->folders[i].wanted = false;
    for (size_t i = 0; watch->paths && watch->paths[i]; i++)
        follow(watch, watch->paths[i], LINKS_MAX);
    drop_unwanted(watch);
    add_wanted(watch);
}

// ---- events ---------------------------------------------------------------------------------

static bool matters(const struct file_watch *watch, const struct inotify_event *event)
{
    if (event->mask & (IN_Q_OVERFLOW | IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT))
        return true;
    for (size_t i = 0; i < watch->folder_count; i++) {
        const struct watched_folder *folder = &watch->folders[i];
        if (folder->descriptor == event->wd && (folder->all || (event->len && has_name(folder, event->name))))
            return true;
    }
    return false;
}

static void note_change(struct file_watch *watch)
{
    int64_t now = loop_now(watch->loop);
    if (!watch->burst_since_ms)
        watch->burst_since_ms = now;
    int64_t left = watch->burst_since_ms + BURST_MS - now;
    loop_timer_set(watch->loop, &watch->report, left < 0 ? 0 : left < QUIET_MS ? left : QUIET_MS);
}

static void on_events(struct loop_watch *events, unsigned what)
{
    (void)what;
    struct file_watch *watch = events->arg;
    _Alignas(struct inotify_event) char bytes[8192];
    bool changed = false;
    for (ssize_t got; (got = read(events->fd, bytes, sizeof bytes)) > 0;)
        for (const char *at = bytes; at < bytes + got;) {
            const struct inotify_event *event = (const void *)at;
            changed = changed || matters(watch, event);
            at += sizeof *event + event->len;
        }
    if (changed)
        note_change(watch);
}

static void on_report(struct loop_timer *timer)
{
    struct file_watch *watch = timer->arg;
    watch->burst_since_ms = 0;
    follow_all(watch);
    bool all_seen = watch->events.fd >= 0 && !watch->incomplete;
    loop_timer_set(watch->loop, timer, all_seen ? FILE_WATCH_IDLE_MS : WITHOUT_INOTIFY_MS);
    watch->on_change(watch->arg);
}

// ---- beginning and end ----------------------------------------------------------------------

struct file_watch *file_watch_new(struct loop *loop, void (*on_change)(void *arg), void *arg)
{
    struct err err = {0};
    struct file_watch *watch = mem_new(struct file_watch);
    *watch = (struct file_watch){.loop = loop, .on_change = on_change, .arg = arg};
    watch->report = (struct loop_timer){.on_due = on_report, .arg = watch, .name = "changed files"};
    watch->events = (struct loop_watch){
        .fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC), .on_ready = on_events, .arg = watch, .name = "changed files"};
    if (watch->events.fd < 0)
        (void)err_set(&err, ERR_SYSTEM, "inotify: %s", strerror(errno));
    else if (!loop_watch(loop, &watch->events, LOOP_READ, &err)) {
        close(watch->events.fd);
        watch->events.fd = -1;
    }
    if (err.code)
        log_warn("cannot watch files for changes: polling them twice a second instead", LOG_STR("detail", err.detail));
    return watch;
}

static void release_paths(struct file_watch *watch)
{
    for (size_t i = 0; watch->paths && watch->paths[i]; i++)
        free(watch->paths[i]);
    free(watch->paths);
    watch->paths = NULL;
}

static char *absolute(const char *path)
{
    struct buf full = {0};
    char *here = path[0] == '/' ? NULL : getcwd(NULL, 0);
    if (here)
        put_joined(&full, here, path);
    else
        buf_put_text(&full, path);
    free(here);
    return buf_take(&full, NULL);
}

void file_watch_set(struct file_watch *watch, const char *const *paths)
{
    size_t count = 0;
    while (paths[count])
        count++;
    release_paths(watch);
    watch->paths = mem_alloc((count + 1) * sizeof *watch->paths);
    for (size_t i = 0; i < count; i++)
        watch->paths[i] = absolute(paths[i]);
    watch->paths[count] = NULL;
    loop_timer_set(watch->loop, &watch->report, 0);
    follow_all(watch);
}

void file_watch_free(struct file_watch *watch)
{
    if (!watch)
        return;
    loop_timer_stop(watch->loop, &watch->report);
    if (watch->events.fd >= 0) {
        loop_unwatch(watch->loop, &watch->events);
        close(watch->events.fd);
    }
    for (size_t i = 0; i < watch->folder_count; i++)
        folder_release(&watch->folders[i]);
    free(watch->folders);
    release_paths(watch);
    free(watch);
}
