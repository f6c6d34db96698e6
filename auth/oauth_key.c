// Owns reading a client's private key from its file.
#include "oauth_key.h"
#include "base/secret.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_MAX 16384

const char *oauth_key_read(const char *path, struct arena *arena, struct err *err)
{
    char text[KEY_MAX];
    struct stat about;
    const char *key = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    ssize_t got = fd >= 0 && fstat(fd, &about) == 0 ? read(fd, text, sizeof text) : -1;
    if (got < 0)
        (void)err_set(err, ERR_CONFIG, "%s: %s", path, strerror(errno));
    else if (about.st_mode & 077)
        (void)err_set(err, ERR_CONFIG, "%s: others may read this private key: chmod 600 it", path);
    else if (got == 0 || got == sizeof text)
        (void)err_set(err, ERR_CONFIG, "%s: not a PEM key", path);
    else
        key = arena_copy(arena, span_make(text, (size_t)got));
    secret_wipe(text, sizeof text);
    if (fd >= 0)
        close(fd);
    return key;
}
