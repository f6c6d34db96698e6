// Owns access to the desktop's keyring: it runs secret-tool as a child process, without a shell and with a timeout
// (S6).
#include "vault_keyring.h"
#include "auth/grant/vault.h"
#include "base/mem.h"
#include "loop/child.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#define PROGRAM "secret-tool"
enum { PATIENCE_MS = 2000, TEXT_MAX = 4096 };

struct keyring_command {
    struct loop *loop;
    bool ended, good, none;  // exit status 0; 1
};

static void on_exit_of(void *arg, const char *how)
{
    struct keyring_command *command = arg;
    command->ended = true;
    command->good = strcmp(how, "exit status 0") == 0;
    command->none = strcmp(how, "exit status 1") == 0;
    loop_stop(command->loop);
}

static void on_late(struct loop_timer *timer) { loop_stop(timer->arg); }

// Reads the output of the ended child, which is in the pipe as a whole. `out` has its full size already, because
// growing it would leave copies of the key in freed memory.
static void drain(int fd, struct buf *out)
{
    ssize_t got = read(fd, out->at, out->room - 1);
    out->len = got > 0 ? (size_t)got : 0;
}

// Runs secret-tool with these arguments. Returns true if it exited before the timeout.
static bool run(char *const *words, struct span input, struct keyring_command *command, struct buf *out,
                struct buf *complaint)
{
    struct buf bus = {0}, runtime = {0};
    struct err ignored;
    const char *address = getenv("DBUS_SESSION_BUS_ADDRESS"), *folder = getenv("XDG_RUNTIME_DIR");
    if (!address || !*address || !(command->loop = loop_new(&ignored)))
        return false;
    buf_printf(&bus, "DBUS_SESSION_BUS_ADDRESS=%s", address);
    buf_printf(&runtime, "XDG_RUNTIME_DIR=%s", folder ? folder : "");
    const char *const env[] = {buf_text(&bus), folder ? buf_text(&runtime) : NULL, NULL};
    struct child_spec spec = {.command = PROGRAM, .args = words, .env = env};
    struct loop_timer late = {.on_due = on_late, .arg = command->loop};
    struct child *child = child_start(command->loop, &spec, on_exit_of, command, &ignored);
    if (child) {
        bool written = !input.len || write(child_stdin(child), input.at, input.len) == (ssize_t)input.len;
        child_close_stdin(child);
        loop_timer_set(command->loop, &late, PATIENCE_MS);
        if (written)
            loop_run(command->loop);
        loop_timer_stop(command->loop, &late);
        if (command->ended) {
            drain(child_stdout(child), out);
            drain(child_stderr(child), complaint);
        }
        child_free(child);
    }
    loop_free(command->loop);
    buf_release(&bus);
    buf_release(&runtime);
    return command->ended;
}

enum vault_keyring_answer vault_keyring_find(const char *file, struct buf *text)
{
    char *const words[] = {"lookup", "service", "postern", "store", (char *)(uintptr_t)file, NULL};
    struct keyring_command command = {0};
    struct buf complaint = {0};
    buf_reserve(&complaint, TEXT_MAX);
    buf_reserve(text, TEXT_MAX);
    bool ended = run(words, (struct span){0}, &command, text, &complaint);
    bool complains = complaint.len > 0;  // then exit status 1 does not mean that the key is absent
    buf_release(&complaint);
    return ended && command.good && text->len                  ? VAULT_KEYRING_FOUND
           : ended && command.none && !complains && !text->len ? VAULT_KEYRING_NONE
                                                               : VAULT_KEYRING_SILENT;
}

static bool keep(const char *file, struct span key)
{
    char *const words[] = {
        "store", "--label=Postern: key of the grant store", "service", "postern", "store", (char *)(uintptr_t)file,
        NULL};
    struct keyring_command command = {0};
    struct buf out = {0}, complaint = {0};
    buf_reserve(&out, TEXT_MAX);
    buf_reserve(&complaint, TEXT_MAX);
    bool ok = run(words, key, &command, &out, &complaint) && command.good;
    buf_release(&out);
    buf_release(&complaint);
    return ok;
}

bool vault_keyring_make(const char *file, struct span key, struct buf *text)
{
    const char *slash = strrchr(file, '/');
    char *folder = slash ? mem_copy(file, (size_t)(slash - file) + 1) : mem_string(".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(folder);
    // The lock keeps two processes from storing two keys: the second key would replace the first, and the records that
    // were sealed with the first one would be lost.
    if (fd < 0 || flock(fd, LOCK_EX) != 0) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    enum vault_keyring_answer there = vault_keyring_find(file, text);
    if (there == VAULT_KEYRING_NONE && keep(file, key))
        there = vault_keyring_find(file, text);
    close(fd);
    return there == VAULT_KEYRING_FOUND;
}
