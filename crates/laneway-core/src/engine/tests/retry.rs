//! Failures, losses and what comes after.

use super::check;
use expect_test::expect;

#[test]
fn a_failure_is_tried_again_after_its_backoff() {
    check(
        "
        submit a1
        finish a1 fail
        explain a1
        wait 999ms
        wait 1ms
        finish a1 fail
        wait 2s
        finish a1 fail
        ",
        expect![[r#"
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
        "#]],
    );
}

#[test]
fn defect_19_a_runner_that_asks_for_time_gets_it_and_no_more_than_the_limit() {
    check(
        "
        submit a1
        finish a1 fail:5s
        explain a1
        wait 5s
        finish a1 fail:1ms
        explain a1
        wait 2s
        submit b1
        finish b1 fail:2000s
        explain b1
        crash
        explain b1
        submit c1
        finish c1 fail:4000s
        explain c1
        ",
        expect![[r#"
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
        "#]],
    );
}

#[test]
fn a_permanent_failure_is_not_tried_again() {
    check(
        "submit a1\nfinish a1 permanent",
        expect![[r#"
        submit a1
            a1 started #1
        finish a1 permanent
            a1 failed #1 (permanent)
    "#]],
    );
}

#[test]
fn a_retry_keeps_its_place_in_its_session() {
    check(
        "
        submit s1 session=chat | submit s2 session=chat
        finish s1 fail
        explain s2
        wait 1s
        finish s1 ok
        ",
        expect![[r#"
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
        "#]],
    );
}

#[test]
fn a_retry_keeps_its_age() {
    check(
        "
        lane main running=1
        submit a1 | submit a2
        finish a1 fail
        wait 1s
        submit a3
        finish a2 ok
        ",
        expect![[r#"
            lane main running=1
                config.changed
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
        "#]],
    );
}

#[test]
fn handing_back_costs_nothing() {
    check(
        "submit a1 retries=0\nfinish a1 back\nfinish a1 back\nfinish a1 ok",
        expect![[r#"
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
    "#]],
    );
}

#[test]
fn losses_are_counted_apart_and_capped() {
    check(
        "
        executor w1 leased kinds=far slots=1
        submit a1 kind=far retries=0
        start a1
        wait 30s
        start a1
        wait 30s
        ",
        expect![[r#"
            executor w1 leased kinds=far slots=1
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
        "#]],
    );
}
