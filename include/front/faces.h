// All HTTP faces of a gateway: those of its configuration, opened at the start and changed by a reload.
//
// A reload is prepared first, which may fail: sockets are bound and certificates read. A prepared face serves nothing
// before it is committed. A face whose listener is removed or changed stops accepting and ends when its connections are
// over, at the latest after timeouts.shutdown. A changed one hands its socket to its successor, so that no caller is
// refused.
#ifndef FRONT_FACES_H
#define FRONT_FACES_H

#include "base/err.h"
#include "loop/loop.h"

struct config;
struct gate;
struct faces;
struct inherited;

// `address`: the only listener, in place of those in configurations. NULL: the listeners of the configuration. With
// `by_default`, a configuration without listeners gets 127.0.0.1:8080. Listeners take their sockets from `inherited`, which must outlive the faces.
struct faces *faces_new(struct loop *loop, struct gate *gate, const char *address, bool by_default,
                        struct inherited *inherited);
bool faces_prepare(struct faces *faces, const struct config *next, struct err *err) MUST_CHECK;
void faces_drop(struct faces *faces);    // drops prepared changes
void faces_commit(struct faces *faces);  // call it when the gate has the configuration

// The files of unix sockets: whether they belong to this process, which removes them at the end.
void faces_own_files(struct faces *faces);    // also those of inherited sockets
void faces_leave_files(struct faces *faces);  // another process has the sockets, or will have them
// Fills in up to `size` listening sockets; returns their whole number. After faces_quiesce() it is 0.
size_t faces_sockets(const struct faces *faces, int *fds, size_t size);

size_t faces_count(const struct faces *faces);  // faces that accept callers
const char *faces_url(const struct faces *faces, size_t i);
void faces_poll(struct faces *faces);             // reads certificates again whose files have changed
void faces_reload(struct faces *faces);           // reads all certificates again; an invalid one changes nothing
bool faces_failing(const struct faces *faces);    // a certificate changed and cannot be used
void faces_quiesce(struct faces *faces);          // stops accepting; open connections go on to their next answer
bool faces_connected(const struct faces *faces);  // a connection is open
bool faces_busy(const struct faces *faces);       // an answer is still being sent
void faces_free(struct faces *faces);

#endif
