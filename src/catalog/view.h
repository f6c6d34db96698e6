// What of a view is for its tests.
#ifndef VIEW_H
#define VIEW_H

#include "catalog/view.h"

// A server's URI as callers of this view see it.
void view_put_uri(const struct view *view, const struct source *source, struct span uri, struct buf *out);

#endif
