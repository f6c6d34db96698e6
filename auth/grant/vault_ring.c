// Owns the ring of the vault's keys as text: its sources, reading, making and replacing it.
#include "vault_ring.h"
#include "base/mem.h"
#include "base/secret.h"
#include "store/state.h"
#include "vault_keyring.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define VARIABLE "POSTERN_VAULT_KEY"
#define CREDENTIAL "postern-vault-key"
#define FILE_NAME "vault.key"
#define DESCRIPTOR "fd:"
#define KEYRING "the Secret Service (secret-tool lookup service postern store %s)"
#define HEADING \
    "# The keys of postern's grant store: the first one seals, all of them open. Keep a copy in a safe place.\n"

enum { TEXT_MAX = 4096, KEY_CHARS = 43 };

struct vault_ring *vault_ring_new(void)
{
    struct vault_ring *ring = mmap(NULL, sizeof *ring, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ring == MAP_FAILED) {
        fputs("postern: out of memory\n", stderr);
        abort();
    }
    (void)mlock(ring, sizeof *ring);
    (void)madvise(ring, sizeof *ring, MADV_DONTDUMP);
    return ring;
}

void vault_ring_free(struct vault_ring *ring)
{
    if (!ring)
        return;
    secret_wipe(ring, sizeof *ring);
    munmap(ring, sizeof *ring);
}

const struct vault_ring_key *vault_ring_find(const struct vault_ring *ring, const unsigned char id[VAULT_ID_BYTES])
{
    for (size_t i = 0; i < ring->count; i++)
        if (memcmp(ring->keys[i].id, id, VAULT_ID_BYTES) == 0)
            return &ring->keys[i];
    return NULL;
}

// ---- keys as text ---------------------------------------------------------------------------

static void set_id(struct vault_ring_key *key)
{
    static const char label[] = "postern vault key";
    unsigned char digest[SECRET_MAC_BYTES];
    char bytes[sizeof label + VAULT_KEY_BYTES];
    memcpy(bytes, label, sizeof label);
    memcpy(bytes + sizeof label, key->bytes, VAULT_KEY_BYTES);
    secret_digest(span_make(bytes, sizeof bytes), digest);
    memcpy(key->id, digest, VAULT_ID_BYTES);
    secret_wipe(bytes, sizeof bytes);
}

void vault_ring_key_make(struct vault_ring_key *key)
{
    secret_random(key->bytes, sizeof key->bytes);
    set_id(key);
}

// base64 in both alphabets, with or without its '='.
static bool read_key(struct span word, struct vault_ring_key *key)
{
    char text[KEY_CHARS];
    struct buf bytes = {0};
    if (word.len == KEY_CHARS + 1 && word.at[KEY_CHARS] == '=')
        word.len--;
    if (word.len != KEY_CHARS)
        return false;
    for (size_t i = 0; i < word.len; i++)
        text[i] = word.at[i] == '+' ? '-' : word.at[i] == '/' ? '_' : word.at[i];
    buf_reserve(&bytes, (size_t)2 * VAULT_KEY_BYTES);
    bool ok = secret_decode(&bytes, span_make(text, sizeof text)) && bytes.len == VAULT_KEY_BYTES;
    if (ok) {
        memcpy(key->bytes, bytes.at, VAULT_KEY_BYTES);
        set_id(key);
    }
    secret_wipe(text, sizeof text);
    buf_wipe(&bytes);
    return ok;
}

// Takes the next word; '#' begins a comment. Returns false at the end of the text.
static bool next_word(struct span *text, struct span *word)
{
    static const char between[] = " \t\r\n,";
    while (text->len && (strchr(between, text->at[0]) || text->at[0] == '#')) {
        const char *end = text->at[0] == '#' ? memchr(text->at, '\n', text->len) : text->at;
        *text = end ? span_after(*text, (size_t)(end - text->at) + 1) : (struct span){0};
    }
    *word = (struct span){text->at, 0};
    while (word->len < text->len && !strchr(between, text->at[word->len]))
        word->len++;
    *text = span_after(*text, word->len);
    return word->len > 0;
}

