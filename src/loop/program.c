// Owns finding programs the way posix_spawnp() does, without starting them.
#include "loop/program.h"
#include "base/buf.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_program(const char *folder, size_t len, const char *command)
{
    struct stat info;
    struct buf path = {0};
    if (len)
        buf_printf(&path, "%.*s/", (int)len, folder);
    buf_put_text(&path, command);
    bool found = access(buf_text(&path), X_OK) == 0 && stat(buf_text(&path), &info) == 0 && S_ISREG(info.st_mode);
    buf_release(&path);
    return found;
}

static bool in_path(const char *command)
{
    const char *at = getenv("PATH");
    while (at) {
        const char *end = strchrnul(at, ':');
        if (is_program(at, (size_t)(end - at), command))
            return true;
        at = *end ? end + 1 : NULL;
    }
    return false;
}

bool program_check(const char *command, const char *cwd, struct err *err)
{
    bool path = strchr(command, '/') != NULL;
    const char *from = cwd && command[0] != '/' ? cwd : "";
    if (path ? is_program(from, strlen(from), command) : in_path(command))
        return true;
    if (strpbrk(command, " \t"))
        return err_set(err, ERR_CONFIG, "\"%s\" is not a program; put its arguments in \"args\"", command);
    return path ? err_set(err, ERR_CONFIG, "%s%s%s is not an executable file", from, *from ? "/" : "", command)
                : err_set(err, ERR_CONFIG, "\"%s\" is not in PATH; install it, or give its full path", command);
}
