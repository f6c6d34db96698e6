// One server's token on its way, shared by the files of access: holding and telling, and refreshing.
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

// What is being stored.
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
    struct loop_timer turn;  // H18: a refresh waits for it,
    int64_t turn_ends;       // but not longer than this (loop_now)
    int64_t sent;
    bool without_resource, resource_noted;  // F14: this refresh; and it is known that it has to be
    enum access_saving saving;
    struct err doubt;  // told when it is saved
    bool refused;      // the server wants a token
    bool renew_next;   // it refused the one that is just looked up
    struct list waiting;
    struct err outcome;  // of what was last tried
    struct list told;    // those who will hear of it at the end of the turn
    struct err news;     // what they will hear
    struct loop_task tell;
    struct loop_timer due;
    int64_t retry_ms, retry_at;  // the pause after a failure, and when it is over (loop_now); 0: none
    struct err failure;          // told while it lasts
    struct {                     // what the server did not take,
        int64_t generation;      // of the grant that was last held; 0: it is not stored
        unsigned version;
        int64_t until;  // and until when it is not shown again (loop_now)
    } held_back;
    int64_t shown;       // generation of the grant that was last held
    struct arena heard;  // of the challenge
    struct oauth_challenge challenge;
    struct grant_request check;  // is what is held still there?
    bool gone;                   // it was found not to be, or to be from another login
    uint64_t seen;               // grant_store_version() when it was last looked for
    char *issuer;                // of the first token that was asked for
    struct secret caller_token;  // the caller's own token, while calls that came with it are under way
    int64_t caller_token_until;
    unsigned caller_token_uses;
    unsigned char asked_with[SECRET_MAC_BYTES];  // digest of the one that was last exchanged, or failed to be
};

// access.c: holding and telling.
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

// refresh.c: from a grant that is too old to one that is held, or to a failure.
void access_refresh_start(struct access *access);
void access_refresh_on_answer(struct login_fetch *fetch);
void access_refresh_on_turn(struct loop_timer *timer);

#endif
