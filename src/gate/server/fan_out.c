// Owns the fan-out of a server's messages to its sessions: a limited number in each turn, and in order.
//
// While a message is on its way, its server is paused, so only messages of the same batch can be queued behind it. All servers share
// one slice of a turn in rotation, so that a server of one tenant does not delay the callers of another. Sessions and scopes may end
// meanwhile: they notify this file, which moves the position (tests/unit/gate/relay/fan_out_test.c).
#include "base/mem.h"
#include "room.h"
#include <stdlib.h>

#define SLICE 1024     // units of work in one turn
#define SLICE_TOLD 32  // units for a session that gets the message, including the write; any other session takes 1

static struct scope *scope_at(const struct list *use) { return list_entry(use, struct scope_use, node)->scope; }

static bool is_over(const struct fan_out *fan_out) { return fan_out->use == &fan_out->link->uses; }

static void drop_texts(struct fan_out *fan_out)
{
    for (size_t i = 0; i < FAN_OUT_TEXTS; i++) {
        blob_unref(fan_out->texts[i]);
        fan_out->texts[i] = NULL;
    }
}

static void go_to(struct fan_out *fan_out, struct list *use)
{
    drop_texts(fan_out);
    fan_out->use = use;
    if (!is_over(fan_out))
        fan_out->session = scope_at(use)->sessions.next;
}

// Delivers to sessions within the rest of the slice (`left`). True: all of them are done.
static bool step(struct fan_out *fan_out, int *left)
{
    while (!is_over(fan_out)) {
        if (fan_out->session == &scope_at(fan_out->use)->sessions) {
            go_to(fan_out, fan_out->use->next);
            continue;
        }
        if (*left <= 0)
            return false;
        struct session *session = list_entry(fan_out->session, struct session, scope_node);
        fan_out->session = fan_out->session->next;
        *left -= fan_out->tell(fan_out, session) ? SLICE_TOLD : 1;
    }
    return true;
}

static void fan_out_release(struct fan_out *fan_out)
{
    drop_texts(fan_out);
    buf_release(&fan_out->key);
    buf_release(&fan_out->kept);
}

static void fan_out_free(void *object)
{
    fan_out_release(object);
    free(object);
}

static void fan_out_end(struct fan_out *fan_out)
{
    list_remove(&fan_out->node);
    loop_reap(fan_out->link->gate->loop, fan_out, fan_out_free);
}

// The rest of this turn's slice.
static int *slice(struct gate *gate)
{
    uint64_t turn = loop_turn(gate->loop);
    if (gate->fan_out_turn != turn) {
        gate->fan_out_turn = turn;
        gate->fan_out_left = SLICE;
    }
    return &gate->fan_out_left;
}

static void wait_for_turn(struct link *link)
{
    struct gate *gate = link->gate;
    if (!list_linked(&link->fan_out_node))
        list_append(&gate->fan_outs, &link->fan_out_node);
    loop_task_put_later(gate->loop, &gate->fan_out);
    upstream_pause(link->upstream);
}

void fan_out_start(const struct fan_out *news)
{
    struct link *link = news->link;
    struct fan_out now = *news;
    bool first = list_empty(&link->fan_outs), done = false;
    if (first) {
        list_append(&link->fan_outs, &now.node);
        go_to(&now, link->uses.next);
        done = step(&now, slice(link->gate));
        list_remove(&now.node);
    }
    if (done) {
        fan_out_release(&now);
        return;
    }
    struct fan_out *later = mem_new(struct fan_out);
    *later = now;
    buf_put_span(&later->kept, now.params);
    later->params = buf_span(&later->kept);
    list_append(&link->fan_outs, &later->node);
    wait_for_turn(link);
}

static void run_link(struct link *link, int *left)
{
    struct fan_out *fan_out = list_entry(link->fan_outs.next, struct fan_out, node);
    if (!fan_out->use)
        go_to(fan_out, link->uses.next);
    list_remove(&link->fan_out_node);
    list_append(&link->gate->fan_outs, &link->fan_out_node);  // behind the other servers
    if (!step(fan_out, left))
        return;
    fan_out_end(fan_out);
    if (!list_empty(&link->fan_outs))
        return;
    list_remove(&link->fan_out_node);
    upstream_resume(link->upstream);
}

static void on_turn(struct loop_task *task)
{
    struct gate *gate = task->arg;
    int *left = slice(gate);
    while (*left > 0 && !list_empty(&gate->fan_outs))
        run_link(list_entry(gate->fan_outs.next, struct link, fan_out_node), left);
    if (!list_empty(&gate->fan_outs))
        loop_task_put_later(gate->loop, task);
}

void fan_out_init(struct gate *gate)
{
    list_init(&gate->fan_outs);
    gate->fan_out_left = SLICE;
    gate->fan_out = (struct loop_task){.run = on_turn, .arg = gate, .name = "notifications"};
}

// ---- sessions and scopes that end -----------------------------------------------------------

static struct fan_out *current(const struct link *link)
{
    return list_empty(&link->fan_outs) ? NULL : list_entry(link->fan_outs.next, struct fan_out, node);
}

void fan_out_session_ends(const struct session *session)
{
    for (size_t i = 0; i < session->scope->link_count; i++) {
        struct fan_out *fan_out = current(session->scope->links[i]);
        if (fan_out && fan_out->session == &session->scope_node)
            fan_out->session = fan_out->session->next;
    }
}

void fan_out_use_ends(const struct link *link, const struct scope_use *use)
{
    struct fan_out *fan_out = current(link);
    if (fan_out && fan_out->use == &use->node)
        go_to(fan_out, fan_out->use->next);
}

void fan_out_drop_all(struct link *link)
{
    for (struct fan_out *fan_out; (fan_out = current(link));)
        fan_out_end(fan_out);
    list_remove(&link->fan_out_node);
    upstream_resume(link->upstream);
}
