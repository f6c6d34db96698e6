// Public keys as others get them: a PEM key as a JWK (RFC 7517).
#ifndef AUTH_JOSE_JWK_EXPORT_H
#define AUTH_JOSE_JWK_EXPORT_H

#include "base/json.h"

// The public part of a PEM key, RSA or EC, as a JWK for signatures; NULL: it is not such a key. Without an id it has its
// thumbprint (RFC 7638). `algorithm`: what it must be for; NULL: anything.
json_t *jwk_export_pem(const char *pem, const char *id, const char *algorithm) MUST_CHECK;

#endif
