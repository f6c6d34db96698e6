// Tests how long callers wait for lists that are looked up in the catalogue cache first.
#include "base/log.h"
#include "catalog/source.h"
#include "peer.h"
#include "unit.h"
#include <unistd.h>

#define PATIENCE_MS 10000

struct fixture {
    struct loop *loop;
    struct server server;
    struct upstream *upstream;
    struct source *source;
};

static void on_state(void *arg, struct upstream *upstream)
{
    const struct fixture *f = arg;
    if (upstream_state(upstream) == UPSTREAM_READY)
        source_refresh(f->source);
}

static const struct upstream_listener listener = {
    .on_state = on_state, .on_notification = peer_ignored, .on_request = peer_ignored};

static void on_change(void *arg, struct source *source, unsigned kinds)
{
    const struct fixture *f = arg;
    (void)kinds;
    if (source_settled(source))
        loop_stop(f->loop);
}

static void on_closed(void *arg, struct upstream *upstream)
{
    const struct fixture *f = arg;
    upstream_free(upstream);
    loop_stop(f->loop);
}

static void on_tick(struct loop_timer *timer) { loop_stop(timer->arg); }

static void a_caller_that_came_during_the_lookup_waits_for_the_server(void **state)
{
    (void)state;
    struct err err;
    struct fixture f = {.loop = loop_new(&err), .server = peer_server("peer")};
    f.upstream = peer_upstream(f.loop, &f.server, &listener, &f);
    f.source = source_new(f.loop, f.upstream, on_change, &f);
    struct loop_timer tick = {.on_due = on_tick, .arg = f.loop};
    const struct source_patience patience = {PATIENCE_MS, PATIENCE_MS};
    source_await_kept(f.source);
    source_load(f.source);
    int64_t asked_ms = loop_now(f.loop);
    assert_true(source_wait_until(f.source, CATALOG_TOOLS, asked_ms, &patience) > asked_ms);
    loop_timer_set(f.loop, &tick, 5);
    loop_run(f.loop);
    assert_true(loop_now(f.loop) > asked_ms);
    assert_false(source_restore(f.source, (struct span){0}));  // nothing was kept
    assert_int_equal(upstream_state(f.upstream), UPSTREAM_STARTING);
    assert_int_equal(source_wait_until(f.source, CATALOG_TOOLS, asked_ms, &patience), asked_ms + PATIENCE_MS);
    while (!source_settled(f.source))
        loop_run(f.loop);
    assert_true(source_loaded(f.source));
    source_free(f.source);
    upstream_close(f.upstream, 3000, on_closed, &f);
    loop_run(f.loop);
    loop_free(f.loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_caller_that_came_during_the_lookup_waits_for_the_server),
    };
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    alarm(60);  // a list that never comes is a failure, not a hang
    return cmocka_run_group_tests(tests, NULL, NULL);
}
