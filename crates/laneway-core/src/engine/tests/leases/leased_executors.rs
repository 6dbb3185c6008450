//! Leased executors that answer, go silent, answer late, or forge a report.

use crate::engine::tests::scenario::check;
use expect_test::expect;

#[test]
fn an_offer_without_an_answer_is_handed_back() {
    check(expect![[r#"
        given executor w1 leased kinds=far slots=1
        submit a1 kind=far
            a1 assigned #1
        wait 5s
            a1 queued #1 (handed_back)
            a1 assigned #2
        start a1#1
            stale
        start a1
            a1 started #2
    "#]]);
}

#[test]
fn heartbeats_keep_a_lease_and_silence_ends_it() {
    check(expect![[r#"
        given executor w1 leased kinds=far slots=1
        submit a1 kind=far | start a1
            a1 assigned #1
            a1 started #1
        wait 20s
        beat a1
        wait 20s
        wait 10s
            a1 queued #1 (lost)
            a1 assigned #2
        beat a1#1
            stale
    "#]]);
}

#[test]
fn late_and_forged_reports_change_nothing() {
    check(expect![[r#"
        given executor w1 leased kinds=far slots=1
        submit a1 kind=far | start a1
            a1 assigned #1
            a1 started #1
        wait 30s
            a1 queued #1 (lost)
            a1 assigned #2
        finish a1#1 ok
            stale
        finish a1! ok
            stale
        beat a1!
            stale
        start a1
            a1 started #2
        finish a1 ok
            a1 succeeded #2 (done)
        finish a1 ok
            stale
    "#]]);
}

#[test]
fn a_wall_clock_that_jumps_ends_no_lease() {
    check(expect![[r#"
        given executor w1 leased kinds=far slots=1
        submit a1 kind=far | start a1
            a1 assigned #1
            a1 started #1
        jump 86400
            clock.jumped the wall clock is 86400 s ahead of the time that was seen to pass; until it has been so for an hour, nothing is deleted for its age
        jump -172800
        finish a1 ok
            a1 succeeded #1 (done)
    "#]]);
}

#[test]
fn an_attempt_whose_time_is_over_must_stop_at_its_next_heartbeat() {
    check(expect![[r#"
        given executor far leased kinds=w slots=1
        submit a1 kind=w timeout=2s
            a1 assigned #1
        start a1
            a1 started #1
        sleep 5s
        start a1
            alive, but must stop
    "#]]);
}
