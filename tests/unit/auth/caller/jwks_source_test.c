// Tests fetching an issuer's keys: refresh, back-off, and expiry. The issuer is a server on the same loop, and the test sets
// the clock.
#include "base/clock.h"
#include "base/log.h"
#include "jwks_source.h"
#include "listen.h"
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000LL
#define HOUR (3600 * SECOND)
#define KEYS "{\"keys\":[]}"

// ---- the clock ------------------------------------------------------------------------------

static int64_t ahead_ms;

// All functions of base/clock.c, so that the linker does not take those of the library.
int64_t clock_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 + ahead_ms * 1000;
}
int64_t clock_now_ms(void) { return clock_now_us() / 1000; }
int64_t clock_wall_ms(void) { return clock_now_ms(); }
int64_t clock_wall_s(void) { return clock_wall_ms() / 1000; }
void clock_stamp(char out[32]) { snprintf(out, 32, "-"); }

// ---- the issuer -----------------------------------------------------------------------------

static struct loop *loop;
static struct http_client *client;
static struct loop_watch listener, peer;
static struct jwks_source *source;
static unsigned fetched, changed;
static const char *document;

static void on_peer(struct loop_watch *watch, unsigned events)
{
    (void)events;
    char bytes[4096], answer[512];
    if (recv(watch->fd, bytes, sizeof bytes, 0) > 0) {
        fetched++;
        int len = snprintf(answer, sizeof answer,
                           "HTTP/1.1 200 OK\r\nCache-Control: max-age=1000\r\nContent-Length: %zu\r\nConnection: "
                           "close\r\n\r\n%s",
                           strlen(document), document);
        assert_int_equal(send(watch->fd, answer, (size_t)len, MSG_NOSIGNAL), len);
    }
    loop_unwatch(loop, watch);
    close(watch->fd);
    watch->fd = -1;
}

static void on_accept(struct loop_watch *watch, unsigned events)
{
    (void)events;
    struct err err;
    peer = (struct loop_watch){.fd = accept(watch->fd, NULL, NULL), .on_ready = on_peer};
    assert_true(peer.fd >= 0 && loop_watch(loop, &peer, LOOP_READ, &err));
}

static void on_change(void *arg)
{
    (void)arg;
    changed++;
}

static void on_enough(struct loop_timer *timer)
{
    (void)timer;
    loop_stop(loop);
}

// Runs everything that is due now; twice, because the loop reads the clock once a turn.
static void turn(void)
{
    struct loop_timer enough = {.on_due = on_enough};
    for (int i = 0; i < 2; i++) {
        loop_timer_set(loop, &enough, 1);
        loop_run(loop);
    }
}

// Advances the clock; returns how many fetches this caused, all of them answered.
static unsigned after(int64_t ms)
{
    unsigned before = fetched;
    ahead_ms += ms;
    turn();
    for (int i = 0; i < 5000 && jwks_source_fetching(source); i++)
        turn();
    assert_false(jwks_source_fetching(source));
    return fetched - before;
}

static int set_up(void **state)
{
    (void)state;
    struct err err;
    unsigned port;
    char issuer[64], uri[80];
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    loop = loop_new(&err);
    client = http_client_new(loop, &err);
    if (!loop || !client)
        return -1;
    listener = (struct loop_watch){.fd = listen_on_loopback(&port), .on_ready = on_accept};
    snprintf(issuer, sizeof issuer, "http://127.0.0.1:%u", port);
    snprintf(uri, sizeof uri, "%s/jwks", issuer);
    fetched = changed = 0;
    document = KEYS;
    struct provider_world world = {.loop = loop, .http = client};
    if (!loop_watch(loop, &listener, LOOP_READ, &err))
        return -1;
    source = jwks_source_new(&world, issuer, uri, on_change, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    jwks_source_free(source);
    http_client_free(client);
    loop_unwatch(loop, &listener);
    close(listener.fd);
    loop_free(loop);
    return 0;
}

// ---- tests ----------------------------------------------------------------------------------

static void J10_keys_are_fetched_again_at_four_fifths_of_their_lifetime(void **state)
{
    (void)state;
    assert_int_equal(after(0), 1);
    assert_non_null(jwks_source_keys(source));
    assert_int_equal(after(795 * SECOND), 0);
    assert_int_equal(after(6 * SECOND), 1);
    assert_int_equal(changed, 1);  // the second fetch brought the same document
    document = "{\"keys\":[],\"rotated\":true}";
    assert_int_equal(after(795 * SECOND), 0);
    assert_int_equal(after(6 * SECOND), 1);
    assert_int_equal(changed, 2);
}

static void J10_fetches_back_off_while_the_answer_is_not_a_key_set(void **state)
{
    (void)state;
    assert_int_equal(after(0), 1);
    document = "<html>maintenance</html>";
    assert_int_equal(after(801 * SECOND), 1);
    assert_true(jwks_source_failing(source));
    static const int64_t pauses[] = {1, 2, 4, 8, 16, 32, 60, 60};
    for (size_t i = 0; i < COUNT(pauses); i++) {
        assert_int_equal(after(pauses[i] * SECOND - 500), 0);
        assert_int_equal(after(600), 1);
    }
    document = KEYS;
    assert_int_equal(after(61 * SECOND), 1);
    assert_false(jwks_source_failing(source));
    assert_int_equal(after(795 * SECOND), 0);
    assert_int_equal(after(6 * SECOND), 1);
}

static void J10_old_keys_expire_a_day_after_the_last_successful_fetch(void **state)
{
    (void)state;
    assert_int_equal(after(0), 1);
    document = "{";
    int64_t got = ahead_ms;
    while (ahead_ms - got < 24 * HOUR - 120 * SECOND) {
        (void)after(50 * SECOND);
        assert_non_null(jwks_source_keys(source));
    }
    (void)after(180 * SECOND);
    assert_null(jwks_source_keys(source));
    document = KEYS;
    assert_int_equal(after(61 * SECOND), 1);
    assert_non_null(jwks_source_keys(source));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(J10_keys_are_fetched_again_at_four_fifths_of_their_lifetime, set_up, tear_down),
        cmocka_unit_test_setup_teardown(J10_fetches_back_off_while_the_answer_is_not_a_key_set, set_up, tear_down),
        cmocka_unit_test_setup_teardown(J10_old_keys_expire_a_day_after_the_last_successful_fetch, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
