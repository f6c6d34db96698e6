// The location of state: files in $POSTERN_STATE, $XDG_STATE_HOME/postern or ~/.local/state/postern.
#ifndef STORE_STATE_H
#define STORE_STATE_H

// The path of a file: `given`, else the file of this name in the state folder. The caller frees it.
char *state_path(const char *given, const char *name);
// Creates the folders above the file, for the owner only. Failures show when the file is created.
void state_make_folders(const char *path);

#endif
