// Owns the offload pool: the worker thread, its bounded queue, and the way back to the loop.
//
//     offload_put ──► waiting ──► the worker runs it ──► finished ──► eventfd ──► done, on the loop's thread
//
// The worker exists only while there is work: in a process with a second thread, the kernel counts the users of a file
// at each read and write, which costs 0.2 us of every call (docs/performance.md).
//
// The mutex guards both lists and the flags; a job itself is handed over, never shared. A worker without work is
// detached when the next one starts, so that the loop never waits for a thread of low priority to end; the last one is
// joined.
#include "loop/offload.h"
#include "base/mem.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define BACKGROUND_NICE 10  // a tenth of the processor while the loop uses all of it

struct offload {
    struct loop *loop;
    struct loop_watch watch;  // the eventfd: `finished` is not empty
    pthread_t worker;
    bool started;  // a thread exists, or has ended and is neither detached nor joined
    pthread_mutex_t lock;
    pthread_cond_t idle;
    struct list waiting, finished;
    size_t count, limit;  // of waiting
    bool working;         // a worker will check `waiting` again
    bool background;      // the worker yields the processor to the loop
    bool stopping;
};

// For this thread alone, as Linux allows. If it fails, the thread has the loop's priority.
static void yield_to_others(void)
{
    struct sched_param none = {0};
    (void)sched_setscheduler(0, SCHED_BATCH, &none);
    (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + BACKGROUND_NICE);
}

static void *work(void *arg)
{
    struct offload *pool = arg;
    if (pool->background)
        yield_to_others();
    pthread_mutex_lock(&pool->lock);
    while (!list_empty(&pool->waiting)) {
        struct offload_job *job = list_entry(pool->waiting.next, struct offload_job, node);
        list_remove(&job->node);
        pool->count--;
        pthread_mutex_unlock(&pool->lock);
        job->run(job);
        pthread_mutex_lock(&pool->lock);
        list_append(&pool->finished, &job->node);
        uint64_t one = 1;
        ssize_t wrote = write(pool->watch.fd, &one, sizeof one);
        (void)wrote;  // it fails only when the counter is full, and then the loop wakes anyway
    }
    pool->working = false;
    pthread_cond_broadcast(&pool->idle);
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

// Calls `done` of the finished jobs; it may put its job again.
static void deliver(struct offload *pool)
{
    struct list all;
    list_init(&all);
    pthread_mutex_lock(&pool->lock);
    while (!list_empty(&pool->finished)) {
        struct list *node = pool->finished.next;
        list_remove(node);
        list_append(&all, node);
    }
    pthread_mutex_unlock(&pool->lock);
    while (!list_empty(&all)) {
        struct offload_job *job = list_entry(all.next, struct offload_job, node);
        list_remove(&job->node);
        job->done(job);
    }
}

static void on_finished(struct loop_watch *watch, unsigned events)
{
    (void)events;
    uint64_t times;
    ssize_t got = read(watch->fd, &times, sizeof times);
    (void)got;
    deliver(watch->arg);
}

// The loop handles signals: the worker blocks all of them.
static bool start_worker(struct offload *pool)
{
    sigset_t all, before;
    if (pool->started)
        pthread_detach(pool->worker);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pool->started = pthread_create(&pool->worker, NULL, work, pool) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pool->started;
}

static void release(void *object)
{
    struct offload *pool = object;
    pthread_cond_destroy(&pool->idle);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

struct offload *offload_new(struct loop *loop, size_t limit, struct err *err)
{
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0) {
        (void)err_set(err, ERR_SYSTEM, "eventfd: %s", strerror(errno));
        return NULL;
    }
    struct offload *pool = mem_new(struct offload);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->idle, &monotonic);
    pthread_condattr_destroy(&monotonic);
    list_init(&pool->waiting);
    list_init(&pool->finished);
    pool->loop = loop;
    pool->limit = limit;
    pool->watch = (struct loop_watch){.fd = fd, .on_ready = on_finished, .arg = pool, .name = "offload"};
    if (loop_watch(loop, &pool->watch, LOOP_READ, err))
        return pool;
    close(fd);
    release(pool);
    return NULL;
}

void offload_set_background(struct offload *pool) { pool->background = true; }

void offload_free(struct offload *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    pthread_mutex_unlock(&pool->lock);
    if (pool->started)
        pthread_join(pool->worker, NULL);  // frees the memory that libraries keep for the thread
    loop_unwatch(pool->loop, &pool->watch);
    deliver(pool);
    close(pool->watch.fd);
    loop_reap(pool->loop, pool, release);  // an event of this turn may still point at the watch
}

bool offload_put(struct offload *pool, struct offload_job *job)
{
    pthread_mutex_lock(&pool->lock);
    bool room = !pool->stopping && pool->count < pool->limit, start = room && !pool->working;
    if (room) {
        list_append(&pool->waiting, &job->node);
        pool->count++;
        pool->working = true;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!start || start_worker(pool))
        return room;
    list_remove(&job->node);  // without a worker, the job would never run
    pool->count--;
    pool->working = false;
    return false;
}

bool offload_take_back(struct offload *pool, struct offload_job *job)
{
    bool found = false;
    pthread_mutex_lock(&pool->lock);
    list_each(node, &pool->waiting)
        found = found || node == &job->node;
    if (found) {
        list_remove(&job->node);
        pool->count--;
    }
    pthread_mutex_unlock(&pool->lock);
    return found;
}

static struct timespec deadline(int64_t timeout_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    return until;
}

bool offload_wait(struct offload *pool, int64_t timeout_ms)
{
    struct timespec until = deadline(timeout_ms);
    bool idle = false, late = false;
    while (!idle && !late) {
        pthread_mutex_lock(&pool->lock);
        while (pool->working && !late)
            late = pthread_cond_timedwait(&pool->idle, &pool->lock, &until) != 0;
        pthread_mutex_unlock(&pool->lock);
        deliver(pool);  // which may put more jobs
        pthread_mutex_lock(&pool->lock);
        idle = !pool->working && list_empty(&pool->finished);
        pthread_mutex_unlock(&pool->lock);
    }
    return idle;
}
