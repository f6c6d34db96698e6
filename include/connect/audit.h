// Audit records of connecting accounts (H17): the user, the server and the address, and never a secret.
#ifndef CONNECT_AUDIT_H
#define CONNECT_AUDIT_H

struct audit;
struct identity;
struct peer;
struct server;

enum connect_event {
    CONNECT_EVENT_STARTED,
    CONNECT_EVENT_SHOWN,
    CONNECT_EVENT_CONSENTED,
    CONNECT_EVENT_CONNECTED,
    CONNECT_EVENT_REJECTED,
    CONNECT_EVENT_REVOKED,
    CONNECT_EVENT_REFRESHED,
    CONNECT_EVENT_REFRESH_FAILED,
};

struct connect_audit_record {
    enum connect_event event;
    const struct identity *identity;
    const struct server *server;
    const char *issuer, *reason;
    const struct peer *peer;
    const char *tenant;  // without an identity: of the grant that the whole tenant shares
};

void connect_audit_put(struct audit *audit, const struct connect_audit_record *record);  // `audit` may be NULL

#endif
