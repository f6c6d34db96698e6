// Functions of a view that only its tests use.
#ifndef VIEW_H
#define VIEW_H

#include "catalog/view.h"

// Appends a server's URI as callers of this view see it.
void view_put_uri(const struct view *view, const struct source *source, struct span uri, struct buf *out);

#endif
