// Owns certificates: reading, checking and replacing those of a listener, and verifying those of callers.
//
// Each connection gets the newest pair when it begins and holds a count on it, so that a replacement never affects an
// open connection. libmicrohttpd requires a certificate when it starts, or a callback that returns one. It gets a
// callback that is never called, because every session has credentials of its own.
#include "tls.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILE_MAX ((off_t)4 << 20)
#define NAMES_MAX 100
#define NAME_ROOM 2048

enum { CERTIFICATE, KEY, CLIENT_CA, FILES };
static const char *const options[FILES] = {"tls.certificate", "tls.key", "tls.client_ca"};

// The version of a file. All zero: the file is not used.
struct tls_stamp {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec modified;
};

struct tls_pair {
    unsigned refs;
    gnutls_certificate_credentials_t credentials;
    bool asks;  // requests a client certificate
};

struct tls {
    char *address;
    char *paths[FILES];             // NULL: not used
    struct tls_stamp tried[FILES];  // when last read, valid or not
    struct tls_stamp seen[FILES];   // at the last check
    struct tls_pair *pair;
    bool failing;  // a newer certificate could not be used
    bool unread;   // a file could not be read, for a reason that may pass without a change, such as no free descriptor
};

static void pair_unref(struct tls_pair *pair)
{
    if (!pair || --pair->refs)
        return;
    if (pair->credentials)
        gnutls_certificate_free_credentials(pair->credentials);
    free(pair);
}

// ---- reading --------------------------------------------------------------------------------

static struct tls_stamp stamp_of(const struct stat *file)
{
    return (struct tls_stamp){file->st_dev, file->st_ino, file->st_size, file->st_mtim};
}

static bool same_stamps(const struct tls_stamp *a, const struct tls_stamp *b)
{
    for (int i = 0; i < FILES; i++)
        if (a[i].device != b[i].device || a[i].inode != b[i].inode || a[i].size != b[i].size ||
            a[i].modified.tv_sec != b[i].modified.tv_sec || a[i].modified.tv_nsec != b[i].modified.tv_nsec)
            return false;
    return true;
}

static bool complain(const struct tls *tls, int which, const char *what, struct err *err)
{
    return err_set(err, ERR_CONFIG, "listen %s: %s: %s: %s", tls->address, options[which], tls->paths[which], what);
}

static bool read_all(int fd, struct buf *out)
{
    for (ssize_t n = 1; n != 0;) {
        buf_reserve(out, 4096);
        n = read(fd, out->at + out->len, 4096);
        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0)
            out->len += (size_t)n;
        if (out->len > (size_t)FILE_MAX) {
            errno = EFBIG;
            return false;
        }
    }
    return true;
}

