// Owns the audit records of connecting accounts (H17): the user, the server and the address, and never a secret.
#include "connect/audit.h"
#include "auth/caller/credentials.h"
#include "auth/caller/identity.h"
#include "store/audit/audit.h"
#include "upstream/server.h"

static const struct {
    const char *text;
    enum audit_status status;
} events[] = {
    [CONNECT_EVENT_STARTED] = {"attempt_started", AUDIT_OK},
    [CONNECT_EVENT_SHOWN] = {"consent_shown", AUDIT_OK},
    [CONNECT_EVENT_CONSENTED] = {"consent_given", AUDIT_OK},
    [CONNECT_EVENT_CONNECTED] = {"callback_ok", AUDIT_OK},
    [CONNECT_EVENT_REJECTED] = {"callback_rejected", AUDIT_DENIED},
    [CONNECT_EVENT_REVOKED] = {"revoked", AUDIT_OK},
    [CONNECT_EVENT_REFRESHED] = {"refresh_ok", AUDIT_OK},
    [CONNECT_EVENT_REFRESH_FAILED] = {"refresh_err", AUDIT_ERROR},
};

void connect_audit_put(struct audit *audit, const struct connect_audit_record *record)
{
    struct buf address = {0};
    const struct identity *user = record->identity;
    if (!audit)
        return;
    if (record->peer)
        credentials_put_address(record->peer, &address);
    (void)audit_put(audit, &(struct audit_record){
                               .event = AUDIT_TOKEN,
                               .method = span_of(events[record->event].text),
                               .kind = span_of("grant"),
                               .tenant = span_of(user ? user->tenant : record->tenant),
                               .provider = span_of(user ? user->provider : NULL),
                               .subject = span_of(user ? user->subject : NULL),
                               .proof = span_of(user ? identity_proof_text(user->proof) : NULL),
                               .server = span_of(record->server->name),
                               .name = span_of(record->issuer),
                               .peer = buf_span(&address),
                               .status = events[record->event].status,
                               .reason = span_of(record->reason),
                           });
    buf_release(&address);
}
