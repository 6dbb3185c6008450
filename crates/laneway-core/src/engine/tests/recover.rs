//! Restarts: the engine knows what was stored, and nothing else.

use super::scenario::check;
use expect_test::expect;

#[test]
fn attached_attempts_are_lost_and_tried_again() {
    check(expect![[r#"
        submit a1 | submit a2 after=60s
            a1 started #1
        crash
            a1 queued #1 (lost)
            a1 started #2
        finish a1 ok
            a1 succeeded #2 (done)
        wait 60s
            a2 queued #0 (due)
            a2 started #1
    "#]]);
}

#[test]
fn a_rebuild_in_the_same_process_keeps_attached_attempts() {
    check(expect![[r#"
        submit a1
            a1 started #1
        rebuild
        finish a1 ok
            a1 succeeded #1 (done)
    "#]]);
}

#[test]
fn leases_start_anew_and_their_workers_may_finish() {
    check(expect![[r#"
        given executor w1 leased kinds=far slots=1
        submit a1 kind=far | start a1 | submit a2 kind=far
            a1 assigned #1
            a1 started #1
        wait 29s
        crash
        wait 29s
        finish a1 ok
            a1 succeeded #1 (done)
            a2 assigned #1
    "#]]);
}

#[test]
fn attempts_hold_their_session_after_a_crash_canceled_or_not() {
    check(expect![[r#"
        given executor w1 leased kinds=far slots=9
        submit s1 kind=far session=chat | start s1 | submit s2 kind=far session=chat
            s1 assigned #1
            s1 started #1
        submit r1 kind=far session=talk | start r1 | submit r2 kind=far session=talk
            r1 assigned #1
            r1 started #1
        cancel s1
            was running
            s1 canceled #1 (requested)
            stop s1
        crash
        finish s1 ok
            stale
            s1 released #1
            s2 assigned #1
    "#]]);
}

#[test]
fn a_backoff_goes_on_where_it_was() {
    check(expect![[r#"
        submit a1
            a1 started #1
        finish a1 fail
            a1 retrying #1 (retry)
        wait 500ms
        crash
        wait 499ms
        wait 1ms
            a1 queued #1 (due)
            a1 started #2
    "#]]);
}

#[test]
fn a_session_is_held_by_its_retry_also_after_a_crash() {
    check(expect![[r#"
        submit s1 session=chat | submit s2 session=chat
            s1 started #1
        finish s1 fail
            s1 retrying #1 (retry)
        crash
        wait 1s
            s1 queued #1 (due)
            s1 started #2
        finish s1 ok
            s1 succeeded #2 (done)
            s2 started #1
    "#]]);
}

#[test]
fn the_time_waited_counts_after_a_crash() {
    check(expect![[r#"
        given lane main running=1
        submit a0 | submit a1 queue=10s
            a0 started #1
        wait 6s
        crash
            a0 queued #1 (lost)
            a0 started #2
        wait 4s
            a1 failed #0 (queue_timeout)
    "#]]);
}
