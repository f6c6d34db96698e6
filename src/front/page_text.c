// Owns the HTML of the gateway's pages: one frame, one style, no script; every value from outside is escaped.
#include "auth/oauth/oauth.h"
#include "base/secret.h"
#include "page.h"
#include <inttypes.h>

static const char style[] =
    ":root{color-scheme:light dark;--ink:#1c2430;--soft:#5b6675;--page:#f4f5f7;--card:#fff;--line:#dde1e7;"
    "--edge:#7c8796;--deed:#1f5fbf;--on-deed:#fff;--warn:#7a4b00;--warn-back:#fff4dc;--good:#176b3a}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e7eaef;--soft:#a3adba;--page:#14171c;--card:#1d2128;--line:#343b46;"
    "--edge:#74808f;--deed:#7fb0ff;--on-deed:#0b1a30;--warn:#ffd58a;--warn-back:#3a2d12;--good:#7fd6a2}}"
    "*{box-sizing:border-box}"
    "body{margin:0;background:var(--page);color:var(--ink);font:1rem/1.55 system-ui,sans-serif}"
    "main{max-width:36rem;margin:8vh auto 2rem;padding:2rem;background:var(--card);border:1px solid var(--line);"
    "border-radius:.75rem;overflow-wrap:anywhere}"
    "h1{margin:0 0 1rem;font-size:1.45rem;line-height:1.25}h2{margin:0;font-size:1.05rem}"
    "p{margin:0 0 1rem}main>:last-child{margin-bottom:0}small,.soft{color:var(--soft)}"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.5rem 1.25rem;margin:1.5rem 0;padding:1rem 0;"
    "border-top:1px solid var(--line);border-bottom:1px solid var(--line)}"
    "dt{color:var(--soft)}dd{margin:0;unicode-bidi:isolate}"
    "ul{list-style:none;margin:0;padding:0}code{font-family:ui-monospace,monospace;font-size:.9em}"
    "small code{font-size:1em}"
    "strong,h1,h2{unicode-bidi:isolate}"
    ".warn{padding:.75rem 1rem;border-radius:.5rem;background:var(--warn-back);color:var(--warn)}"
    ".row{display:flex;flex-wrap:wrap;gap:.75rem;align-items:center}"
    "li.item{display:flex;flex-wrap:wrap;gap:.75rem;align-items:center;justify-content:space-between;padding:1rem 0;"
    "border-top:1px solid var(--line)}li.item>div{flex:1 1 12rem;min-width:0}"
    ".good{color:var(--good)}"
    "button,a.deed{display:inline-block;font:inherit;padding:.55rem 1.2rem;border-radius:.5rem;text-decoration:none;"
    "border:1px solid var(--edge);background:none;color:var(--ink);cursor:pointer}"
    "button.deed,a.deed{background:var(--deed);border-color:var(--deed);color:var(--on-deed)}"
    "button:hover,a.deed:hover{filter:brightness(1.08)}"
    ":focus-visible{outline:3px solid var(--deed);outline-offset:2px}"
    "@media(max-width:40rem){main{margin:0;min-height:100vh;border:0;border-radius:0;padding:1.5rem}"
    "dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:.75rem}}";

