// Owns the fingerprint that shows whether policy files have changed on disk.
#include "auth/policy/policy.h"
#include <dirent.h>
#include <sys/stat.h>

static uint64_t mix(uint64_t hash, const void *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001B3ULL;
    return hash;
}

static uint64_t mix_file(uint64_t hash, const char *path)
{
    struct stat info;
    if (stat(path, &info) < 0)
        return mix(hash, path, strlen(path));
    hash = mix(hash, path, strlen(path));
    hash = mix(hash, &info.st_ino, sizeof info.st_ino);
    hash = mix(hash, &info.st_size, sizeof info.st_size);
    return mix(hash, &info.st_mtim, sizeof info.st_mtim);
}

uint64_t policy_fingerprint(const char *path)
{
    uint64_t hash = mix_file(0xCBF29CE484222325ULL, path), sum = 0;
    DIR *folder = opendir(path);
    if (!folder)
        return hash;
    for (struct dirent *entry; (entry = readdir(folder));) {  // in any order: addition is commutative
        struct buf full = {0};
        if (entry->d_name[0] == '.')
            continue;
        buf_printf(&full, "%s/%s", path, entry->d_name);
        sum += mix_file(hash, buf_text(&full));
        buf_release(&full);
    }
    closedir(folder);
    return hash + sum;
}
