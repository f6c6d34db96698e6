// Tests listening unix sockets: the mode of the file, when a file is replaced or removed, and the process of the peer.
#include "folder.h"
#include "loop/unix_socket.h"
#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>

static char path[96];

static int set_up(void **state)
{
    if (make_directory(state) != 0)
        return -1;
    snprintf(path, sizeof path, "%s/s.sock", directory);
    return 0;
}

static int listen_at(struct unix_socket_file *file)
{
    struct err err = {0};
    int fd = unix_socket_listen(file, path, 0600, &err);
    if (fd < 0)
        fail_msg("%s", err.detail);
    return fd;
}

static void refuse(const char *where, const char *part)
{
    struct err err = {0};
    struct unix_socket_file file;
    assert_int_equal(unix_socket_listen(&file, where, 0600, &err), -1);
    assert_contains(err.detail, part);
    assert_null(file.path);
}

static void a_socket_file_has_its_mode_and_is_removed_with_its_socket(void **state)
{
    (void)state;
    struct stat there;
    struct unix_socket_file file;
    int fd = listen_at(&file);
    assert_int_equal(stat(path, &there), 0);
    assert_int_equal(there.st_mode & 0777, 0600);
    unix_socket_remove(&file);
    unix_socket_remove(&file);
    assert_int_equal(stat(path, &there), -1);
    close(fd);
}

static void a_socket_that_a_process_listens_on_is_not_replaced(void **state)
{
    (void)state;
    struct unix_socket_file file, other;
    int fd = listen_at(&file);
    char holder[64];
    snprintf(holder, sizeof holder, "another process (pid %ld) listens there already", (long)getpid());
    refuse(path, holder);
    close(fd);
    close(listen_at(&other));  // replaces the stale file
    free(file.path);
    unix_socket_remove(&other);
}

static void a_socket_file_of_another_process_is_not_removed(void **state)
{
    (void)state;
    char aside[120];
    struct unix_socket_file file, other;
    int fd = listen_at(&file);
    snprintf(aside, sizeof aside, "%s.old", path);
    assert_int_equal(rename(path, aside), 0);
    int next = listen_at(&other);
    unix_socket_remove(&file);
    assert_int_equal(access(path, F_OK), 0);
    unix_socket_remove(&other);
    assert_int_equal(access(path, F_OK), -1);
    close(fd);
    close(next);
}

static void a_path_that_cannot_be_a_socket_is_refused(void **state)
{
    (void)state;
    char long_path[200];
    memset(long_path, 'x', sizeof long_path);
    long_path[0] = '/';
    long_path[sizeof long_path - 1] = '\0';
    refuse(long_path, "at most 107 bytes");
    refuse("relative.sock", "must be absolute");
    write_file(path, "a file");
    refuse(path, "the existing file is not a socket");
    assert_int_equal(access(path, F_OK), 0);
}

static void a_connection_reports_the_process_of_its_peer(void **state)
{
    (void)state;
    struct err err = {0};
    struct unix_socket_file file;
    struct unix_socket_peer peer = {0};
    assert_int_equal(unix_socket_connect(path, &err), -1);
    assert_contains(err.detail, strerror(ENOENT));
    int fd = listen_at(&file), client = unix_socket_connect(path, &err);
    int accepted = accept(fd, NULL, NULL);
    assert_true(client >= 0 && accepted >= 0);
    assert_true(unix_socket_peer(client, &peer));
    assert_int_equal(peer.pid, getpid());
    assert_true(unix_socket_peer(accepted, &peer));
    assert_int_equal(peer.pid, getpid());
    assert_int_equal(peer.uid, geteuid());
    close(client);
    close(accepted);
    close(fd);
    assert_int_equal(unix_socket_connect(path, &err), -1);
    assert_contains(err.detail, strerror(ECONNREFUSED));
    unix_socket_remove(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, remove_directory)
        TEST(a_socket_file_has_its_mode_and_is_removed_with_its_socket),
        TEST(a_socket_that_a_process_listens_on_is_not_replaced),
        TEST(a_socket_file_of_another_process_is_not_removed),
        TEST(a_path_that_cannot_be_a_socket_is_refused),
        TEST(a_connection_reports_the_process_of_its_peer),
    };
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