// Pages with a fixed text; those without a text here are composed below.
static const struct {
    unsigned status;
    const char *title, *text;
} fixed[CONNECT_PAGE_KINDS] = {
    [CONNECT_PAGE_FAILED] =
        {502, "Not connected",
         "The account could not be connected. Nothing was stored. You can try again from the page you came "
         "from; if it fails again, the gateway's log has the reason."},
    [CONNECT_PAGE_CONSENT] = {200, "Connect an account", NULL},
    [CONNECT_PAGE_AUTHORIZE] = {200, "One moment", NULL},
    [CONNECT_PAGE_REDIRECT] = {303, "One moment", NULL},
    [CONNECT_PAGE_CONNECTED] = {200, "Connected",
                                "The account is connected. You can close this tab and repeat what you were doing."},
    [CONNECT_PAGE_RETURN] = {303, "Connected", NULL},
    [CONNECT_PAGE_DECLINED] = {200, "Not connected",
                               "You cancelled, and nothing was connected. You can close this tab."},
    [CONNECT_PAGE_LIST] = {200, "Your connections", NULL},
    [CONNECT_PAGE_EXPIRED] =
        {410, "This link is not valid any more",
         "Connect links are valid for a few minutes. Repeat what you were doing to get a new one."},
    [CONNECT_PAGE_USED] =
        {409, "This link has already been used",
         "Each connect link works once. If the account is not connected yet, repeat what you were doing "
         "to get a new link."},
    [CONNECT_PAGE_WRONG_USER] =
        {403, "This link is for another user",
         "This link was made for a user other than the one you are signed in as, so nothing was "
         "connected and the link does not work any more. If another person sent it to you, tell your "
         "administrator."},
    [CONNECT_PAGE_WRONG_BROWSER] =
        {403, "This login began in another browser",
         "A login must end in the browser in which it began. Continue in that browser, or start again here. "
         "Nothing was connected."},
    [CONNECT_PAGE_UNKNOWN_LOGIN] = {400, "This response does not belong to a login",
                                    "The login has expired, or the gateway did not start it. Nothing was "
                                    "connected."},
    [CONNECT_PAGE_FORGED] =
        {403, "The request did not come from a page of this gateway",
         "Nothing was changed. If you did press a button here, cookies may be blocked, or the page was open for "
         "too long: open the link again."},
    [CONNECT_PAGE_UNAUTHENTICATED] =
        {403, "You are not signed in",
         "Accounts are connected to the signed-in user, but this browser is not signed "
         "in. Open the link where you are signed in to the gateway, or ask your administrator."},
    [CONNECT_PAGE_NO_SCOPE] =
        {403, "Your sign-in does not allow this",
         "You are signed in, but your token lacks a scope that the gateway requires. Ask your administrator."},
    [CONNECT_PAGE_UNAVAILABLE] =
        {503, "Your sign-in cannot be checked at the moment",
         "The service that checks your sign-in does not answer. Please try again in a minute."},
    [CONNECT_PAGE_NO_SERVER] = {404, "This server cannot be connected",
                                "The server does not exist, or does not let users connect accounts."},
    [CONNECT_PAGE_NO_RETURN] = {400, "The return address is not allowed",
                                "The link has a return address (return_to) that the gateway's configuration does not "
                                "allow. Nothing was connected."},
    [CONNECT_PAGE_LIMITED] = {429, "Too many attempts", "Please wait a minute and try again."},
};

// ---- pieces ---------------------------------------------------------------------------------

static void put_escaped(struct buf *out, const char *text)
{
    for (; text && *text; text++)
        switch (*text) {
        case '&': buf_put_text(out, "&amp;"); break;
        case '<': buf_put_text(out, "&lt;"); break;
        case '>': buf_put_text(out, "&gt;"); break;
        case '"': buf_put_text(out, "&quot;"); break;
        case '\'': buf_put_text(out, "&#39;"); break;
        default: buf_put_char(out, *text); break;
        }
}

// Replaces {} in the text by the value.
static void put(struct buf *out, const char *html, const char *value)
{
    const char *hole = strstr(html, "{}");
    if (!hole) {
        buf_put_text(out, html);
        return;
    }
    buf_put(out, html, (size_t)(hole - html));
    put_escaped(out, value);
    buf_put_text(out, hole + 2);
}

// People know an authorization server by its host.
static void put_host(struct buf *out, const char *issuer)
{
    struct oauth_url url;
    char host[256] = "?";
    if (issuer && oauth_url_parse(issuer, &url) && url.origin.len - (url.https ? 8U : 7U) < sizeof host) {
        struct span authority = span_after(url.origin, url.https ? 8 : 7);
        memcpy(host, authority.at, authority.len);
        host[authority.len] = '\0';
    }
    put_escaped(out, host);
}

