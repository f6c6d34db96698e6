// Owns the epoll loop: descriptors, a timer heap, end-of-turn tasks and reaping.
#include "loop/loop.h"
#include "base/clock.h"
#include "base/mem.h"
#include "stall.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define TIMERS_A_TURN 256  // more may be due at once; the rest runs in the next turn
#define EVENTS_A_TURN 48   // few, so that the data of one turn stays in the cache

struct garbage {
    void *object;
    void (*release)(void *object);
};

struct loop {
    int epoll;
    bool stopping;
    int64_t now_ms;
    uint64_t turn;
    struct loop_timer **heap;  // heap[1] is due first
    size_t timers, heap_room;
    struct list tasks, later;  // of this turn, and of the next one
    struct stall stall;
    struct garbage *garbage;
    size_t dead, garbage_room;
    struct loop_watch signals;
    void (*on_signal)(void *arg, int signal);
    void *signal_arg;
};

struct loop *loop_new(struct err *err)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0) {
        (void)err_set(err, ERR_SYSTEM, "epoll_create1: %s", strerror(errno));
        return NULL;
    }
    struct loop *loop = mem_new(struct loop);
    loop->epoll = epoll;
    loop->now_ms = clock_now_ms();
    loop->signals.fd = -1;
    list_init(&loop->tasks);
    list_init(&loop->later);
    return loop;
}

static void reap(struct loop *loop)
{
    if (!loop->dead)
        return;
    stall_begin(&loop->stall);
    // Releasing one object may put others into the list.
    for (size_t i = 0; i < loop->dead; i++)
        loop->garbage[i].release(loop->garbage[i].object);
    loop->dead = 0;
    stall_end(&loop->stall, "reaping", NULL);
}

static void take_later(struct loop *loop)
{
    while (!list_empty(&loop->later)) {
        struct list *node = loop->later.next;
        list_remove(node);
        list_append(&loop->tasks, node);
    }
}

static void run_tasks(struct loop *loop)
{
    while (!list_empty(&loop->tasks)) {
        struct loop_task *task = list_entry(loop->tasks.next, struct loop_task, node);
        const char *name = task->name;
        list_remove(&task->node);
        stall_begin(&loop->stall);
        task->run(task);
        stall_end(&loop->stall, "task", name);
    }
}

void loop_free(struct loop *loop)
{
    if (!loop)
        return;
    take_later(loop);
    run_tasks(loop);
    reap(loop);
    if (loop->signals.fd >= 0)
        close(loop->signals.fd);
    close(loop->epoll);
    free(loop->heap);
    free(loop->garbage);
    free(loop);
}

int64_t loop_now(const struct loop *loop) { return loop->now_ms; }
uint64_t loop_turn(const struct loop *loop) { return loop->turn; }

void loop_stop(struct loop *loop) { loop->stopping = true; }

// ---- descriptors ----------------------------------------------------------------------------

bool loop_watch(struct loop *loop, struct loop_watch *watch, unsigned events, struct err *err)
{
    if (watch->added && watch->events == events)
        return true;
    struct epoll_event event = {.data.ptr = watch};
    if (events & LOOP_READ)
        event.events |= EPOLLIN;
    if (events & LOOP_WRITE)
        event.events |= EPOLLOUT;
    if (events & LOOP_HANGUP)
        event.events |= EPOLLRDHUP;
    if (events & LOOP_ONCE)
        event.events |= EPOLLET;
    if (epoll_ctl(loop->epoll, watch->added ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, watch->fd, &event) < 0)
        return err_set(err, ERR_SYSTEM, "epoll_ctl on descriptor %d: %s", watch->fd, strerror(errno));
    watch->added = true;
    watch->events = events;
    return true;
}

