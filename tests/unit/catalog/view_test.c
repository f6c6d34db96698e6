// Tests the merged view: unique and safe names, the rendered lists, and finding the server of a name or URI.
#include "base/log.h"
#include "base/scan.h"
#include "base/secret.h"
#include "peer.h"
#include "unit.h"
#include "view.h"
#include <unistd.h>

#define SERVERS_MAX 3

// The lists of a server, as JSON arrays; NULL is an empty list.
struct offer {
    char *name, *prefix;  // the prefix as in the configuration: NULL: the name of the server; "": without
    char *tools, *resources, *templates;
};

struct fixture {
    struct loop *loop;
    size_t count, closed;
    struct server servers[SERVERS_MAX];
    struct option_pair env[SERVERS_MAX][3];
    struct upstream *upstreams[SERVERS_MAX];
    struct source *sources[SERVERS_MAX];
    struct view *view;
};

static struct source *source_of(struct fixture *f, const struct upstream *upstream)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->upstreams[i] == upstream)
            return f->sources[i];
    return NULL;
}

static void on_state(void *arg, struct upstream *upstream)
{
    if (upstream_state(upstream) == UPSTREAM_READY)
        source_refresh(source_of(arg, upstream));
}

static const struct upstream_listener listener = {
    .on_state = on_state, .on_notification = peer_ignored, .on_request = peer_ignored};

static void on_change(void *arg, struct source *source, unsigned kinds)
{
    struct fixture *f = arg;
    (void)source;
    (void)kinds;
    for (size_t i = 0; i < f->count; i++)
        if (!f->sources[i] || !source_settled(f->sources[i]))
            return;
    loop_stop(f->loop);
}

static void set_up(struct fixture *f, const struct view_naming *naming, const struct offer *offers, size_t count)
{
    struct err err;
    *f = (struct fixture){.loop = loop_new(&err), .count = count, .view = view_new(naming)};
    for (size_t i = 0; i < count; i++) {
        const struct offer *offer = &offers[i];
        f->servers[i] = peer_server(offer->name);
        f->servers[i].prefix = offer->prefix;
        f->env[i][0] = (struct option_pair){"TOOLS", offer->tools ? offer->tools : "[]"};
        f->env[i][1] = (struct option_pair){"RESOURCES", offer->resources ? offer->resources : "[]"};
        f->env[i][2] = (struct option_pair){"TEMPLATES", offer->templates ? offer->templates : "[]"};
        f->servers[i].env = (struct option_pairs){f->env[i], 3};
        f->upstreams[i] = peer_upstream(f->loop, &f->servers[i], &listener, f);
        f->sources[i] = source_new(f->loop, f->upstreams[i], on_change, f);
        view_add(f->view, f->sources[i]);
    }
    for (size_t i = 0; i < count; i++)
        source_load(f->sources[i]);
    loop_run(f->loop);
    for (size_t i = 0; i < count; i++)
        assert_true(source_loaded(f->sources[i]));
    view_dirty(f->view, ~0U);
}

static void on_closed(void *arg, struct upstream *upstream)
{
    struct fixture *f = arg;
    upstream_free(upstream);
    if (++f->closed == f->count)
        loop_stop(f->loop);
}

static void tear_down(struct fixture *f)
{
    view_free(f->view);
    for (size_t i = 0; i < f->count; i++) {
        source_free(f->sources[i]);
        upstream_close(f->upstreams[i], 3000, on_closed, f);
    }
    loop_run(f->loop);
    loop_free(f->loop);
}

static const struct view_naming prefixed = {"__", true, NULL}, plain = {"__", false, NULL};

// Appends the suffix of a name that was too long or already taken: a hash of the server's key and the name.
static void put_suffix(struct buf *out, const char *server, struct span name)
{
    unsigned char digest[SECRET_MAC_BYTES];
    struct buf both = {0};
    buf_put(&both, server, strlen(server) + 1);
    buf_put_span(&both, name);
    secret_digest(buf_span(&both), digest);
    buf_printf(out, "_%02x%02x%02x%02x", digest[0], digest[1], digest[2], digest[3]);
    buf_release(&both);
}

