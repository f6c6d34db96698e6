// Tests the event loop: the order of timers and tasks, stopping and reaping, watches removed in the same turn, stalls, signals.
#include "base/clock.h"
#include "loop/loop.h"
#include "unit.h"
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

// Each event appends a letter; the loop stops after `until` letters.
static struct loop *loop;
static char happened[64];
static size_t count, until;

static void note(char letter)
{
    assert_true(count < sizeof happened - 1);
    happened[count++] = letter;
    if (count == until)
        loop_stop(loop);
}

static int set_up(void **state)
{
    (void)state;
    struct err err;
    loop = loop_new(&err);
    memset(happened, 0, sizeof happened);
    count = until = 0;
    return loop ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    loop_free(loop);
    return 0;
}

static void run_until(size_t letters)
{
    until = letters;
    if (count < until)
        loop_run(loop);
}

// ---- timers ---------------------------------------------------------------------------------

struct named_timer {
    struct loop_timer timer;
    char letter;
    struct loop_timer *stops, *starts;
};

static void on_due(struct loop_timer *timer)
{
    struct named_timer *named = timer->arg;
    assert_int_equal(timer->slot, 0);
    assert_true(loop_now(loop) >= timer->due_ms);
    if (named->stops)
        loop_timer_stop(loop, named->stops);
    if (named->starts)
        loop_timer_set(loop, named->starts, 1);
    note(named->letter);
}

static void name_timers(struct named_timer *timers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        timers[i] = (struct named_timer){.timer = {.on_due = on_due, .arg = &timers[i]}, .letter = (char)('a' + i)};
}

static void timers_run_in_the_order_they_are_due(void **state)
{
    (void)state;
    static const int64_t after[] = {7, 3, 12, 1, 9, 5, 14, 2};
    struct named_timer timers[COUNT(after)];
    name_timers(timers, COUNT(after));
    for (size_t i = 0; i < COUNT(after); i++)
        loop_timer_set(loop, &timers[i].timer, after[i]);
    run_until(COUNT(after));
    assert_string_equal(happened, "dhbfaecg");
}

static void a_timer_can_be_moved_and_stopped(void **state)
{
    (void)state;
    struct named_timer timers[4];
    name_timers(timers, 4);
    for (size_t i = 0; i < 4; i++)
        loop_timer_set(loop, &timers[i].timer, (int64_t)i + 2);
    loop_timer_set(loop, &timers[0].timer, 10);
    loop_timer_set(loop, &timers[3].timer, 1);
    loop_timer_stop(loop, &timers[1].timer);
    loop_timer_stop(loop, &timers[1].timer);
    run_until(3);
    assert_string_equal(happened, "dca");
}

static void a_timer_stopped_by_another_one_in_the_same_turn_does_not_run(void **state)
{
    (void)state;
    struct named_timer timers[3];
    name_timers(timers, 3);
    timers[0].stops = &timers[1].timer;
    for (size_t i = 0; i < 3; i++)
        loop_timer_set(loop, &timers[i].timer, (int64_t)i + 1);
    while (clock_now_ms() <= timers[2].timer.due_ms)  // so that all three are due when the loop first looks
        ;
    run_until(2);
    assert_string_equal(happened, "ac");
}

static void a_timer_can_restart_itself_and_others(void **state)
{
    (void)state;
    struct named_timer timers[2];
    name_timers(timers, 2);
    timers[0].starts = &timers[1].timer;
    timers[1].starts = &timers[0].timer;
    loop_timer_set(loop, &timers[0].timer, 0);
    run_until(5);
    assert_string_equal(happened, "ababa");
    loop_timer_stop(loop, &timers[0].timer);
    loop_timer_stop(loop, &timers[1].timer);
}

static int64_t last_due;
static size_t left;

static void on_due_in_order(struct loop_timer *timer)
{
    assert_true(timer->due_ms >= last_due);
    last_due = timer->due_ms;
    if (--left == 0)
        loop_stop(loop);
}