// Errors name a key by its number, because the text is a secret.
static bool parse(struct span text, const char *name, struct vault_ring *ring, struct err *err)
{
    struct span word;
    ring->count = 0;
    while (next_word(&text, &word)) {
        struct vault_ring_key *key = &ring->keys[ring->count];
        if (ring->count == VAULT_KEYS_MAX)
            return err_set(err, ERR_CONFIG, "%s: contains more than %d keys", name, VAULT_KEYS_MAX);
        if (!read_key(word, key))
            return err_set(err, ERR_CONFIG,
                           "%s: key %zu is not 32 bytes in base64 (make one with: openssl rand -base64 32)", name,
                           ring->count + 1);
        if (vault_ring_find(ring, key->id))
            return err_set(err, ERR_CONFIG, "%s: key %zu is a duplicate; remove it", name, ring->count + 1);
        ring->count++;
    }
    return ring->count ||
           err_set(err, ERR_CONFIG, "%s: does not contain a key (make one with: openssl rand -base64 32)", name);
}

// ---- reading --------------------------------------------------------------------------------

// S6: "fd:3" is a descriptor that the parent process has left open.
static bool descriptor_of(const char *name, int *fd)
{
    uint64_t number = 0;
    bool is = strncmp(name, DESCRIPTOR, sizeof DESCRIPTOR - 1) == 0 &&
              span_to_u64(span_of(name + sizeof DESCRIPTOR - 1), &number) && number <= INT_MAX;
    *fd = (int)number;
    return is;
}

bool vault_ring_is_descriptor(const struct vault_config *config)
{
    int fd;
    return config->key_file && descriptor_of(config->key_file, &fd);
}

static void set_keyring(struct vault_ring_place *place)
{
    struct buf name = {0};
    buf_printf(&name, KEYRING, place->name);
    free(place->name);
    place->name = buf_take(&name, NULL);
    place->source = VAULT_RING_KEYRING;
}

void vault_ring_place_release(struct vault_ring_place *place)
{
    buf_wipe(&place->found);
    free(place->name);
    place->name = NULL;
}

bool vault_ring_locate(const struct vault_config *config, struct vault_ring_place *place, struct err *err)
{
    const char *variable = getenv(VARIABLE), *credentials = getenv("CREDENTIALS_DIRECTORY");
    *place = (struct vault_ring_place){0};
    if (config->key_file) {
        *place = (struct vault_ring_place){.source = vault_ring_is_descriptor(config) ? VAULT_RING_DESCRIPTOR
                                                                                      : VAULT_RING_FILE,
                                           .name = mem_string(config->key_file)};
        return true;
    }
    if (variable) {  // also if it is empty: the next source must not replace a variable that was set on purpose
        *place = (struct vault_ring_place){.source = VAULT_RING_VARIABLE, .name = mem_string(VARIABLE)};
        return true;
    }
    if (credentials) {
        struct buf path = {0};
        buf_printf(&path, "%s/%s", credentials, CREDENTIAL);
        *place = (struct vault_ring_place){.source = VAULT_RING_CREDENTIAL, .name = buf_take(&path, NULL)};
        if (access(place->name, F_OK) == 0)
            return true;
        free(place->name);
    }
    place->name = state_path(NULL, FILE_NAME);
    place->source = access(place->name, F_OK) == 0 ? VAULT_RING_FILE : VAULT_RING_NONE;
    if (place->source == VAULT_RING_NONE && errno != ENOENT && errno != ENOTDIR)
        return err_set(err, ERR_CONFIG, "%s: %s", place->name, strerror(errno));
    if (place->source == VAULT_RING_NONE) {
        enum vault_keyring_answer there = vault_keyring_find(place->name, &place->found);
        place->keyring = there == VAULT_KEYRING_NONE;
        if (there == VAULT_KEYRING_FOUND)
            set_keyring(place);
    }
    return true;
}