static void put_scopes(struct buf *out, const char *scopes)
{
    if (!scopes || !*scopes) {
        buf_put_text(out, "the default scopes of the server");
        return;
    }
    buf_put_text(out, "<ul>");
    while (*scopes) {
        char one[256];
        size_t len = strcspn(scopes, " "), kept = len < sizeof one ? len : sizeof one - 1;
        memcpy(one, scopes, kept);
        one[kept] = '\0';
        if (len)
            put(out, "<li><code>{}</code></li>", one);
        scopes += len + (scopes[len] ? 1 : 0);
    }
    buf_put_text(out, "</ul>");
}

static void put_hidden(struct buf *out, const char *name, const char *value)
{
    put(out, "<input type=\"hidden\" name=\"{}\"", name);
    put(out, " value=\"{}\">", value);
}

// ---- composed pages -------------------------------------------------------------------------

static void put_question(const struct connect_page *page, struct buf *out)
{
    put(out, "<h1>Connect “{}”</h1>", page->server);
    buf_put_text(out, "<p>This gateway asks to use your account at <strong>");
    put_host(out, page->issuer);
    put(out,
        "</strong>. The access that you grant is stored for <strong>{}</strong>, and used only for the calls that ",
        page->user);
    buf_put_text(out, "this user makes through the gateway.</p>");
    if (page->unbound)
        put(out,
            "<p class=\"warn\" role=\"note\">You are not signed in here, so check the name: the account you connect "
            "will be used by <strong>{}</strong>. If that is not you, or another person sent you this link, "
            "cancel.</p>",
            page->user);
    put(out, page->unbound ? "<dl><dt>Connects for</dt><dd>{}</dd>" : "<dl><dt>Signed in as</dt><dd>{}</dd>",
        page->user);
    put(out, "<dt>Server</dt><dd>{}</dd>", page->server);
    buf_put_text(out, "<dt>You will sign in at</dt><dd>");
    put_host(out, page->issuer);
    put(out, "<br><small>{}</small></dd><dt>Requested access</dt><dd>", page->issuer);
    put_scopes(out, page->scope);
    buf_put_text(out, "</dd></dl><form method=\"post\" action=\"connect\" class=\"row\">");
    put_hidden(out, "t", page->ticket);
    put_hidden(out, "csrf", page->csrf);
    buf_put_text(out, "<button class=\"deed\" name=\"answer\" value=\"yes\">Continue</button>"
                      "<button name=\"answer\" value=\"no\">Cancel</button></form>");
}

// Not a redirect: form-action limits the redirects that answer a form, and it is not known to which hosts an
// authorization server sends its users on.
static void put_continue(const struct connect_page *page, struct buf *out)
{
    buf_put_text(out, "<h1>Continue to ");
    put_host(out, page->issuer);
    put(out, "</h1><p>You are being taken to the sign-in page.</p><p><a class=\"deed\" href=\"{}\" rel=\"noreferrer\">",
        page->url);
    buf_put_text(out, "Continue</a></p>");
}

static void put_connection(const struct connection *connection, const char *csrf, struct buf *out)
{
    static const char *const states[] = {
        "<span class=\"soft\">Not connected</span>", "<span class=\"good\">Connected</span> at ",
        "No longer valid; it was connected at ",
        "The stored access cannot be read: disconnect, then connect again. It was connected at "};
    enum connection_state state = connection->state;
    put(out, "<li class=\"item\"><div><h2>{}</h2>", connection->server);
    buf_put_text(out, states[state]);
    if (state != CONNECTION_NONE)
        put_host(out, connection->issuer);
    if (connection->scope)
        put(out, "<br><small><code>{}</code></small>", connection->scope);
    buf_put_text(out, "</div>");
    if (state == CONNECTION_GOOD || state == CONNECTION_DAMAGED) {
        buf_put_text(out, "<form method=\"post\" action=\"disconnect\">");
        put_hidden(out, "server", connection->server);
        put_hidden(out, "csrf", csrf);
        put(out, "<button aria-label=\"Disconnect {}\">Disconnect</button></form></li>", connection->server);
    } else {
        put(out, "<a class=\"deed\" href=\"connect/{}\"", connection->server);
        put(out, " aria-label=\"Connect {}\">Connect</a></li>", connection->server);
    }
}

