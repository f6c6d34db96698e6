// Owns listening sockets: opening, handing over and closing them, and reading the addresses of callers.
#include "listener.h"
#include "base/log.h"
#include "base/mem.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define BACKLOG 1024

// ---- TCP ------------------------------------------------------------------------------------

static bool port_of(int fd, char *out, size_t size)
{
    struct sockaddr_storage name;
    socklen_t len = sizeof name;
    return getsockname(fd, (struct sockaddr *)&name, &len) == 0 &&
           getnameinfo((struct sockaddr *)&name, len, NULL, 0, out, (socklen_t)size, NI_NUMERICSERV) == 0;
}

static int bind_tcp(const char *address, const struct addrinfo *found, struct err *err)
{
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    (void)err_set(err, ERR_CONFIG, "cannot listen on %s: %s%s", address, strerror(errno),
                  errno == EADDRINUSE ? "; stop the program that uses it, or choose another port with --listen" : "");
    if (fd >= 0)
        close(fd);
    return -1;
}

static int open_tcp(const char *address, const char *host, struct inherited *inherited, struct err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *found = NULL;
    size_t len = strlen(host);
    char *bare = mem_copy(host[0] == '[' ? host + 1 : host, host[0] == '[' ? len - 2 : len);
    int code = getaddrinfo(bare, address + len + 1, &hints, &found), fd;
    free(bare);
    if (code) {
        (void)err_set(err, ERR_CONFIG, "cannot listen on %s: %s", address, gai_strerror(code));
        return -1;
    }
    if ((fd = inherited_take(inherited, found->ai_addr, found->ai_addrlen)) < 0)
        fd = bind_tcp(address, found, err);
    freeaddrinfo(found);
    return fd;
}

static bool open_port(struct listener *listener, const struct config_listener *config, struct inherited *inherited,
                      struct err *err)
{
    const char *colon = strrchr(config->address, ':');
    char *host = mem_copy(config->address, (size_t)(colon - config->address)), port[16] = "?";
    listener->fd = open_tcp(config->address, host, inherited, err);
    if (listener->fd >= 0) {
        if (!port_of(listener->fd, port, sizeof port))
            log_warn("cannot determine the port of a listener", LOG_STR("detail", strerror(errno)));
        struct buf url = {0};
        buf_printf(&url, "%s://%s:%s/mcp", config->tls.certificate ? "https" : "http", host, port);
        listener->url = buf_take(&url, NULL);
        listener->local = config_listener_is_loopback(config->address);
    }
    free(host);
    return listener->fd >= 0;
}

static mode_t mode_of(const struct config_listener *config)
{
    return config->mode ? (mode_t)strtoul(config->mode, NULL, 8) : 0600;
}

static bool open_path(struct listener *listener, const struct config_listener *config, struct inherited *inherited,
                      struct err *err)
{
    const char *path = config_listener_unix_path(config->address);
    if ((listener->fd = inherited_take_path(inherited, path)) < 0)
        listener->fd = unix_socket_listen(&listener->file, path, mode_of(config), err);
    if (listener->fd < 0)
        return false;
    listener->url = mem_string(config->address);
    listener->local = true;
    return true;
}

// ---- handing a socket over ------------------------------------------------------------------

bool listener_share(struct listener *listener, const struct listener *from, const struct config_listener *config,
                    struct err *err)
{
    const char *rest = strstr(from->url, "://");
    struct buf url = {0};
    *listener = (struct listener){.fd = fcntl(from->fd, F_DUPFD_CLOEXEC, 0), .local = from->local};
    if (listener->fd < 0)
        return err_set(err, ERR_SYSTEM, "cannot take over the socket of %s: %s", config->address, strerror(errno));
    if (rest)
        buf_printf(&url, "%s%s", config->tls.certificate ? "https" : "http", rest);
    else
        buf_put_text(&url, from->url);
    listener->url = buf_take(&url, NULL);
    return true;
}

static void set_mode(const struct listener *listener, const struct config_listener *config)
{
    if (listener->file.path && chmod(listener->file.path, mode_of(config)) < 0)
        log_warn("cannot change the mode of a socket", LOG_STR("path", listener->file.path),
                 LOG_STR("detail", strerror(errno)));
}

void listener_take_over(struct listener *listener, struct listener *from, const struct config_listener *config)
{
    listener->file = from->file;
    from->file = (struct unix_socket_file){0};
    set_mode(listener, config);
}

void listener_own_file(struct listener *listener, const struct config_listener *config)
{
    const char *path = config_listener_unix_path(config->address);
    if (path && !listener->file.path && unix_socket_adopt(&listener->file, listener->fd, path))
        set_mode(listener, config);
}

bool listener_open(struct listener *listener, const struct config_listener *config, struct inherited *inherited,
                   struct err *err)
{
    *listener = (struct listener){.fd = -1};
    return config_listener_unix_path(config->address) ? open_path(listener, config, inherited, err)
                                                      : open_port(listener, config, inherited, err);
}

void listener_release(struct listener *listener)
{
    unix_socket_remove(&listener->file);
    if (listener->fd >= 0)
        close(listener->fd);
    listener->fd = -1;
    free(listener->url);
    listener->url = NULL;
}

// ---- addresses of callers -------------------------------------------------------------------

void listener_peer(int fd, struct peer *peer)
{
    struct sockaddr_storage *address = &peer->address;
    socklen_t len = sizeof *address;
    if (getpeername(fd, (struct sockaddr *)address, &len) < 0) {
        *address = (struct sockaddr_storage){0};  // the caller has disconnected already
        return;
    }
    struct sockaddr_in6 six;
    memcpy(&six, address, sizeof six);
    if (address->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) {
        struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = six.sin6_port};
        memcpy(&four.sin_addr, six.sin6_addr.s6_addr + 12, sizeof four.sin_addr);
        *address = (struct sockaddr_storage){0};
        memcpy(address, &four, sizeof four);
    }
    if (address->ss_family == AF_INET) {
        struct sockaddr_in four;
        memcpy(&four, address, sizeof four);
        peer->loopback = ntohl(four.sin_addr.s_addr) >> 24 == 127;
    } else if (address->ss_family == AF_INET6) {
        peer->loopback = IN6_IS_ADDR_LOOPBACK(&six.sin6_addr);
    }
}
