// Invariants that are checked in every build: assert() is left out of a release.
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

// Writes a condition that does not hold to standard error, with its place, and aborts.
#define CHECK(condition) ((condition) ? (void)0 : check_failed(#condition, __FILE__, __LINE__))

_Noreturn void check_failed(const char *condition, const char *file, int line);

#endif