static void many_timers_keep_their_order(void **state)
{
    (void)state;
    enum { MANY = 500 };
    static struct loop_timer timers[MANY];
    unsigned random = 12345;
    for (size_t i = 0; i < MANY; i++) {
        random = random * 1103515245U + 12345U;
        timers[i] = (struct loop_timer){.on_due = on_due_in_order};
        loop_timer_set(loop, &timers[i], random >> 16 & 31);
    }
    for (size_t i = 0; i < MANY; i += 2)
        loop_timer_stop(loop, &timers[i]);
    for (size_t i = 1; i < MANY; i += 4)
        loop_timer_set(loop, &timers[i], (int64_t)(MANY - i) / 16);
    last_due = 0;
    left = MANY / 2;
    loop_run(loop);
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(timers[i].slot, 0);
}

// ---- tasks and reaping ----------------------------------------------------------------------

struct named_task {
    struct loop_task task;
    char letter;
    struct loop_task *puts, *drops;
};

static void run_task(struct loop_task *task)
{
    struct named_task *named = task->arg;
    if (named->puts)
        loop_task_put(loop, named->puts);
    if (named->drops)
        loop_task_drop(named->drops);
    note(named->letter);
}

static void name_tasks(struct named_task *tasks, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tasks[i] = (struct named_task){.task = {.run = run_task, .arg = &tasks[i]}, .letter = (char)('A' + i)};
}

static void tasks_run_once_and_in_the_order_they_were_put(void **state)
{
    (void)state;
    struct named_task tasks[5];
    name_tasks(tasks, 5);
    tasks[2].puts = &tasks[4].task;
    tasks[1].drops = &tasks[3].task;
    loop_task_put(loop, &tasks[2].task);
    loop_task_put(loop, &tasks[0].task);
    loop_task_put(loop, &tasks[2].task);
    loop_task_put(loop, &tasks[1].task);
    loop_task_put(loop, &tasks[3].task);
    run_until(4);
    assert_string_equal(happened, "CABE");
    assert_false(list_linked(&tasks[3].task.node));
}

static void pending_tasks_run_when_the_loop_is_freed(void **state)
{
    (void)state;
    struct named_task tasks[1];
    name_tasks(tasks, 1);
    loop_task_put(loop, &tasks[0].task);
    loop_free(loop);
    loop = NULL;
    assert_string_equal(happened, "A");
}

static void reap_two(void *object)
{
    char *letter = object;
    note(*letter);
    if (*letter == 'r') {
        static char next = 's';
        loop_reap(loop, &next, reap_two);
    }
}

static char reaped = 'r';

static void reap_in_task(struct loop_task *task)
{
    (void)task;
    loop_reap(loop, &reaped, reap_two);
    note('t');
}

static void reaping_follows_the_tasks_of_the_turn(void **state)
{
    (void)state;
    struct named_task tasks[1];
    name_tasks(tasks, 1);
    struct loop_task first = {.run = reap_in_task};
    loop_task_put(loop, &first);
    loop_task_put(loop, &tasks[0].task);
    run_until(4);
    assert_string_equal(happened, "tArs");
}

static void tasks_put_for_later_run_after_the_events_of_another_turn(void **state)
{
    (void)state;
    struct named_task tasks[3];
    struct named_timer timers[1];
    name_tasks(tasks, 3);
    name_timers(timers, 1);
    loop_timer_set(loop, &timers[0].timer, 0);
    loop_task_put_later(loop, &tasks[0].task);
    loop_task_put_later(loop, &tasks[0].task);
    loop_task_put(loop, &tasks[1].task);
    loop_task_put_later(loop, &tasks[2].task);
    loop_task_drop(&tasks[2].task);
    run_until(3);
    assert_string_equal(happened, "aBA");
}

static void run_again_later(struct loop_task *task)
{
    loop_task_put_later(loop, task);
    note('w');
}

static void a_task_that_puts_itself_for_later_does_not_starve_others(void **state)
{
    (void)state;
    struct named_timer timers[1];
    struct loop_task endless = {.run = run_again_later};
    name_timers(timers, 1);
    timers[0].starts = &timers[0].timer;
    loop_task_put(loop, &endless);
    loop_timer_set(loop, &timers[0].timer, 0);
    until = 0;
    while (!strchr(happened, 'a'))
        run_until(count + 1);
    loop_task_drop(&endless);
    loop_timer_stop(loop, &timers[0].timer);
}

static void tasks_put_for_later_run_when_the_loop_is_freed(void **state)
{
    (void)state;
    struct named_task tasks[1];
    name_tasks(tasks, 1);
    loop_task_put_later(loop, &tasks[0].task);
    loop_free(loop);
    loop = NULL;
    assert_string_equal(happened, "A");
}

