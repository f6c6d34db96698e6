// Owns the location of state: the state folder, and paths in it.
#include "store/state.h"
#include "base/buf.h"
#include "base/mem.h"
#include <stdlib.h>
#include <sys/stat.h>

char *state_path(const char *given, const char *name)
{
    const char *state = getenv("POSTERN_STATE"), *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    struct buf path = {0};
    if (given)
        buf_put_text(&path, given);
    else if (state && *state)
        buf_printf(&path, "%s/%s", state, name);
    else if (xdg && *xdg)
        buf_printf(&path, "%s/postern/%s", xdg, name);
    else
        buf_printf(&path, "%s/.local/state/postern/%s", home ? home : "", name);
    return buf_take(&path, NULL);
}

void state_make_folders(const char *path)
{
    char *part = mem_string(path);
    for (char *slash = *part ? strchr(part + 1, '/') : NULL; slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(part, 0700);
        *slash = '/';
    }
    free(part);
}
