// Owns checking a file of certificate authorities at startup, before a connection fails because of it.
#include "auth/access/trust.h"
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <string.h>
#include <sys/stat.h>

static bool read_all(BIO *file, const char *path, struct err *err)
{
    size_t count = 0;
    X509 *certificate;
    while ((certificate = PEM_read_bio_X509(file, NULL, NULL, NULL))) {
        X509_free(certificate);
        count++;
    }
    bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    ERR_clear_error();  // otherwise the next TLS connection would report these errors as its own
    if (!count)
        return err_set(err, ERR_CONFIG, "%s: does not contain a PEM certificate", path);
    return ended || err_set(err, ERR_CONFIG, "%s: certificate %zu is malformed", path, count + 1);
}

bool trust_check(const char *path, struct err *err)
{
    struct stat is;
    if (stat(path, &is) != 0)
        return err_set(err, ERR_CONFIG, "%s: %s", path, strerror(errno));
    if (!S_ISREG(is.st_mode))
        return err_set(err, ERR_CONFIG, "%s: is not a regular file; give the path of a PEM file", path);
    BIO *file = BIO_new_file(path, "r");
    int problem = errno;
    if (!file) {
        ERR_clear_error();
        return err_set(err, ERR_CONFIG, "%s: %s; make it readable for the gateway's user", path, strerror(problem));
    }
    bool ok = read_all(file, path, err);
    BIO_free(file);
    return ok;
}
