// Owns the requests below /oauth/: their pages, fields and cookies, and the headers of every page.
#include "page.h"
#include "auth/oauth/oauth.h"
#include "base/log.h"
#include "base/mem.h"
#include "connect/connect.h"
#include <stdio.h>
#include <stdlib.h>

#define ROOT "/oauth/"
#define FIELD_MAX 512
#define BODY_MAX 4096

// ---- fields ---------------------------------------------------------------------------------

static bool take_field(void *arg, struct span name, struct span value)
{
    struct page *page = arg;
    const struct {
        const char *name;
        struct buf *field;
    } rows[] = {{"t", &page->ticket},
                {"server", &page->server},
                {"csrf", &page->csrf},
                {"answer", &page->answer},
                {"return_to", &page->return_to}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (span_is(name, rows[i].name)) {
            if (rows[i].field->len || value.len > FIELD_MAX)
                return false;  // repeated, or too long
            buf_put_span(rows[i].field, value);
        }
    return true;
}

static const char *find_cookie(void *arg, const char *name)
{
    struct page *page = arg;
    return MHD_lookup_connection_value(page->owner->connection, MHD_COOKIE_KIND, name);
}

struct cookie_walk {
    void (*on_cookie)(void *to, const char *name, const char *value);
    void *to;
};

static enum MHD_Result pass_cookie(void *arg, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct cookie_walk *walk = arg;
    (void)kind;
    walk->on_cookie(walk->to, name, value ? value : "");
    return MHD_YES;
}

static void each_cookie(void *arg, void (*on_cookie)(void *to, const char *name, const char *value), void *to)
{
    struct page *page = arg;
    struct cookie_walk walk = {on_cookie, to};
    (void)MHD_get_connection_values(page->owner->connection, MHD_COOKIE_KIND, pass_cookie, &walk);
}

// ---- answering ------------------------------------------------------------------------------

static void show(struct http_exchange *exchange, const struct connect_page *page)
{
    http_exchange_set_state(exchange, EXCHANGE_ANSWERED);
    exchange->answer.status = (int)page_text_render(page, &exchange->answer.body, &exchange->page->headers);
    http_exchange_resume(exchange);
}

static void on_page(struct connect_request *request, const struct connect_page *shown)
{
    struct page *page = request->arg;
    page->asked = false;
    show(page->owner, shown);
}

static void refuse(struct http_exchange *exchange, enum connect_page_kind kind)
{
    show(exchange, &(struct connect_page){.kind = kind});
}

static void add_lines(struct MHD_Response *response, struct buf *lines)
{
    for (char *at = lines->len ? buf_text(lines) : NULL, *end; at && (end = strchr(at, '\n')); at = end + 1) {
        char *colon = strstr(at, ": ");
        *end = *colon = '\0';
        MHD_add_response_header(response, at, colon + 2);
    }
}

enum MHD_Result page_send(struct http_exchange *exchange)
{
    size_t len = 0;
    char *text = buf_take(&exchange->answer.body, &len);
    struct MHD_Response *response = MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "X-Frame-Options", "DENY");
    add_lines(response, &exchange->page->headers);
    return http_answer_queue(exchange, exchange->answer.status, response);
}

// ---- requests -------------------------------------------------------------------------------

// POSTs must come from a page of the gateway. A browser sends their origin; a request without it is left to the other
// checks.
static bool is_own_origin(const struct config_front *config, struct span origin)
{
    const char *base = config->public_url;
    return !origin.at || (base && strlen(base) >= origin.len && strncasecmp(base, origin.at, origin.len) == 0 &&
                          (base[origin.len] == '\0' || base[origin.len] == '/'));
}

// Pages are shown to people, not to an image, a frame or a script of another site. Browsers send the kind of request.
static bool is_shown(struct MHD_Connection *connection)
{
    const char *dest = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Sec-Fetch-Dest");
    return !dest || strcmp(dest, "document") == 0;
}

static bool is_form(struct span type)
{
    static const char form[] = "application/x-www-form-urlencoded";
    return type.at && type.len >= sizeof form - 1 && strncasecmp(type.at, form, sizeof form - 1) == 0 &&
           (type.len == sizeof form - 1 || type.at[sizeof form - 1] == ';');
}

