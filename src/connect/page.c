// Owns passing a page, with its cookies, to the browser that waits for it.
#include "base/check.h"
#include "state.h"
#include <stdio.h>

// The identity of the request ends with it; the page may still point into it.
void connect_page_show(struct connect_request *request, struct connect_page *page)
{
    struct identity *identity = request->identity;
    request->identity = NULL;
    page->secure = request->connect->secure;
    request->on_page(request, page);
    identity_unref(identity);
}

void connect_page_show_kind(struct connect_request *request, enum connect_page_kind kind)
{
    struct connect_page page = {.kind = kind};
    connect_page_show(request, &page);
}

void connect_page_show_limited(struct connect_request *request, int64_t retry_ms)
{
    struct connect_page page = {.kind = CONNECT_PAGE_LIMITED, .retry_ms = retry_ms};
    connect_page_show(request, &page);
}

void connect_page_add_cookie(struct connect_page *page, const char *name, const char *value, int64_t max_age)
{
    CHECK(page->cookie_count < CONNECT_COOKIES);
    struct connect_cookie *cookie = &page->cookies[page->cookie_count++];
    snprintf(cookie->name, sizeof cookie->name, "%s", name);
    snprintf(cookie->value, sizeof cookie->value, "%s", value);
    cookie->max_age = max_age;
}
