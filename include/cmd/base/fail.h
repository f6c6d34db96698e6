// Failures of commands: the message on standard error, and the exit codes.
#ifndef CMD_BASE_FAIL_H
#define CMD_BASE_FAIL_H

#include "base/err.h"

enum exit_code {
    EXIT_OK = 0,
    EXIT_NEGATIVE = 1,  // it worked, with a negative result: a tool returned isError, a check found problems
    EXIT_USAGE = 2,
    EXIT_CONFIG = 3,       // configuration missing or wrong
    EXIT_UNAVAILABLE = 4,  // a server could not be reached or did not answer
    // Of logins (docs/oauth.md).
    EXIT_DENIED = 10,
    EXIT_TIMEOUT = 11,
    EXIT_PORT = 12,
    EXIT_REGISTRATION = 13,
    EXIT_DISCOVERY = 14,
    EXIT_TOKEN = 15,
    EXIT_STORE = 16,
    EXIT_ANSWER = 17,  // the authorization response was not valid
};

// Prints "postern: …" on standard error and returns the exit code.
int fail_with(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
int fail_with_err(const struct err *err);

#endif
