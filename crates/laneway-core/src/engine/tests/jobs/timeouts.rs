//! Not-before, deadlines, queue timeouts and attempt timeouts.

use crate::engine::tests::scenario::check;
use expect_test::expect;

#[test]
fn not_before_waits_for_its_time() {
    check(expect![[r#"
        submit a1 after=10s
        explain a1
            a1 is scheduled, 0 ahead: not before 10 s from the start
        wait 9s
        wait 1s
            a1 queued #0 (due)
            a1 started #1
    "#]]);
}

#[test]
fn a_deadline_ends_waiting_jobs_and_stops_running_ones() {
    check(expect![[r#"
        given lane main running=1
        submit a1 deadline=10s | submit a2 deadline=5s
            a1 started #1
        wait 5s
            a2 failed #0 (expired)
        wait 5s
            stop a1
        finish a1 ok
            stale
            a1 failed #1 (expired)
    "#]]);
}

#[test]
fn nothing_starts_after_its_deadline_even_before_a_tick() {
    check(expect![[r#"
        given lane main running=1
        submit a1 | submit a2 deadline=5s
            a1 started #1
        wait 4s
        jump 2
            a2 failed #0 (expired)
        finish a1 ok
            a1 succeeded #1 (done)
    "#]]);
}

#[test]
fn a_queue_timeout_counts_only_the_first_wait() {
    check(expect![[r#"
        given lane main running=1
        submit a1 queue=5s | submit a2 queue=5s
            a1 started #1
        finish a1 fail
            a1 retrying #1 (retry)
            a2 started #1
        wait 5s
            a1 queued #1 (due)
    "#]]);
}

#[test]
fn an_attempt_that_takes_too_long_is_stopped_and_tried_again() {
    check(expect![[r#"
        submit a1 timeout=5s retries=1
            a1 started #1
        wait 5s
            stop a1
        finish a1 ok
            stale
            a1 retrying #1 (retry)
        wait 1s
            a1 queued #1 (due)
            a1 started #2
        wait 5s
            stop a1
        wait 10s
            a1 failed #2 (timed_out)
    "#]]);
}
