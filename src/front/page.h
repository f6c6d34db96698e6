// The HTML pages of the gateway: requests below /oauth/, and their rendering.
#ifndef FRONT_PAGE_H
#define FRONT_PAGE_H

#include "base/buf.h"
#include "connect/request.h"
#include "face.h"
#include "guard.h"

// The data of a request for a page while it waits.
struct page {
    struct connect_request request;
    struct http_exchange *owner;
    bool asked, post;
    char *query;                                         // of a callback, not decoded
    struct buf ticket, server, csrf, answer, return_to;  // fields of the request
    struct buf headers;                                  // of the answer: "Name: value\n"
};

// Whether the request is for a page. If so, the exchange has a `page`, or an answer already.
bool page_begin(struct http_exchange *exchange, const struct guard_line *line, const struct guard_headers *headers);
void page_arrive(struct http_exchange *exchange);  // the body is complete
void page_gone(struct http_exchange *exchange);
void page_free(struct page *page);
enum MHD_Result page_send(struct http_exchange *exchange);

// page_text.c: the page as HTML, its status, and (in `headers`) its own headers.
unsigned page_text_render(const struct connect_page *page, struct buf *html, struct buf *headers);

#endif
