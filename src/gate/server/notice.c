// Owns the text of a server's notification as one session should see it.
#include "room.h"

struct blob *notice_text(const struct session *session, const struct link *link, enum method method, struct span params,
                         struct span id)
{
    struct shape shape = shape_of(session->scope, link, session->identity, method);
    struct buf changed = {0}, text = {0};
    shape.id = id;
    bool any = shape_from_server(&shape, params, &changed);
    message_put_notification(&text, method_text(method), any ? buf_span(&changed) : params);
    buf_release(&changed);
    return blob_take(&text);
}
