// The messages between child.c, the spawner and the keepers.
#ifndef LOOP_KEEPER_H
#define LOOP_KEEPER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

// The order is written to a file in memory, since the environment may be larger than a socket message. Offsets count
// from the beginning of the file; argv and env are arrays of offsets, with a 0 at the end.
struct keeper_order {
    size_t argv, env;
    size_t path;  // PATH, for the lookup of the command; 0: not set
    size_t cwd;   // 0: the gateway's current folder
};

// The descriptors that a keeper gets.
enum keeper_fd { KEEPER_CONTROL, KEEPER_ORDER, KEEPER_STDIN, KEEPER_STDOUT, KEEPER_STDERR, KEEPER_FDS };

enum keeper_event { KEEPER_NOTHING, KEEPER_STARTED, KEEPER_FAILED, KEEPER_EXITED };

// From a keeper to the gateway, over KEEPER_CONTROL. In the other direction each message is one byte: the number of a
// signal for the process group, except SIGKILL, which is for the whole tree. End of file is the same as SIGKILL.
struct keeper_report {
    enum keeper_event event;
    int value;  // KEEPER_STARTED: process id; KEEPER_FAILED: errno; KEEPER_EXITED: status as returned by waitpid()
};

// Runs a keeper, in a process of its own. `signals` is a signalfd for SIGCHLD.
_Noreturn void keeper_run(const int fds[KEEPER_FDS], int signals);
void keeper_tell(int control, enum keeper_event event, int value);
// Sends SIGKILL to every child of this process except the `count` children in `spared`.
void keeper_kill_children(const pid_t *spared, size_t count);

// Hands the descriptors to the spawner, which starts a keeper with them. False: errno is set.
bool spawner_send(const int fds[KEEPER_FDS]);

#endif