// The mode of a credential is not checked: systemd sets it, and it may have group bits because of an access control
// list.
static bool check_rights(const struct vault_ring_place *place, const struct stat *is, struct err *err)
{
    if (!S_ISREG(is->st_mode))
        return err_set(err, ERR_CONFIG, "%s: is not a regular file", place->name);
    if (place->source == VAULT_RING_CREDENTIAL)
        return true;
    if (is->st_uid != geteuid() && is->st_uid != 0)
        return err_set(err, ERR_CONFIG, "%s: is owned by another user (uid %ld); change its owner with chown",
                       place->name, (long)is->st_uid);
    if (is->st_mode & (S_IRWXG | S_IRWXO))
        return err_set(err, ERR_CONFIG, "%s: is accessible to other users (mode %03o); run 'chmod 600 %s'", place->name,
                       (unsigned)is->st_mode & 0777, place->name);
    return true;
}

static bool read_file(struct vault_ring_place *place, struct vault_ring *ring, struct err *err)
{
    char text[TEXT_MAX];
    size_t len = 0;
    ssize_t got = -1;
    struct stat is;
    int fd = open(place->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &is) != 0) {
        int problem = errno;
        if (fd >= 0)
            close(fd);
        return err_set(err, ERR_CONFIG, "%s: cannot read the vault's keys: %s", place->name, strerror(problem));
    }
    bool ok = check_rights(place, &is, err);
    while (ok && len < sizeof text && (got = read(fd, text + len, sizeof text - len)) > 0)
        len += (size_t)got;
    close(fd);
    if (ok && (got < 0 || len == sizeof text))
        ok = err_set(err, ERR_CONFIG, "%s: cannot be read, or is too large for a ring of keys", place->name);
    ok = ok && parse(span_make(text, len), place->name, ring, err);
    secret_wipe(text, sizeof text);
    if (ok)
        place->seen = is;
    return ok;
}

static bool write_text(int fd, struct span text)
{
    while (text.len) {
        ssize_t wrote = write(fd, text.at, text.len);
        if (wrote < 0 && errno != EINTR)
            return false;
        text = span_after(text, wrote > 0 ? (size_t)wrote : 0);
    }
    return fsync(fd) == 0;
}

// A pipe can be read only once, but a command may open the store more than once: a file in memory replaces the pipe.
static bool keep_readable(int fd, struct span text)
{
    int copy = memfd_create("vault", MFD_CLOEXEC);
    bool ok = copy >= 0 && write_text(copy, text) && dup3(copy, fd, O_CLOEXEC) == fd;
    if (copy >= 0)
        close(copy);
    return ok;
}

static bool read_descriptor(const struct vault_ring_place *place, struct vault_ring *ring, struct err *err)
{
    char text[TEXT_MAX];
    size_t len = 0;
    ssize_t got = -1;
    struct stat is;
    int fd;
    if (!descriptor_of(place->name, &fd) || fstat(fd, &is) != 0)
        return err_set(err, ERR_CONFIG, "%s: cannot read the vault's keys: %s", place->name, strerror(errno));
    bool file = S_ISREG(is.st_mode);
    while (len < sizeof text && (got = file ? pread(fd, text + len, sizeof text - len, (off_t)len)
                                            : read(fd, text + len, sizeof text - len)) > 0)
        len += (size_t)got;
    bool ok = got >= 0 && len < sizeof text && (file || keep_readable(fd, span_make(text, len)));
    if (!ok)
        (void)err_set(err, ERR_CONFIG, "%s: cannot be read, or is too large for a ring of keys", place->name);
    ok = ok && parse(span_make(text, len), place->name, ring, err);
    secret_wipe(text, sizeof text);
    return ok;
}

bool vault_ring_read(struct vault_ring_place *place, struct vault_ring *ring, struct err *err)
{
    if (place->source == VAULT_RING_DESCRIPTOR)
        return read_descriptor(place, ring, err);
    if (place->source == VAULT_RING_KEYRING) {
        bool ok = parse(buf_span(&place->found), place->name, ring, err);
        buf_wipe(&place->found);
        return ok;
    }
    if (place->source != VAULT_RING_VARIABLE)
        return read_file(place, ring, err);
    const char *text = getenv(place->name);
    return parse(span_of(text ? text : ""), place->name, ring, err);
}

