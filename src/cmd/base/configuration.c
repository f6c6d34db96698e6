// Owns loading a command's configuration: from the file, or built from --url.
#include "cmd/base/configuration.h"
#include "base/mem.h"
#include "cmd/base/fail.h"
#include "loop/http_url.h"
#include "store/audit/audit.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOKEN_MAX 16384

static json_t *bearer_header(const struct secret *token)
{
    struct buf header = {0};
    buf_put_text(&header, "Bearer ");
    buf_put_span(&header, secret_span(token));
    json_t *headers = json_pack("{s:s}", "Authorization", buf_text(&header));
    buf_wipe(&header);
    return headers;
}

static struct config *of_url(const char *url, const struct secret *token, struct err *err)
{
    json_t *server = json_pack("{s:s}", "url", url);
    if (token && token->len)
        json_object_set_new(server, "headers", bearer_header(token));
    json_t *tree = json_pack("{s:{s:o}}", "mcpServers", "url", server);
    struct config *config = config_parse(tree, "--url", err);
    json_decref(tree);
    return config;
}

static struct config *load_offline(const char *path, struct option_problems *problems, struct err *err)
{
    struct option_unset unset = {0};
    struct config *config = config_load_offline(path, &unset, problems, err);
    for (char *name = buf_text(&unset.names), *end; config && (end = strchr(name, '\n')); name = end + 1)
        fprintf(stderr, "postern: note: %.*s is not set; options that depend on its value are not checked\n",
                (int)(end - name), name);
    buf_release(&unset.names);
    return config;
}

static int no_config(void)
{
    char *here = getcwd(NULL, 0);
    int code = fail_with(EXIT_CONFIG,
                         "no configuration file found: give --config FILE, or create postern.json in %s or in "
                         "~/.config/postern (see docs/config.md)",
                         here ? here : "the current folder");
    free(here);
    return code;
}

static struct config *load_file(const struct flags *flags, int *exit_code)
{
    struct err err = {0};
    struct option_problems problems = {0};
    char *path = config_path(flags->config);
    if (!path) {
        *exit_code = no_config();
        return NULL;
    }
    struct config *config = flags->offline ? load_offline(path, &problems, &err) : config_load(path, &problems, &err);
    for (char *line = buf_text(&problems.lines), *end; !config && (end = strchr(line, '\n')); line = end + 1)
        *exit_code = fail_with(EXIT_CONFIG, "%.*s", (int)(end - line), line);
    buf_release(&problems.lines);
    free(path);
    return config;
}

struct config *configuration_load(const struct flags *flags, int *exit_code)
{
    struct err err = {0};
    if (!flags->url)
        return load_file(flags, exit_code);
    struct config *config = of_url(flags->url, NULL, &err);
    if (!config)
        *exit_code = fail_with(EXIT_CONFIG, "%s", err.detail);
    return config;
}

// ---- for commands that talk to servers ------------------------------------------------------

// RFC 6750 §2.1: b64token. Other characters cannot be written into the header.
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
        return err_set(err, ERR_CONFIG, "%s does not contain a bearer token: one line without spaces is expected",
                       from);
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
    bool ok = whole ? take_token(path, span_make(text, len), token, err)
                    : err_set(err, ERR_CONFIG, "--token-file %s: cannot be read, or is larger than %d bytes", path,
                              TOKEN_MAX - 1);
    explicit_bzero(text, sizeof text);
    return ok;
}

// True without a token: no token was given.
static bool read_token(const struct flags *flags, struct secret *token, struct err *err)
{
    const char *variable = getenv("POSTERN_TOKEN");
    if (flags->caller_tokens)
        return read_file(flags->caller_tokens, token, err);
    return !variable || !*variable || take_token("$POSTERN_TOKEN", span_of(variable), token, err);
}

struct config *configuration_for_client(const struct flags *flags, int *exit_code)
{
    struct err err = {0};
    struct secret token = {0};
    struct config *config = NULL;
    if (!flags->url && flags->caller_tokens) {
        *exit_code = fail_with(EXIT_USAGE, "--token-file needs --url: configured servers have their tokens in the "
                                           "configuration");
        return NULL;
    }
    if (!flags->url)
        return configuration_load(flags, exit_code);
    if (flags->tenant) {
        *exit_code = fail_with(EXIT_USAGE, "--tenant selects configured servers; it cannot be used with --url");
        return NULL;
    }
    bool ok = read_token(flags, &token, &err);
    if (ok && token.len && strncmp(flags->url, "http:", 5) == 0 && !http_url_is_loopback(flags->url))
        ok = err_set(&err, ERR_CONFIG, "%s: the token would be sent unencrypted; use https", flags->url);
    if (ok)
        config = of_url(flags->url, &token, &err);
    secret_release(&token);
    if (!config)
        *exit_code = fail_with(EXIT_CONFIG, "%s", err.detail);
    return config;
}

// ---- for commands that read the audit log ---------------------------------------------------

char *configuration_audit_path(const struct flags *flags, int *exit_code)
{
    if (flags->file)
        return mem_string(flags->file);
    struct config *config = configuration_load(flags, exit_code);
    if (!config)
        return NULL;
    char *path = config_audited(config) ? audit_path(config->audit.path) : NULL;
    config_unref(config);
    if (!path)
        *exit_code = fail_with(EXIT_CONFIG, "the configuration has no audit log: set audit.path, or add a provider "
                                            "that authenticates callers; --file DB reads another database");
    return path;
}