static void assert_leads_to(struct fixture *f, struct span exposed, size_t server, struct span original)
{
    const struct view_entry *entry = view_find(f->view, CATALOG_TOOLS, exposed);
    if (!entry)
        fail_msg("no tool \"%.*s\"", SPAN_ARG(exposed));
    assert_ptr_equal(entry->source, f->sources[server]);
    assert_span(entry->original, original, "original");
}

// The rendered list is valid JSON and has this many items.
static void assert_rendered(struct fixture *f, enum catalog_kind kind, size_t count)
{
    struct buf out = {0};
    struct span value, item;
    struct err err;
    size_t n = 0;
    assert_int_equal(view_count(f->view, kind), count);
    buf_put_char(&out, '[');
    view_render(f->view, kind, 0, count, &out);
    buf_put_char(&out, ']');
    if (!scan_document(buf_span(&out), true, &value, &err))
        fail_msg("%s: %s", err.detail, buf_text(&out));
    for (struct scan_walk walk = scan_walk(value); scan_element(&walk, &item);)
        n++;
    assert_int_equal(n, count);
    buf_release(&out);
}

// ---- names ----------------------------------------------------------------------------------

static void exposed_names_have_a_prefix_a_separator_and_safe_characters(void **state)
{
    (void)state;
    static const struct {
        const char *exposed;
        const char *original;
        size_t len;
    } rows[] = {
        {"srv__echo", LIT("echo")}, {"srv__dir/x.y-z_1", LIT("dir/x.y-z_1")},
        {"srv__a_b_", LIT("a b!")}, {"srv____", LIT("\xC3\xA9")},
        {"srv__a_c", LIT("a\0c")},
    };
    struct fixture f;
    struct offer offer = {.name = "srv",
                          .tools = "[{\"name\":\"echo\"},{\"name\":\"dir/x.y-z_1\"},{\"name\":\"a b!\"},{\"name\":"
                                   "\"\\u00e9\"},{\"name\":\"a\\u0000c\"},{\"noname\":1},{\"name\":7}]"};
    set_up(&f, &prefixed, &offer, 1);
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_leads_to(&f, span_of(rows[i].exposed), 0, span_make(rows[i].original, rows[i].len));
    assert_null(view_find(f.view, CATALOG_TOOLS, SPAN("echo")));
    assert_null(view_find(f.view, CATALOG_PROMPTS, SPAN("srv__echo")));
    assert_rendered(&f, CATALOG_TOOLS, COUNT(rows));
    tear_down(&f);
}

static void a_long_exposed_name_ends_in_a_stable_hash(void **state)
{
    (void)state;
    static const char name59[] = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
    static const char name60[] = "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy";
    struct fixture f;
    struct buf tools = {0}, want = {0};
    buf_printf(&tools, "[{\"name\":\"%s\"},{\"name\":\"%s\"},{\"name\":\"%sa\"},{\"name\":\"%sb\"}]", name59, name60,
               name60, name60);
    struct offer offer = {.name = "srv", .tools = buf_text(&tools)};
    set_up(&f, &prefixed, &offer, 1);
    buf_printf(&want, "srv__%s", name59);
    assert_int_equal(want.len, VIEW_NAME_MAX);
    assert_leads_to(&f, buf_span(&want), 0, SPAN(name59));
    buf_clear(&want);
    buf_printf(&want, "srv__%.50s", name60);
    put_suffix(&want, "srv", SPAN(name60));
    assert_int_equal(want.len, VIEW_NAME_MAX);
    assert_leads_to(&f, buf_span(&want), 0, SPAN(name60));
    assert_rendered(&f, CATALOG_TOOLS, 4);
    buf_release(&want);
    buf_release(&tools);
    tear_down(&f);
}

