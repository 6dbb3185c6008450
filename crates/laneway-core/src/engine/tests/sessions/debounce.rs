//! Debounce batches: jobs of a session that arrive within the debounce window of one another run as one.

use crate::engine::tests::scenario::{Scenario, check};
use expect_test::expect;

#[test]
fn gc_q11_five_rapid_jobs_run_as_one() {
    check(expect![[r#"
        submit s1 session=chat debounce=200ms
        wait 100ms
        submit s2 session=chat debounce=200ms | submit s3 session=chat debounce=200ms
            s2 canceled #0 (merged)
            s3 canceled #0 (merged)
        submit s4 session=chat debounce=200ms | submit s5 session=chat debounce=200ms
            s4 canceled #0 (merged)
            s5 canceled #0 (merged)
        explain s1
            s1 is scheduled, 0 ahead: debounce 200 ms
        session chat
            chat: 0 running, 0 stopping, 1 waiting, 5 buffered, max 1, generation 0
        wait 199ms
        wait 1ms
            s1 queued #0 (due)
            s1 started #1
        finish s1 ok
            s1 succeeded #1 (done)
    "#]]);
}

#[test]
fn gc_d1_d2_a_window_of_zero_passes_each_through() {
    check(expect![[r#"
        submit s1 session=a debounce=800ms | submit s2 session=a debounce=800ms
            s2 canceled #0 (merged)
        wait 800ms
            s1 queued #0 (due)
            s1 started #1
        submit t1 session=b debounce=0ms | submit t2 session=b debounce=0ms
            t1 started #1
    "#]]);
}

#[test]
fn gc_d3_each_job_has_a_window_of_its_own() {
    check(expect![[r#"
        submit s1 session=chat debounce=200ms
        submit s2 session=chat debounce=900ms
            s2 canceled #0 (merged)
        wait 200ms
        wait 700ms
            s1 queued #0 (due)
            s1 started #1
    "#]]);
}

#[test]
fn gc_d4_other_agents_kinds_lanes_and_keys_are_kept_apart() {
    check(expect![[r#"
        submit s1 session=chat debounce=1s agent=A
        submit s2 session=chat debounce=1s agent=B
            s1 queued #0 (due)
            s1 started #1
        submit s3 session=chat debounce=1s agent=B kind=k2
            s2 queued #0 (due)
        submit s4 session=chat debounce=1s agent=B kind=k2 keys=tab:1
            s3 queued #0 (due)
        submit s5 session=chat debounce=1s agent=B kind=k2 keys=tab:1
            s5 canceled #0 (merged)
        session chat
            chat: 1 running, 0 stopping, 3 waiting, 2 buffered, max 1, generation 0
        finish s1 ok
            s1 succeeded #1 (done)
            s2 started #1
    "#]]);
}

#[test]
fn gc_d6_a_single_job_starts_after_the_silence() {
    check(expect![[r#"
        submit s1 session=chat debounce=800ms
        wait 799ms
        wait 1ms
            s1 queued #0 (due)
            s1 started #1
    "#]]);
}

#[test]
fn gc_d9_a_job_without_a_window_joins_and_closes_the_debounce_batch() {
    check(expect![[r#"
        submit s1 session=chat debounce=1s
        submit s2 session=chat
            s2 canceled #0 (merged)
            s1 queued #0 (due)
            s1 started #1
        submit s3 session=chat
    "#]]);
}

#[test]
fn x16_a_steady_stream_starts_within_its_longest_wait() {
    check(expect![[r#"
        submit s0 session=chat debounce=200ms debounce_max=500ms
        wait 150ms
        submit s1 session=chat debounce=200ms
            s1 canceled #0 (merged)
        wait 150ms
        submit s2 session=chat debounce=200ms
            s2 canceled #0 (merged)
        wait 150ms
        submit s3 session=chat debounce=200ms
            s3 canceled #0 (merged)
        wait 50ms
            s0 queued #0 (due)
            s0 started #1
        submit s4 session=chat debounce=200ms
    "#]]);
}

#[test]
fn a_debounce_batch_behind_a_running_job_waits_for_both() {
    check(expect![[r#"
        submit s1 session=chat
            s1 started #1
        submit s2 session=chat debounce=1s
        finish s1 ok
            s1 succeeded #1 (done)
        wait 1s
            s2 queued #0 (due)
            s2 started #1
    "#]]);
}

#[test]
fn a_debounce_batch_counts_as_one_for_the_cap() {
    check(expect![[r#"
        submit s1 session=chat
            s1 started #1
        submit s2 session=chat debounce=1s cap=1 drop=new | submit s3 session=chat debounce=1s cap=1 drop=new
            s3 canceled #0 (merged)
        submit s4 session=chat debounce=1s cap=1 drop=new agent=B
            rejected: session_full: session.cap: 1 jobs of the session wait, 1 may; submit again later
        submit s5 session=chat debounce=1s cap=1 agent=B
            s2 canceled #0 (dropped)
        session chat
            chat: 1 running, 0 stopping, 1 waiting, 1 buffered, max 1, generation 0
    "#]]);
}

#[test]
fn a_debounce_batch_merges_at_most_a_hundred_jobs() {
    let mut scenario = Scenario::new();
    let names: Vec<String> = (0..=100).map(|n| format!("s{n}")).collect();
    let effects = scenario.play(&format!("batch {} session=chat debounce=1s", names.join(" ")));
    assert_eq!(effects.iter().filter(|line| line.ends_with("(merged)")).count(), 100);
    assert_eq!(effects[100..], ["s0 queued #0 (due)", "s0 started #1"]);
    scenario.play("submit t session=chat debounce=1s");
    let shown = scenario.play("session chat");
    assert_eq!(shown, ["chat: 1 running, 0 stopping, 1 waiting, 1 buffered, max 1, generation 0"]);
}

#[test]
fn a_canceled_debounce_batch_is_over() {
    check(expect![[r#"
        submit s1 session=chat debounce=1s | submit s2 session=chat debounce=1s
            s2 canceled #0 (merged)
        cancel s1
            was scheduled
            s1 canceled #0 (requested)
        cancel s2
            not found
        submit s3 session=chat debounce=1s
        wait 1s
            s3 queued #0 (due)
            s3 started #1
    "#]]);
}

#[test]
fn x15_stopall_ends_the_debounce_batch_that_collects_and_reports_it() {
    check(expect![[r#"
        submit s1 session=chat debounce=1s | submit s2 session=chat debounce=1s
            s2 canceled #0 (merged)
        stopall chat
            ran [], waited [s1], generation 0
            s1 canceled #0 (stopped)
            call.done
        wait 2s
        session chat
            chat: 0 running, 0 stopping, 0 waiting, 0 buffered, max -, generation 0, cutoff
    "#]]);
}

#[test]
fn a_debounce_batch_goes_on_after_a_crash_without_new_jobs() {
    check(expect![[r#"
        submit s1 session=chat debounce=1s | submit s2 session=chat debounce=1s
            s2 canceled #0 (merged)
        wait 500ms
        crash
        session chat
            chat: 0 running, 0 stopping, 1 waiting, 0 buffered, max 1, generation 0
        submit s3 session=chat debounce=1s
        session chat
            chat: 0 running, 0 stopping, 2 waiting, 1 buffered, max 1, generation 0
        wait 500ms
            s1 queued #0 (due)
            s1 started #1
        wait 500ms
            s3 queued #0 (due)
        finish s1 ok
            s1 succeeded #1 (done)
            s3 started #1
    "#]]);
}

#[test]
fn an_atomic_batch_is_judged_with_its_sessions() {
    check(expect![[r#"
        given lane main running=0
        batch a1 a2 a3 atomic session=chat cap=2 drop=new
            a1 rejected: batch_rejected
            a2 rejected: batch_rejected
            a3 rejected: session_full
        session chat
            session chat is not known
        batch b1 b2 atomic session=chat cap=2 drop=new
        batch c1 c2 c3 atomic session=talk cap=1 drop=new debounce=1s
            c2 canceled #0 (merged)
            c3 canceled #0 (merged)
    "#]]);
}

#[test]
fn a_debounce_that_is_too_long_is_rejected() {
    check(expect![[r#"
        submit s1 session=chat debounce=601s
            rejected: invalid: session.debounce: at most 600 s are allowed
        submit s2 session=chat debounce=1s debounce_max=3601s
            rejected: invalid: session.debounce_max: at most 3600 s are allowed
    "#]]);
}

#[test]
fn an_interrupt_ends_a_debounce_batch_and_waits_for_no_other_job() {
    check(expect![[r#"
        submit s1 session=chat debounce=1s | submit s2 session=chat debounce=1s
            s2 canceled #0 (merged)
        submit s3 session=chat debounce=1s mode=interrupt
            s1 canceled #0 (interrupted)
            s3 started #1
    "#]]);
}
