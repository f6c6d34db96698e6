// Tests the offload pool: the thread of each callback, order, the queue limit, waiting with a time limit, and freeing a pool that
// has jobs.
#include "base/clock.h"
#include "loop/offload.h"
#include "unit.h"
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

static struct loop *loop;
static struct offload *pool;
static pthread_t loop_thread;
static char ran[64], done[64];  // a letter for each job; the worker writes `ran`, and the loop reads it after `done`
static size_t ran_count, done_count, until;
static sem_t gate;

struct named_job {
    struct offload_job job;
    char letter;
    int again;
    bool waits, blocked_signals;
    int nice, policy;
};

static void run(struct offload_job *job)
{
    struct named_job *named = job->arg;
    assert_false(pthread_equal(pthread_self(), loop_thread));
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    named->blocked_signals = sigismember(&mask, SIGTERM) && sigismember(&mask, SIGINT) && sigismember(&mask, SIGPIPE);
    named->nice = getpriority(PRIO_PROCESS, 0);
    named->policy = sched_getscheduler(0);
    if (named->waits)
        sem_wait(&gate);
    ran[ran_count++] = named->letter;
}

static void on_done(struct offload_job *job)
{
    struct named_job *named = job->arg;
    assert_true(pthread_equal(pthread_self(), loop_thread));
    assert_true(named->blocked_signals);
    done[done_count++] = named->letter;
    if (named->again > 0 && named->again--)
        assert_true(offload_put(pool, job));
    if (done_count == until)
        loop_stop(loop);
}

static struct named_job *make(struct named_job *named, char letter)
{
    *named = (struct named_job){.job = {.run = run, .done = on_done, .arg = named}, .letter = letter};
    return named;
}

static int set_up(void **state)
{
    (void)state;
    struct err err;
    loop_thread = pthread_self();
    memset(ran, 0, sizeof ran);
    memset(done, 0, sizeof done);
    ran_count = done_count = until = 0;
    sem_init(&gate, 0, 0);
    loop = loop_new(&err);
    pool = loop ? offload_new(loop, 4, &err) : NULL;
    return pool ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    offload_free(pool);
    loop_free(loop);
    sem_destroy(&gate);
    return 0;
}

static void jobs_run_on_the_worker_and_end_on_the_loop_in_order(void **state)
{
    (void)state;
    struct named_job jobs[4];
    for (size_t i = 0; i < COUNT(jobs); i++)
        assert_true(offload_put(pool, &make(&jobs[i], (char)('a' + i))->job));
    until = 4;
    loop_run(loop);
    assert_string_equal(ran, "abcd");
    assert_string_equal(done, "abcd");
}

static void a_job_can_be_put_again_when_it_is_done(void **state)
{
    (void)state;
    struct named_job one;
    make(&one, 'x')->again = 9;
    assert_true(offload_put(pool, &one.job));
    until = 10;
    loop_run(loop);
    assert_string_equal(ran, "xxxxxxxxxx");
}

static void a_background_worker_yields_to_the_loop(void **state)
{
    (void)state;
    struct named_job one;
    int nice = getpriority(PRIO_PROCESS, 0), policy = sched_getscheduler(0);
    offload_set_background(pool);
    assert_true(offload_put(pool, &make(&one, 'x')->job));
    assert_true(offload_wait(pool, 10000));
    assert_true(one.nice > nice || nice == 19);  // 19 is the maximum
    assert_int_equal(one.policy, SCHED_BATCH);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), nice);
    assert_int_equal(sched_getscheduler(0), policy);
}

static void a_job_beyond_the_queue_limit_is_refused(void **state)
{
    (void)state;
    struct named_job jobs[5], extra;
    make(&jobs[0], '0')->waits = true;
    assert_true(offload_put(pool, &jobs[0].job));
    for (size_t i = 1; i < COUNT(jobs); i++) {
        make(&jobs[i], (char)('0' + i));
        while (!offload_put(pool, &jobs[i].job))  // refused until the worker has taken the first job
            usleep(1000);
    }
    // One job runs, and four wait.
    assert_false(offload_put(pool, &make(&extra, 'e')->job));
    sem_post(&gate);
    until = COUNT(jobs);
    loop_run(loop);
    assert_string_equal(done, "01234");
}

static void a_job_that_has_not_started_can_be_taken_back(void **state)
{
    (void)state;
    struct named_job slow, next;
    make(&slow, 's')->waits = true;
    assert_true(offload_put(pool, &slow.job));
    assert_true(offload_put(pool, &make(&next, 'n')->job));
    assert_true(offload_take_back(pool, &next.job));
    assert_false(offload_take_back(pool, &next.job));
    sem_post(&gate);
    assert_true(offload_wait(pool, 10000));
    assert_false(offload_take_back(pool, &slow.job));
    assert_string_equal(done, "s");
    assert_true(offload_put(pool, &next.job));
    assert_true(offload_wait(pool, 10000));
    assert_string_equal(done, "sn");
}

static void a_wait_for_jobs_has_a_time_limit_and_reports_whether_they_finished(void **state)
{
    (void)state;
    struct named_job slow, next;
    make(&slow, 's')->waits = true;
    make(&next, 'n')->again = 2;
    assert_true(offload_put(pool, &slow.job));
    assert_true(offload_put(pool, &next.job));
    int64_t began = clock_now_ms();
    assert_false(offload_wait(pool, 50));
    assert_in_range(clock_now_ms() - began, 45, 5000);
    assert_string_equal(done, "");
    sem_post(&gate);
    assert_true(offload_wait(pool, 10000));
    assert_string_equal(done, "snnn");
    assert_true(offload_wait(pool, 0));
}

static void jobs_in_the_queue_run_and_complete_when_the_pool_is_freed(void **state)
{
    (void)state;
    struct named_job jobs[3];
    for (size_t i = 0; i < COUNT(jobs); i++)
        assert_true(offload_put(pool, &make(&jobs[i], (char)('a' + i))->job));
    offload_free(pool);
    pool = NULL;
    assert_string_equal(ran, "abc");
    assert_string_equal(done, "abc");
}

static struct named_job last;

static void free_pool(struct loop_task *task)
{
    (void)task;
    offload_free(pool);
    pool = NULL;
    loop_stop(loop);
}

static void a_pool_can_be_freed_inside_a_turn_of_the_loop(void **state)
{
    (void)state;
    struct loop_task task = {.run = free_pool};
    assert_true(offload_put(pool, &make(&last, 'l')->job));
    loop_task_put(loop, &task);
    loop_run(loop);
    assert_string_equal(done, "l");
}

static void an_idle_pool_can_be_freed(void **state) { (void)state; }

#define POOL_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(jobs_run_on_the_worker_and_end_on_the_loop_in_order),
        POOL_TEST(a_job_can_be_put_again_when_it_is_done),
        POOL_TEST(a_background_worker_yields_to_the_loop),
        POOL_TEST(a_job_beyond_the_queue_limit_is_refused),
        POOL_TEST(a_job_that_has_not_started_can_be_taken_back),
        POOL_TEST(a_wait_for_jobs_has_a_time_limit_and_reports_whether_they_finished),
        POOL_TEST(jobs_in_the_queue_run_and_complete_when_the_pool_is_freed),
        POOL_TEST(a_pool_can_be_freed_inside_a_turn_of_the_loop),
        POOL_TEST(an_idle_pool_can_be_freed),
    };
    alarm(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