static void a_name_that_is_already_taken_gets_a_hash(void **state)
{
    (void)state;
    struct fixture f;
    struct buf want = {0};
    struct offer offers[] = {
        {.name = "one", .tools = "[{\"name\":\"a b\"},{\"name\":\"a_b\"}]"},
        {.name = "two", .prefix = "", .tools = "[{\"name\":\"run\"}]"},
        {.name = "three", .prefix = "", .tools = "[{\"name\":\"run\"},{\"name\":\"one__a_b\"}]"},
    };
    set_up(&f, &prefixed, offers, 3);
    assert_leads_to(&f, SPAN("one__a_b"), 0, SPAN("a b"));
    buf_put_text(&want, "one__a_b");
    put_suffix(&want, "one", SPAN("a_b"));
    assert_leads_to(&f, buf_span(&want), 0, SPAN("a_b"));
    assert_leads_to(&f, SPAN("run"), 1, SPAN("run"));
    buf_clear(&want);
    buf_put_text(&want, "run");
    put_suffix(&want, "three", SPAN("run"));
    assert_leads_to(&f, buf_span(&want), 2, SPAN("run"));
    buf_clear(&want);
    buf_put_text(&want, "one__a_b");
    put_suffix(&want, "three", SPAN("one__a_b"));
    assert_leads_to(&f, buf_span(&want), 2, SPAN("one__a_b"));
    assert_rendered(&f, CATALOG_TOOLS, 5);
    buf_release(&want);
    tear_down(&f);
}

static void a_taken_name_that_is_truncated_stays_utf8(void **state)
{
    (void)state;
    struct fixture f;
    struct buf tools = {0};
    buf_put_text(&tools, "[{\"name\":\"");
    for (int i = 0; i < 30; i++)
        buf_put_text(&tools, "\xC3\xA9");
    buf_put_text(&tools, "\"}]");
    struct offer offers[] = {{.name = "one", .tools = buf_text(&tools)}, {.name = "two", .tools = buf_text(&tools)}};
    set_up(&f, &plain, offers, 2);
    assert_rendered(&f, CATALOG_TOOLS, 2);
    buf_release(&tools);
    tear_down(&f);
}

static void the_prefix_of_a_server_is_as_configured_or_its_name(void **state)
{
    (void)state;
    struct fixture f;
    struct offer offers[] = {{.name = "one", .tools = "[{\"name\":\"a\"}]"},
                             {.name = "two", .prefix = "zwei", .tools = "[{\"name\":\"a\"}]"},
                             {.name = "three", .prefix = "", .tools = "[{\"name\":\"any name \\u00e9\"}]"}};
    set_up(&f, &(struct view_naming){"-", true, NULL}, offers, 3);
    assert_leads_to(&f, SPAN("one-a"), 0, SPAN("a"));
    assert_leads_to(&f, SPAN("zwei-a"), 1, SPAN("a"));
    assert_leads_to(&f, SPAN("any name \xC3\xA9"), 2, SPAN("any name \xC3\xA9"));
    assert_span(view_prefix(f.view, f.sources[1]), SPAN("zwei"), "prefix");
    assert_span(view_prefix(f.view, f.sources[2]), SPAN(""), "prefix");
    tear_down(&f);
}

// ---- lists ----------------------------------------------------------------------------------

static void assert_render(struct fixture *f, enum catalog_kind kind, size_t from, size_t to, const char *want)
{
    struct buf out = {0};
    view_render(f->view, kind, from, to, &out);
    assert_span(buf_span(&out), span_of(want), want);
    buf_release(&out);
}

static void only_names_and_uris_change_in_the_lists(void **state)
{
    (void)state;
    struct fixture f;
    struct offer offer = {
        .name = "s",
        .tools = "[{\"x\":1.00, \"name\":\"a\" ,\"inputSchema\":{\"name\":\"a\"}},{\"name\":\"b\",\"_meta\":{\"ui\":{"
                 "\"resourceUri\":\"ui://p\"}}},{\"name\":\"c\"}]",
        .resources = "[{\"uri\":\"file:///a\",\"name\":\"a\"}]",
        .templates = "[{\"uriTemplate\":\"file:///{x}\",\"name\":\"t\"}]",
    };
    set_up(&f, &prefixed, &offer, 1);
    assert_int_equal(view_count(f.view, CATALOG_TOOLS), 3);
    assert_render(&f, CATALOG_TOOLS, 0, 1, "{\"x\":1.00, \"name\":\"s__a\" ,\"inputSchema\":{\"name\":\"a\"}}");
    assert_render(&f, CATALOG_TOOLS, 1, 3,
                  "{\"name\":\"s__b\",\"_meta\":{\"ui\":{\"resourceUri\":\"ui://s/p\"}}},{\"name\":\"s__c\"}");
    assert_render(&f, CATALOG_TOOLS, 2, 3, "{\"name\":\"s__c\"}");
    assert_render(&f, CATALOG_TOOLS, 3, 3, "");
    assert_render(&f, CATALOG_PROMPTS, 0, 0, "");
    assert_render(&f, CATALOG_RESOURCES, 0, 1, "{\"uri\":\"postern://s/file:///a\",\"name\":\"a\"}");
    assert_render(&f, CATALOG_TEMPLATES, 0, 1, "{\"uriTemplate\":\"postern://s/file:///{x}\",\"name\":\"t\"}");
    tear_down(&f);
}

