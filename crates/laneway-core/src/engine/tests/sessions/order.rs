//! Sessions: order, caps, interrupts, stops and the throttle. Debounce batches are in `debounce.rs`.

use crate::command::{SessionCommand, StopWhat};
use crate::engine::tests::scenario::{Scenario, check};
use crate::{Change, Command, Effects, Engine, Name, Settings};
use expect_test::expect;

#[test]
fn gc_q1_three_jobs_of_one_session_never_overlap() {
    check(expect![[r#"
        submit s1 session=chat | submit s2 session=chat | submit s3 session=chat
            s1 started #1
        finish s1 ok
            s1 succeeded #1 (done)
            s2 started #1
        finish s2 ok
            s2 succeeded #1 (done)
            s3 started #1
        finish s3 ok
            s3 succeeded #1 (done)
        session chat
            session chat is not known
    "#]]);
}

#[test]
fn gc_q2_two_sessions_overlap() {
    check(expect![[r#"
        submit a1 session=a | submit b1 session=b
            a1 started #1
            b1 started #1
    "#]]);
}

#[test]
fn gc_q3_a_full_session_drops_its_oldest() {
    check(expect![[r#"
        submit s1 session=chat cap=2
            s1 started #1
        submit s2 session=chat cap=2 | submit s3 session=chat cap=2
        submit s4 session=chat cap=2
            s2 canceled #0 (dropped)
        finish s1 ok
            s1 succeeded #1 (done)
            s3 started #1
        finish s3 ok
            s3 succeeded #1 (done)
            s4 started #1
        finish s4 ok
            s4 succeeded #1 (done)
    "#]]);
}

#[test]
fn gc_q4_a_full_session_rejects_the_new_one() {
    check(expect![[r#"
        submit s1 session=chat cap=2 drop=new
            s1 started #1
        submit s2 session=chat cap=2 drop=new | submit s3 session=chat cap=2 drop=new
        submit s4 session=chat cap=2 drop=new
            rejected: session_full: session.cap: 2 jobs of the session wait, 2 may; submit again later
        submit s5 session=chat
    "#]]);
}

#[test]
fn a_cap_of_zero_keeps_the_newest_or_admits_none() {
    check(expect![[r#"
        given lane main running=0
        submit s1 session=a cap=0 | submit s2 session=a cap=0
            s1 canceled #0 (dropped)
        submit t1 session=b cap=0 drop=new
            rejected: session_full: session.cap: 0 jobs of the session wait, 0 may; submit again later
    "#]]);
}

#[test]
fn a_cap_counts_jobs_that_wait_for_their_time() {
    check(expect![[r#"
        submit s1 session=chat | submit s2 session=chat after=60s
            s1 started #1
        submit s3 session=chat cap=2 drop=new | submit s4 session=chat cap=2 drop=new
            rejected: session_full: session.cap: 2 jobs of the session wait, 2 may; submit again later
        submit s5 session=chat cap=2
            s3 canceled #0 (dropped)
    "#]]);
}

#[test]
fn gc_q5_an_interrupt_ends_the_attempt_and_starts_when_it_has_ended() {
    check(expect![[r#"
        submit s1 session=chat | submit s2 session=chat | submit s3 session=chat after=60s
            s1 started #1
        submit s4 session=chat mode=interrupt
            s1 canceled #1 (interrupted)
            s2 canceled #0 (interrupted)
            s3 canceled #0 (interrupted)
            stop s1
        explain s4
            s4 is queued, 0 ahead: session chat 1/1, session chat 1 stopping
        session chat
            chat: 0 running, 1 stopping, 1 waiting, 0 buffered, max 1, generation 0
        finish s1 canceled
            stale
            s1 released #1
            s4 started #1
        finish s4 ok
            s4 succeeded #1 (done)
    "#]]);
}

#[test]
fn x10_an_interrupt_completes_in_a_lane_of_one() {
    check(expect![[r#"
        given lane main running=1
        submit s1 session=chat
            s1 started #1
        submit s2 session=chat mode=interrupt
            s1 canceled #1 (interrupted)
            stop s1
        finish s1 canceled
            stale
            s1 released #1
            s2 started #1
        finish s2 ok
            s2 succeeded #1 (done)
        submit t1 session=chat | submit t2 session=chat | submit t3 session=chat
            t1 started #1
        finish t1 ok
            t1 succeeded #1 (done)
            t2 started #1
        finish t2 ok
            t2 succeeded #1 (done)
            t3 started #1
        finish t3 ok
            t3 succeeded #1 (done)
    "#]]);
}

#[test]
fn x11_a_lane_full_of_sessions_keeps_draining() {
    check(expect![[r#"
        given lane main running=2
        submit a1 session=a/3 | submit a2 session=a/3 | submit b1 session=b/3 | submit b2 session=b/3
            a1 started #1
            a2 started #1
        finish a1 ok
            a1 succeeded #1 (done)
            b1 started #1
        finish a2 ok
            a2 succeeded #1 (done)
            b2 started #1
        finish b1 ok
            b1 succeeded #1 (done)
        finish b2 ok
            b2 succeeded #1 (done)
    "#]]);
}

#[test]
fn x12_an_interrupt_waits_for_every_attempt_it_ended_even_where_more_may_run() {
    check(expect![[r#"
        submit s1 session=chat/3 | submit s2 session=chat/3
            s1 started #1
            s2 started #1
        submit s3 session=chat/3 mode=interrupt
            s1 canceled #1 (interrupted)
            s2 canceled #1 (interrupted)
            stop s1
            stop s2
        explain s3
            s3 is queued, 0 ahead: session chat 2 stopping
        finish s1 canceled
            stale
            s1 released #1
        wait 10s
            s2 released #1
            s3 started #1
    "#]]);
}

#[test]
fn an_interrupt_that_is_rejected_ends_nothing() {
    check(expect![[r#"
        submit s1 session=chat | submit s2 session=chat
            s1 started #1
        submit s3 session=chat mode=interrupt cap=0 drop=new
            rejected: session_full: session.cap: 0 jobs of the session wait, 0 may; submit again later
        session chat
            chat: 1 running, 0 stopping, 1 waiting, 0 buffered, max 1, generation 0
    "#]]);
}

#[test]
fn gc_q6_a_draining_server_rejects_and_keeps_waiting_jobs() {
    check(expect![[r#"
        submit s1 session=chat | submit s2 session=chat debounce=1s
            s1 started #1
        drain
            server.draining
        submit s3 session=chat
            rejected: draining: the server is stopping; submit again after it has restarted
        finish s1 back
            s1 queued #1 (handed_back)
        wait 2s
            s2 queued #0 (due)
        session chat
            chat: 0 running, 0 stopping, 2 waiting, 0 buffered, max 1, generation 0
    "#]]);
}

#[test]
fn gc_q7_a_full_context_lets_one_run() {
    check(expect![[r#"
        submit s1 session=chat/5 | submit s2 session=chat/5
            s1 started #1
            s2 started #1
        usage chat 50/100
        submit s3 session=chat/5
            s3 started #1
        usage chat 60/100
        submit s4 session=chat/5
        explain s4
            s4 is queued, 0 ahead: session chat 3/1, session chat throttled 60/100
        usage chat 80/100
        session chat
            chat: 3 running, 0 stopping, 1 waiting, 0 buffered, max 1, generation 0, throttled
        finish s1 ok | finish s2 ok
            s1 succeeded #1 (done)
            s2 succeeded #1 (done)
        finish s3 ok
            s3 succeeded #1 (done)
            s4 started #1
        submit s5 session=chat/5
        usage chat 59/100
            s5 started #1
    "#]]);
}

#[test]
fn a_context_of_unknown_size_throttles_nothing() {
    check(expect![[r#"
        usage chat 1000/0
        session chat
            chat: 0 running, 0 stopping, 0 waiting, 0 buffered, max -, generation 0
        submit s1 session=chat/2 | submit s2 session=chat/2
            s1 started #1
            s2 started #1
        usage chat 0/0
        finish s1 ok | finish s2 ok
            s1 succeeded #1 (done)
            s2 succeeded #1 (done)
        session chat
            session chat is not known
    "#]]);
}

#[test]
fn gc_q8_after_a_reset_the_old_job_ends_and_a_new_one_runs() {
    check(expect![[r#"
        submit s1 session=chat | submit s2 session=chat
            s1 started #1
        reset chat
            ran [s1], waited [s2], generation 1
            s1 canceled #1 (cleared)
            s2 canceled #0 (cleared)
            call.done
            stop s1
        submit s3 session=chat
        finish s1 ok
            stale
            s1 released #1
            s3 started #1
        finish s3 ok
            s3 succeeded #1 (done)
        session chat
            chat: 0 running, 0 stopping, 0 waiting, 0 buffered, max -, generation 1, cutoff
        reset chat
            ran [], waited [], generation 2
            call.done
    "#]]);
}

#[test]
fn gc_q9_stopall_ends_waiting_jobs() {
    check(expect![[r#"
        submit s1 session=chat | submit s2 session=chat | submit t1 session=other
            s1 started #1
            t1 started #1
        stopall chat
            ran [s1], waited [s2], generation 0
            s1 canceled #1 (stopped)
            s2 canceled #0 (stopped)
            call.done
            stop s1
        finish s1 canceled
            stale
            s1 released #1
        stopall chat
            ran [], waited [], generation 0
            call.done
        stopall unknown
            ran [], waited [], generation 0
            call.done
    "#]]);
}

#[test]
fn gc_q10_an_agent_is_active_in_the_sessions_it_runs_in() {
    check(expect![[r#"
        submit a1 session=a agent=A | submit a2 session=b agent=A | submit b1 session=c agent=B
            a1 started #1
            a2 started #1
            b1 started #1
        submit a3 session=c agent=A
        active A
            A runs in 2 sessions
        active B
            B runs in 1 sessions
        finish a1 ok | finish a2 ok
            a1 succeeded #1 (done)
            a2 succeeded #1 (done)
        active A
            A runs in 0 sessions
        active C
            C runs in 0 sessions
    "#]]);
}

#[test]
fn stop_ends_the_job_that_runs_longest_or_the_oldest_that_waits() {
    check(expect![[r#"
        submit s1 session=chat/2 | submit s2 session=chat/2 | submit s3 session=chat/2
            s1 started #1
            s2 started #1
        stop chat
            ran [s1], waited [], generation 0
            s1 canceled #1 (stopped)
            call.done
            stop s1
        finish s1 canceled
            stale
            s1 released #1
            s3 started #1
        stop chat
            ran [s2], waited [], generation 0
            s2 canceled #1 (stopped)
            call.done
            stop s2
        finish s2 canceled
            stale
            s2 released #1
        stop chat
            ran [s3], waited [], generation 0
            s3 canceled #1 (stopped)
            call.done
            stop s3
        finish s3 canceled
            stale
            s3 released #1
        stop chat
            ran [], waited [], generation 0
            call.done
        lane main paused=yes
            config.changed
        submit s4 session=chat | submit s5 session=chat
        stop chat
            ran [], waited [s4], generation 0
            s4 canceled #0 (stopped)
            call.done
        stop unknown
            ran [], waited [], generation 0
            call.done
    "#]]);
}

#[test]
fn a_message_sent_before_a_stop_is_stale_even_after_a_crash() {
    check(expect![[r#"
        stopall chat
            ran [], waited [], generation 0
            call.done
        submit s1 session=chat sent=5s
            rejected: stale: session.sent_at: the job was sent before its session was stopped; send a new one
        crash
        submit s2 session=chat sent=1s
            rejected: stale: session.sent_at: the job was sent before its session was stopped; send a new one
        submit s3 session=chat sent=0s
            s3 started #1
        submit s4 session=chat
        session chat
            chat: 1 running, 0 stopping, 1 waiting, 0 buffered, max 1, generation 0, cutoff
    "#]]);
}

#[test]
fn nothing_from_before_a_stopall_starts_after_a_crash() {
    check(expect![[r#"
        given lane main running=1
        submit s1 session=chat | submit s2 session=chat | submit s3 session=chat debounce=5s
            s1 started #1
        stopall chat
            ran [s1], waited [s2,s3], generation 0
            s1 canceled #1 (stopped)
            s2 canceled #0 (stopped)
            s3 canceled #0 (stopped)
            call.done
            stop s1
        crash
            s1 released #1
        wait 60s
        session chat
            chat: 0 running, 0 stopping, 0 waiting, 0 buffered, max -, generation 0, cutoff
    "#]]);
}

#[test]
fn x17_a_report_from_before_a_reset_changes_nothing() {
    check(expect![[r#"
        submit s1 session=chat
            s1 started #1
        resetall
            call.done
            stop s1
        session chat
            chat: 1 running, 0 stopping, 0 waiting, 0 buffered, max -, generation 1
        finish s1 ok
            stale
            s1 queued #1 (handed_back)
            s1 started #2
        finish s1#1 ok
            stale
        session chat
            chat: 1 running, 0 stopping, 0 waiting, 0 buffered, max -, generation 1
        finish s1 ok
            s1 succeeded #2 (done)
    "#]]);
}

#[test]
fn a_reset_of_all_hands_back_attempts_that_do_not_stop_and_leaves_workers_alone() {
    check(expect![[r#"
        given leased executor
        submit s1 session=a | submit p1 | submit w1 session=b kind=w
            s1 started #1
            p1 started #1
            w1 assigned #1
        resetall
            call.done
            stop s1
        wait 10s
            s1 queued #1 (handed_back)
            s1 started #2
        start w1
            w1 started #1
    "#]]);
}

#[test]
fn defect_02_a_reset_of_all_repeats_only_jobs_that_allow_a_loss() {
    check(expect![[r#"
        submit s1 session=a losses=0 | submit s2 session=b losses=0 | submit s3 session=c losses=0 | submit s4 session=d losses=0
            s1 started #1
            s2 started #1
            s3 started #1
            s4 started #1
        resetall
            call.done
            stop s1
            stop s2
            stop s3
            stop s4
        finish s1 ok
            s1 succeeded #1 (done)
        finish s2 canceled
            stale
            s2 failed #1 (lost)
        finish s3 back
            stale
            s3 queued #1 (handed_back)
            s3 started #2
        wait 10s
            s4 failed #1 (lost)
    "#]]);
}

#[test]
fn sessions_are_forgotten_a_day_after_they_changed() {
    check(expect![[r#"
        stopall chat
            ran [], waited [], generation 0
            call.done
        session chat
            chat: 0 running, 0 stopping, 0 waiting, 0 buffered, max -, generation 0, cutoff
        wait 86399s
        session chat
            chat: 0 running, 0 stopping, 0 waiting, 0 buffered, max -, generation 0, cutoff
        wait 11s
        session chat
            session chat is not known
        submit s1 session=chat sent=200000s
            s1 started #1
        finish s1 ok
            s1 succeeded #1 (done)
        session chat
            session chat is not known
    "#]]);
}

#[test]
fn only_so_many_sessions_without_jobs_are_remembered() {
    let now = crate::Now { mono: crate::Mono(1), wall: crate::Wall(1_000) };
    let mut engine = Engine::new(Settings::default(), 7, now);
    let mut effects = Effects::default();
    let name = |n: i64| Name::new(&format!("s{n}")).expect("a name");
    for n in 0..10_002 {
        let now = crate::Now { wall: crate::Wall(1_000 + n), ..now };
        let (tenant, key, origin) = (Name::fixed("default"), name(n), Scenario::origin());
        engine.apply(
            now,
            Command::Session(SessionCommand::Stop { tenant, key, what: StopWhat::All, origin }),
            &mut effects,
        );
    }
    engine.check_invariants().expect("the engine agrees with itself");
    let known = |n: i64| engine.session(&Name::fixed("default"), &name(n)).is_some();
    assert_eq!([0, 1, 2, 10_001].map(known), [false, false, true, true]);
    let forgotten = |change: &&Change| matches!(change, Change::SessionForgotten { .. });
    assert_eq!(effects.changes.iter().filter(forgotten).count(), 2, "the store forgets them, too");
}

#[test]
fn a_tenant_that_leaves_many_sessions_behind_pushes_out_its_own_only() {
    let now = crate::Now { mono: crate::Mono(1), wall: crate::Wall(1_000) };
    let mut engine = Engine::new(Settings::default(), 7, now);
    let mut effects = Effects::default();
    let name = |n: i64| Name::new(&format!("s{n}")).expect("a name");
    let mut stop = |tenant: &'static str, n: i64| {
        let now = crate::Now { wall: crate::Wall(1_000 + n), ..now };
        let (tenant, key, origin) = (Name::fixed(tenant), name(n), Scenario::origin());
        engine.apply(
            now,
            Command::Session(SessionCommand::Stop { tenant, key, what: StopWhat::All, origin }),
            &mut effects,
        );
    };
    (0..10).for_each(|n| stop("small", n));
    (10..10_020).for_each(|n| stop("large", n));
    engine.check_invariants().expect("the engine agrees with itself");
    let known = |tenant: &'static str, n: i64| engine.session(&Name::fixed(tenant), &name(n)).is_some();
    assert!((0..10).all(|n| known("small", n)), "they are the oldest, and their tenant has few");
    assert_eq!([10, 29, 30, 10_019].map(|n| known("large", n)), [false, false, true, true]);
}
