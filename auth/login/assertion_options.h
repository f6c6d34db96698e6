// The option table of `auth.assertion`, a part of a server's `auth`.
#ifndef AUTH_LOGIN_ASSERTION_OPTIONS_H
#define AUTH_LOGIN_ASSERTION_OPTIONS_H

#include "auth/login/access_options.h"

extern const struct option_table assertion_options_table;

#endif
