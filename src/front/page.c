// Owns the requests below /oauth/: which page is asked for, its fields and cookies, and the headers every page has.
#include "page.h"
#include "auth/oauth.h"
#include "base/log.h"
#include "base/mem.h"
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
                return false;  // twice, or too much of it
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

static void show(struct visit *visit, const struct hosted_page *page)
{
    visit->state = VISIT_ANSWERED;
    visit->answer.status = (int)page_render(page, &visit->answer.body, &visit->page->headers);
    visit_resume(visit);
}

static void on_page(struct hosted_visit *hosted, const struct hosted_page *page)
{
    struct page *owner = hosted->arg;
    owner->asked = false;
    show(owner->owner, page);
}

static void refuse(struct visit *visit, enum hosted_kind kind) { show(visit, &(struct hosted_page){.kind = kind}); }

static void add_lines(struct MHD_Response *response, struct buf *lines)
{
    for (char *at = lines->len ? buf_text(lines) : NULL, *end; at && (end = strchr(at, '\n')); at = end + 1) {
        char *colon = strstr(at, ": ");
        *end = *colon = '\0';
        MHD_add_response_header(response, at, colon + 2);
    }
}

enum MHD_Result page_send(struct visit *visit)
{
    size_t len = 0;
    char *text = buf_take(&visit->answer.body, &len);
    struct MHD_Response *response = MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "X-Frame-Options", "DENY");
    add_lines(response, &visit->page->headers);
    return visit_queue(visit, visit->answer.status, response);
}

// ---- requests -------------------------------------------------------------------------------

// POSTs must come from a page of ours. A browser says where they come from; who is none is judged by the rest.
static bool is_own_origin(const struct config *config, struct span origin)
{
    const char *base = config->public_url;
    return !origin.at || (base && strlen(base) >= origin.len && strncasecmp(base, origin.at, origin.len) == 0 &&
                          (base[origin.len] == '\0' || base[origin.len] == '/'));
}

// Pages are for people: not for an image, a frame or a script of another site. Browsers say which it is.
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

// The page that a path names. False: none.
static bool read_op(struct page *page, struct span path, bool post)
{
    struct hosted_visit *visit = &page->visit;
    struct span rest = span_after(path, strlen(ROOT));
    if (span_is(rest, "connect"))
        visit->op = post ? HOSTED_CONSENT : HOSTED_CONNECT;
    else if (span_starts(rest, "connect/") && !post && rest.len > 8 && rest.len < 80) {
        visit->op = HOSTED_START;
        buf_put_span(&page->server, span_after(rest, 8));
    } else if (span_is(rest, "callback") && !post)
        visit->op = HOSTED_CALLBACK;
    else if (span_is(rest, "connections") && !post)
        visit->op = HOSTED_CONNECTIONS;
    else if (span_is(rest, "disconnect") && post)
        visit->op = HOSTED_DISCONNECT;
    else
        return false;
    return true;
}

static bool serve_document(struct visit *visit, struct span path)
{
    if (!hosted_document(visit->face->gate, path, &visit->answer.body))
        return false;
    buf_put_text(&visit->page->headers, "Content-Type: application/json\n");
    visit->state = VISIT_ANSWERED;
    visit->answer.status = 200;
    return true;
}

bool page_begin(struct visit *visit, const struct guard_line *line, const struct guard_headers *headers)
{
    struct span path = span_of(line->url);
    bool post = strcmp(line->method, "POST") == 0, get = strcmp(line->method, "GET") == 0;
    if (!span_starts(path, ROOT) || !gate_hosts(visit->face->gate) || (!post && !get))
        return false;
    struct page *page = visit->page = mem_new(struct page);
    page->owner = visit;
    page->post = post;
    page->query = visit->caller->query;
    visit->caller->query = NULL;
    page->visit = (struct hosted_visit){.credentials = visit->arrival.credentials,
                                        .cookie = find_cookie,
                                        .each_cookie = each_cookie,
                                        .on_page = on_page,
                                        .arg = page};
    page->visit.credentials.authorization = headers->authorization;
    visit->arrival.body.max = BODY_MAX;
    if (get && serve_document(visit, path))
        return true;
    if (!read_op(page, path, post))
        refuse(visit, HOSTED_NO_SERVER);
    else if (!is_shown(visit->connection) ||
             (post && (!is_own_origin(visit->face->config, headers->origin) || !is_form(headers->content_type))))
        refuse(visit, HOSTED_FORGED);
    return true;
}

void page_arrive(struct visit *visit)
{
    struct page *page = visit->page;
    struct hosted_visit *asked = &page->visit;
    struct span query = page->query ? span_of(page->query) : (struct span){"", 0};
    struct span fields = page->post ? buf_span(&visit->arrival.body) : query;
    bool sound = asked->op == HOSTED_CALLBACK || oauth_form_walk(fields, take_field, page);
    if (!sound || (page->return_to.len && asked->op != HOSTED_START)) {
        refuse(visit, sound ? HOSTED_NO_RETURN : HOSTED_STRANGE);
        return;
    }
    asked->ticket = buf_span(&page->ticket);
    asked->server = buf_span(&page->server);
    asked->csrf = buf_span(&page->csrf);
    asked->return_to = buf_span(&page->return_to);
    asked->query = query;
    asked->agreed = span_is(buf_span(&page->answer), "yes");
    page->asked = true;
    hosted_arrive(visit->face->gate, asked);
}

bool page_authenticated(const struct page *page) { return page->visit.identity != NULL; }

void page_gone(struct visit *visit)
{
    if (visit->page && visit->page->asked)
        hosted_gone(&visit->page->visit);
    if (visit->page)
        visit->page->asked = false;
}

void page_free(struct page *page)
{
    if (!page)
        return;
    struct buf *all[] = {&page->ticket, &page->server, &page->csrf, &page->answer, &page->return_to, &page->headers};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i]->at)
            explicit_bzero(all[i]->at, all[i]->room);
        buf_release(all[i]);
    }
    if (page->query)
        explicit_bzero(page->query, strlen(page->query));
    free(page->query);
    free(page);
}
