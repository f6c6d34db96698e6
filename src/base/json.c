// Owns loading jansson trees, with errors that give the position.
#include "base/json.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/scan.h"
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX ((size_t)16 << 20)

// Configurations and documents of authorization servers hold secrets, and jansson does not know which strings are
// secret, so every block is wiped.
static void wiping_free(void *block)
{
    if (block)
        explicit_bzero(block, malloc_usable_size(block));
    free(block);
}

void json_setup(void) { json_set_alloc_funcs(malloc, wiping_free); }

// Jansson quotes the text near the problem without escaping it. That may be a part of a secret, unless it is a key that occurs twice;
// the error has the position.
static void hide_text(char *text)
{
    char *near = strncmp(text, "duplicate", strlen("duplicate")) == 0 ? NULL : strstr(text, " near '");
    if (near)
        *near = '\0';
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

static json_t *parse(struct span text, size_t flags, const char *what, struct err *err)
{
    json_error_t problem;
    if (text.len == 0) {
        (void)err_set(err, ERR_PARSE, "%s:1:1: the file is empty", what);
        return NULL;
    }
    json_t *tree = json_loadb(text.at, text.len, JSON_REJECT_DUPLICATES | flags, &problem);
    if (!tree) {
        hide_text(problem.text);
        (void)err_set(err, ERR_PARSE, "%s:%d:%d: %s", what, problem.line, problem.column, problem.text);
    }
    return tree;
}

json_t *json_parse(struct span text, const char *what, struct err *err) { return parse(text, 0, what, err); }

json_t *json_parse_arguments(struct span text, const char *what, struct err *err)
{
    struct buf masked = {0};
    bool halves = scan_mask_halves(text, &masked);
    json_t *tree = parse(halves ? buf_span(&masked) : text, JSON_ALLOW_NUL, what, err);
    buf_release(&masked);
    return tree;
}

// Without a descriptor or memory, the file may be readable later as it is.
static void fail_to_read(const char *path, struct err *err)
{
    bool later = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
    (void)err_set(err, later ? ERR_SYSTEM : ERR_CONFIG, "%s: %s", path, strerror(errno));
}

bool json_read_file(const char *path, struct buf *text, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        fail_to_read(path, err);
        return false;
    }
    char block[65536];
    ssize_t got;
    struct stat is;
    text->max = FILE_MAX;
    if (fstat(fd, &is) == 0 && is.st_size > 0 && (size_t)is.st_size < FILE_MAX)
        buf_reserve(text, (size_t)is.st_size + 1);  // growing would leave copies of secrets behind
    while ((got = read(fd, block, sizeof block)) > 0)
        buf_put(text, block, (size_t)got);
    bool ok = got == 0 && !text->overflow;
    if (got < 0)
        fail_to_read(path, err);
    else if (text->overflow)
        (void)err_set(err, ERR_CONFIG, "%s: larger than %zu bytes", path, FILE_MAX);
    explicit_bzero(block, sizeof block);
    close(fd);
    return ok;
}

json_t *json_parse_file(const char *path, struct err *err)
{
    struct buf text = {0};
    json_t *tree = json_read_file(path, &text, err) ? json_parse(buf_span(&text), path, err) : NULL;
    buf_wipe(&text);
    return tree;
}
