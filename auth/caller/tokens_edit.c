// Owns changing the tokens file: the lock, the entries as JSON, and replacing the file as a whole.
//
// A reader sees the old file or the new one, never a part (tests/unit/auth/caller/tokens_test.c: P10_a_failed_save_leaves_the_token_file_unchanged).
#include "base/json.h"
#include "base/mem.h"
#include "base/option.h"
#include "tokens_read.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct caller_tokens_edit {
    char *path;
    int lock;
    struct caller_tokens *before;
    json_t *tree;  // the new content
};

// ---- writing --------------------------------------------------------------------------------

// tokens.json -> .tokens.json<suffix>, in the same directory.
static char *beside(const char *path, const char *suffix)
{
    struct buf out = {0};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    buf_put(&out, path, (size_t)(name - path));
    buf_printf(&out, ".%s%s", name, suffix);
    return buf_take(&out, NULL);
}

static bool write_all(int fd, struct span text)
{
    while (text.len) {
        ssize_t done = write(fd, text.at, text.len);
        if (done < 0 && errno != EINTR)
            return false;
        text = span_after(text, done > 0 ? (size_t)done : 0);
    }
    return true;
}

// The administrator decided who may read the file: the new one has the mode and owner of the old one.
static bool keep_mode(int fd, const char *path)
{
    struct stat old, new;
    if (stat(path, &old) != 0)
        return errno == ENOENT;  // mkostemp created it with 0600
    if (fstat(fd, &new) != 0)
        return false;
    bool same = old.st_uid == new.st_uid &&old.st_gid == new.st_gid;
    return (same || fchown(fd, old.st_uid, old.st_gid) == 0) && fchmod(fd, old.st_mode & 07777) == 0;
}

// Makes the rename durable. The file is already replaced, so an error is not reported.
static void sync_directory(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *directory = slash ? mem_copy(path, (size_t)(slash - path) + 1) : mem_string(".");
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    free(directory);
}

static bool replace(const char *path, struct span text, struct err *err)
{
    char *temporary = beside(path, ".XXXXXX");
    int fd = mkostemp(temporary, O_CLOEXEC);
    bool ok = fd >= 0 && keep_mode(fd, path) && write_all(fd, text) && fsync(fd) == 0;
    ok = ok && rename(temporary, path) == 0;
    if (!ok)
        (void)err_set(err, ERR_SYSTEM, "%s: cannot be written: %s", path, strerror(errno));
    if (!ok && fd >= 0)
        unlink(temporary);
    if (fd >= 0)
        close(fd);
    if (ok)
        sync_directory(path);
    free(temporary);
    return ok;
}

// ---- one change -----------------------------------------------------------------------------

// The lock file stays: after its removal, two processes could each hold a lock on a different file of this name.
static int take_lock(const char *path, struct err *err)
{
    char *name = beside(path, ".lock");
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), got = -1;
    while (fd >= 0 && (got = flock(fd, LOCK_EX)) != 0 && errno == EINTR)
        ;
    if (got != 0) {
        (void)err_set(err, ERR_SYSTEM, "%s: cannot be locked: %s", name, strerror(errno));
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    free(name);
    return fd;
}

static bool set_text(json_t *tree, const char *key, const char *text)
{
    return !text || json_object_set_new(tree, key, json_string(text)) == 0;
}

// NULL: a text is not UTF-8.
static json_t *entry_json(const struct caller_token *entry)
{
    json_t *tree = json_object(), *roles = json_array();
    bool ok = set_text(tree, "id", entry->id) && set_text(tree, "sha256", entry->sha256) &&
              set_text(tree, "subject", entry->subject);
    json_object_set_new(tree, "roles", roles);
    for (const char *const *role = entry->roles; ok && *role; role++)
        ok = json_array_append_new(roles, json_string(*role)) == 0;
    ok = ok && set_text(tree, "tenant", entry->tenant) && set_text(tree, "created", entry->created) &&
         set_text(tree, "expires", entry->expires) && set_text(tree, "description", entry->description);
    if (ok)
        return tree;
    json_decref(tree);
    return NULL;
}

