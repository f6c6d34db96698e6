// Tests logins at the command line: whether and which browser is started, and the hints on where to create a token.
#include "state.h"
#include "unit.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const marks[] = {
    "SSH_CONNECTION", "SSH_TTY", "CI", "container", "KUBERNETES_SERVICE_HOST", "DISPLAY", "WAYLAND_DISPLAY", "BROWSER"};

static int at_a_desk(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        unsetenv(marks[i]);
    return setenv("DISPLAY", ":0", 1);
}

static char *new_root(void)
{
    static char root[32];
    snprintf(root, sizeof root, "/tmp/postern-root-XXXXXX");
    assert_non_null(mkdtemp(root));
    return root;
}

static void L6_a_browser_is_started_only_on_a_local_desktop(void **state)
{
    (void)state;
    char *root = new_root();
    assert_string_equal(login_browser_program(NULL, root), "xdg-open");
    unsetenv("DISPLAY");
    assert_null(login_browser_program(NULL, root));
    setenv("WAYLAND_DISPLAY", "wayland-0", 1);
    assert_string_equal(login_browser_program(NULL, root), "xdg-open");
    for (size_t i = 0; i < 5; i++) {
        setenv(marks[i], "1", 1);
        assert_null(login_browser_program(NULL, root));
        unsetenv(marks[i]);
    }
    rmdir(root);
}

static void L6_a_container_is_recognized_by_its_files(void **state)
{
    static const char *const files[] = {".dockerenv", "run/.containerenv"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        char *root = new_root(), path[128];
        snprintf(path, sizeof path, "%s/run", root);
        assert_int_equal(mkdir(path, 0700), 0);
        assert_string_equal(login_browser_program(NULL, root), "xdg-open");
        snprintf(path, sizeof path, "%s/%s", root, files[i]);
        close(open(path, O_CREAT | O_WRONLY, 0600));
        assert_null(login_browser_program(NULL, root));
        setenv("BROWSER", "", 1);
        assert_null(login_browser_program(NULL, root));
        setenv("BROWSER", "mine", 1);
        assert_string_equal(login_browser_program(NULL, root), "mine");
        assert_string_equal(login_browser_program("chosen", root), "chosen");
        unsetenv("BROWSER");
        unlink(path);
        snprintf(path, sizeof path, "%s/run", root);
        rmdir(path);
        rmdir(root);
    }
}

static void L15_a_hint_applies_to_its_host_and_subdomains(void **state)
{
    static const struct {
        const char *url, *where;
    } rows[] = {
        {"https://api.githubcopilot.com/mcp/", "github.com/settings"},
        {"https://github.com", "github.com/settings"},
        {"https://gitlab.com/api/v4/mcp", "gitlab.com/-/"},
        {"https://MCP.Linear.app/mcp", "linear.app/settings"},
        {"https://api.linear.app/mcp", "linear.app/settings"},
        {"https://mcp.notion.com:443/mcp", "notion.so"},
        {"https://mcp.sentry.dev/mcp", "sentry.io"},
        {"https://mcp.stripe.com", "stripe.com"},
        {"https://mcp.atlassian.com/v1/sse", "atlassian.com"},
        {"https://mcp.slack.com/mcp", "slack.com"},
        {"https://huggingface.co/mcp", "huggingface.co"},
        {"https://docs.mcp.cloudflare.com/sse", "cloudflare.com"},
        {"https://notgithub.com/mcp", NULL},
        {"https://github.com.evil.example/mcp", NULL},
        {"https://example.org/github.com", NULL},
        {"https://com", NULL},
        {"http://127.0.0.1:1/mcp", NULL},
        {"github.com", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *what = NULL, *where = NULL;
        if (login_hint(rows[i].url, &what, &where) != (rows[i].where != NULL))
            fail_msg("%s: %s", rows[i].url, where ? where : "no hint");
        if (rows[i].where)
            assert_contains(where, rows[i].where);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(L6_a_browser_is_started_only_on_a_local_desktop, at_a_desk),
        cmocka_unit_test_setup(L6_a_container_is_recognized_by_its_files, at_a_desk),
        cmocka_unit_test(L15_a_hint_applies_to_its_host_and_subdomains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
