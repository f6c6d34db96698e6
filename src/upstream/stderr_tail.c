// Owns the last lines that a stdio server wrote to stderr: a text of bounded size, which outlives the process.
#include "stderr_tail.h"

void stderr_tail_begin(struct stderr_tail *tail) { tail->begun = tail->text.len; }

// Drops the oldest lines, a quarter of all at once, so that a server that writes much does not move the text with each line.
static void make_room(struct stderr_tail *tail, size_t more)
{
    struct buf *text = &tail->text;
    if (text->len + more <= STDERR_TAIL_BYTES)
        return;
    size_t least = text->len + more - STDERR_TAIL_BYTES,
           drop = least > STDERR_TAIL_BYTES / 4 ? least : STDERR_TAIL_BYTES / 4;
    while (drop < text->len && text->at[drop - 1] != '\n')
        drop++;
    drop = drop < text->len ? drop : text->len;
    buf_drop_front(text, drop);
    tail->begun = tail->begun > drop ? tail->begun - drop : 0;
}

void stderr_tail_add(struct stderr_tail *tail, struct span line)
{
    make_room(tail, line.len + 1);
    buf_put_span(&tail->text, line);
    buf_put_char(&tail->text, '\n');
}

struct span stderr_tail_last(const struct stderr_tail *tail, size_t max)
{
    size_t end = tail->text.len, from;
    if (end <= tail->begun || !max)
        return (struct span){0};
    for (from = --end; from > tail->begun; from--)
        if (tail->text.at[from - 1] == '\n' && --max == 0)
            break;
    return span_make(tail->text.at + from, end - from);
}

struct span stderr_tail_all(const struct stderr_tail *tail) { return buf_span(&tail->text); }

void stderr_tail_release(struct stderr_tail *tail) { buf_release(&tail->text); }
