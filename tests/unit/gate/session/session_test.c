// Tests the object of a session: limits on their number, finding a session, and which of its streams are kept for resumption.
#include "room.h"
#include "unit.h"

static struct fixture {
    struct config *config;
    struct gate gate;
    struct identity *ann, *bob, *guest, *other;
} f;

static int set_up(void **state)
{
    (void)state;
    struct err err = {0};
    json_t *tree = json_loads("{\"limits\":{\"sessions\":7,\"identity_sessions\":2,\"stream_buffer\":1024},"
                              "\"tenants\":{\"acme\":{\"limits\":{\"sessions\":1}}}}",
                              0, NULL);
    memset(&f, 0, sizeof f);
    f.config = config_parse(tree, "p.json", &err);
    json_decref(tree);
    assert_row(f.config != NULL, err.detail);
    f.gate = (struct gate){.loop = loop_new(&err), .config = f.config};
    list_init(&f.gate.tenants);
    memory_init(&f.gate);
    for (size_t i = 0; i < 2; i++)
        tenant_configure(tenant_new(&f.gate, config_tenant_name(f.config, i)), i);
    tenant_find(&f.gate, "default")->session_limit = 5;
    f.ann = identity_new(IDENTITY_BEARER, "default", "corp", "ann");
    f.bob = identity_new(IDENTITY_BEARER, "default", "corp", "bob");
    f.guest = identity_new(IDENTITY_ANONYMOUS, "default", "none", "");
    f.other = identity_new(IDENTITY_BEARER, "acme", "corp", "ann");
    return 0;
}

// Ends a session as the relay does, without calls, questions and scope.
static void end(struct session *session)
{
    map_remove(&f.gate.sessions, span_of(session->id));
    tally_drop(&f.gate.session_counts, session->identity);
    session->tenant->session_count--;
    session_set_state(session, SESSION_ENDED);
    session_settle(session);
}

static int tear_down(void **state)
{
    (void)state;
    void *value;
    for (size_t at = 0; map_next(&f.gate.sessions, &at, NULL, &value); at = 0)
        end(value);
    identity_unref(f.ann);
    identity_unref(f.bob);
    identity_unref(f.guest);
    identity_unref(f.other);
    map_release(&f.gate.sessions);
    map_release(&f.gate.session_counts);
    loop_free(f.gate.loop);
    tenant_each(node, &f.gate)
        tenant_remove(tenant_at(node));
    memory_release(&f.gate);
    config_unref(f.config);
    return 0;
}

static struct tenant *tenant_of(const struct identity *identity) { return tenant_find(&f.gate, identity->tenant); }

static struct session *open_session(const struct identity *identity, bool pipe)
{
    return session_new(&f.gate, tenant_of(identity), identity, pipe);
}

static bool may_open(const struct identity *identity, const char *want)
{
    struct err err = {0};
    bool may = session_may_open(&f.gate, tenant_of(identity), identity, &err);
    assert_int_equal(err.code, may ? ERR_NONE : ERR_TOO_MANY);
    if (!may)
        assert_string_equal(err.detail, want);
    return may;
}

static void a_new_session_has_a_unique_id_and_is_found_by_it(void **state)
{
    (void)state;
    struct session *one = open_session(f.ann, false), *two = open_session(f.ann, false);
    assert_int_equal(strlen(one->id), SESSION_ID_LEN);
    assert_string_not_equal(one->id, two->id);
    assert_ptr_equal(session_find(&f.gate, span_of(one->id)), one);
    assert_ptr_equal(session_find(&f.gate, span_of(two->id)), two);
    assert_null(session_find(&f.gate, span_make(one->id, SESSION_ID_LEN - 1)));
    assert_null(session_find(&f.gate, SPAN("")));
    assert_int_equal(one->state, SESSION_NEW);
}

static void through(enum session_state state)
{
    struct session *session = open_session(f.ann, false);
    session_set_state(session, SESSION_LIVE);
    session_set_state(session, SESSION_READY);
    session_set_state(session, state);
}

static void initialize_again(void) { through(SESSION_LIVE); }
static void ready_again(void) { through(SESSION_READY); }
static void ready_before_initialize(void) { session_set_state(open_session(f.ann, false), SESSION_READY); }

static void the_state_of_a_session_goes_forward_only(void **state)
{
    (void)state;
    assert_aborts(initialize_again);
    assert_aborts(ready_again);
    assert_aborts(ready_before_initialize);
}

static void an_identity_has_a_limit_of_sessions_that_does_not_affect_another_identity(void **state)
{
    (void)state;
    struct session *first = open_session(f.ann, false);
    assert_true(may_open(f.ann, ""));
    open_session(f.ann, false);
    assert_false(may_open(f.ann, "2 sessions of this identity are open (limits.identity_sessions = 2)"));
    assert_true(may_open(f.bob, ""));
    end(first);
    assert_true(may_open(f.ann, ""));
}

static void anonymous_callers_are_bounded_only_by_the_limit_of_their_tenant(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_true(may_open(f.guest, ""));
        open_session(f.guest, false);
    }
    assert_false(may_open(f.guest, "5 sessions of tenant \"default\" are open (its limits.sessions = 5)"));
    assert_false(may_open(f.ann, "5 sessions of tenant \"default\" are open (its limits.sessions = 5)"));
    assert_true(may_open(f.other, ""));
}

