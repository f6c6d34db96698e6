// Owns private keys: reading a key from its file, and signing JWTs with it.
#include "auth/jose/signing_key.h"
#include "base/secret.h"
#include <errno.h>
#include <fcntl.h>
#include <jwt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_MAX 16384
#define ID_BYTES 16

static const char *read_key(const char *path, bool secret, struct arena *arena, struct err *err)
{
    char text[KEY_MAX];
    struct stat about;
    const char *key = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    ssize_t got = fd >= 0 && fstat(fd, &about) == 0 ? read(fd, text, sizeof text) : -1;
    if (got < 0)
        (void)err_set(err, ERR_CONFIG, "%s: %s", path, strerror(errno));
    else if (secret && about.st_mode & 077)
        (void)err_set(err, ERR_CONFIG, "%s: other users can read this private key; change its mode with chmod 600",
                      path);
    else if (got == 0 || got == sizeof text)
        (void)err_set(err, ERR_CONFIG, "%s: is not a PEM key", path);
    else
        key = arena_copy(arena, span_make(text, (size_t)got));
    secret_wipe(text, sizeof text);
    if (fd >= 0)
        close(fd);
    return key;
}

const char *signing_key_read(const char *path, struct arena *arena, struct err *err)
{
    return read_key(path, true, arena, err);
}

const char *signing_key_read_public(const char *path, struct arena *arena, struct err *err)
{
    return read_key(path, false, arena, err);
}

bool signing_key_algorithm_valid(const char *algorithm)
{
    static const char *const known[] = {"RS256", "RS384", "RS512", "ES256", "ES384", "ES512"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(algorithm, known[i]) == 0)
            return true;
    return false;
}

bool signing_key_sign(const struct signing_key *key, json_t *claims, struct buf *out, struct err *err)
{
    char id[SECRET_TEXT_SIZE(ID_BYTES)];
    jwt_t *jwt = NULL;
    char *text = NULL;
    secret_random_text(id, ID_BYTES);
    json_object_set_new(claims, "jti", json_string(id));
    char *said = json_dumps(claims, JSON_COMPACT);
    if (said && signing_key_algorithm_valid(key->algorithm) && jwt_new(&jwt) == 0 &&
        jwt_add_grants_json(jwt, said) == 0 && (!key->id || jwt_add_header(jwt, "kid", key->id) == 0) &&
        jwt_set_alg(jwt, jwt_str_alg(key->algorithm), (const unsigned char *)key->pem, (int)strlen(key->pem)) == 0)
        text = jwt_encode_str(jwt);
    free(said);
    jwt_free(jwt);
    if (!text)
        return err_set(err, ERR_CONFIG, "cannot sign with the private key; it must be a PEM key for %s",
                       key->algorithm);
    buf_put_text(out, text);
    free(text);
    return true;
}