static void put_list(const struct connect_page *page, struct buf *out)
{
    put(out,
        "<h1>Your connections</h1><p>Signed in as <strong>{}</strong>. Accounts you connect are used for your calls "
        "only.</p><ul>",
        page->user);
    for (size_t i = 0; i < page->connection_count; i++)
        put_connection(&page->connections[i], page->csrf, out);
    buf_put_text(out, "</ul>");
}

static void put_fixed(const struct connect_page *page, struct buf *out)
{
    put(out, "<h1>{}</h1>", fixed[page->kind].title);
    put(out, "<p>{}</p>", fixed[page->kind].text);
    if (page->server)
        put(out, "<p class=\"soft\">Server: {}</p>", page->server);
}

// ---- the frame ------------------------------------------------------------------------------

static void put_cookies(const struct connect_page *page, struct buf *headers)
{
    for (size_t i = 0; i < page->cookie_count; i++) {
        const struct connect_cookie *cookie = &page->cookies[i];
        buf_printf(headers, "Set-Cookie: %s=%s; Path=/; Max-Age=%" PRId64 "; HttpOnly; SameSite=Lax%s\n", cookie->name,
                   cookie->value, cookie->max_age, page->secure ? "; Secure" : "");
    }
}

static void put_headers(const struct connect_page *page, struct buf *headers)
{
    unsigned char digest[SECRET_MAC_BYTES];
    struct buf hash = {0};
    secret_digest(span_of(style), digest);
    secret_encode(&hash, span_make((const char *)digest, sizeof digest));
    for (size_t i = 0; i < hash.len; i++)
        hash.at[i] = hash.at[i] == '-' ? '+' : hash.at[i] == '_' ? '/' : hash.at[i];
    buf_put_text(headers, "Content-Type: text/html; charset=utf-8\n");
    buf_printf(
        headers,
        "Content-Security-Policy: default-src 'none'; style-src 'sha256-%s='; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'\n",
        buf_text(&hash));
    // With no-referrer, a browser would also omit the origin of a form.
    buf_printf(headers, "Referrer-Policy: %s\n",
               page->kind == CONNECT_PAGE_CONSENT || page->kind == CONNECT_PAGE_LIST ? "same-origin" : "no-referrer");
    if (page->kind == CONNECT_PAGE_REDIRECT || page->kind == CONNECT_PAGE_RETURN)
        buf_printf(headers, "Location: %s\n", page->url);
    if (page->retry_ms)
        buf_printf(headers, "Retry-After: %" PRId64 "\n", (page->retry_ms + 999) / 1000);
    put_cookies(page, headers);
    buf_release(&hash);
}

unsigned page_text_render(const struct connect_page *page, struct buf *html, struct buf *headers)
{
    put(html,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{} · Postern</title>"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">",
        fixed[page->kind].title);
    if (page->kind == CONNECT_PAGE_AUTHORIZE)
        put(html, "<meta http-equiv=\"refresh\" content=\"0;url={}\">", page->url);
    buf_printf(html, "<style>%s</style></head><body><main>", style);
    switch (page->kind) {
    case CONNECT_PAGE_CONSENT: put_question(page, html); break;
    case CONNECT_PAGE_AUTHORIZE: put_continue(page, html); break;
    case CONNECT_PAGE_LIST: put_list(page, html); break;
    default: put_fixed(page, html); break;
    }
    buf_put_text(html, "</main></body></html>\n");
    put_headers(page, headers);
    return fixed[page->kind].status;
}
