// Owns the configuration of commands that talk to servers: that of the file, or a single server named "url" for --url,
// which may get a bearer token: so is a gateway asked from the command line.
#include "client.h"
#include "loop/http_url.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_MAX 16384

// RFC 6750 §2.1: b64token. Nothing else can be written into the header.
static bool is_token(struct span text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=", text.at[i]))
            return false;
    return text.len > 0;
}

static bool take_token(const char *from, struct span text, struct secret *token, struct err *err)
{
    while (text.len && strchr(" \t\r\n", text.at[text.len - 1]))
        text.len--;
    if (!is_token(text))
        return err_set(err, ERR_CONFIG, "%s does not hold a bearer token: one line without spaces is expected", from);
    secret_set(token, text);
    return true;
}

static bool read_file(const char *path, struct secret *token, struct err *err)
{
    char text[TOKEN_MAX];
    FILE *file = fopen(path, "re");
    if (!file)
        return err_set(err, ERR_CONFIG, "--token-file %s: %s", path, strerror(errno));
    size_t len = fread(text, 1, sizeof text, file);
    bool whole = !ferror(file) && len < sizeof text;
    (void)fclose(file);
    bool ok =
        whole ? take_token(path, span_make(text, len), token, err)
              : err_set(err, ERR_CONFIG, "--token-file %s: not readable, or larger than %d bytes", path, TOKEN_MAX - 1);
    explicit_bzero(text, sizeof text);
    return ok;
}

// True without a token: none was given.
static bool read_token(const struct flags *flags, struct secret *token, struct err *err)
{
    const char *variable = getenv("POSTERN_TOKEN");
    if (flags->token_file)
        return read_file(flags->token_file, token, err);
    return !variable || !*variable || take_token("$POSTERN_TOKEN", span_of(variable), token, err);
}

struct config *client_config(const struct flags *flags, int *exit_code)
{
    struct err err = {0};
    struct secret token = {0};
    struct config *config = NULL;
    if (!flags->url && flags->token_file) {
        *exit_code = cmd_fail(EXIT_USAGE, "--token-file needs --url: configured servers have their tokens in the "
                                          "configuration");
        return NULL;
    }
    if (!flags->url)
        return cmd_config(flags, exit_code);
    if (flags->tenant) {
        *exit_code = cmd_fail(EXIT_USAGE, "--tenant selects configured servers; it cannot be used with --url");
        return NULL;
    }
    bool ok = read_token(flags, &token, &err);
    if (ok && token.len && strncmp(flags->url, "http:", 5) == 0 && !http_url_is_loopback(flags->url))
        ok = err_set(&err, ERR_CONFIG, "%s: the token would be sent unencrypted; use https", flags->url);
    if (ok)
        config = cmd_config_of_url(flags->url, &token, &err);
    secret_release(&token);
    if (!config)
        *exit_code = cmd_fail(EXIT_CONFIG, "%s", err.detail);
    return config;
}
