// TLS of one listener: its certificate and key, read again when the files change, and the identity in client
// certificates.
#ifndef FRONT_TLS_H
#define FRONT_TLS_H

#include "auth/caller/credentials.h"
#include "base/err.h"
#include "base/list.h"
#include "config/front.h"
#include <microhttpd.h>

struct tls;
struct tls_pair;  // a certificate and its key, read together; counted

// For MHD_OPTION_ARRAY, together with MHD_USE_TLS.
extern struct MHD_OptionItem tls_options[];

struct tls *tls_new(const struct config *config, const struct config_listener *listener, struct err *err) MUST_CHECK;
void tls_free(struct tls *tls);
// Checks whether the files changed and reads them when they are stable; call it about once a second.
void tls_check(struct tls *tls);
void tls_reload(struct tls *tls);         // reads them now
bool tls_failing(const struct tls *tls);  // the files could not be used when they were last read

// The TLS of one connection.
struct tls_line {
    struct tls_pair *pair;
    int fd;
    bool greeted;  // the caller's part of the handshake is complete
    struct list *starved;
    struct list node;  // in *starved: the handshake found nothing to read
};

// A connection begins, before its handshake. It gets the newest pair, and holds it until it ends.
void tls_begin(struct tls *tls, struct MHD_Connection *connection, struct tls_line *line, struct list *starved);
void tls_end(struct tls_line *line);
// After the handshake: the names in the caller's certificate, if it presented a valid one.
void tls_read_peer(struct MHD_Connection *connection, struct peer *peer);
void tls_release_peer(struct peer *peer);

#endif