static bool read_file(struct tls *tls, int which, struct buf *out, struct err *err)
{
    struct stat file = {0};
    int fd = open(tls->paths[which], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool ok = fd >= 0 && fstat(fd, &file) == 0;
    if (ok) {
        tls->tried[which] = stamp_of(&file);
        if (!S_ISREG(file.st_mode) || file.st_size > FILE_MAX) {
            close(fd);
            return complain(tls, which, "is not a regular file, or is too large; give the path of a PEM file", err);
        }
        buf_reserve(out,
                    (size_t)file.st_size + 8192);  // full size at once: growing would leave a copy of the key behind
        ok = read_all(fd, out);
    }
    int code = errno;
    if (fd >= 0)
        close(fd);
    if (ok)
        return true;
    tls->unread = true;
    struct buf what = {0};
    buf_printf(&what, "%s; write the file, or make it readable for the gateway's user", strerror(code));
    (void)complain(tls, which, buf_text(&what), err);
    buf_release(&what);
    return false;
}

static gnutls_datum_t datum(const struct buf *buf)
{
    return (gnutls_datum_t){(unsigned char *)buf->at, (unsigned)buf->len};
}

static void warn_of_expiry(const struct tls *tls, gnutls_x509_crt_t leaf)
{
    time_t until = gnutls_x509_crt_get_expiration_time(leaf);
    if (until != (time_t)-1 && until < clock_wall_s())
        log_warn("the certificate has expired", LOG_STR("file", tls->paths[CERTIFICATE]));
}

static bool use_pair(const struct tls *tls, struct tls_pair *pair, const struct buf texts[], struct err *err)
{
    gnutls_datum_t certificate = datum(&texts[CERTIFICATE]), key = datum(&texts[KEY]);
    gnutls_x509_crt_t *chain = NULL;
    gnutls_x509_privkey_t private = NULL;
    unsigned count = 0;
    if (gnutls_x509_crt_list_import2(&chain, &count, &certificate, GNUTLS_X509_FMT_PEM, GNUTLS_X509_CRT_LIST_SORT) < 0)
        return complain(tls, CERTIFICATE, "does not contain a PEM certificate, or the certificate is malformed", err);
    bool ok = gnutls_x509_privkey_init(&private) == 0;
    if (!ok)
        (void)err_set(err, ERR_SYSTEM, "gnutls_x509_privkey_init");
    else if (gnutls_x509_privkey_import2(private, &key, GNUTLS_X509_FMT_PEM, NULL, 0) < 0)
        ok = complain(tls, KEY,
                      "does not contain a PEM private key, or the key has a passphrase; remove the passphrase", err);
    else if (gnutls_certificate_set_x509_key(pair->credentials, chain, (int)count, private) < 0)
        ok = complain(tls, KEY, "does not belong to the certificate in tls.certificate", err);
    if (ok)
        warn_of_expiry(tls, chain[0]);
    gnutls_x509_privkey_deinit(private);
    for (unsigned i = 0; i < count; i++)
        gnutls_x509_crt_deinit(chain[i]);
    gnutls_free(chain);
    return ok;
}

static bool use_client_ca(const struct tls *tls, struct tls_pair *pair, const struct buf *text, struct err *err)
{
    gnutls_datum_t authorities = datum(text);
    if (gnutls_certificate_set_x509_trust_mem(pair->credentials, &authorities, GNUTLS_X509_FMT_PEM) <= 0)
        return complain(tls, CLIENT_CA, "does not contain a PEM certificate", err);
    pair->asks = true;
    return true;
}

static struct tls_pair *read_pair(struct tls *tls, struct err *err)
{
    struct buf texts[FILES] = {0};
    struct tls_pair *pair = mem_new(struct tls_pair);
    pair->refs = 1;
    bool ok = gnutls_certificate_allocate_credentials(&pair->credentials) == 0 ||
              err_set(err, ERR_SYSTEM, "gnutls_certificate_allocate_credentials");
    for (int i = 0; ok && i < FILES; i++) {
        tls->tried[i] = (struct tls_stamp){0};
        ok = !tls->paths[i] || read_file(tls, i, &texts[i], err);
    }
    ok = ok && use_pair(tls, pair, texts, err) &&
         (!tls->paths[CLIENT_CA] || use_client_ca(tls, pair, &texts[CLIENT_CA], err));
    for (int i = 0; i < FILES; i++)
        buf_wipe(&texts[i]);
    if (ok)
        return pair;
    pair_unref(pair);
    return NULL;
}

// ---- replacing ------------------------------------------------------------------------------

// `again`: the last attempt failed and was logged; the same failure is not logged again.
static void replace(struct tls *tls, bool again)
{
    struct err err;
    tls->unread = false;
    struct tls_pair *pair = read_pair(tls, &err);
    tls->failing = !pair;
    if (!pair) {
        if (!again || !tls->unread)
            log_error("cannot replace the certificate; the previous one stays in use", LOG_STR("detail", err.detail));
        return;
    }
    pair_unref(tls->pair);
    tls->pair = pair;
    log_info("certificate replaced", LOG_STR("file", tls->paths[CERTIFICATE]));
}

void tls_reload(struct tls *tls) { replace(tls, false); }

bool tls_failing(const struct tls *tls) { return tls->failing; }

void tls_check(struct tls *tls)
{
    struct tls_stamp now[FILES] = {0};
    struct stat file;
    for (int i = 0; i < FILES; i++)
        if (tls->paths[i] && stat(tls->paths[i], &file) == 0)
            now[i] = stamp_of(&file);
    // Certificate and key are two files: files that are still changing are read at a later check.
    bool settled = same_stamps(now, tls->seen);
    memcpy(tls->seen, now, sizeof now);
    bool changed = !same_stamps(now, tls->tried);
    if (settled && (changed || tls->unread)) {
        replace(tls, !changed);
        memcpy(tls->tried, now, sizeof now);
    }
}

static char *full_path(const struct config *config, const char *path)
{
    return path ? config_file(config, path) : NULL;
}

struct tls *tls_new(const struct config *config, const struct config_listener *listener, struct err *err)
{
    struct tls *tls = mem_new(struct tls);
    tls->address = mem_string(listener->address);
    tls->paths[CERTIFICATE] = full_path(config, listener->tls.certificate);
    tls->paths[KEY] = full_path(config, listener->tls.key);
    tls->paths[CLIENT_CA] = full_path(config, listener->tls.client_ca);
    tls->pair = read_pair(tls, err);
    memcpy(tls->seen, tls->tried, sizeof tls->seen);
    if (tls->pair)
        return tls;
    tls_free(tls);
    return NULL;
}

void tls_free(struct tls *tls)
{
    if (!tls)
        return;
    pair_unref(tls->pair);
    for (int i = 0; i < FILES; i++)
        free(tls->paths[i]);
    free(tls->address);
    free(tls);
}

// ---- connections ----------------------------------------------------------------------------

static int never_asked(gnutls_session_t session, const gnutls_datum_t *authorities, int authority_count,
                       const gnutls_pk_algorithm_t *algorithms, int algorithm_count, gnutls_pcert_st **chain,
                       unsigned *chain_len, gnutls_privkey_t *key)
{
    (void)session, (void)authorities, (void)authority_count, (void)algorithms, (void)algorithm_count;
    (void)key;
    *chain = NULL;
    *chain_len = 0;
    return -1;
}

static char priorities[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-RSA:%SERVER_PRECEDENCE";

struct MHD_OptionItem tls_options[] = {
    {MHD_OPTION_HTTPS_PRIORITIES, 0, priorities},
    {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)never_asked},
    {MHD_OPTION_END, 0, NULL},
};

static gnutls_session_t session_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    return info ? info->tls_session : NULL;
}

