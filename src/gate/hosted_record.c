// Owns what the audit log says of connecting accounts (H17): who, where, from where, and never a secret.
#include "hosted.h"

static const struct {
    const char *text;
    enum audit_status status;
} events[] = {
    [HOSTED_EVENT_STARTED] = {"attempt_started", AUDIT_OK},
    [HOSTED_EVENT_SHOWN] = {"consent_shown", AUDIT_OK},
    [HOSTED_EVENT_GIVEN] = {"consent_given", AUDIT_OK},
    [HOSTED_EVENT_OK] = {"callback_ok", AUDIT_OK},
    [HOSTED_EVENT_REJECTED] = {"callback_rejected", AUDIT_DENIED},
    [HOSTED_EVENT_REVOKED] = {"revoked", AUDIT_OK},
    [HOSTED_EVENT_REFRESHED] = {"refresh_ok", AUDIT_OK},
    [HOSTED_EVENT_NOT_REFRESHED] = {"refresh_err", AUDIT_ERROR},
};

void hosted_keep_address(const struct hosted_visit *visit, struct peer *out)
{
    if (visit->credentials.peer)
        out->address = visit->credentials.peer->address;
}

void hosted_audit(const struct gate *gate, const struct hosted_record *record)
{
    struct buf address = {0};
    const struct identity *who = record->identity;
    if (!gate->audit)
        return;
    if (record->peer)
        throttle_put_address_text(record->peer, &address);
    (void)audit_put(gate->audit, &(struct audit_record){
                                     .event = AUDIT_TOKEN,
                                     .method = span_of(events[record->event].text),
                                     .kind = span_of("grant"),
                                     .tenant = span_of(who ? who->tenant : record->tenant),
                                     .provider = span_of(who ? who->provider : NULL),
                                     .subject = span_of(who ? who->subject : NULL),
                                     .proof = span_of(who ? identity_proof_text(who->proof) : NULL),
                                     .server = span_of(record->server->name),
                                     .name = span_of(record->issuer),
                                     .peer = buf_span(&address),
                                     .status = events[record->event].status,
                                     .reason = span_of(record->reason),
                                 });
    buf_release(&address);
}
