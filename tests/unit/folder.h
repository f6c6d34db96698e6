// The temporary folder of a test: `directory`, empty at first and removed with its files at the end.
#ifndef FOLDER_H
#define FOLDER_H

#include "base/log.h"
#include "unit.h"
#include <dirent.h>
#include <fcntl.h>

static char directory[32];

// The set-up of a test or group that needs only the folder.
static inline int make_directory(void **state)
{
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/postern-unit-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

// The same; the folder becomes the state folder of the gateway, and the environment names no key ring.
static inline int make_state_directory(void **state)
{
    if (make_directory(state) != 0)
        return -1;
    setenv("POSTERN_STATE", directory, 1);
    unsetenv("POSTERN_VAULT_KEY");
    unsetenv("CREDENTIALS_DIRECTORY");
    unsetenv("DBUS_SESSION_BUS_ADDRESS");
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    return 0;
}

// Removes the files in the folder; subfolders stay.
static inline void empty_directory(void)
{
    DIR *all = opendir(directory);
    for (struct dirent *one; all && (one = readdir(all));)
        if (strcmp(one->d_name, ".") != 0 && strcmp(one->d_name, "..") != 0)
            (void)unlinkat(dirfd(all), one->d_name, 0);
    if (all)
        closedir(all);
}

// The teardown; fails if a subfolder is left.
static inline int remove_directory(void **state)
{
    (void)state;
    empty_directory();
    return rmdir(directory);
}

static inline void write_file(const char *path, const char *text)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    assert_int_equal(fclose(out), 0);
}

// Writes a file into the folder; returns its path, which is valid until the next call.
static inline const char *write_in_directory(const char *name, const char *text)
{
    static char path[400];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    write_file(path, text);
    return path;
}

#endif
