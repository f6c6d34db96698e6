// Exporting public keys: a PEM key as a JWK (RFC 7517).
#ifndef AUTH_JOSE_JWK_EXPORT_H
#define AUTH_JOSE_JWK_EXPORT_H

#include "base/json.h"

// The public part of a PEM key, RSA or EC, as a JWK for signatures; NULL: it is not such a key. If `id` is NULL, its
// kid is the thumbprint (RFC 7638). `algorithm`: the algorithm that the key must fit; NULL: any.
json_t *jwk_export_pem(const char *pem, const char *id, const char *algorithm) MUST_CHECK;

#endif
