// Tests inherited sockets: which are accepted, and which socket a listener gets.
#include "folder.h"
#include "loop/inherited.h"
#include "loop/unix_socket.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <unistd.h>

static struct inherited inherited;

static int set_up(void **state)
{
    inherited = (struct inherited){0};
    return make_directory(state);
}

// A blocking TCP socket on a free port of 127.0.0.1, as another process may pass it.
static int listen_tcp(struct sockaddr_in *name)
{
    socklen_t len = sizeof *name;
    *name = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)name, sizeof *name), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)name, &len), 0);
    return fd;
}

static int take(const struct sockaddr_in *name)
{
    return inherited_take(&inherited, (const struct sockaddr *)name, sizeof *name);
}

static void a_listener_takes_the_socket_with_its_address_once(void **state)
{
    (void)state;
    struct sockaddr_in one, two;
    int first = listen_tcp(&one), second = listen_tcp(&two);
    inherited_add(&inherited, first);
    inherited_add(&inherited, second);
    assert_int_equal(take(&two), second);
    assert_int_equal(take(&two), -1);
    assert_int_equal(take(&one), first);
    assert_int_equal(inherited.count, 0);
    close(first);
    close(second);
}

static void a_socket_of_another_address_is_not_taken(void **state)
{
    (void)state;
    struct sockaddr_in name;
    int fd = listen_tcp(&name);
    inherited_add(&inherited, fd);
    struct sockaddr_in other = name;
    other.sin_addr.s_addr = htonl(INADDR_ANY);
    assert_int_equal(take(&other), -1);
    other = name;
    other.sin_port = 0;
    assert_int_equal(take(&other), -1);
    inherited_close(&inherited);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void an_inherited_socket_does_not_block_and_is_not_inherited_further(void **state)
{
    (void)state;
    struct sockaddr_in name;
    int fd = listen_tcp(&name);
    inherited_add(&inherited, fd);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    inherited_close(&inherited);
}

static void a_unix_socket_is_taken_by_its_path_while_its_file_exists(void **state)
{
    (void)state;
    struct err err = {0};
    struct unix_socket_file file, adopted = {0};
    char path[64];
    snprintf(path, sizeof path, "%s/s.sock", directory);
    int fd = unix_socket_listen(&file, path, 0600, &err);
    inherited_add(&inherited, fd);
    assert_int_equal(inherited_take_path(&inherited, "/tmp/another.sock"), -1);
    assert_int_equal(inherited_take_path(&inherited, path), fd);
    assert_true(unix_socket_adopt(&adopted, fd, path));
    unix_socket_leave(&file);
    unix_socket_remove(&file);
    assert_int_equal(access(path, F_OK), 0);
    inherited_add(&inherited, fd);
    unix_socket_remove(&adopted);
    assert_int_equal(inherited_take_path(&inherited, path), -1);
    assert_false(unix_socket_adopt(&adopted, fd, path));
    inherited_close(&inherited);
}

static void a_descriptor_that_is_not_a_listening_stream_socket_is_closed(void **state)
{
    (void)state;
    int fds[] = {socket(AF_INET, SOCK_STREAM, 0), socket(AF_INET, SOCK_DGRAM, 0), open("/dev/null", O_RDONLY)};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        inherited_add(&inherited, fds[i]);
        assert_int_equal(fcntl(fds[i], F_GETFD), -1);
    }
    assert_int_equal(inherited.count, 0);
}

static void the_number_of_inherited_sockets_is_bounded(void **state)
{
    (void)state;
    struct sockaddr_in name;
    int fd = listen_tcp(&name);
    for (int i = 0; i < INHERITED_MAX; i++)
        inherited_add(&inherited, dup(fd));
    assert_int_equal(inherited.count, INHERITED_MAX);
    inherited_add(&inherited, fd);
    assert_int_equal(inherited.count, INHERITED_MAX);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    inherited_close(&inherited);
}

static void sockets_that_are_meant_for_another_process_are_ignored(void **state)
{
    (void)state;
    setenv("LISTEN_PID", "1", 1);
    setenv("LISTEN_FDS", "2", 1);
    inherited_from_environment(&inherited);
    assert_int_equal(inherited.count, 0);
    assert_null(getenv("LISTEN_PID"));
    assert_null(getenv("LISTEN_FDS"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, remove_directory)
    const struct CMUnitTest tests[] = {
        TEST(a_listener_takes_the_socket_with_its_address_once),
        TEST(a_socket_of_another_address_is_not_taken),
        TEST(an_inherited_socket_does_not_block_and_is_not_inherited_further),
        TEST(a_unix_socket_is_taken_by_its_path_while_its_file_exists),
        TEST(a_descriptor_that_is_not_a_listening_stream_socket_is_closed),
        TEST(the_number_of_inherited_sockets_is_bounded),
        TEST(sockets_that_are_meant_for_another_process_are_ignored),
    };
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
