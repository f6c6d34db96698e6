// Where state is kept: files in $POSTERN_STATE, $XDG_STATE_HOME/postern or ~/.local/state/postern.
#ifndef STORE_STATE_H
#define STORE_STATE_H

// The file that is meant: `given`, else the file of this name in the state folder. The caller frees it.
char *state_path(const char *given, const char *name);
// Makes the folders above the file, for the owner only. What cannot be made shows when the file is.
void state_make_folders(const char *path);

#endif
