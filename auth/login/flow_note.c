// Owns the notes of a login: each URL that was tried, and each decision (D17).
#include "flow_state.h"

void flow_note(struct login_flow *flow, const char *what, const char *text, int status)
{
    if (!flow->spec.on_note)
        return;
    struct buf line = {0};
    buf_put_text(&line, what);
    if (text)
        buf_printf(&line, " %s", text);
    if (status)
        buf_printf(&line, ": HTTP %d", status);
    flow->spec.on_note(flow->spec.arg, buf_text(&line));
    buf_release(&line);
}
