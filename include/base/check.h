// Invariants that are checked in every build: assert() is left out of a release.
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

// Writes the condition that does not hold, and its place in the source, to standard error, and aborts.
#define CHECK(condition) ((condition) ? (void)0 : check_failed(#condition, __FILE__, __LINE__))

_Noreturn void check_failed(const char *condition, const char *file, int line);

#endif