// ---- descriptors ----------------------------------------------------------------------------

struct pipe_end {
    struct loop_watch watch;
    int writer;
    char letter;
    struct pipe_end *other;
    unsigned last;
};

static void open_pipe(struct pipe_end *end, char letter, void (*on_ready)(struct loop_watch *, unsigned))
{
    int ends[2];
    struct err err;
    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    *end = (struct pipe_end){.watch = {.fd = ends[0], .on_ready = on_ready, .arg = end}, .writer = ends[1]};
    end->letter = letter;
    assert_true(loop_watch(loop, &end->watch, LOOP_READ, &err));
}

static void close_pipe(struct pipe_end *end)
{
    loop_unwatch(loop, &end->watch);
    close(end->watch.fd);
    if (end->writer >= 0)
        close(end->writer);
}

static void on_bytes(struct loop_watch *watch, unsigned events)
{
    struct pipe_end *end = watch->arg;
    char byte;
    end->last = events;
    if (read(watch->fd, &byte, 1) == 1)
        note(byte);
    else
        note('.');
}

static void a_readable_descriptor_calls_its_watch(void **state)
{
    (void)state;
    struct pipe_end end;
    open_pipe(&end, 'p', on_bytes);
    assert_int_equal(write(end.writer, "xyz", 3), 3);
    run_until(3);
    assert_string_equal(happened, "xyz");
    assert_int_equal(end.last, LOOP_READ);
    close(end.writer);
    end.writer = -1;
    run_until(4);
    assert_string_equal(happened, "xyz.");
    assert_true(end.last & LOOP_HANGUP);
    close_pipe(&end);
}

static void on_first_only(struct loop_watch *watch, unsigned events)
{
    (void)events;
    struct pipe_end *end = watch->arg;
    loop_unwatch(loop, &end->other->watch);
    note(end->letter);
    char byte;
    assert_int_equal(read(watch->fd, &byte, 1), 1);
}

static void a_watch_removed_in_the_same_turn_is_not_called(void **state)
{
    (void)state;
    struct pipe_end a, b;
    open_pipe(&a, 'a', on_first_only);
    open_pipe(&b, 'b', on_first_only);
    a.other = &b;
    b.other = &a;
    assert_int_equal(write(a.writer, "1", 1), 1);
    assert_int_equal(write(b.writer, "1", 1), 1);
    struct named_timer end;
    name_timers(&end, 1);
    end.letter = '!';
    loop_timer_set(loop, &end.timer, 10);
    run_until(2);
    assert_true(strcmp(happened, "a!") == 0 || strcmp(happened, "b!") == 0);
    close_pipe(&a);
    close_pipe(&b);
}

static void a_bad_descriptor_is_an_error(void **state)
{
    (void)state;
    struct err err = {0};
    struct loop_watch watch = {.fd = -1, .on_ready = on_bytes};
    assert_false(loop_watch(loop, &watch, LOOP_READ, &err));
    assert_int_equal(err.code, ERR_SYSTEM);
    assert_false(watch.added);
    loop_unwatch(loop, &watch);
}

static void events_of_a_watch_can_change(void **state)
{
    (void)state;
    struct pipe_end end;
    struct err err;
    open_pipe(&end, 'p', on_bytes);
    assert_true(loop_watch(loop, &end.watch, 0, &err));
    assert_int_equal(write(end.writer, "x", 1), 1);
    struct named_timer timer;
    name_timers(&timer, 1);
    loop_timer_set(loop, &timer.timer, 5);
    run_until(1);
    assert_string_equal(happened, "a");
    assert_true(loop_watch(loop, &end.watch, LOOP_READ, &err));
    run_until(2);
    assert_string_equal(happened, "ax");
    close_pipe(&end);
}

// ---- stalls ---------------------------------------------------------------------------------

static void spin(int64_t ms)
{
    for (int64_t end = clock_now_ms() + ms; clock_now_ms() < end;)
        ;
}

static void dawdle(struct loop_task *task)
{
    (void)task;
    loop_note(loop, "counting sheep", "files");
    spin(2 * LOOP_STALL_MS);
    loop_note(loop, "waking up", NULL);
    note('d');
}

