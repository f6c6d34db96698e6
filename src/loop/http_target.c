// Owns targets: a URL with the headers that every request to it has, serialized once.
#include "base/mem.h"
#include "base/secret.h"
#include "http_state.h"
#include "loop/http_url.h"
#include <stdlib.h>
#include <strings.h>

static void value_free(char *value)
{
    secret_wipe(value, strlen(value));
    free(value);
}

static void put_part(struct buf *out, CURLU *url, CURLUPart part, const char *before)
{
    char *text = NULL;
    if (curl_url_get(url, part, &text, 0) == CURLUE_OK) {
        buf_put_text(out, before);
        buf_put_text(out, text);
    }
    curl_free(text);
}

static void put_header(struct buf *out, const struct header *header)
{
    buf_put_text(out, header->name);
    buf_put_text(out, ": ");
    buf_put_text(out, header->value);
    buf_put_text(out, "\r\n");
}

static void head_release(struct http_target *target) { buf_wipe(&target->head); }

// The head holds secrets. It is built at its full size, so that growing leaves no copies behind.
static void rebuild_head(struct http_target *target)
{
    struct buf *head = &target->head;
    size_t room = strlen(target->url) + 128;
    for (size_t i = 0; i < target->header_count; i++)
        room += strlen(target->headers[i].name) + strlen(target->headers[i].value) + 4;
    head_release(target);
    buf_reserve(head, room);
    put_part(head, target->parsed, CURLUPART_PATH, "");
    put_part(head, target->parsed, CURLUPART_QUERY, "?");
    put_part(head, target->parsed, CURLUPART_HOST, " HTTP/1.1\r\nHost: ");
    put_part(head, target->parsed, CURLUPART_PORT, ":");
    buf_put_text(head, "\r\nUser-Agent: postern/" POSTERN_VERSION "\r\n");
    for (size_t i = 0; i < target->header_count; i++)
        put_header(head, &target->headers[i]);
}

struct http_target *http_target_new(struct http_client *client, const char *url, int64_t connect_timeout_ms)
{
    struct http_target *target = mem_new(struct http_target);
    target->client = client;
    target->url = mem_string(url);
    target->connect_timeout_ms = connect_timeout_ms;
    target->loopback = http_url_is_loopback(url);
    target->secure = strncasecmp(url, "https:", 6) == 0;
    list_init(&target->idle);
    target->parsed = curl_url();
    if (curl_url_set(target->parsed, CURLUPART_URL, url, 0) != CURLUE_OK) {
        curl_url_cleanup(target->parsed);
        target->parsed = NULL;
    }
    rebuild_head(target);
    return target;
}

void http_target_release(struct http_target *target)
{
    list_each(node, &target->idle)
        http_connection_retire(list_entry(node, struct http_connection, target_node));
    for (size_t i = 0; i < target->header_count; i++) {
        free(target->headers[i].name);
        value_free(target->headers[i].value);
    }
    free(target->headers);
    head_release(target);
    curl_url_cleanup(target->parsed);
    free(target->ca_file);
    free(target->url);
    free(target);
}

void http_target_free(struct http_target *target)
{
    if (!target)
        return;
    target->orphan = true;
    if (target->running == 0)
        http_target_release(target);
}

void http_target_header(struct http_target *target, const char *name, const char *value)
{
    size_t at = 0;
    while (at < target->header_count && strcasecmp(target->headers[at].name, name) != 0)
        at++;
    if (at == target->header_count) {
        if (!value)
            return;
        target->headers = mem_resize(target->headers, (at + 1) * sizeof *target->headers);
        target->headers[target->header_count++] = (struct header){mem_string(name), mem_string(value)};
    } else if (value) {
        if (strcmp(target->headers[at].value, value) == 0)
            return;
        value_free(target->headers[at].value);
        target->headers[at].value = mem_string(value);
    } else {
        struct header gone = target->headers[at];
        target->headers[at] = target->headers[--target->header_count];
        free(gone.name);
        value_free(gone.value);
    }
    rebuild_head(target);
}

void http_target_trust(struct http_target *target, const char *ca_file)
{
    free(target->ca_file);
    target->ca_file = mem_string(ca_file);
}

void http_target_guard(struct http_target *target, bool (*allow)(void *arg, const struct sockaddr *address), void *arg)
{
    target->allow = allow;
    target->allow_arg = arg;
}
