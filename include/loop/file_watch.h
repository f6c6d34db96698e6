// Reports that files or folders may have changed. A burst of changes is reported once; the owner finds out what
// changed.
//
// A path is followed through its symbolic links, so that replacing a link (a ConfigMap, a `current` link) counts as a change, and so
// does the appearance of a path that does not exist yet. Network file systems do not report the changes of other hosts; therefore
// `on_change` is called every FILE_WATCH_IDLE_MS as well.
#ifndef LOOP_FILE_WATCH_H
#define LOOP_FILE_WATCH_H

#include "loop/loop.h"

enum { FILE_WATCH_IDLE_MS = 30000 };

struct file_watch;

// `on_change` runs on the loop, never inside one of these functions.
struct file_watch *file_watch_new(struct loop *loop, void (*on_change)(void *arg), void *arg);
// Replaces the set of watched paths: of files, and of folders with the entries in them, NULL at the end. on_change
// follows once, because something may have changed before it was watched.
void file_watch_set(struct file_watch *watch, const char *const *paths);
void file_watch_free(struct file_watch *watch);

#endif
