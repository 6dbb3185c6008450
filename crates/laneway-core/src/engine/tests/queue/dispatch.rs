//! Which job starts next.

use crate::engine::tests::scenario::check;
use expect_test::expect;

#[test]
fn the_agent_with_the_fewest_open_attempts_goes_first() {
    check(expect![[r#"
        given lane main running=2 per_agent=1
        submit a1 agent=A | submit a2 agent=A | submit b1 agent=B priority=9
            a1 started #1
            b1 started #1
        finish a1 ok
            a1 succeeded #1 (done)
            a2 started #1
    "#]]);
}

#[test]
fn ties_go_to_the_agent_served_longest_ago() {
    check(expect![[r#"
        given lane main running=1
        submit a1 agent=A | submit a2 agent=A | submit a3 agent=A | submit b1 agent=B | submit c1 agent=C
            a1 started #1
        finish a1 ok
            a1 succeeded #1 (done)
            b1 started #1
        finish b1 ok
            b1 succeeded #1 (done)
            c1 started #1
        finish c1 ok
            c1 succeeded #1 (done)
            a2 started #1
        finish a2 ok
            a2 succeeded #1 (done)
            a3 started #1
    "#]]);
}

#[test]
fn weights_share_a_lane() {
    check(expect![[r#"
        given lane main running=4 paused=yes | agent A weight=3
        batch a1 a2 a3 a4 a5 agent=A
        batch b1 b2 b3 b4 b5 agent=B
        lane main paused=no
            config.changed
            a1 started #1
            b1 started #1
            a2 started #1
            a3 started #1
    "#]]);
}

#[test]
fn within_an_agent_priority_then_age() {
    check(expect![[r#"
        given lane main running=1 aging=none
        submit a1 | submit a2 priority=5 | submit a3 | submit a4 priority=-5
            a1 started #1
        finish a1 ok
            a1 succeeded #1 (done)
            a4 started #1
        finish a4 ok
            a4 succeeded #1 (done)
            a3 started #1
        finish a3 ok
            a3 succeeded #1 (done)
            a2 started #1
    "#]]);
}

#[test]
fn waiting_makes_up_for_priority_when_the_lane_ages() {
    check(expect![[r#"
        given lane main running=1 aging=10s
        submit a1 | submit low priority=2
            a1 started #1
        wait 15s
        submit mid priority=1
        wait 1s
        submit high priority=0
        finish a1 ok
            a1 succeeded #1 (done)
            high started #1
        finish high ok
            high succeeded #1 (done)
            low started #1
    "#]]);
}

#[test]
fn a_priority_lane_takes_the_best_job_of_any_agent() {
    check(expect![[r#"
        given lane main running=1 order=priority aging=none
        submit a1 agent=A | submit a2 agent=A priority=1 | submit b1 agent=B priority=2
            a1 started #1
        finish a1 ok
            a1 succeeded #1 (done)
            a2 started #1
        finish a2 ok
            a2 succeeded #1 (done)
            b1 started #1
    "#]]);
}

#[test]
fn lanes_share_the_server_by_their_limits() {
    check(expect![[r#"
        given server running=3 | lane main running=2 paused=yes | lane big running=4 paused=yes
        batch m1 m2 m3 lane=main | batch b1 b2 b3 b4 lane=big
        lane main paused=no | lane big paused=no
            config.changed
            m1 started #1
            m2 started #1
            config.changed
            b1 started #1
        finish b1 ok
            b1 succeeded #1 (done)
            b2 started #1
    "#]]);
}

#[test]
fn a_session_runs_in_order_one_at_a_time() {
    check(expect![[r#"
        submit s1 session=chat | submit s2 session=chat priority=-9 | submit s3 session=chat | submit free
            s1 started #1
            free started #1
        finish s1 ok
            s1 succeeded #1 (done)
            s2 started #1
        finish s2 ok
            s2 succeeded #1 (done)
            s3 started #1
    "#]]);
}

#[test]
fn a_session_may_run_two_and_each_head_says_how_many() {
    check(expect![[r#"
        submit s1 session=chat/2 | submit s2 session=chat/2 | submit s3 session=chat/1 | submit s4 session=chat/2
            s1 started #1
            s2 started #1
        finish s1 ok
            s1 succeeded #1 (done)
        finish s2 ok
            s2 succeeded #1 (done)
            s3 started #1
            s4 started #1
        finish s3 ok
            s3 succeeded #1 (done)
    "#]]);
}

#[test]
fn a_session_spans_lanes_and_agents() {
    check(expect![[r#"
        given lane other running=1
        submit s1 session=chat agent=A | submit s2 session=chat agent=B lane=other kind=k2 | submit s3 session=chat agent=A
            s1 started #1
        finish s1 ok
            s1 succeeded #1 (done)
            s2 started #1
        finish s2 ok
            s2 succeeded #1 (done)
            s3 started #1
    "#]]);
}

#[test]
fn keys_are_held_while_a_job_runs() {
    check(expect![[r#"
        given key profile limit=1
        submit a1 keys=profile:p1 | submit a2 keys=profile:p1 | submit a3 keys=profile:p2 | submit b1 agent=B keys=profile:p1,profile:p2
            a1 started #1
            a3 started #1
        finish a3 ok
            a3 succeeded #1 (done)
        finish a1 ok
            a1 succeeded #1 (done)
            b1 started #1
        finish b1 ok
            b1 succeeded #1 (done)
            a2 started #1
    "#]]);
}

#[test]
fn kind_tenant_and_executor_limits_hide_no_other_jobs() {
    check(expect![[r#"
        given kind k running=1 | tenant t1 running=2
        submit a1 kind=k | submit a2 kind=k | submit a3 kind=k2
            a1 started #1
            a3 started #1
        submit x1 tenant=t1 kind=k2 | submit x2 tenant=t1 kind=k3 | submit x3 tenant=t1 kind=k3 | submit y1 tenant=t2 kind=k3
            x1 started #1
            x2 started #1
            y1 started #1
        finish a1 ok
            a1 succeeded #1 (done)
            a2 started #1
        finish x1 ok
            x1 succeeded #1 (done)
            x3 started #1
    "#]]);
}

#[test]
fn a_kind_without_an_executor_waits_until_one_offers_it() {
    check(expect![[r#"
        submit a1 kind=new | submit a2 kind=k
            a2 started #1
        explain a1
            a1 is queued, 0 ahead: no executor for new
        executor w1 leased kinds=new slots=1
            a1 assigned #1
        start a1
            a1 started #1
        withdraw w1
        submit a3 kind=new
        finish a1 ok
            a1 succeeded #1 (done)
    "#]]);
}

#[test]
fn fresh_names_do_not_push_back_jobs_that_wait() {
    check(expect![[r#"
        given lane main running=1
        submit x1 agent=X | submit x2 agent=X
            x1 started #1
        submit y1 agent=Y1
        finish x1 ok
            x1 succeeded #1 (done)
            y1 started #1
        submit y2 agent=Y2 | submit y3 agent=Y3
        finish y1 ok
            y1 succeeded #1 (done)
            x2 started #1
    "#]]);
}