static void a_view_is_rebuilt_when_it_is_marked_dirty(void **state)
{
    (void)state;
    struct fixture f;
    struct offer offer = {.name = "s", .tools = "[{\"name\":\"a\"}]"};
    set_up(&f, &prefixed, &offer, 1);
    uint64_t first = view_generation(f.view, CATALOG_TOOLS);
    assert_int_equal(view_count(f.view, CATALOG_TOOLS), 1);
    assert_int_equal(view_generation(f.view, CATALOG_TOOLS), first);
    view_dirty(f.view, ~0U);
    assert_int_equal(view_generation(f.view, CATALOG_TOOLS), first + 1);
    view_dirty(f.view, 1U << CATALOG_PROMPTS);  // cursors of tools stay valid
    assert_int_equal(view_generation(f.view, CATALOG_TOOLS), first + 1);
    assert_leads_to(&f, SPAN("s__a"), 0, SPAN("a"));
    tear_down(&f);
}

// The servers whose lists are awaited before an unlisted name counts as unknown.
static void a_name_belongs_to_the_servers_whose_prefix_it_has(void **state)
{
    (void)state;
    struct fixture f;
    const struct offer offers[] = {{.name = "one"}, {.name = "one__two"}, {.name = "bare", .prefix = ""}};
    static const struct {
        const char *name;
        bool may[3];
    } rows[] = {
        {"one__x", {true, false, false}}, {"one__two__x", {true, true, false}}, {"one", {false, false, true}},
        {"one__", {true, false, false}},  {"three__x", {false, false, true}},   {"", {false, false, true}},
        {"one_x", {false, false, true}},
    };
    set_up(&f, &prefixed, offers, 3);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0; k < 3; k++) {
            assert_int_equal(view_may_have(f.view, CATALOG_TOOLS, f.sources[k], span_of(rows[i].name)), rows[i].may[k]);
            assert_int_equal(view_may_have(f.view, CATALOG_RESOURCES, f.sources[k], span_of(rows[i].name)), k == 2);
        }
    tear_down(&f);
    set_up(&f, &plain, offers, 3);
    for (size_t k = 0; k < 3; k++)
        assert_true(view_may_have(f.view, CATALOG_PROMPTS, f.sources[k], span_of("one__x")));
    tear_down(&f);
}

// ---- URIs -----------------------------------------------------------------------------------

struct route {
    const char *uri;
    int server;  // -1: no server has it
    const char *original;
};

static void assert_routes(struct fixture *f, const struct route *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct buf original = {0};
        const struct source *source = view_route_uri(f->view, span_of(rows[i].uri), &original);
        assert_row(source == (rows[i].server < 0 ? NULL : f->sources[rows[i].server]), rows[i].uri);
        assert_span(buf_span(&original), span_of(rows[i].original), rows[i].uri);
        buf_release(&original);
    }
}

