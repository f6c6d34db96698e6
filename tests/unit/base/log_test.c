// Tests the log: the limit on lines of one event, and the queue for a reader that is slow.
#include "log_limit.h"
#include "log_queue.h"
#include "unit.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

// ---- lines of one event ---------------------------------------------------------------------

static struct log_limit limit;

static int start_afresh(void **state)
{
    (void)state;
    memset(&limit, 0, sizeof limit);
    return 0;
}

static bool pass(const char *event, const char *server, int64_t now_ms)
{
    const struct log_field fields[] = {LOG_STR("line", "anything"), LOG_STR("server", server), {0}};
    return log_limit_pass(&limit, event, fields, now_ms);
}

static void the_first_lines_of_a_window_are_logged_and_the_others_counted(void **state)
{
    (void)state;
    struct log_window window;
    for (int i = 0; i < LOG_LIMIT_SOURCE; i++)
        assert_true(pass("junk", "a", 5));
    for (int i = 0; i < 7; i++)
        assert_false(pass("junk", "a", LOG_LIMIT_WINDOW_MS));
    assert_true(pass("junk", "b", LOG_LIMIT_WINDOW_MS));   // another source
    assert_true(pass("other", "a", LOG_LIMIT_WINDOW_MS));  // another event
    assert_false(log_limit_ended(&limit, LOG_LIMIT_WINDOW_MS + 4, &window));
    assert_true(log_limit_ended(&limit, LOG_LIMIT_WINDOW_MS + 5, &window));
    assert_string_equal(window.event, "junk");
    assert_string_equal(window.source, "a");
    assert_int_equal(window.left_out, 7);
    assert_false(log_limit_ended(&limit, INT64_MAX, &window));
    for (int i = 0; i < LOG_LIMIT_SOURCE; i++)
        assert_true(pass("junk", "a", LOG_LIMIT_WINDOW_MS + 5));
    assert_false(pass("junk", "a", LOG_LIMIT_WINDOW_MS + 5));
}

static void the_count_of_suppressed_lines_is_logged_even_if_the_event_recurs_first(void **state)
{
    (void)state;
    struct log_window window;
    for (int i = 0; i < LOG_LIMIT_SOURCE + 3; i++)
        (void)pass("junk", "a", 0);
    assert_true(pass("junk", "a", LOG_LIMIT_WINDOW_MS));
    assert_true(log_limit_ended(&limit, LOG_LIMIT_WINDOW_MS, &window));
    assert_int_equal(window.left_out, 3);
    assert_true(pass("junk", "a", LOG_LIMIT_WINDOW_MS));
}

// A new source for each line does not raise the limit, and every suppressed line is counted.
static void a_log_event_is_bounded_over_all_its_sources(void **state)
{
    (void)state;
    enum { LINES = 100000 };
    struct log_window window;
    char name[32];
    uint64_t passed = 0, left_out = 0;
    for (int i = 0; i < LINES; i++) {
        snprintf(name, sizeof name, "server-%d", i);
        passed += pass("junk", name, i / 1000);
    }
    assert_int_equal(passed, LOG_LIMIT_EVENT);
    while (log_limit_ended(&limit, INT64_MAX, &window))
        left_out += window.left_out;
    assert_int_equal(passed + left_out, LINES);
}

static void the_source_of_a_log_event_may_have_any_length(void **state)
{
    (void)state;
    char name[5000];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (size_t len = 0; len < sizeof name; len += 97)
        assert_true(pass("junk", name + len, 0));
    const struct log_field fields[] = {
        LOG_STR("server", name), LOG_STR("subject", name), LOG_INT("tenant", 1), LOG_STR("address", "-"), {0}};
    assert_true(log_limit_pass(&limit, "junk", fields, 0));
}

// ---- the queue ------------------------------------------------------------------------------

static int reader;
static struct log_queue queue;

static void open_pipe(void)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    reader = ends[0];
    log_queue_open(&queue, ends[1]);
    assert_int_equal(queue.sink, LOG_SINK_OPENED);
    assert_int_equal(fcntl(ends[1], F_GETFL) & O_NONBLOCK, 0);  // other users of the descriptor expect it to block
    close(ends[1]);
}

static void open_polled(void)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    reader = ends[0];
    queue = (struct log_queue){.fd = ends[1], .sink = LOG_SINK_POLLED};
}

