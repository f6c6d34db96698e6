// All HTTP faces of a gateway: those that its configuration lists, opened at the start and changed by a reload.
//
// A reload is prepared first, which may fail: sockets are bound and certificates read. Nothing of it serves before it is
// committed. A face whose listener is removed or changed stops accepting and ends when its connections are over, at the latest
// after timeouts.shutdown; a changed one hands its socket to its successor, so that no caller is refused.
#ifndef FRONT_FACES_H
#define FRONT_FACES_H

#include "base/err.h"
#include "loop/loop.h"

struct config;
struct gate;
struct http_faces;

// `address`: the only listener, whatever configurations list; NULL: those of the configuration, and 127.0.0.1:8080 if it has none
// and `by_default`.
struct http_faces *http_faces_new(struct loop *loop, struct gate *gate, const char *address, bool by_default);
bool http_faces_prepare(struct http_faces *faces, const struct config *next, struct err *err) MUST_CHECK;
void http_faces_drop(struct http_faces *faces);    // what was prepared
void http_faces_commit(struct http_faces *faces);  // the gate has the configuration already

size_t http_faces_count(const struct http_faces *faces);  // that accept callers
void http_faces_poll(struct http_faces *faces);           // reads certificates again whose files have changed
void http_faces_reload(struct http_faces *faces);         // reads all certificates again; a broken one changes nothing
bool http_faces_failing(const struct http_faces *faces);  // a certificate changed and cannot be taken over
void http_faces_quiesce(struct http_faces *faces);        // stops accepting; what is open goes on to its next answer
bool http_faces_busy(const struct http_faces *faces);     // an answer is still being sent
void http_faces_free(struct http_faces *faces);

#endif