static void a_uri_leads_to_the_server_that_lists_it(void **state)
{
    (void)state;
    static const struct route rows[] = {
        {"postern://one/file:///a", 0, "file:///a"},
        {"postern://one/never:listed", 0, "never:listed"},
        {"postern://one/file:///x/y", 0, "file:///x/y"},
        {"postern://one/postern://two/x", 0, "postern://two/x"},
        {"ui://one/page", 0, "ui://page"},
        {"bare://b", 1, "bare://b"},
        {"bare://c", 2, "bare://c"},
        {"both://x", 1, "both://x"},
        {"tpl://7/x", 1, "tpl://7/x"},
        {"tpl://{id}/x", 1, "tpl://{id}/x"},
        {"ui://listed/page", 2, "ui://listed/page"},
        {"unknown://x", -1, ""},
        {"file:///a", -1, ""},
        {"postern://nobody/x", -1, ""},
        {"postern://two/bare://b", -1, ""},
        {"", -1, ""},
    };
    struct fixture f;
    struct offer offers[] = {
        {.name = "one", .resources = "[{\"uri\":\"file:///a\"}]", .templates = "[{\"uriTemplate\":\"file:///{x}\"}]"},
        {.name = "two",
         .prefix = "",
         .resources = "[{\"uri\":\"bare://b\"},{\"uri\":\"both://x\"}]",
         .templates = "[{\"uriTemplate\":\"tpl://{id}/x\"}]"},
        {.name = "three",
         .prefix = "",
         .resources = "[{\"uri\":\"bare://c\"},{\"uri\":\"both://x\"},{\"uri\":\"ui://listed/page\"}]"},
    };
    set_up(&f, &prefixed, offers, 3);
    assert_routes(&f, rows, COUNT(rows));
    assert_rendered(&f, CATALOG_RESOURCES, 5);
    tear_down(&f);
}

static void an_unlisted_uri_goes_to_the_only_server_without_a_prefix(void **state)
{
    (void)state;
    static const struct route rows[] = {
        {"unknown://x", 1, "unknown://x"},
        {"postern://nobody/x", 1, "postern://nobody/x"},
        {"ui://page", 1, "ui://page"},
        {"postern://one/x", 0, "x"},
    };
    struct fixture f;
    struct offer offers[] = {{.name = "one"}, {.name = "two", .prefix = ""}};
    set_up(&f, &prefixed, offers, 2);
    assert_routes(&f, rows, COUNT(rows));
    struct buf out = {0};
    view_put_uri(f.view, f.sources[0], SPAN("x:y"), &out);
    buf_put_char(&out, ' ');
    view_put_uri(f.view, f.sources[1], SPAN("x:y"), &out);
    assert_span(buf_span(&out), SPAN("postern://one/x:y x:y"), "put");
    buf_release(&out);
    tear_down(&f);
}

// ---- profiles -------------------------------------------------------------------------------

static struct profile *profile_of(const char *text)
{
    struct err err;
    json_t *tree = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_row(tree != NULL, text);
    struct profile *profile = calloc(1, sizeof *profile);
    if (!option_parse(&profile_options, tree, profile, &(struct option_place){.file = "p.json", .path = ""}, &err))
        fail_msg("%s", err.detail);
    profile->name = "dev";
    json_decref(tree);
    return profile;
}

static void set_up_profile(struct fixture *f, struct profile *profile, const struct offer *offers, size_t count)
{
    set_up(f, &(struct view_naming){"__", profile->prefix, profile}, offers, count);
}

static void tear_down_profile(struct fixture *f, struct profile *profile)
{
    tear_down(f);
    option_release(&profile_options, profile);
    free(profile);
}

static void assert_nobody_has(struct fixture *f, const char *const *names)
{
    for (; *names; names++)
        assert_row(view_find(f->view, CATALOG_TOOLS, span_of(*names)) == NULL, *names);
}

static void a_profile_omits_tools_that_it_does_not_allow(void **state)
{
    (void)state;
    struct fixture f;
    struct offer offers[] = {
        {.name = "one", .tools = "[{\"name\":\"read_a\"},{\"name\":\"write\"},{\"name\":\"read_b\"},{\"name\":\"*\"}]"},
        {.name = "two", .tools = "[{\"name\":\"x\"}]", .resources = "[{\"uri\":\"r:1\"}]"},
        {.name = "three", .tools = "[{\"name\":\"y\"}]"}};
    struct profile *profile =
        profile_of("{\"tools\":{\"one\":{\"allow\":[\"read_*\",\"\\\\*\"]},\"two\":{\"allow\":[]}}}");
    set_up_profile(&f, profile, offers, 3);
    assert_leads_to(&f, SPAN("one__read_a"), 0, SPAN("read_a"));
    assert_leads_to(&f, SPAN("one__read_b"), 0, SPAN("read_b"));
    assert_leads_to(&f, SPAN("one___"), 0, SPAN("*"));
    assert_leads_to(&f, SPAN("three__y"), 2, SPAN("y"));
    assert_nobody_has(&f, (const char *const[]){"one__write", "write", "two__x", "x", "read_a", NULL});
    assert_rendered(&f, CATALOG_TOOLS, 4);
    assert_rendered(&f, CATALOG_RESOURCES, 1);  // the profile limits only the tools
    tear_down_profile(&f, profile);
}

