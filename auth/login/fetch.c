// Owns single HTTP exchanges of OAuth over the HTTP client, and the parts of their answers that are kept.
#include "base/scan.h"
#include "base/secret.h"
#include "fetch_request.h"

#define CONNECT_MS 5000
#define HEADERS_MAX 8

static void keep_header(struct buf *into, struct http_transfer *transfer, const char *name)
{
    const char *value = http_transfer_header(transfer, name);
    if (value)
        buf_put_text(into, value);
}

static void on_head(void *arg, struct http_transfer *transfer, int status)
{
    struct login_fetch *fetch = arg;
    const char *header;
    fetch->status = status;
    address_policy_learn(fetch->policy, http_transfer_address(transfer));
    fetch->retry_after_ms = http_transfer_retry_after(transfer);
    keep_header(&fetch->type, transfer, "content-type");
    keep_header(&fetch->location, transfer, "location");
    for (size_t i = 0; i < HEADERS_MAX && (header = http_transfer_header_at(transfer, "www-authenticate", i)); i++)
        oauth_challenge_parse(span_of(header), &fetch->arena, &fetch->challenge);
}

static bool on_data(void *arg, struct span bytes)
{
    struct login_fetch *fetch = arg;
    buf_put_span(&fetch->body, bytes);
    return !fetch->body.overflow;
}

static void on_done(void *arg, const struct err *err)
{
    struct login_fetch *fetch = arg;
    fetch->transfer = NULL;
    fetch->failed = err != NULL;
    if (fetch->body.overflow)
        (void)err_set(&fetch->err, ERR_UPSTREAM_INVALID, "the answer is larger than %zu bytes", OAUTH_DOCUMENT_MAX);
    else if (err)
        fetch->err = *err;
    fetch->on_done(fetch);
}

static const struct http_events events = {on_head, on_data, on_done, NULL, NULL};

struct address_policy login_fetch_policy(int64_t learned, const char *url, char *const *allowed)
{
    struct oauth_url parts;
    if (!learned && oauth_url_parse(url, &parts))
        learned = 1 << address_of_host(parts.host);
    return (struct address_policy){.learned = (unsigned)learned, .allowed = allowed};
}

void login_fetch_start(struct login_fetch *fetch, struct http_client *http, const struct login_fetch_request *wish)
{
    login_fetch_release(fetch);
    fetch->failed = false;
    fetch->status = 0;
    fetch->retry_after_ms = 0;
    fetch->body.max = OAUTH_DOCUMENT_MAX;
    fetch->policy = wish->policy;
    fetch->target = http_target_new(http, wish->url, CONNECT_MS);
    http_target_guard(fetch->target, address_policy_allows, wish->policy);
    http_target_trust(fetch->target, wish->ca_file);
    http_target_header(fetch->target, "Accept", wish->accept ? wish->accept : "application/json");
    http_target_header(fetch->target, "Accept-Encoding", "identity");
    http_target_header(fetch->target, "MCP-Protocol-Version", wish->revision);
    http_target_header(fetch->target, "Content-Type", wish->type);
    http_target_header(fetch->target, "Authorization", wish->authorization);
    struct http_request request = {.method = !wish->type ? HTTP_GET
                                             : wish->put ? HTTP_PUT
                                                         : HTTP_POST,
                                   .body = wish->body,
                                   .timeout_ms = wish->timeout_ms,
                                   .events = &events,
                                   .arg = fetch};
    fetch->transfer = http_transfer_start(fetch->target, &request);
}

bool login_fetch_post(struct login_fetch *fetch, struct http_client *http, const struct login_form *to,
                      struct buf *form, struct err *err)
{
    struct buf authorization = {0};
    bool ok = oauth_client_apply(to->client, to->audience, to->now, form, &authorization, err);
    struct login_fetch_request request = {.url = to->url,
                                          .type = "application/x-www-form-urlencoded",
                                          .body = buf_span(form),
                                          .authorization = authorization.len ? buf_text(&authorization) : NULL,
                                          .timeout_ms = to->timeout_ms,
                                          .policy = to->policy,
                                          .ca_file = to->ca_file};
    if (ok)
        login_fetch_start(fetch, http, &request);
    buf_wipe(form);
    buf_wipe(&authorization);
    buf_release(form);
    buf_release(&authorization);
    return ok;
}

// Checks the syntax only: an object with a duplicate key counts as a document, so that the search stops with an error
// instead of going on to the next place.
static bool is_object(struct span text)
{
    struct err ignored;
    struct span value;
    return scan_document(text, false, &value, &ignored) && scan_is_object(value);
}

bool login_fetch_is_absent(const struct login_fetch *fetch)
{
    int status = fetch->status;
    return (status >= 300 && status < 500) || status == 502 || (status == 200 && !is_object(buf_span(&fetch->body)));
}

void login_fetch_cancel(struct login_fetch *fetch)
{
    if (fetch->transfer)
        http_transfer_cancel(fetch->transfer);
    fetch->transfer = NULL;
    http_target_free(fetch->target);  // not later with its owner, because the client may have been freed by then
    fetch->target = NULL;
}

void login_fetch_release(struct login_fetch *fetch)
{
    login_fetch_cancel(fetch);
    buf_wipe(&fetch->body);
    buf_wipe(&fetch->type);
    buf_wipe(&fetch->location);
    arena_release(&fetch->arena);
    fetch->challenge = (struct oauth_challenge){0};
}