static void each_tenant_has_a_limit_of_its_own_below_that_of_all(void **state)
{
    (void)state;
    open_session(f.other, false);
    assert_false(may_open(f.other, "1 sessions of tenant \"acme\" are open (its limits.sessions = 1)"));
    assert_true(may_open(f.ann, ""));
    tenant_find(&f.gate, "default")->session_limit = 100;
    for (int i = 0; i < 6; i++)
        open_session(f.guest, false);
    assert_false(may_open(f.guest, "7 sessions are open (limits.sessions = 7)"));
}

static void an_ended_session_gets_no_messages(void **state)
{
    (void)state;
    struct session *session = open_session(f.ann, false);
    struct stream *stream = stream_ref(session->standalone);
    session_tell(session, blob_copy(SPAN("a")));
    assert_int_equal(stream_waiting(stream), 1);
    session->call_count = 1;  // the session exists until its calls have ended
    end(session);
    session_tell(session, blob_copy(SPAN("b")));
    assert_int_equal(stream_waiting(stream), 1);
    assert_false(stream_ended(stream));
    session->call_count = 0;
    session_settle(session);
    assert_true(stream_ended(stream));
    stream_unref(stream);
}

static void a_stream_is_found_by_its_number(void **state)
{
    (void)state;
    struct session *session = open_session(f.ann, false);
    struct stream *one = session_stream_new(session), *two = session_stream_new(session);
    assert_int_not_equal(stream_index(one), stream_index(two));
    assert_ptr_equal(session_stream_find(session, stream_index(one)), one);
    assert_ptr_equal(session_stream_find(session, stream_index(two)), two);
    assert_ptr_equal(session_stream_find(session, stream_index(session->standalone)), session->standalone);
    assert_null(session_stream_find(session, 99));
    assert_true(stream_resumable(one));
    assert_false(stream_resumable(open_session(f.bob, true)->standalone));  // the session is a pipe
}

// Makes a stream with this many bytes and finishes it.
static unsigned finish_stream(struct session *session, size_t bytes)
{
    struct buf text = {0};
    for (size_t i = 0; i < bytes; i++)
        buf_put_char(&text, 'x');
    struct stream *stream = session_stream_new(session);
    unsigned index = stream_index(stream);
    stream_push(stream, blob_take(&text));
    session_stream_done(session, stream);
    stream_end(stream);
    return index;
}

static void finished_streams_are_kept_up_to_a_maximum_number(void **state)
{
    (void)state;
    struct session *session = open_session(f.ann, false);
    unsigned first = finish_stream(session, 1), last = first;
    while (last < first + 32)
        last = finish_stream(session, 1);
    session_sweep_streams(session);
    assert_null(session_stream_find(session, first));
    assert_non_null(session_stream_find(session, first + 1));
    assert_non_null(session_stream_find(session, last));
}

static void finished_streams_are_kept_up_to_a_maximum_of_bytes(void **state)
{
    (void)state;
    struct session *session = open_session(f.ann, false);
    unsigned first = finish_stream(session, 500), second = finish_stream(session, 500);
    unsigned third = finish_stream(session, 500);
    session_sweep_streams(session);
    assert_null(session_stream_find(session, first));
    assert_non_null(session_stream_find(session, second));
    assert_non_null(session_stream_find(session, third));
}

static void on_nothing(void *arg) { (void)arg; }

static void an_open_or_attached_stream_is_kept_at_any_size(void **state)
{
    (void)state;
    struct session *session = open_session(f.ann, false);
    struct stream *runs = session_stream_new(session);
    unsigned index = finish_stream(session, 900);
    struct stream *is_read = session_stream_find(session, index);
    stream_attach(is_read, &(struct stream_sink){on_nothing, on_nothing, session});
    unsigned last = finish_stream(session, 900);
    session_sweep_streams(session);
    assert_ptr_equal(session_stream_find(session, stream_index(runs)), runs);
    assert_ptr_equal(session_stream_find(session, index), is_read);
    assert_non_null(session_stream_find(session, last));
    stream_detach(is_read, session);
    session_sweep_streams(session);
    assert_null(session_stream_find(session, index));
}

static void on_due(struct loop_timer *timer) { loop_stop(timer->arg); }

static void finished_streams_are_kept_for_a_limited_time(void **state)
{
    (void)state;
    struct loop_timer timer = {.on_due = on_due, .arg = f.gate.loop};
    loop_timer_set(f.gate.loop, &timer, 1);
    loop_run(f.gate.loop);  // the clock must not be 0, which marks a stream that has not finished
    struct session *session = open_session(f.ann, false);
    unsigned index = finish_stream(session, 1);
    session_sweep_streams(session);
    assert_non_null(session_stream_find(session, index));
    f.config->timeouts.resume_ms = 0;
    loop_timer_set(f.gate.loop, &timer, 2);
    loop_run(f.gate.loop);
    session_sweep_streams(session);
    assert_null(session_stream_find(session, index));
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_new_session_has_a_unique_id_and_is_found_by_it),
        TEST(the_state_of_a_session_goes_forward_only),
        TEST(an_identity_has_a_limit_of_sessions_that_does_not_affect_another_identity),
        TEST(anonymous_callers_are_bounded_only_by_the_limit_of_their_tenant),
        TEST(each_tenant_has_a_limit_of_its_own_below_that_of_all),
        TEST(an_ended_session_gets_no_messages),
        TEST(a_stream_is_found_by_its_number),
        TEST(finished_streams_are_kept_up_to_a_maximum_number),
        TEST(finished_streams_are_kept_up_to_a_maximum_of_bytes),
        TEST(an_open_or_attached_stream_is_kept_at_any_size),
        TEST(finished_streams_are_kept_for_a_limited_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