static void open_socket(void)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    reader = ends[0];
    log_queue_open(&queue, ends[1]);
    assert_int_equal(queue.sink, LOG_SINK_SOCKET);
}

static void close_queue(void)
{
    int fd = queue.sink == LOG_SINK_OPENED ? -1 : queue.fd;
    log_queue_close(&queue);
    if (fd >= 0)
        close(fd);
    if (reader >= 0)
        close(reader);
}

static void put(size_t number, size_t len)
{
    struct buf line = {0};
    buf_printf(&line, "%zu ", number);
    while (line.len < len - 1)
        buf_put_char(&line, 'x');
    buf_put_char(&line, '\n');
    log_queue_put(&queue, buf_span(&line));
    buf_release(&line);
}

// Reads until the queue is empty; returns the text.
static struct buf drain(void)
{
    struct buf all = {0};
    char block[4096];
    bool done = false;
    assert_int_equal(fcntl(reader, F_SETFL, O_NONBLOCK), 0);
    for (;;) {
        ssize_t got = read(reader, block, sizeof block);
        if (got > 0)
            buf_put(&all, block, (size_t)got);
        else if (done)
            return all;
        else
            done = log_queue_flush(&queue);
    }
}

static void log_lines_wait_for_a_slow_reader_and_arrive_whole_and_in_order(void **state)
{
    (void)state;
    static void (*const opened[])(void) = {open_pipe, open_polled, open_socket};
    for (size_t i = 0; i < COUNT(opened); i++) {
        size_t next = 0, len = 0;
        opened[i]();
        for (size_t n = 0; n < 100; n++)
            put(n, n % 3 ? 200 : 9000);  // some are longer than one atomic write to a pipe
        assert_false(log_queue_flush(&queue));
        struct buf all = drain();
        for (const char *at = all.at; at < all.at + all.len; at += len + 1, next++) {
            len = (size_t)((const char *)memchr(at, '\n', (size_t)(all.at + all.len - at)) - at);
            assert_int_equal(strtoul(at, NULL, 10), next);
            assert_int_equal(len + 1, next % 3 ? 200 : 9000);
        }
        assert_int_equal(next, 100);
        assert_int_equal(queue.dropped, 0);
        buf_release(&all);
        close_queue();
    }
}

static void a_full_log_queue_drops_lines_and_logs_their_number_later(void **state)
{
    (void)state;
    enum { LINES = 3000 };
    open_pipe();
    for (size_t i = 0; i < LINES; i++)
        put(i, 1000);
    assert_true(queue.waiting.len <= LOG_QUEUE_MAX && queue.waiting.len > LOG_QUEUE_MAX - 1000);
    assert_true(queue.dropped > 0);
    assert_int_equal(log_queue_gap(&queue), 0);  // the queue is still full
    struct buf all = drain();
    assert_int_equal(all.len / 1000 + queue.dropped, LINES);
    assert_int_equal(log_queue_gap(&queue), queue.dropped);
    assert_int_equal(log_queue_gap(&queue), 0);  // it is reported once
    buf_release(&all);
    close_queue();
}

static void log_lines_without_a_reader_are_dropped(void **state)
{
    (void)state;
    static void (*const opened[])(void) = {open_pipe, open_polled, open_socket};
    for (size_t i = 0; i < COUNT(opened); i++) {
        opened[i]();
        close(reader);
        reader = -1;
        put(0, 100);
        put(1, 100);
        assert_int_equal(queue.dropped, 2);
        assert_true(log_queue_flush(&queue));
        assert_int_equal(log_queue_gap(&queue), 0);  // a line about it would be dropped, too
        close_queue();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_first_lines_of_a_window_are_logged_and_the_others_counted, start_afresh),
        cmocka_unit_test_setup(the_count_of_suppressed_lines_is_logged_even_if_the_event_recurs_first, start_afresh),
        cmocka_unit_test_setup(a_log_event_is_bounded_over_all_its_sources, start_afresh),
        cmocka_unit_test_setup(the_source_of_a_log_event_may_have_any_length, start_afresh),
        cmocka_unit_test(log_lines_wait_for_a_slow_reader_and_arrive_whole_and_in_order),
        cmocka_unit_test(a_full_log_queue_drops_lines_and_logs_their_number_later),
        cmocka_unit_test(log_lines_without_a_reader_are_dropped),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