void loop_unwatch(struct loop *loop, struct loop_watch *watch)
{
    if (!watch->added)
        return;
    epoll_ctl(loop->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
    watch->added = false;
}

static void dispatch(struct loop *loop, const struct epoll_event *event)
{
    struct loop_watch *watch = event->data.ptr;
    if (!watch->added)
        return;  // removed by an earlier event of this turn
    const char *name = watch->name;
    unsigned events = 0;
    if (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        events |= LOOP_READ;
    if (event->events & (EPOLLOUT | EPOLLERR))
        events |= LOOP_WRITE;
    if (event->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        events |= LOOP_HANGUP;
    stall_begin(&loop->stall);
    watch->on_ready(watch, events);
    stall_end(&loop->stall, "watch", name);
}

// ---- timers ---------------------------------------------------------------------------------

static void heap_place(struct loop *loop, struct loop_timer *timer, size_t slot)
{
    loop->heap[slot] = timer;
    timer->slot = slot;
}

static void heap_settle(struct loop *loop, struct loop_timer *timer, size_t slot)
{
    while (slot > 1 && loop->heap[slot / 2]->due_ms > timer->due_ms) {
        heap_place(loop, loop->heap[slot / 2], slot);
        slot /= 2;
    }
    for (size_t child; (child = slot * 2) <= loop->timers; slot = child) {
        if (child < loop->timers && loop->heap[child + 1]->due_ms < loop->heap[child]->due_ms)
            child++;
        if (loop->heap[child]->due_ms >= timer->due_ms)
            break;
        heap_place(loop, loop->heap[child], slot);
    }
    heap_place(loop, timer, slot);
}

void loop_timer_set(struct loop *loop, struct loop_timer *timer, int64_t after_ms)
{
    timer->due_ms = loop->now_ms + (after_ms > 0 ? after_ms : 0);
    if (!timer->slot) {
        if (loop->timers + 2 > loop->heap_room) {
            loop->heap_room = loop->heap_room ? loop->heap_room * 2 : 64;
            loop->heap = mem_resize(loop->heap, loop->heap_room * sizeof(struct loop_timer *));
        }
        timer->slot = ++loop->timers;
    }
    heap_settle(loop, timer, timer->slot);
}

void loop_timer_stop(struct loop *loop, struct loop_timer *timer)
{
    if (!timer->slot)
        return;
    size_t slot = timer->slot;
    timer->slot = 0;
    struct loop_timer *last = loop->heap[loop->timers--];
    if (last != timer)
        heap_settle(loop, last, slot);
}

static void run_timers(struct loop *loop)
{
    for (int i = 0; i < TIMERS_A_TURN && loop->timers && loop->heap[1]->due_ms <= loop->now_ms; i++) {
        struct loop_timer *timer = loop->heap[1];
        const char *name = timer->name;
        loop_timer_stop(loop, timer);
        stall_begin(&loop->stall);
        timer->on_due(timer);
        stall_end(&loop->stall, "timer", name);
    }
}

// ---- tasks, reaping, running ----------------------------------------------------------------

void loop_task_put(struct loop *loop, struct loop_task *task)
{
    if (!list_linked(&task->node))
        list_append(&loop->tasks, &task->node);
}

void loop_task_put_later(struct loop *loop, struct loop_task *task)
{
    if (!list_linked(&task->node))
        list_append(&loop->later, &task->node);
}

void loop_task_drop(struct loop_task *task) { list_remove(&task->node); }

void loop_reap(struct loop *loop, void *object, void (*release)(void *object))
{
    if (loop->dead == loop->garbage_room) {
        loop->garbage_room = loop->garbage_room ? loop->garbage_room * 2 : 32;
        loop->garbage = mem_resize(loop->garbage, loop->garbage_room * sizeof *loop->garbage);
    }
    loop->garbage[loop->dead++] = (struct garbage){object, release};
}

static int wait_ms(const struct loop *loop)
{
    if (!list_empty(&loop->tasks) || !list_empty(&loop->later) || loop->dead)
        return 0;
    if (!loop->timers)
        return -1;
    int64_t left = loop->heap[1]->due_ms - clock_now_ms();
    return left < 0 ? 0 : left > 60000 ? 60000 : (int)left;
}

void loop_run(struct loop *loop)
{
    struct epoll_event events[EVENTS_A_TURN];
    loop->stopping = false;
    while (!loop->stopping) {
        int count = epoll_wait(loop->epoll, events, EVENTS_A_TURN, wait_ms(loop));
        loop->now_ms = clock_now_ms();
        loop->turn++;
        take_later(loop);
        for (int i = 0; i < count; i++)
            dispatch(loop, &events[i]);
        run_timers(loop);
        run_tasks(loop);
        reap(loop);
    }
}

// ---- stalls ---------------------------------------------------------------------------------

void loop_note(struct loop *loop, const char *doing, const char *server) { stall_note(&loop->stall, doing, server); }

struct loop_stalls loop_stalls(const struct loop *loop) { return loop->stall.total; }

// ---- signals --------------------------------------------------------------------------------

static void signals_ready(struct loop_watch *watch, unsigned events)
{
    (void)events;
    struct loop *loop = watch->arg;
    struct signalfd_siginfo info;
    while (read(watch->fd, &info, sizeof info) == sizeof info)
        loop->on_signal(loop->signal_arg, (int)info.ssi_signo);
}

bool loop_on_signal(struct loop *loop, void (*on_signal)(void *arg, int signal), void *arg, struct err *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0)
        return err_set(err, ERR_SYSTEM, "signalfd: %s", strerror(errno));
    loop->on_signal = on_signal;
    loop->signal_arg = arg;
    loop->signals = (struct loop_watch){.fd = fd, .on_ready = signals_ready, .arg = loop};
    return loop_watch(loop, &loop->signals, LOOP_READ, err);
}
