// Tests listening unix sockets: the mode of the file, when a file is replaced or removed, the process of the peer,
// and descriptors that are passed.
#include "folder.h"
#include "loop/unix_socket.h"
#include <errno.h>
#include <sys/file.h>
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

// Any user who may read the folder can do this.
static void a_lock_that_stays_on_the_folder_does_not_prevent_a_socket(void **state)
{
    (void)state;
    struct unix_socket_file file, other;
    int folder = open(directory, O_RDONLY | O_CLOEXEC);
    assert_int_equal(flock(folder, LOCK_EX), 0);
    int fd = listen_at(&file);
    refuse(path, "listens there already");
    close(fd);
    close(listen_at(&other));
    free(file.path);
    unix_socket_remove(&other);
    close(folder);
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

static void close_all(const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
}

static void passed_descriptors_arrive_with_the_bytes(void **state)
{
    (void)state;
    int pair[2], ends[2], fds[UNIX_SOCKET_FDS_MAX];
    char text[8], byte = 0;
    size_t count = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(unix_socket_send(pair[0], span_of("ends"), ends, 2), 4);
    assert_int_equal(unix_socket_receive(pair[1], text, sizeof text, fds, &count), 4);
    assert_int_equal(count, 2);
    assert_true(fcntl(fds[0], F_GETFD) & FD_CLOEXEC);
    assert_int_equal(write(fds[1], "x", 1), 1);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(unix_socket_receive(pair[1], text, sizeof text, fds, &count), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(count, 0);
    close_all(fds, 2);
    close_all(ends, 2);
    close_all(pair, 2);
}

// Sends one descriptor more than unix_socket_send() can.
static void send_too_many(int socket, int fd)
{
    enum { COUNT = UNIX_SOCKET_FDS_MAX + 1 };
    static union {
        char bytes[CMSG_SPACE(COUNT * sizeof(int))];
        struct cmsghdr align;
    } control;
    int fds[COUNT];
    for (int i = 0; i < COUNT; i++)
        fds[i] = fd;
    struct iovec io = {(char[]){"x"}, 1};
    struct msghdr message = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fds)};
    memcpy(CMSG_DATA(header), fds, sizeof fds);
    assert_int_equal(sendmsg(socket, &message, 0), 1);
}

static void too_many_descriptors_are_an_error_and_none_stays_open(void **state)
{
    (void)state;
    int pair[2], fds[UNIX_SOCKET_FDS_MAX], before = open("/dev/null", O_RDONLY);
    char text[8];
    size_t count = 1;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(unix_socket_send(pair[0], span_of("x"), fds, UNIX_SOCKET_FDS_MAX + 1), -1);
    assert_int_equal(errno, EMSGSIZE);
    send_too_many(pair[0], before);
    assert_int_equal(unix_socket_receive(pair[1], text, sizeof text, fds, &count), -1);
    assert_int_equal(errno, EMSGSIZE);
    assert_int_equal(count, 0);
    int next = open("/dev/null", O_RDONLY);
    assert_int_equal(next, pair[1] + 1);
    close_all((int[]){next, before, pair[0], pair[1]}, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, remove_directory)
        TEST(a_socket_file_has_its_mode_and_is_removed_with_its_socket),
        TEST(a_socket_that_a_process_listens_on_is_not_replaced),
        TEST(a_socket_file_of_another_process_is_not_removed),
        TEST(a_path_that_cannot_be_a_socket_is_refused),
        TEST(a_lock_that_stays_on_the_folder_does_not_prevent_a_socket),
        TEST(a_connection_reports_the_process_of_its_peer),
        TEST(passed_descriptors_arrive_with_the_bytes),
        TEST(too_many_descriptors_are_an_error_and_none_stays_open),
    };
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
