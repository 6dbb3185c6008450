//! Bursts: jobs of a session that come within the debounce window of one another run as one.

use super::check;
use super::story::Story;
use expect_test::expect;

#[test]
fn gc_q11_five_rapid_jobs_run_as_one() {
    check(
        "
        submit s1 session=chat debounce=200ms
        wait 100ms
        submit s2 session=chat debounce=200ms | submit s3 session=chat debounce=200ms
        submit s4 session=chat debounce=200ms | submit s5 session=chat debounce=200ms
        explain s1
        session chat
        wait 199ms
        wait 1ms
        finish s1 ok
        ",
        expect![[r#"
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
        "#]],
    );
}

#[test]
fn gc_d1_d2_a_window_of_zero_passes_each_through() {
    check(
        "
        submit s1 session=a debounce=800ms | submit s2 session=a debounce=800ms
        wait 800ms
        submit t1 session=b debounce=0ms | submit t2 session=b debounce=0ms
        ",
        expect![[r#"
            submit s1 session=a debounce=800ms | submit s2 session=a debounce=800ms
                s2 canceled #0 (merged)
            wait 800ms
                s1 queued #0 (due)
                s1 started #1
            submit t1 session=b debounce=0ms | submit t2 session=b debounce=0ms
                t1 started #1
        "#]],
    );
}

#[test]
fn gc_d3_each_job_has_a_window_of_its_own() {
    check(
        "
        submit s1 session=chat debounce=200ms
        submit s2 session=chat debounce=900ms
        wait 200ms
        wait 700ms
        ",
        expect![[r#"
            submit s1 session=chat debounce=200ms
            submit s2 session=chat debounce=900ms
                s2 canceled #0 (merged)
            wait 200ms
            wait 700ms
                s1 queued #0 (due)
                s1 started #1
        "#]],
    );
}

#[test]
fn gc_d4_other_agents_kinds_lanes_and_keys_are_kept_apart() {
    check(
        "
        submit s1 session=chat debounce=1s agent=A
        submit s2 session=chat debounce=1s agent=B
        submit s3 session=chat debounce=1s agent=B kind=k2
        submit s4 session=chat debounce=1s agent=B kind=k2 keys=tab:1
        submit s5 session=chat debounce=1s agent=B kind=k2 keys=tab:1
        session chat
        finish s1 ok
        ",
        expect![[r#"
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
        "#]],
    );
}

#[test]
fn gc_d6_a_single_job_starts_after_the_silence() {
    check(
        "submit s1 session=chat debounce=800ms\nwait 799ms\nwait 1ms",
        expect![[r#"
            submit s1 session=chat debounce=800ms
            wait 799ms
            wait 1ms
                s1 queued #0 (due)
                s1 started #1
        "#]],
    );
}

#[test]
fn gc_d9_a_job_without_a_window_joins_and_ends_the_burst() {
    check(
        "
        submit s1 session=chat debounce=1s
        submit s2 session=chat
        submit s3 session=chat
        ",
        expect![[r#"
            submit s1 session=chat debounce=1s
            submit s2 session=chat
                s2 canceled #0 (merged)
                s1 queued #0 (due)
                s1 started #1
            submit s3 session=chat
        "#]],
    );
}

#[test]
fn x16_a_steady_stream_starts_within_its_longest_wait() {
    check(
        "
        submit s0 session=chat debounce=200ms debounce_max=500ms
        wait 150ms
        submit s1 session=chat debounce=200ms
        wait 150ms
        submit s2 session=chat debounce=200ms
        wait 150ms
        submit s3 session=chat debounce=200ms
        wait 50ms
        submit s4 session=chat debounce=200ms
        ",
        expect![[r#"
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
        "#]],
    );
}

#[test]
fn a_burst_behind_a_run_waits_for_both() {
    check(
        "
        submit s1 session=chat
        submit s2 session=chat debounce=1s
        finish s1 ok
        wait 1s
        ",
        expect![[r#"
            submit s1 session=chat
                s1 started #1
            submit s2 session=chat debounce=1s
            finish s1 ok
                s1 succeeded #1 (done)
            wait 1s
                s2 queued #0 (due)
                s2 started #1
        "#]],
    );
}

#[test]
fn a_burst_counts_as_one_for_the_cap() {
    check(
        "
        submit s1 session=chat
        submit s2 session=chat debounce=1s cap=1 drop=new | submit s3 session=chat debounce=1s cap=1 drop=new
        submit s4 session=chat debounce=1s cap=1 drop=new agent=B
        submit s5 session=chat debounce=1s cap=1 agent=B
        session chat
        ",
        expect![[r#"
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
        "#]],
    );
}

#[test]
fn a_burst_takes_in_no_more_than_a_hundred() {
    let mut story = Story::new();
    let names: Vec<String> = (0..=100).map(|n| format!("s{n}")).collect();
    let said = story.play(&format!("batch {} session=chat debounce=1s", names.join(" ")));
    assert_eq!(said.iter().filter(|line| line.ends_with("(merged)")).count(), 100);
    assert_eq!(said[100..], ["s0 queued #0 (due)", "s0 started #1"]);
    story.play("submit t session=chat debounce=1s");
    let shown = story.play("session chat");
    assert_eq!(shown, ["chat: 1 running, 0 stopping, 1 waiting, 1 buffered, max 1, generation 0"]);
}

#[test]
fn a_canceled_burst_is_over() {
    check(
        "
        submit s1 session=chat debounce=1s | submit s2 session=chat debounce=1s
        cancel s1
        cancel s2
        submit s3 session=chat debounce=1s
        wait 1s
        ",
        expect![[r#"
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
        "#]],
    );
}

#[test]
fn x15_stopall_ends_the_burst_that_gathers_and_says_so() {
    check(
        "
        submit s1 session=chat debounce=1s | submit s2 session=chat debounce=1s
        stopall chat
        wait 2s
        session chat
        ",
        expect![[r#"
            submit s1 session=chat debounce=1s | submit s2 session=chat debounce=1s
                s2 canceled #0 (merged)
            stopall chat
                ran [], waited [s1], generation 0
                s1 canceled #0 (stopped)
                call.done
            wait 2s
            session chat
                chat: 0 running, 0 stopping, 0 waiting, 0 buffered, max -, generation 0, cutoff
        "#]],
    );
}

#[test]
fn a_burst_goes_on_after_a_crash_without_new_ones() {
    check(
        "
        submit s1 session=chat debounce=1s | submit s2 session=chat debounce=1s
        wait 500ms
        crash
        session chat
        submit s3 session=chat debounce=1s
        session chat
        wait 500ms
        wait 500ms
        finish s1 ok
        ",
        expect![[r#"
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
        "#]],
    );
}

#[test]
fn an_atomic_batch_is_judged_with_its_sessions() {
    check(
        "
        lane main running=0
        batch a1 a2 a3 atomic session=chat cap=2 drop=new
        session chat
        batch b1 b2 atomic session=chat cap=2 drop=new
        batch c1 c2 c3 atomic session=talk cap=1 drop=new debounce=1s
        ",
        expect![[r#"
            lane main running=0
                config.changed
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
        "#]],
    );
}

#[test]
fn a_debounce_that_is_too_long_is_rejected() {
    check(
        "
        submit s1 session=chat debounce=601s
        submit s2 session=chat debounce=1s debounce_max=3601s
        ",
        expect![[r#"
            submit s1 session=chat debounce=601s
                rejected: invalid: session.debounce: at most 600 s are allowed
            submit s2 session=chat debounce=1s debounce_max=3601s
                rejected: invalid: session.debounce_max: at most 3600 s are allowed
        "#]],
    );
}

#[test]
fn an_interrupt_ends_a_burst_and_waits_for_nobody() {
    check(
        "
        submit s1 session=chat debounce=1s | submit s2 session=chat debounce=1s
        submit s3 session=chat debounce=1s mode=interrupt
        ",
        expect![[r#"
            submit s1 session=chat debounce=1s | submit s2 session=chat debounce=1s
                s2 canceled #0 (merged)
            submit s3 session=chat debounce=1s mode=interrupt
                s1 canceled #0 (interrupted)
                s3 started #1
        "#]],
    );
}