static void a_renamed_tool_has_only_its_new_name(void **state)
{
    (void)state;
    struct fixture f;
    struct offer offers[] = {{.name = "one", .tools = "[{\"name\":\"a\"},{\"name\":\"b\"},{\"name\":\"b\"}]"},
                             {.name = "two", .tools = "[{\"name\":\"a\"}]"}};
    struct profile *profile = profile_of("{\"tools\":{\"one\":{\"override\":{\"b\":{\"name\":\"one__a\"}}},"
                                         "\"two\":{\"override\":{\"a\":{\"name\":\"look\"}}}}}");
    set_up_profile(&f, profile, offers, 2);
    struct buf want = {0};
    assert_leads_to(&f, SPAN("look"), 1, SPAN("a"));
    assert_leads_to(&f, SPAN("one__a"), 0, SPAN("b"));  // the given name wins, though "a" came first
    buf_put_text(&want, "one__a");
    put_suffix(&want, "one", SPAN("a"));
    assert_leads_to(&f, buf_span(&want), 0, SPAN("a"));
    assert_nobody_has(&f, (const char *const[]){"two__a", "one__b", "a", "b", NULL});
    assert_rendered(&f, CATALOG_TOOLS, 3);
    buf_release(&want);
    tear_down_profile(&f, profile);
}

static void overrides_change_title_and_description_and_no_other_byte(void **state)
{
    (void)state;
    struct fixture f;
    struct offer offer = {
        .name = "s",
        .tools = "[{\"description\":\"old\", \"name\":\"a\",\"inputSchema\":{\"title\":\"T\",\"description\":1.0}},"
                 "{\"name\":\"b\",\"title\":\"old\" },{\"name\":\"c\",\"title\":\"stays\"},{\"name\":\"d\"}]"};
    struct profile *profile = profile_of(
        "{\"tools\":{\"s\":{\"override\":{\"a\":{\"description\":\"say \\\"hi\\\"\"},"
        "\"b\":{\"title\":\"New\",\"description\":\"\\u00e9\"},\"c\":{\"name\":\"see\"},\"d\":{\"title\":\"D\"}}}}}");
    set_up_profile(&f, profile, &offer, 1);
    assert_int_equal(view_count(f.view, CATALOG_TOOLS), 4);
    assert_render(&f, CATALOG_TOOLS, 0, 1,
                  "{\"description\":\"say \\\"hi\\\"\", \"name\":\"s__a\",\"inputSchema\":{\"title\":\"T\","
                  "\"description\":1.0}}");
    assert_render(&f, CATALOG_TOOLS, 1, 2, "{\"name\":\"s__b\",\"title\":\"New\" ,\"description\":\"\xC3\xA9\"}");
    assert_render(&f, CATALOG_TOOLS, 2, 3, "{\"name\":\"see\",\"title\":\"stays\"}");
    assert_render(&f, CATALOG_TOOLS, 3, 4, "{\"name\":\"s__d\",\"title\":\"D\"}");
    tear_down_profile(&f, profile);
}

