// Owns subject tokens: reading one from a file, checking where it may be sent, and the forms that present it.
#include "subject_token.h"
#include "auth/jose/jwt.h"
#include "base/mem.h"
#include "base/secret.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define SUBJECT_MAX ((size_t)64 << 10)
#define TYPE "urn:ietf:params:oauth:token-type:"
#define GRANT "urn:ietf:params:oauth:grant-type:"

static const char *const types[] = {TYPE "id_token", TYPE "access_token", TYPE "jwt"};  // enum access_subject

// A token has at least one character, all of them visible ASCII, so that it can be sent in a header.
static bool is_token(struct span text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.at[i] <= ' ' || (unsigned char)text.at[i] >= 0x7f)
            return false;
    return text.len > 0;
}

static struct span trim(struct span text)
{
    while (text.len && strchr(" \t\r\n", text.at[0]))
        text = span_after(text, 1);
    while (text.len && strchr(" \t\r\n", text.at[text.len - 1]))
        text.len--;
    return text;
}

const char *login_subject_token_read(const char *path, struct arena *arena, struct err *err)
{
    char *text = mem_alloc(SUBJECT_MAX);
    const char *token = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    ssize_t got = fd >= 0 ? read(fd, text, SUBJECT_MAX) : -1;
    struct span said = got > 0 ? trim(span_make(text, (size_t)got)) : (struct span){0};
    if (got < 0)
        (void)err_set(err, ERR_CONFIG, "%s: %s", path, strerror(errno));
    else if ((size_t)got == SUBJECT_MAX || !is_token(said))
        (void)err_set(err, ERR_CONFIG, "%s: does not contain a token", path);
    else
        token = arena_copy(arena, said);
    secret_wipe(text, SUBJECT_MAX);
    free(text);
    if (fd >= 0)
        close(fd);
    return token;
}

static bool names(const struct jwt *jwt, const char *issuer)
{
    const json_t *audience = json_object_get(jwt->payload, "aud");
    const char *only = json_string_value(audience);
    bool meant = only && oauth_issuer_matches(issuer, only);
    for (size_t i = 0; i < json_array_size(audience) && !meant; i++) {
        const char *one = json_string_value(json_array_get(audience, i));
        meant = one && oauth_issuer_matches(issuer, one);
    }
    return meant;
}

bool login_subject_token_meant_for(const char *token, const char *issuer)
{
    struct jwt jwt;
    struct err ignored;
    if (!jwt_parse(span_of(token), &jwt, &ignored))
        return false;
    bool meant = names(&jwt, issuer);
    jwt_release(&jwt);
    return meant;
}

bool login_subject_token_may_go(const char *token, const char *issuer)
{
    struct jwt jwt;
    struct err ignored;
    if (!jwt_parse(span_of(token), &jwt, &ignored))
        return false;
    bool may = names(&jwt, issuer) || (jwt.issuer && oauth_issuer_matches(issuer, jwt.issuer));
    jwt_release(&jwt);
    return may;
}

static void put_exchange(const struct access_options *options, const char *token, struct buf *form)
{
    oauth_form_put(form, "grant_type", GRANT "token-exchange");
    oauth_form_put(form, "subject_token", token);
    oauth_form_put(form, "subject_token_type", types[options->subject_token_type]);
}

void login_subject_token_put(const struct access_options *options, const struct oauth_authorization *authorization,
                             const char *token, struct buf *form)
{
    if (options->mode == ACCESS_EXCHANGE) {
        put_exchange(options, token, form);
        oauth_form_put(form, "requested_token_type", TYPE "access_token");
    } else {
        oauth_form_put(form, "grant_type", GRANT "jwt-bearer");
        oauth_form_put(form, "assertion", token);
    }
    oauth_form_put(form, "scope", authorization->scope);
    oauth_form_put(form, "resource", authorization->resource);
}

void login_subject_token_put_jag(const struct access_options *options, const struct oauth_authorization *authorization,
                                 const char *token, struct buf *form)
{
    put_exchange(options, token, form);
    oauth_form_put(form, "requested_token_type", TYPE "id-jag");
    oauth_form_put(form, "audience", authorization->server.issuer);
    oauth_form_put(form, "resource", authorization->resource);
    oauth_form_put(form, "scope", authorization->scope);
}
