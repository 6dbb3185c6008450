//! Who runs next.

use super::check;
use expect_test::expect;

#[test]
fn the_agent_with_the_fewest_open_attempts_goes_first() {
    check(
        "
        lane main running=2 per_agent=1
        submit a1 agent=A | submit a2 agent=A | submit b1 agent=B priority=9
        finish a1 ok
        ",
        expect![[r#"
            lane main running=2 per_agent=1
                config.changed
            submit a1 agent=A | submit a2 agent=A | submit b1 agent=B priority=9
                a1 started #1
                b1 started #1
            finish a1 ok
                a1 succeeded #1 (done)
                a2 started #1
        "#]],
    );
}

#[test]
fn ties_go_to_the_agent_served_longest_ago() {
    check(
        "
        lane main running=1
        submit a1 agent=A | submit a2 agent=A | submit a3 agent=A | submit b1 agent=B | submit c1 agent=C
        finish a1 ok
        finish b1 ok
        finish c1 ok
        finish a2 ok
        ",
        expect![[r#"
            lane main running=1
                config.changed
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
        "#]],
    );
}

#[test]
fn weights_share_a_lane() {
    check(
        "
        lane main running=4 paused=yes | agent A weight=3
        batch a1 a2 a3 a4 a5 agent=A
        batch b1 b2 b3 b4 b5 agent=B
        lane main paused=no
        ",
        expect![[r#"
            lane main running=4 paused=yes | agent A weight=3
                config.changed
                config.changed
            batch a1 a2 a3 a4 a5 agent=A
            batch b1 b2 b3 b4 b5 agent=B
            lane main paused=no
                config.changed
                a1 started #1
                b1 started #1
                a2 started #1
                a3 started #1
        "#]],
    );
}

#[test]
fn within_an_agent_priority_then_age() {
    check(
        "
        lane main running=1 aging=none
        submit a1 | submit a2 priority=5 | submit a3 | submit a4 priority=-5
        finish a1 ok
        finish a4 ok
        finish a3 ok
        ",
        expect![[r#"
            lane main running=1 aging=none
                config.changed
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
        "#]],
    );
}

#[test]
fn waiting_makes_up_for_priority_when_the_lane_ages() {
    check(
        "
        lane main running=1 aging=10s
        submit a1 | submit low priority=2
        wait 15s
        submit mid priority=1
        wait 1s
        submit high priority=0
        finish a1 ok
        finish high ok
        ",
        expect![[r#"
            lane main running=1 aging=10s
                config.changed
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
        "#]],
    );
}

#[test]
fn a_priority_lane_takes_the_best_job_whoever_asked() {
    check(
        "
        lane main running=1 order=priority aging=none
        submit a1 agent=A | submit a2 agent=A priority=1 | submit b1 agent=B priority=2
        finish a1 ok
        finish a2 ok
        ",
        expect![[r#"
            lane main running=1 order=priority aging=none
                config.changed
            submit a1 agent=A | submit a2 agent=A priority=1 | submit b1 agent=B priority=2
                a1 started #1
            finish a1 ok
                a1 succeeded #1 (done)
                a2 started #1
            finish a2 ok
                a2 succeeded #1 (done)
                b1 started #1
        "#]],
    );
}

#[test]
fn lanes_share_the_server_by_their_limits() {
    check(
        "
        server running=3 | lane main running=2 paused=yes | lane big running=4 paused=yes
        batch m1 m2 m3 lane=main | batch b1 b2 b3 b4 lane=big
        lane main paused=no | lane big paused=no
        finish b1 ok
        ",
        expect![[r#"
            server running=3 | lane main running=2 paused=yes | lane big running=4 paused=yes
                config.changed
                config.changed
                config.changed
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
        "#]],
    );
}

#[test]
fn a_session_runs_in_order_one_at_a_time() {
    check(
        "
        submit s1 session=chat | submit s2 session=chat priority=-9 | submit s3 session=chat | submit free
        finish s1 ok
        finish s2 ok
        ",
        expect![[r#"
            submit s1 session=chat | submit s2 session=chat priority=-9 | submit s3 session=chat | submit free
                s1 started #1
                free started #1
            finish s1 ok
                s1 succeeded #1 (done)
                s2 started #1
            finish s2 ok
                s2 succeeded #1 (done)
                s3 started #1
        "#]],
    );
}

#[test]
fn a_session_may_run_two_and_each_head_says_how_many() {
    check(
        "
        submit s1 session=chat/2 | submit s2 session=chat/2 | submit s3 session=chat/1 | submit s4 session=chat/2
        finish s1 ok
        finish s2 ok
        finish s3 ok
        ",
        expect![[r#"
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
        "#]],
    );
}

#[test]
fn a_session_spans_lanes_and_agents() {
    check(
        "
        lane other running=1
        submit s1 session=chat agent=A | submit s2 session=chat agent=B lane=other kind=k2 | submit s3 session=chat agent=A
        finish s1 ok
        finish s2 ok
        ",
        expect![[r#"
            lane other running=1
                config.changed
            submit s1 session=chat agent=A | submit s2 session=chat agent=B lane=other kind=k2 | submit s3 session=chat agent=A
                s1 started #1
            finish s1 ok
                s1 succeeded #1 (done)
                s2 started #1
            finish s2 ok
                s2 succeeded #1 (done)
                s3 started #1
        "#]],
    );
}

#[test]
fn keys_are_held_while_a_job_runs() {
    check(
        "
        key profile limit=1
        submit a1 keys=profile:p1 | submit a2 keys=profile:p1 | submit a3 keys=profile:p2 | submit b1 agent=B keys=profile:p1,profile:p2
        finish a3 ok
        finish a1 ok
        finish b1 ok
        ",
        expect![[r#"
            key profile limit=1
                config.changed
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
        "#]],
    );
}

#[test]
fn kind_tenant_and_place_limits_hide_nobody_else() {
    check(
        "
        kind k running=1 | tenant t1 running=2
        submit a1 kind=k | submit a2 kind=k | submit a3 kind=k2
        submit x1 tenant=t1 kind=k2 | submit x2 tenant=t1 kind=k3 | submit x3 tenant=t1 kind=k3 | submit y1 tenant=t2 kind=k3
        finish a1 ok
        finish x1 ok
        ",
        expect![[r#"
            kind k running=1 | tenant t1 running=2
                config.changed
                config.changed
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
        "#]],
    );
}

#[test]
fn a_kind_that_nobody_offers_waits_until_somebody_does() {
    check(
        "
        submit a1 kind=new | submit a2 kind=k
        explain a1
        executor w1 leased kinds=new slots=1
        start a1
        withdraw w1
        submit a3 kind=new
        finish a1 ok
        ",
        expect![[r#"
            submit a1 kind=new | submit a2 kind=k
                a2 started #1
            explain a1
                a1 is queued, 0 ahead: no place for new
            executor w1 leased kinds=new slots=1
                a1 assigned #1
            start a1
                a1 started #1
            withdraw w1
            submit a3 kind=new
            finish a1 ok
                a1 succeeded #1 (done)
        "#]],
    );
}

#[test]
fn fresh_names_do_not_push_away_those_who_wait() {
    check(
        "
        lane main running=1
        submit x1 agent=X | submit x2 agent=X
        submit y1 agent=Y1
        finish x1 ok
        submit y2 agent=Y2 | submit y3 agent=Y3
        finish y1 ok
        ",
        expect![[r#"
            lane main running=1
                config.changed
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
        "#]],
    );
}