static void names_without_prefix_belong_to_the_first_server_and_later_servers_get_their_prefix(void **state)
{
    (void)state;
    struct fixture f;
    struct offer offers[] = {{.name = "one",
                              .tools = "[{\"name\":\"run\"},{\"name\":\"two__run\"},{\"name\":\"given\"}]",
                              .resources = "[{\"uri\":\"r:1\"}]"},
                             {.name = "two", .tools = "[{\"name\":\"run\"},{\"name\":\"only\"}]"},
                             {.name = "three", .prefix = "3", .tools = "[{\"name\":\"run\"},{\"name\":\"x\"}]"}};
    struct profile *profile =
        profile_of("{\"prefix\":false,\"tools\":{\"three\":{\"override\":{\"x\":{\"name\":\"given\"}}}}}");
    set_up_profile(&f, profile, offers, 3);
    struct buf want = {0};
    assert_leads_to(&f, SPAN("run"), 0, SPAN("run"));
    assert_leads_to(&f, SPAN("two__run"), 0, SPAN("two__run"));
    buf_put_text(&want, "two__run");  // taken by "one", so a hash must do
    put_suffix(&want, "two", SPAN("run"));
    assert_leads_to(&f, buf_span(&want), 1, SPAN("run"));
    assert_leads_to(&f, SPAN("only"), 1, SPAN("only"));
    assert_leads_to(&f, SPAN("3__run"), 2, SPAN("run"));
    assert_leads_to(&f, SPAN("given"), 2, SPAN("x"));
    assert_leads_to(&f, SPAN("one__given"), 0, SPAN("given"));
    assert_rendered(&f, CATALOG_TOOLS, 7);
    assert_routes(&f, &(struct route){"r:1", 0, "r:1"}, 1);
    buf_release(&want);
    tear_down_profile(&f, profile);
}

// The lists have not been fetched yet.
static void a_prefixed_name_leads_to_its_server_before_that_server_has_started(void **state)
{
    (void)state;
    static const struct {
        const char *exposed, *original;  // NULL: no server can have it
    } rows[] = {{"s__a", "a"}, {"look", "b"}, {"s__b", NULL}, {"s__hidden", NULL}, {"a", NULL}, {"t__a", NULL}};
    struct profile *profile = profile_of("{\"tools\":{\"s\":{\"allow\":[\"a\",\"b\"],\"override\":{\"b\":{"
                                         "\"name\":\"look\"}}}}}");
    struct server server = peer_server("s");
    struct err err;
    struct loop *loop = loop_new(&err);
    struct upstream *upstream = peer_upstream(loop, &server, &listener, NULL);
    struct source *source = source_new(loop, upstream, on_change, NULL);
    struct view *view = view_new(&(struct view_naming){"__", true, profile});
    view_add(view, source);
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct span original = {0};
        const struct source *owner = view_unlisted(view, CATALOG_TOOLS, span_of(rows[i].exposed), &original);
        assert_row(owner == (rows[i].original ? source : NULL), rows[i].exposed);
        if (owner)
            assert_span(original, span_of(rows[i].original), rows[i].exposed);
    }
    struct span original;
    assert_ptr_equal(view_unlisted(view, CATALOG_PROMPTS, SPAN("s__hidden"), &original), source);
    view_free(view);
    source_free(source);
    upstream_free(upstream);
    loop_free(loop);
    option_release(&profile_options, profile);
    free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_profile_omits_tools_that_it_does_not_allow),
        cmocka_unit_test(a_renamed_tool_has_only_its_new_name),
        cmocka_unit_test(overrides_change_title_and_description_and_no_other_byte),
        cmocka_unit_test(names_without_prefix_belong_to_the_first_server_and_later_servers_get_their_prefix),
        cmocka_unit_test(a_prefixed_name_leads_to_its_server_before_that_server_has_started),
        cmocka_unit_test(exposed_names_have_a_prefix_a_separator_and_safe_characters),
        cmocka_unit_test(a_long_exposed_name_ends_in_a_stable_hash),
        cmocka_unit_test(a_name_that_is_already_taken_gets_a_hash),
        cmocka_unit_test(a_taken_name_that_is_truncated_stays_utf8),
        cmocka_unit_test(the_prefix_of_a_server_is_as_configured_or_its_name),
        cmocka_unit_test(only_names_and_uris_change_in_the_lists),
        cmocka_unit_test(a_view_is_rebuilt_when_it_is_marked_dirty),
        cmocka_unit_test(a_name_belongs_to_the_servers_whose_prefix_it_has),
        cmocka_unit_test(a_uri_leads_to_the_server_that_lists_it),
        cmocka_unit_test(an_unlisted_uri_goes_to_the_only_server_without_a_prefix),
    };
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    alarm(60);  // a list that never comes is a failure, not a hang
    return cmocka_run_group_tests(tests, NULL, NULL);
}
