// How a command fails: what it prints, and the codes it exits with.
#ifndef CMD_BASE_FAIL_H
#define CMD_BASE_FAIL_H

#include "base/err.h"

enum exit_code {
    EXIT_OK = 0,
    EXIT_NEGATIVE = 1,  // it worked, and the answer is no: a tool said isError, a check found something
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
    EXIT_ANSWER = 17,  // the answer to the authorization request was not acceptable
};

// Prints "postern: …" on standard error and returns the exit code.
int fail_with(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
int fail_with_err(const struct err *err);

#endif