static ssize_t pull(gnutls_transport_ptr_t from, void *to, size_t room)
{
    struct tls_line *line = from;
    ssize_t n = recv(line->fd, to, room, 0);
    if (n < 0 && errno == EAGAIN && !line->greeted && !list_linked(&line->node))
        list_append(line->starved, &line->node);
    return n;
}

static int on_finished(gnutls_session_t session, unsigned type, unsigned when, unsigned incoming,
                       const gnutls_datum_t *message)
{
    (void)type, (void)when, (void)message;
    gnutls_transport_ptr_t from, to;
    gnutls_transport_get_ptr2(session, &from, &to);
    if (incoming)
        ((struct tls_line *)from)->greeted = true;
    return 0;
}

void tls_begin(struct tls *tls, struct MHD_Connection *connection, struct tls_line *line, struct list *starved)
{
    static unsigned char http[] = "http/1.1";
    const gnutls_datum_t protocol = {http, sizeof http - 1};
    gnutls_session_t session = session_of(connection);
    if (!session || gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, tls->pair->credentials) < 0) {
        log_error("cannot set the certificate of a connection");  // its handshake fails
        return;
    }
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    *line = (struct tls_line){.pair = tls->pair, .fd = info->connect_fd, .starved = starved};
    tls->pair->refs++;
    gnutls_transport_ptr_t from, to;
    gnutls_transport_get_ptr2(session, &from, &to);
    gnutls_transport_set_ptr2(session, line, to);
    gnutls_transport_set_pull_function(session, pull);
    gnutls_handshake_set_hook_function(session, GNUTLS_HANDSHAKE_FINISHED, GNUTLS_HOOK_POST, on_finished);
    gnutls_alpn_set_protocols(session, &protocol, 1, 0);
    if (tls->pair->asks)
        gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUEST);
}

