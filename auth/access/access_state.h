// The state of an access, shared by its files: access.c (holding the token and reporting results) and refresh.c.
#ifndef AUTH_ACCESS_STATE_H
#define AUTH_ACCESS_STATE_H

#include "auth/access/access.h"
#include "auth/login/fetch.h"
#include "auth/login/renewal.h"

enum access_state {
    STATE_EMPTY,
    STATE_FINDING,
    STATE_HELD,
    STATE_LEASING,
    STATE_CLIENT,
    STATE_REFRESHING,
    STATE_SAVING,
    STATE_ASKING,
};

// The kind of change that is being stored.
enum access_saving { SAVING_TOKENS, SAVING_END, SAVING_DOUBT };

struct access {
    struct access_spec spec;
    char *tenant, *user, *server_url, *server_name;
    enum access_state state;
    struct secret header;
    unsigned version;
    const struct grant *grant;
    struct grant_request request;
    struct grant_lease lease;
    bool leased;
    struct oauth_client client;
    struct login_fetch fetch;
    struct login_renewal renewal;
    struct address_policy policy;
    struct login_flow *flow;
    struct arena arena;      // of one refresh
    struct loop_timer turn;  // H18: delays a refresh,
    int64_t turn_ends;       // until this time at most (loop_now)
    int64_t sent;
    bool without_resource, resource_noted;  // F14: refresh without `resource`; the store already has a note of that
    enum access_saving saving;
    struct err doubt;  // reported after it is saved
    bool refused;      // the server has refused a request for want of a valid token
    bool renew_next;   // renew after the lookup, because the server refused the held token meanwhile
    struct list waiting;
    struct err outcome;  // of the last operation
    struct list told;    // waits whose on_ready is called in the `tell` task
    struct err news;     // the result for them
    struct loop_task tell;
    struct loop_timer due;
    int64_t retry_ms, retry_at;  // the pause after a failure, and its end (loop_now); 0: no pause
    struct err failure;          // reported during the pause
    struct {                     // the token that the server refused last:
        int64_t generation;      // of its grant; 0: it is not stored
        unsigned version;
        int64_t until;  // it is not sent again before this time (loop_now)
    } held_back;
    int64_t shown;       // generation of the grant that was held last
    struct arena heard;  // memory of the challenge
    struct oauth_challenge challenge;
    struct grant_request check;  // looks up the held grant in the store
    bool gone;                   // the held grant was deleted, or replaced by another login
    uint64_t seen;               // grant_store_version() at the last lookup
    char *issuer;                // of the first token that was obtained
    struct secret caller_token;  // the caller's own token, while a call with it is in progress
    int64_t caller_token_until;
    unsigned caller_token_uses;
    unsigned char asked_with[SECRET_MAC_BYTES];  // digest of the last caller's token that was sent to be exchanged
};

// access.c: holding the token, and reporting results.
void access_set_state(struct access *access, enum access_state state);
int64_t access_now(const struct access *access);  // seconds since the epoch
bool access_is_url(const struct access *access);  // named by --url rather than in the configuration
struct oauth_tokens access_tokens(const struct grant *grant);
void access_hold(struct access *access, const struct grant *grant);
bool access_adopt(struct access *access, const struct grant *grant);
void access_need_login(struct access *access, const char *why);
bool access_pausing(const struct access *access);
void access_tell_failure(struct access *access);
void access_fail(struct access *access, const struct err *err);
void access_note_refresh(const struct access *access, const struct err *err);
void access_end_lease(struct access *access);

// refresh.c: refreshing an expired grant.
void access_refresh_start(struct access *access);
void access_refresh_on_answer(struct login_fetch *fetch);
void access_refresh_on_turn(struct loop_timer *timer);

#endif
