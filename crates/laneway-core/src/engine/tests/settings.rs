//! Settings that change while jobs wait and run.

use super::scenario::check;
use expect_test::expect;

#[test]
fn raised_limits_are_used_at_once_and_lowered_ones_start_nothing() {
    check(expect![[r#"
        lane main running=1 | kind k running=1 | key profile limit=1
            config.changed
            config.changed
            config.changed
        submit a1 keys=profile:p | submit a2 keys=profile:p | submit a3 keys=profile:p | submit b1 agent=B
            a1 started #1
        lane main running=9
            config.changed
        kind k running=9
            config.changed
            b1 started #1
        key profile limit=2
            config.changed
            a2 started #1
        lane main running=1
            config.changed
        finish a1 ok | finish a2 ok | finish b1 ok
            a1 succeeded #1 (done)
            a2 succeeded #1 (done)
            b1 succeeded #1 (done)
            a3 started #1
    "#]]);
}

#[test]
fn pausing_a_lane_stops_starts_and_no_attempts() {
    check(expect![[r#"
        lane main paused=yes
            config.changed
        submit a1
        explain a1
            a1 is queued, 0 ahead: lane main paused
        lane main paused=no
            config.changed
            a1 started #1
        lane main paused=yes
            config.changed
        submit a2
        finish a1 ok
            a1 succeeded #1 (done)
    "#]]);
}

#[test]
fn changing_the_order_sorts_waiting_jobs() {
    check(expect![[r#"
        lane main running=1 aging=1s
            config.changed
        submit a0 | submit a1 priority=9 | submit a2 agent=B priority=5
            a0 started #1
        wait 20s
        submit a3 agent=A
        lane main order=priority aging=none
            config.changed
        finish a0 ok
            a0 succeeded #1 (done)
            a3 started #1
        finish a3 ok
            a3 succeeded #1 (done)
            a2 started #1
        finish a2 ok
            a2 succeeded #1 (done)
            a1 started #1
    "#]]);
}

#[test]
fn per_agent_limits_follow_the_settings() {
    check(expect![[r#"
        lane main per_agent=1
            config.changed
        submit a1 | submit a2 | submit a3
            a1 started #1
        explain a2
            a2 is queued, 0 ahead: agent A 1/1
        lane main per_agent=2
            config.changed
            a2 started #1
    "#]]);
}

#[test]
fn a_removed_lane_leaves_its_index_to_a_new_one_when_it_is_empty() {
    check(expect![[r#"
        lane old running=1
            config.changed
        submit a1 lane=old | submit a2 lane=old
            a1 started #1
        nolane old
            config.changed
        submit a3 lane=old
            a3 started #1
        lane new running=1
            config.changed
        finish a1 ok
            a1 succeeded #1 (done)
            a2 started #1
        finish a2 ok
            a2 succeeded #1 (done)
        nolane new
            config.changed
        lane newer running=1
            config.changed
        submit b1 lane=newer | submit b2 lane=newer
            b1 started #1
        finish b1 ok
            b1 succeeded #1 (done)
            b2 started #1
    "#]]);
}

#[test]
fn a_withdrawn_executor_is_forgotten_when_its_last_attempt_ends() {
    check(expect![[r#"
        executor w1 leased kinds=far slots=1
        submit a1 kind=far | start a1
            a1 assigned #1
            a1 started #1
        withdraw w1
        withdraw w1
        finish a1 ok
            a1 succeeded #1 (done)
        withdraw w1
            not found
    "#]]);
}

#[test]
fn a_kind_that_gets_a_limit_blocks_no_job_it_waited_with() {
    check(expect![[r#"
        executor here attached kinds=u,v slots=9 | lane main running=0
            config.changed
        submit a1 kind=u | submit a2 kind=u | submit b1 kind=v | submit a3 kind=u | submit b2 kind=v
        kind u running=1
            config.changed
        lane main running=9
            config.changed
            a1 started #1
            b1 started #1
            b2 started #1
        finish a1 ok
            a1 succeeded #1 (done)
            a2 started #1
        kind u running=9
            config.changed
            a3 started #1
    "#]]);
}

#[test]
fn a_kind_that_leaves_its_executor_takes_its_waiting_jobs_with_it() {
    check(expect![[r#"
        executor here attached kinds=u,v slots=1
        submit a0 kind=u | submit a1 kind=u | submit b1 kind=v | submit a2 kind=u
            a0 started #1
        executor here attached kinds=u slots=1
        explain b1
            b1 is queued, 0 ahead: no executor for v
        executor there attached kinds=v slots=1
            b1 started #1
        finish a0 ok
            a0 succeeded #1 (done)
            a1 started #1
    "#]]);
}
