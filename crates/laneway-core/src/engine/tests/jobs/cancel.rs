//! Jobs that are canceled on request.

use crate::engine::tests::scenario::check;
use expect_test::expect;

#[test]
fn a_waiting_job_is_canceled_at_once() {
    check(expect![[r#"
        given lane main running=1
        submit a1 | submit a2 | submit a3 after=60s
            a1 started #1
        cancel a2 | cancel a3
            was queued
            a2 canceled #0 (requested)
            was scheduled
            a3 canceled #0 (requested)
        cancel a2
            not found
        finish a1 ok
            a1 succeeded #1 (done)
    "#]]);
}

#[test]
fn a_canceled_attempt_keeps_its_slots_until_it_has_ended() {
    check(expect![[r#"
        submit s1 session=chat | submit s2 session=chat
            s1 started #1
        cancel s1
            was running
            s1 canceled #1 (requested)
            stop s1
        explain s2
            s2 is queued, 0 ahead: session chat 1/1
        finish s1 ok
            stale
            s1 released #1
            s2 started #1
    "#]]);
}

#[test]
fn an_attempt_that_does_not_stop_is_released_after_its_grace() {
    check(expect![[r#"
        submit s1 session=chat | submit s2 session=chat
            s1 started #1
        cancel s1
            was running
            s1 canceled #1 (requested)
            stop s1
        wait 10s
            s1 released #1
            s2 started #1
        finish s1 ok
            stale
    "#]]);
}

#[test]
fn a_tenant_cannot_cancel_anothers_job() {
    check(expect![[r#"
        submit a1 tenant=t1
            a1 started #1
        cancel a1 tenant=t2
            not found
        cancel a1 tenant=t1
            was running
            a1 canceled #1 (requested)
            stop a1
    "#]]);
}

#[test]
fn draining_starts_nothing_and_cancels_where_the_lane_says_so() {
    check(expect![[r#"
        given lane main running=1 | lane brief running=1 stop=cancel
        submit a1 | submit a2 | submit b1 lane=brief | submit b2 lane=brief
            a1 started #1
            b1 started #1
        drain
            server.draining
            b2 canceled #0 (shutdown)
        finish a1 back
            a1 queued #1 (handed_back)
        finish b1 canceled
            b1 canceled #1 (shutdown)
    "#]]);
}

#[test]
fn defect_02_a_stop_repeats_only_jobs_that_allow_a_loss() {
    check(expect![[r#"
        given lane brief stop=cancel
        submit a1 | submit a2 losses=0 retries=0 | submit a3 losses=0 retries=9 | submit a4 losses=0 | submit a5 losses=0 lane=brief
            a1 started #1
            a2 started #1
            a3 started #1
            a4 started #1
            a5 started #1
        drain
            server.draining
        finish a1 interrupted
            a1 queued #1 (handed_back)
        finish a2 interrupted
            a2 failed #1 (lost)
        finish a3 canceled
            a3 failed #1 (lost)
        finish a4 back
            a4 queued #1 (handed_back)
        finish a5 interrupted
            a5 canceled #1 (shutdown)
    "#]]);
}