// The page of a path. False: the path is not a page.
static bool read_op(struct page *page, struct span path, bool post)
{
    struct connect_request *request = &page->request;
    struct span rest = span_after(path, strlen(ROOT));
    if (span_is(rest, "connect"))
        request->op = post ? CONNECT_OP_CONSENT : CONNECT_OP_OPEN;
    else if (span_starts(rest, "connect/") && !post && rest.len > 8 && rest.len < 80) {
        request->op = CONNECT_OP_START;
        buf_put_span(&page->server, span_after(rest, 8));
    } else if (span_is(rest, "callback") && !post)
        request->op = CONNECT_OP_CALLBACK;
    else if (span_is(rest, "connections") && !post)
        request->op = CONNECT_OP_LIST;
    else if (span_is(rest, "disconnect") && post)
        request->op = CONNECT_OP_DISCONNECT;
    else
        return false;
    return true;
}

static bool serve_document(struct http_exchange *exchange, struct span path)
{
    if (!connect_document(gate_connect(exchange->face->gate), path, &exchange->answer.body))
        return false;
    buf_put_text(&exchange->page->headers, "Content-Type: application/json\n");
    http_exchange_set_state(exchange, EXCHANGE_ANSWERED);
    exchange->answer.status = 200;
    return true;
}

bool page_begin(struct http_exchange *exchange, const struct guard_line *line, const struct guard_headers *headers)
{
    struct span path = span_of(line->url);
    bool post = strcmp(line->method, "POST") == 0, get = strcmp(line->method, "GET") == 0;
    if (!span_starts(path, ROOT) || !gate_connect(exchange->face->gate) || (!post && !get))
        return false;
    struct page *page = exchange->page = mem_new(struct page);
    page->owner = exchange;
    page->post = post;
    page->query = exchange->caller->query;
    exchange->caller->query = NULL;
    page->request = (struct connect_request){.credentials = exchange->arrival.credentials,
                                             .cookie = find_cookie,
                                             .each_cookie = each_cookie,
                                             .on_page = on_page,
                                             .arg = page};
    page->request.credentials.authorization = headers->authorization;
    exchange->arrival.body.max = BODY_MAX;
    if (get && serve_document(exchange, path))
        return true;
    if (!read_op(page, path, post))
        refuse(exchange, CONNECT_PAGE_NO_SERVER);
    else if (!is_shown(exchange->connection) ||
             (post && (!is_own_origin(&exchange->face->config, headers->origin) || !is_form(headers->content_type))))
        refuse(exchange, CONNECT_PAGE_FORGED);
    return true;
}

void page_arrive(struct http_exchange *exchange)
{
    struct page *page = exchange->page;
    struct connect_request *request = &page->request;
    struct span query = page->query ? span_of(page->query) : (struct span){"", 0};
    struct span fields = page->post ? buf_span(&exchange->arrival.body) : query;
    bool sound = request->op == CONNECT_OP_CALLBACK || oauth_form_walk(fields, take_field, page);
    if (!sound || (page->return_to.len && request->op != CONNECT_OP_START)) {
        refuse(exchange, sound ? CONNECT_PAGE_NO_RETURN : CONNECT_PAGE_UNKNOWN_LOGIN);
        return;
    }
    request->ticket = buf_span(&page->ticket);
    request->server = buf_span(&page->server);
    request->csrf = buf_span(&page->csrf);
    request->return_to = buf_span(&page->return_to);
    request->query = query;
    request->agreed = span_is(buf_span(&page->answer), "yes");
    page->asked = true;
    connect_request_start(gate_connect(exchange->face->gate), request);
}

void page_gone(struct http_exchange *exchange)
{
    if (exchange->page && exchange->page->asked)
        connect_request_cancel(&exchange->page->request);
    if (exchange->page)
        exchange->page->asked = false;
}

void page_free(struct page *page)
{
    if (!page)
        return;
    struct buf *all[] = {&page->ticket, &page->server, &page->csrf, &page->answer, &page->return_to, &page->headers};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        buf_wipe(all[i]);
    if (page->query)
        explicit_bzero(page->query, strlen(page->query));
    free(page->query);
    free(page);
}
