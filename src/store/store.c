// Owns the store on the loop's side: the records, their worker, and jobs in progress.
#include "store/store.h"
#include "base/buf.h"
#include "base/mem.h"
#include <stdlib.h>
#include <sys/inotify.h>
#include <unistd.h>

enum { JOBS_MAX = 4096 };

struct store {
    struct offload *pool;
    struct record_store *records;  // the worker's
    struct loop *loop;
    struct loop_watch written;  // inotify on the write-ahead log, which every change is written to first
    void (*on_news)(void *arg, enum store_news news);
    void *arg;
};

static void run(struct offload_job *offload)
{
    struct store_job *job = offload->arg;
    job->run(job, job->store->records);
}

static void done(struct offload_job *offload)
{
    struct store_job *job = offload->arg;
    job->done(job);
}

// ---- changes of others ----------------------------------------------------------------------

static void on_told(struct loop_watch *watch, unsigned events)
{
    struct store *store = watch->arg;
    _Alignas(struct inotify_event) char told[4096];
    enum store_news news = STORE_WRITING;
    (void)events;
    for (ssize_t len; (len = read(watch->fd, told, sizeof told)) > 0;)
        for (ssize_t at = 0; at < len;) {
            const struct inotify_event *event = (const void *)(told + at);
            if (event->mask & (IN_CLOSE_WRITE | IN_Q_OVERFLOW))
                news = STORE_CLOSED;
            at += (ssize_t)(sizeof *event + event->len);
        }
    store->on_news(store->arg, news);
}

static void stop_watching(struct store *store)
{
    if (store->written.fd < 0)
        return;
    loop_unwatch(store->loop, &store->written);
    close(store->written.fd);
    store->written.fd = -1;
}

void store_watch(struct store *store, void (*on_news)(void *arg, enum store_news news), void *arg)
{
    struct buf log = {0};
    struct err err;
    buf_printf(&log, "%s-wal", record_path(store->records));  // it exists while a process has the database open
    store->on_news = on_news;
    store->arg = arg;
    store->written = (struct loop_watch){
        .fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC), .on_ready = on_told, .arg = store, .name = "store"};
    if (store->written.fd >= 0 &&
        (inotify_add_watch(store->written.fd, buf_text(&log), IN_MODIFY | IN_CLOSE_WRITE) < 0 ||
         !loop_watch(store->loop, &store->written, LOOP_READ, &err)))
        stop_watching(store);
    buf_release(&log);
}

// ---- jobs -----------------------------------------------------------------------------------

struct store *store_new(struct loop *loop, struct record_store *records, struct err *err)
{
    struct store *store = mem_new(struct store);
    store->records = records;
    store->loop = loop;
    store->written.fd = -1;
    if ((store->pool = offload_new(loop, JOBS_MAX, err)))
        return store;
    store_free(store);
    return NULL;
}

void store_free(struct store *store)
{
    if (!store)
        return;
    stop_watching(store);
    offload_free(store->pool);
    record_close(store->records);
    free(store);
}

bool store_start(struct store *store, struct store_job *job)
{
    job->store = store;
    job->offload = (struct offload_job){.run = run, .done = done, .arg = job};
    return offload_put(store->pool, &job->offload);
}

bool store_wait(struct store *store, int64_t timeout_ms) { return offload_wait(store->pool, timeout_ms); }