bool vault_ring_changed(const struct vault_ring_place *place)
{
    struct stat is;
    const struct stat *was = &place->seen;
    bool file = place->source == VAULT_RING_FILE || place->source == VAULT_RING_CREDENTIAL;
    if (!file || stat(place->name, &is) != 0)
        return false;
    return is.st_ino != was->st_ino || is.st_dev != was->st_dev || is.st_size != was->st_size ||
           is.st_mtim.tv_sec != was->st_mtim.tv_sec || is.st_mtim.tv_nsec != was->st_mtim.tv_nsec ||
           is.st_ctim.tv_sec != was->st_ctim.tv_sec || is.st_ctim.tv_nsec != was->st_ctim.tv_nsec;
}

// ---- writing --------------------------------------------------------------------------------

static void put_ring(const struct vault_ring *ring, struct buf *text)
{
    buf_reserve(text, TEXT_MAX);  // all at once: growing the buffer would leave copies of keys in freed memory
    buf_put_text(text, HEADING);
    for (size_t i = 0; i < ring->count; i++) {
        secret_encode(text, span_make((const char *)ring->keys[i].bytes, VAULT_KEY_BYTES));
        buf_put_char(text, '\n');
    }
}

// Writes the ring to a new file beside `path` and syncs it. Returns the name of the file, or NULL.
static char *write_beside(const char *path, const struct vault_ring *ring, struct err *err)
{
    struct buf name = {0}, text = {0};
    buf_printf(&name, "%s.XXXXXX", path);
    char *temporary = buf_take(&name, NULL);
    int fd = mkostemp(temporary, O_CLOEXEC);  // 0600
    put_ring(ring, &text);
    bool ok = fd >= 0 && write_text(fd, buf_span(&text));
    if (!ok)
        (void)err_set(err, ERR_SYSTEM, "%s: cannot be written: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    if (!ok && fd >= 0)
        unlink(temporary);
    buf_wipe(&text);
    if (ok)
        return temporary;
    free(temporary);
    return NULL;
}

// Syncs the folder of a file: the key and its directory entry must be on the disk before a record is sealed with the
// key.
static bool sync_folder(const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? mem_copy(path, (size_t)(slash - path) + 1) : mem_string(".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0 && fsync(fd) == 0;
    if (!ok)
        (void)err_set(err, ERR_SYSTEM, "%s: %s", folder, strerror(errno));
    if (fd >= 0)
        close(fd);
    free(folder);
    return ok;
}

static bool make_in_keyring(struct vault_ring_place *place, const struct vault_ring_key *key)
{
    struct buf text = {0};
    buf_reserve(&text, TEXT_MAX);
    secret_encode(&text, span_make((const char *)key->bytes, VAULT_KEY_BYTES));
    bool ok = vault_keyring_make(place->name, buf_span(&text), &place->found);
    buf_wipe(&text);
    if (ok)
        set_keyring(place);
    return ok;
}

bool vault_ring_make(struct vault_ring_place *place, struct err *err)
{
    struct vault_ring *ring = vault_ring_new();
    vault_ring_key_make(&ring->keys[0]);
    ring->count = 1;
    state_make_folders(place->name);
    if (place->keyring && make_in_keyring(place, &ring->keys[0])) {
        vault_ring_free(ring);
        return true;
    }
    char *temporary = write_beside(place->name, ring, err);
    vault_ring_free(ring);
    if (!temporary)
        return false;
    bool ok = link(temporary, place->name) == 0 || errno == EEXIST ||
              err_set(err, ERR_SYSTEM, "%s: cannot be created: %s", place->name, strerror(errno));
    unlink(temporary);
    free(temporary);
    place->source = VAULT_RING_FILE;
    return ok && sync_folder(place->name, err);
}

bool vault_ring_write(const struct vault_ring_place *place, const struct vault_ring *ring, struct err *err)
{
    char *real = realpath(place->name, NULL);  // replaces the target of a symbolic link, not the link
    if (!real)
        return err_set(err, ERR_SYSTEM, "%s: %s", place->name, strerror(errno));
    char *temporary = write_beside(real, ring, err);
    bool ok = temporary && (rename(temporary, real) == 0 ||
                            err_set(err, ERR_SYSTEM, "%s: cannot be replaced: %s", real, strerror(errno)));
    if (temporary && !ok)
        unlink(temporary);
    ok = ok && sync_folder(real, err);
    free(temporary);
    free(real);
    return ok;
}
