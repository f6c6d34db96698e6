// Whose turn it is to log in: of all processes that need the same login, one does it and the others wait (L10).
#ifndef CMD_LOGIN_TURN_H
#define CMD_LOGIN_TURN_H

#include "base/err.h"
#include "config/config.h"
#include <stdint.h>

struct login_turn {
    char *path;         // NULL: none is wanted
    int fd;             // -1: not ours
    long holder;        // the process that has it, or had it last
    int64_t opened_at;  // when a browser was last started for this login, seconds since the epoch; 0: never
};

enum login_turn_answer { LOGIN_TURN_FAILED, LOGIN_TURN_BUSY, LOGIN_TURN_MINE };

// The turn at one user's login to one server; nothing is taken yet. `config` may be NULL: the usual places.
void login_turn_init(struct login_turn *turn, const struct config *config, const char *const key[3]);
enum login_turn_answer login_turn_take(struct login_turn *turn, struct err *err) MUST_CHECK;
// A browser may be started: none was in the last ten minutes. Says since when, in seconds, if not.
bool login_turn_may_open(const struct login_turn *turn, int64_t *ago);
void login_turn_opened(struct login_turn *turn);
void login_turn_release(struct login_turn *turn);

// Forgets what is known of one login, or of all (`key` NULL), but of those that somebody is busy with.
void login_turn_forget(const struct config *config, const char *const key[3]);

#endif
