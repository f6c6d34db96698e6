// The turn at a login: of all processes that need the same login, one logs in and the others wait (L10).
#ifndef CMD_LOGIN_TURN_H
#define CMD_LOGIN_TURN_H

#include "base/err.h"
#include "config/config.h"
#include <stdint.h>

struct login_turn {
    char *path;         // NULL: no lock is needed
    int fd;             // -1: not held
    long holder;        // the process that holds the lock, or held it last
    int64_t opened_at;  // when a browser was last started for this login, seconds since the epoch; 0: never
};

enum login_turn_answer { LOGIN_TURN_FAILED, LOGIN_TURN_BUSY, LOGIN_TURN_MINE };

// Prepares the turn at one user's login to one server, without taking it. `config` may be NULL: the default paths.
void login_turn_init(struct login_turn *turn, const struct config *config, const char *const key[3]);
enum login_turn_answer login_turn_take(struct login_turn *turn, struct err *err) MUST_CHECK;
// True if a browser may be started: none was in the last ten minutes. If not, *ago is the time since then, in seconds.
bool login_turn_may_open(const struct login_turn *turn, int64_t *ago);
void login_turn_opened(struct login_turn *turn);
void login_turn_release(struct login_turn *turn);

// Removes the files of one login, or of all (`key` NULL), except those whose lock is held.
void login_turn_forget(const struct config *config, const char *const key[3]);

#endif
