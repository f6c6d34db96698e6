// Tests the fan-out of messages of servers to many sessions: slices, order, fairness, and sessions and scopes that end meanwhile.
#include "../server/room.h"
#include "room.h"
#include "unit.h"
#include <unistd.h>

enum { SESSIONS = 100, LINKS = 2 };

// A gate with two servers and two scopes for each; their sessions record the messages that they get.
struct fixture {
    struct gate gate;
    struct server server;
    struct link links[LINKS];
    struct scope scopes[LINKS][2];
    struct scope_use uses[LINKS][2];
    struct link *members[LINKS];
    struct session sessions[LINKS][2][SESSIONS];
    char told[LINKS][2][SESSIONS][16];
    int told_in_turn[LINKS], most_in_turn;
    uint64_t turn;
    struct loop_task stop;
    int turns_left;
};

static struct fixture f;

static int link_of(const struct session *session) { return session->scope >= f.scopes[1] ? 1 : 0; }

static bool note(struct fan_out *fan_out, struct session *session)
{
    int link = link_of(session), scope = (int)(session->scope - f.scopes[link]);
    if (f.turn != loop_turn(f.gate.loop))
        memset(f.told_in_turn, 0, sizeof f.told_in_turn);
    f.turn = loop_turn(f.gate.loop);
    int all = ++f.told_in_turn[link] + f.told_in_turn[!link];
    f.most_in_turn = all > f.most_in_turn ? all : f.most_in_turn;
    strncat(f.told[link][scope][session - f.sessions[link][scope]], fan_out->params.at, fan_out->params.len);
    return true;
}

static bool note_nothing(struct fan_out *fan_out, struct session *session)
{
    (void)note(fan_out, session);
    return false;
}

static void say(int link, const char *what)
{
    fan_out_start(&(struct fan_out){.link = &f.links[link], .tell = note, .params = span_of(what)});
}

static void on_turn(struct loop_task *task)
{
    if (--f.turns_left <= 0)
        loop_stop(f.gate.loop);
    else
        loop_task_put_later(f.gate.loop, task);
}

static void run_turns(int turns)
{
    f.turns_left = turns;
    loop_task_put(f.gate.loop, &f.stop);
    loop_run(f.gate.loop);
}

static bool under_way(int link) { return !list_empty(&f.links[link].fan_outs); }

static int set_up(void **state)
{
    (void)state;
    struct err err;
    static const struct upstream_listener nobody;
    f = (struct fixture){.server = {.name = "s"}};
    f.gate.loop = loop_new(&err);
    f.stop = (struct loop_task){.run = on_turn};
    fan_out_init(&f.gate);
    for (int l = 0; l < LINKS; l++) {
        struct link *link = f.members[l] = &f.links[l];
        *link = (struct link){.gate = &f.gate};
        list_init(&link->uses);
        list_init(&link->fan_outs);
        link->upstream = upstream_new(&(struct upstream_spec){
            .loop = f.gate.loop, .server = &f.server, .capabilities = "{}", .max_message = 1000, .listener = &nobody});
        for (int s = 0; s < 2; s++) {
            struct scope *scope = &f.scopes[l][s];
            *scope = (struct scope){.links = &f.members[l], .uses = &f.uses[l][s], .link_count = 1};
            f.uses[l][s].scope = scope;
            list_append(&link->uses, &f.uses[l][s].node);
            list_init(&scope->sessions);
            for (int i = 0; i < SESSIONS; i++) {
                f.sessions[l][s][i].scope = scope;
                list_append(&scope->sessions, &f.sessions[l][s][i].scope_node);
            }
        }
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    loop_task_drop(&f.gate.fan_out);
    for (int l = 0; l < LINKS; l++) {
        fan_out_drop_all(&f.links[l]);
        upstream_free(f.links[l].upstream);
    }
    loop_free(f.gate.loop);
    return 0;
}

static void assert_all_told(int link, const char *what)
{
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < SESSIONS; i++)
            assert_string_equal(f.told[link][s][i], what);
}

