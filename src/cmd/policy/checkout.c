// Owns reading a policy at a git revision: `git ls-tree` and `git show`, into a temporary folder.
#include "base/mem.h"
#include "cmd/base/fail.h"
#include "loop/child.h"
#include "subcommands.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define GIT_MS 20000
#define OUTPUT_MAX ((size_t)16 << 20)

// ---- one git command ------------------------------------------------------------------------

struct git {
    struct loop *loop;
    struct child *child;
    struct loop_watch out, errors;
    struct loop_timer late;
    struct buf text, complaint;
    bool out_open, errors_open, running, good;
};

static void settle(struct git *git)
{
    if (!git->running && !git->out_open && !git->errors_open)
        loop_stop(git->loop);
}

static void drain(struct git *git, struct loop_watch *watch, struct buf *into, bool *open)
{
    char block[16384];
    ssize_t got;
    while ((got = read(watch->fd, block, sizeof block)) > 0)
        buf_put(into, block, (size_t)got);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    loop_unwatch(git->loop, watch);
    *open = false;
    settle(git);
}

static void on_out(struct loop_watch *watch, unsigned events)
{
    struct git *git = watch->arg;
    (void)events;
    drain(git, watch, &git->text, &git->out_open);
}

static void on_errors(struct loop_watch *watch, unsigned events)
{
    struct git *git = watch->arg;
    (void)events;
    drain(git, watch, &git->complaint, &git->errors_open);
}

static void on_exit_of(void *arg, const char *how)
{
    struct git *git = arg;
    git->running = false;
    git->good = strcmp(how, "exit status 0") == 0;
    if (!child_started(git->child))
        buf_put_text(&git->complaint, how);
    settle(git);
}

static void on_late(struct loop_timer *timer) { loop_stop(((struct git *)timer->arg)->loop); }

// Runs git and stores its output in `out`; false: git failed.
static bool run_git(const char *const *args, struct buf *out, struct err *err)
{
    struct git git = {.text = {.max = OUTPUT_MAX}, .complaint = {.max = 4096}, .running = true};
    struct child_spec spec = {.command = "git", .args = (char *const *)(uintptr_t)args};
    bool ok = (git.loop = loop_new(err)) && (git.child = child_start(git.loop, &spec, on_exit_of, &git, err));
    if (ok) {
        git.out = (struct loop_watch){.fd = child_stdout(git.child), .on_ready = on_out, .arg = &git};
        git.errors = (struct loop_watch){.fd = child_stderr(git.child), .on_ready = on_errors, .arg = &git};
        git.late = (struct loop_timer){.on_due = on_late, .arg = &git};
        git.out_open = git.errors_open = true;
        child_close_stdin(git.child);
        ok = loop_watch(git.loop, &git.out, LOOP_READ | LOOP_HANGUP, err) &&
             loop_watch(git.loop, &git.errors, LOOP_READ | LOOP_HANGUP, err);
    }
    if (ok) {
        loop_timer_set(git.loop, &git.late, GIT_MS);
        loop_run(git.loop);
        loop_timer_stop(git.loop, &git.late);
    }
    if (ok && (!git.good || git.text.overflow)) {
        char *said = buf_text(&git.complaint);
        ok = err_set(err, ERR_CONFIG, "git %s: %.*s", args[0], (int)strcspn(said, "\n"), said);
    }
    if (git.child)
        child_free(git.child);
    if (git.loop)
        loop_free(git.loop);
    if (ok)
        buf_put_span(out, buf_span(&git.text));
    buf_release(&git.text);
    buf_release(&git.complaint);
    return ok;
}

// ---- a path at a revision -------------------------------------------------------------------

static bool save(const char *folder, const char *name, struct span text, struct err *err)
{
    struct buf path = {0};
    const char *slash = strrchr(name, '/');
    buf_printf(&path, "%s/%s", folder, slash ? slash + 1 : name);
    FILE *out = fopen(buf_text(&path), "we");
    bool ok = out && fwrite(text.at, 1, text.len, out) == text.len;
    ok = out && fclose(out) == 0 && ok;
    if (!ok)
        (void)err_set(err, ERR_SYSTEM, "%s: %s", buf_text(&path), strerror(errno));
    buf_release(&path);
    return ok;
}

static bool save_one(const char *folder, const char *revision, const char *name, struct err *err)
{
    struct buf text = {0}, object = {0};
    buf_printf(&object, "%s:./%s", revision, name);
    bool ok = run_git((const char *const[]){"show", buf_text(&object), NULL}, &text, err) &&
              save(folder, name, buf_span(&text), err);
    buf_release(&object);
    buf_release(&text);
    return ok;
}

static bool is_json(const char *name)
{
    size_t len = strlen(name);
    return len > 5 && strcmp(name + len - 5, ".json") == 0;
}

// `path` is a file, or a folder whose direct *.json files are copied.
static bool save_all(const char *folder, const char *revision, const char *path, struct err *err)
{
    struct buf names = {0}, inside = {0};
    size_t saved = 0;
    buf_printf(&inside, "%s%s", path, is_json(path) || path[strlen(path) - 1] == '/' ? "" : "/");
    bool ok =
        run_git((const char *const[]){"ls-tree", "--name-only", revision, "--", buf_text(&inside), NULL}, &names, err);
    for (char *name = buf_text(&names), *end; ok && (end = strchr(name, '\n')); name = end + 1) {
        *end = '\0';
        if (!is_json(name))
            continue;
        ok = save_one(folder, revision, name, err);
        saved++;
    }
    if (ok && !saved)
        ok = err_set(err, ERR_CONFIG, "%s:%s: does not contain a *.json file", revision, path);
    buf_release(&names);
    buf_release(&inside);
    return ok;
}

char *policy_checkout(const char *revision, int *exit_code)
{
    struct err err = {0};
    const char *colon = strchr(revision, ':'), *parent = getenv("TMPDIR");
    char *name = mem_copy(revision, (size_t)(colon - revision));
    struct buf folder = {0};
    buf_printf(&folder, "%s/postern-policy-XXXXXX", parent ? parent : "/tmp");
    bool ok = false;
    if (!*name || *name == '-' || !colon[1])
        (void)err_set(&err, ERR_CONFIG, "%s: write REVISION:PATH", revision);
    else if (!mkdtemp(buf_text(&folder)))
        (void)err_set(&err, ERR_SYSTEM, "%s: %s", buf_text(&folder), strerror(errno));
    else if (!(ok = save_all(buf_text(&folder), name, colon + 1, &err)))
        policy_checkout_remove(buf_text(&folder));
    free(name);
    if (ok)
        return buf_take(&folder, NULL);
    *exit_code = fail_with_err(&err);
    buf_release(&folder);
    return NULL;
}

void policy_checkout_remove(const char *folder)
{
    DIR *all = opendir(folder);
    for (struct dirent *one; all && (one = readdir(all));)
        if (one->d_name[0] != '.')
            (void)unlinkat(dirfd(all), one->d_name, 0);
    if (all)
        closedir(all);
    (void)rmdir(folder);
}