static json_t *file_json(const struct caller_tokens *file)
{
    json_t *tree = json_object(), *tokens = json_array();
    (void)set_text(tree, "$schema", caller_tokens_schema(file));
    json_object_set_new(tree, "version", json_integer(1));
    json_object_set_new(tree, "tokens", tokens);
    for (size_t i = 0; i < caller_tokens_count(file); i++)
        json_array_append_new(tokens, entry_json(caller_tokens_at(file, i)));
    return tree;
}

struct caller_tokens_edit *caller_tokens_edit_start(const char *path, bool create, struct err *err)
{
    char *real = realpath(path, NULL);  // resolves a symbolic link, so that the file is replaced and not the link
    if (!real && !(create && errno == ENOENT)) {
        (void)err_set(err, ERR_CONFIG, "%s: %s", path, strerror(errno));
        return NULL;
    }
    struct caller_tokens_edit *edit = mem_new(struct caller_tokens_edit);
    edit->path = real ? real : mem_string(path);
    edit->lock = take_lock(edit->path, err);
    if (edit->lock >= 0) {
        bool there = access(edit->path, F_OK) == 0 || !create;
        edit->before = there ? caller_tokens_load(edit->path, err) : caller_tokens_new(edit->path);
    }
    if (edit->before) {
        edit->tree = file_json(edit->before);
        return edit;
    }
    caller_tokens_edit_free(edit);
    return NULL;
}

const struct caller_tokens *caller_tokens_edit_before(const struct caller_tokens_edit *edit) { return edit->before; }

static size_t position(const json_t *tokens, const char *id)
{
    size_t i = 0;
    while (i < json_array_size(tokens) &&
           strcmp(json_string_value(json_object_get(json_array_get(tokens, i), "id")), id) != 0)
        i++;
    return i;
}

bool caller_tokens_edit_put(struct caller_tokens_edit *edit, const struct caller_token *entry, struct err *err)
{
    json_t *tokens = json_object_get(edit->tree, "tokens"), *one = entry_json(entry);
    if (!one)
        return err_set(err, ERR_CONFIG, "%s: cannot save the token: its subject, roles and description must be UTF-8",
                       edit->path);
    size_t at = position(tokens, entry->id);
    struct buf path = {0};
    buf_printf(&path, "/tokens/%zu", at);
    struct option_place place = {.file = edit->path, .path = buf_text(&path)};
    bool ok = caller_tokens_entry_readable(one, &place, err);
    buf_release(&path);
    if (ok && at < json_array_size(tokens))
        json_array_set(tokens, at, one);
    else if (ok)
        json_array_append(tokens, one);
    json_decref(one);
    return ok;
}

void caller_tokens_edit_remove(struct caller_tokens_edit *edit, const char *id)
{
    json_t *tokens = json_object_get(edit->tree, "tokens");
    json_array_remove(tokens, position(tokens, id));
}

static void unlock(struct caller_tokens_edit *edit)
{
    if (edit->lock >= 0)
        close(edit->lock);
    edit->lock = -1;
}

bool caller_tokens_edit_save(struct caller_tokens_edit *edit, struct err *err)
{
    if (caller_tokens_stale(edit->before))  // by a program that does not lock the file: an editor, git
        return err_set(err, ERR_CONFIG, "%s: another program changed the file in the meantime; try again", edit->path);
    struct caller_tokens *after = caller_tokens_new(edit->path);
    bool ok = caller_tokens_read(edit->tree, after, err);
    caller_tokens_free(after);
    if (!ok)
        return false;
    struct buf text = {0};
    char *dump = json_dumps(edit->tree, JSON_INDENT(2));
    buf_put_text(&text, dump);
    buf_put_char(&text, '\n');
    ok = replace(edit->path, buf_span(&text), err);
    if (ok)
        unlock(edit);  // `before` is stale from here on
    free(dump);
    buf_release(&text);
    return ok;
}

void caller_tokens_edit_free(struct caller_tokens_edit *edit)
{
    if (!edit)
        return;
    unlock(edit);
    json_decref(edit->tree);
    caller_tokens_free(edit->before);
    free(edit->path);
    free(edit);
}
