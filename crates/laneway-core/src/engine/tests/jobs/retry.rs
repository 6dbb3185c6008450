//! Failures, losses and retries.

use crate::engine::tests::scenario::check;
use expect_test::expect;

#[test]
fn a_failure_is_tried_again_after_its_backoff() {
    check(expect![[r#"
        submit a1
            a1 started #1
        finish a1 fail
            a1 retrying #1 (retry)
        explain a1
            a1 is scheduled, 0 ahead: backoff 1000 ms
        wait 999ms
        wait 1ms
            a1 queued #1 (due)
            a1 started #2
        finish a1 fail
            a1 retrying #2 (retry)
        wait 2s
            a1 queued #2 (due)
            a1 started #3
        finish a1 fail
            a1 failed #3 (exhausted)
    "#]]);
}

#[test]
fn defect_19_a_runner_that_requests_time_gets_it_up_to_the_limit() {
    check(expect![[r#"
        submit a1
            a1 started #1
        finish a1 fail:5s
            a1 retrying #1 (retry)
        explain a1
            a1 is scheduled, 0 ahead: backoff 5000 ms
        wait 5s
            a1 queued #1 (due)
            a1 started #2
        finish a1 fail:1ms
            a1 retrying #2 (retry)
        explain a1
            a1 is scheduled, 0 ahead: backoff 2000 ms
        wait 2s
            a1 queued #2 (due)
            a1 started #3
        submit b1
            b1 started #1
        finish b1 fail:2000s
            b1 retrying #1 (retry)
        explain b1
            b1 is scheduled, 0 ahead: backoff 2000000 ms
        crash
            a1 queued #3 (lost)
            a1 started #4
        explain b1
            b1 is scheduled, 0 ahead: backoff 2000000 ms
        submit c1
            c1 started #1
        finish c1 fail:4000s
            c1 retrying #1 (retry)
        explain c1
            c1 is scheduled, 0 ahead: backoff 3600000 ms
    "#]]);
}

#[test]
fn a_permanent_failure_is_not_tried_again() {
    check(expect![[r#"
        submit a1
            a1 started #1
        finish a1 permanent
            a1 failed #1 (permanent)
    "#]]);
}

#[test]
fn a_retry_keeps_its_position_in_its_session() {
    check(expect![[r#"
        submit s1 session=chat | submit s2 session=chat
            s1 started #1
        finish s1 fail
            s1 retrying #1 (retry)
        explain s2
            s2 is queued, 1 ahead: session chat 1 ahead
        wait 1s
            s1 queued #1 (due)
            s1 started #2
        finish s1 ok
            s1 succeeded #2 (done)
            s2 started #1
    "#]]);
}

#[test]
fn a_retry_keeps_its_age() {
    check(expect![[r#"
        given lane main running=1
        submit a1 | submit a2
            a1 started #1
        finish a1 fail
            a1 retrying #1 (retry)
            a2 started #1
        wait 1s
            a1 queued #1 (due)
        submit a3
        finish a2 ok
            a2 succeeded #1 (done)
            a1 started #2
    "#]]);
}

#[test]
fn handing_back_costs_nothing() {
    check(expect![[r#"
        submit a1 retries=0
            a1 started #1
        finish a1 back
            a1 queued #1 (handed_back)
            a1 started #2
        finish a1 back
            a1 queued #2 (handed_back)
            a1 started #3
        finish a1 ok
            a1 succeeded #3 (done)
    "#]]);
}

#[test]
fn losses_are_counted_apart_and_capped() {
    check(expect![[r#"
        given executor w1 leased kinds=far slots=1
        submit a1 kind=far retries=0
            a1 assigned #1
        start a1
            a1 started #1
        wait 30s
            a1 queued #1 (lost)
            a1 assigned #2
        start a1
            a1 started #2
        wait 30s
            a1 failed #2 (lost)
    "#]]);
}