static void each_session_gets_a_message_once_and_in_slices(void **state)
{
    (void)state;
    char text[] = "a";
    say(0, text);
    *text = '?';  // the memory of the message is reused after fan_out_start()
    assert_true(under_way(0));
    for (int i = 0; i < 100 && under_way(0); i++)
        run_turns(2);
    assert_false(under_way(0));
    assert_all_told(0, "a");
    assert_all_told(1, "");
    assert_int_equal(f.most_in_turn, 32);
}

static void sessions_that_a_message_does_not_concern_are_skipped_in_one_turn(void **state)
{
    (void)state;
    fan_out_start(&(struct fan_out){.link = &f.links[0], .tell = note_nothing, .params = SPAN("a")});
    assert_false(under_way(0));
    assert_all_told(0, "a");
}

static void messages_keep_their_order_for_every_session(void **state)
{
    (void)state;
    say(0, "a");
    say(0, "b");
    say(0, "c");
    run_turns(100);
    assert_false(under_way(0));
    assert_all_told(0, "abc");
}

static void servers_with_messages_take_turns(void **state)
{
    (void)state;
    say(0, "aaaa");
    say(0, "aaaa");
    say(1, "b");
    for (int i = 0; i < 20 && under_way(1); i++)
        run_turns(2);
    assert_false(under_way(1));
    assert_true(under_way(0));  // both servers had as many turns
    assert_all_told(1, "b");
    run_turns(100);
    assert_all_told(0, "aaaaaaaa");
    assert_true(f.most_in_turn <= 32);
}

static void a_session_may_end_during_a_fan_out(void **state)
{
    (void)state;
    say(0, "a");
    for (int i = 0; i < SESSIONS; i += 2) {  // the next session of the fan-out is one of them
        fan_out_session_ends(&f.sessions[0][0][i]);
        list_remove(&f.sessions[0][0][i].scope_node);
        memset(&f.sessions[0][0][i], 0xee, sizeof f.sessions[0][0][i]);
    }
    run_turns(100);
    assert_false(under_way(0));
    for (int i = 1; i < SESSIONS; i += 2)
        assert_string_equal(f.told[0][0][i], "a");
    for (int i = 0; i < SESSIONS; i++)
        assert_string_equal(f.told[0][1][i], "a");
}

static void a_scope_may_end_during_a_fan_out(void **state)
{
    (void)state;
    say(0, "a");
    fan_out_use_ends(&f.links[0], &f.uses[0][0]);
    list_remove(&f.uses[0][0].node);
    memset(&f.scopes[0][0], 0xee, sizeof f.scopes[0][0]);
    run_turns(100);
    assert_false(under_way(0));
    assert_string_equal(f.told[0][0][SESSIONS - 1], "");
    for (int i = 0; i < SESSIONS; i++)
        assert_string_equal(f.told[0][1][i], "a");
}

static void waiting_list_changes_are_merged_into_one(void **state)
{
    (void)state;
    say(0, "a");
    for (int i = 0; i < 1000; i++)
        relay_lists_changed(&f.links[0], 1U << (i % 2));
    size_t queued = 0;
    list_each(node, &f.links[0].fan_outs)
        queued++;
    assert_int_equal(queued, 2);
    assert_int_equal(list_entry(f.links[0].fan_outs.prev, struct fan_out, node)->kinds, 3);
}

#define FAN_OUT_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAN_OUT_TEST(each_session_gets_a_message_once_and_in_slices),
        FAN_OUT_TEST(sessions_that_a_message_does_not_concern_are_skipped_in_one_turn),
        FAN_OUT_TEST(messages_keep_their_order_for_every_session),
        FAN_OUT_TEST(servers_with_messages_take_turns),
        FAN_OUT_TEST(a_session_may_end_during_a_fan_out),
        FAN_OUT_TEST(a_scope_may_end_during_a_fan_out),
        FAN_OUT_TEST(waiting_list_changes_are_merged_into_one),
    };
    alarm(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
