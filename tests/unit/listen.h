// A listening socket for the servers of tests.
#ifndef LISTEN_H
#define LISTEN_H

#include "unit.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

// Listens on a free port of 127.0.0.1; gives the descriptor.
static inline int listen_on_loopback(unsigned *port)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof name;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, size), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &size), 0);
    *port = ntohs(name.sin_port);
    return fd;
}

#endif