// Runs the loop until there are this many letters; `out` gets the standard error.
static void run_logged(size_t letters, char *out, size_t size)
{
    int ends[2], saved = dup(STDERR_FILENO);
    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    dup2(ends[1], STDERR_FILENO);
    run_until(letters);
    dup2(saved, STDERR_FILENO);
    ssize_t got = read(ends[0], out, size - 1);
    out[got > 0 ? got : 0] = '\0';
    close(saved);
    close(ends[0]);
    close(ends[1]);
}

static void a_callback_that_blocks_the_loop_is_logged_and_counted(void **state)
{
    (void)state;
    char log[1024];
    struct loop_task slow = {.run = dawdle, .name = "slow task"};
    assert_int_equal(loop_stalls(loop).count, 0);
    loop_task_put(loop, &slow);
    run_logged(1, log, sizeof log);
    assert_contains(log, "event loop stalled");
    assert_contains(log, "callback=\"slow task\"");
    assert_contains(log, "doing=\"counting sheep\" server=files");
    assert_int_equal(loop_stalls(loop).count, 1);
    assert_true(loop_stalls(loop).longest_ms > LOOP_STALL_MS);
}

static void dawdle_on_bytes(struct loop_watch *watch, unsigned events)
{
    spin(2 * LOOP_STALL_MS);
    on_bytes(watch, events);
}

static void dawdle_when_due(struct loop_timer *timer)
{
    (void)timer;
    spin(2 * LOOP_STALL_MS);
    note('t');
}

static void dawdle_freeing(void *object)
{
    (void)object;
    spin(2 * LOOP_STALL_MS);
    note('r');
}

static void every_kind_of_callback_is_timed(void **state)
{
    (void)state;
    char log[2048];
    struct pipe_end end;
    struct loop_timer timer = {.on_due = dawdle_when_due, .name = "slow timer"};
    open_pipe(&end, 'p', dawdle_on_bytes);
    assert_int_equal(write(end.writer, "x", 1), 1);
    loop_timer_set(loop, &timer, 0);
    loop_reap(loop, &timer, dawdle_freeing);
    run_logged(3, log, sizeof log);
    assert_contains(log, "callback=watch doing=- server=-");
    assert_contains(log, "callback=\"slow timer\"");
    assert_contains(log, "callback=reaping");
    assert_int_equal(loop_stalls(loop).count, 3);
    close_pipe(&end);
}

// ---- signals --------------------------------------------------------------------------------

static void on_signal(void *arg, int signal)
{
    assert_ptr_equal(arg, happened);
    note(signal == SIGHUP ? 'h' : signal == SIGTERM ? 't' : '?');
}

static void signals_are_delivered_through_the_loop(void **state)
{
    (void)state;
    struct err err;
    assert_true(loop_on_signal(loop, on_signal, happened, &err));
    raise(SIGHUP);
    run_until(1);
    raise(SIGTERM);
    run_until(2);
    assert_string_equal(happened, "ht");
}

#define LOOP_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOOP_TEST(timers_run_in_the_order_they_are_due),
        LOOP_TEST(a_timer_can_be_moved_and_stopped),
        LOOP_TEST(a_timer_stopped_by_another_one_in_the_same_turn_does_not_run),
        LOOP_TEST(a_timer_can_restart_itself_and_others),
        LOOP_TEST(many_timers_keep_their_order),
        LOOP_TEST(tasks_run_once_and_in_the_order_they_were_put),
        LOOP_TEST(pending_tasks_run_when_the_loop_is_freed),
        LOOP_TEST(tasks_put_for_later_run_after_the_events_of_another_turn),
        LOOP_TEST(a_task_that_puts_itself_for_later_does_not_starve_others),
        LOOP_TEST(tasks_put_for_later_run_when_the_loop_is_freed),
        LOOP_TEST(reaping_follows_the_tasks_of_the_turn),
        LOOP_TEST(a_readable_descriptor_calls_its_watch),
        LOOP_TEST(a_watch_removed_in_the_same_turn_is_not_called),
        LOOP_TEST(a_bad_descriptor_is_an_error),
        LOOP_TEST(events_of_a_watch_can_change),
        LOOP_TEST(a_callback_that_blocks_the_loop_is_logged_and_counted),
        LOOP_TEST(every_kind_of_callback_is_timed),
        LOOP_TEST(signals_are_delivered_through_the_loop),
    };
    alarm(60);  // a loop that does not stop fails the test
    return cmocka_run_group_tests(tests, NULL, NULL);
}