void tls_end(struct tls_line *line)
{
    pair_unref(line->pair);
    line->pair = NULL;
}

// ---- the caller's certificate ---------------------------------------------------------------

static const char *const kinds[] = {"", "dns", "uri", "email"};

static enum peer_name_kind kind_of(int type)
{
    return type == GNUTLS_SAN_DNSNAME      ? PEER_NAME_DNS
           : type == GNUTLS_SAN_URI        ? PEER_NAME_URI
           : type == GNUTLS_SAN_RFC822NAME ? PEER_NAME_EMAIL
                                           : PEER_NAME_NONE;
}

static void add_names(gnutls_x509_crt_t certificate, struct peer *peer)
{
    char text[NAME_ROOM];
    peer->names = mem_alloc(NAMES_MAX * sizeof *peer->names);
    for (unsigned i = 0; peer->name_count < NAMES_MAX; i++) {
        size_t len = sizeof text;
        int type = gnutls_x509_crt_get_subject_alt_name(certificate, i, text, &len, NULL);
        if (type == GNUTLS_E_SHORT_MEMORY_BUFFER)
            continue;  // too long for a name
        if (type < 0)
            return;
        enum peer_name_kind kind = kind_of(type);
        while (len && text[len - 1] == '\0')
            len--;  // the library may count its own terminator
        // A name with a NUL inside is ignored: C code would read only the part before it.
        if (kind && len && !memchr(text, '\0', len))
            peer->names[peer->name_count++] = (struct peer_name){kind, mem_copy(text, len)};
    }
}

static void log_refusal(unsigned status)
{
    gnutls_datum_t why = {0};
    if (gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &why, 0) < 0)
        why.data = NULL;
    log_warn("client certificate rejected", LOG_STR("detail", why.data ? (char *)why.data : "cannot be verified"));
    gnutls_free(why.data);
}

void tls_read_peer(struct MHD_Connection *connection, struct peer *peer)
{
    gnutls_session_t session = session_of(connection);
    gnutls_typed_vdata_st purpose = {GNUTLS_DT_KEY_PURPOSE_OID, (unsigned char *)GNUTLS_KP_TLS_WWW_CLIENT, 0};
    gnutls_x509_crt_t certificate;
    unsigned count = 0, status = 0;
    peer->tls = session != NULL;
    const gnutls_datum_t *chain = session ? gnutls_certificate_get_peers(session, &count) : NULL;
    if (!chain || count == 0)
        return;
    if (gnutls_certificate_verify_peers(session, &purpose, 1, &status) < 0 || status != 0) {
        log_refusal(status);
        return;
    }
    if (gnutls_x509_crt_init(&certificate) < 0)
        return;
    if (gnutls_x509_crt_import(certificate, &chain[0], GNUTLS_X509_FMT_DER) == 0) {
        peer->certified = true;
        add_names(certificate, peer);
        for (size_t i = 0; i < peer->name_count; i++)
            log_debug("client certificate", LOG_STR(kinds[peer->names[i].kind], peer->names[i].text));
    }
    gnutls_x509_crt_deinit(certificate);
}

void tls_release_peer(struct peer *peer)
{
    for (size_t i = 0; i < peer->name_count; i++)
        free(peer->names[i].text);
    free(peer->names);
    peer->names = NULL;
    peer->name_count = 0;
}
