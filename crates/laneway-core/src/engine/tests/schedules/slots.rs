//! Slots of schedules: missed ones, overlapping ones, rejected ones, and clock jumps.

use crate::engine::tests::scenario::{Scenario, check};
use expect_test::expect;

#[test]
fn overlap_skip_skips_slots_while_a_firing_is_active() {
    check(expect![[r#"
        schedule a every=10s
            schedule a created
        wait 10s
            schedule a fired
            a/1 started #1
        wait 10s
            schedule a skipped
        finish a/1 ok
            a/1 succeeded #1 (done)
            schedule a ok
        wait 10s
            schedule a fired
            a/2 started #1
        firings
            a +20s skipped overlap: the run before has not ended
            a +10s ok
    "#]]);
}

#[test]
fn overlap_allow_runs_side_by_side() {
    check(expect![[r#"
        given firing a every=10s overlap=allow
        wait 10s
            schedule a fired
            a/2 started #1
        finish a/1 ok
            a/1 succeeded #1 (done)
            schedule a ok
        finish a/2 ok
            a/2 succeeded #1 (done)
            schedule a ok
    "#]]);
}

#[test]
fn overlap_queue_lets_one_slot_wait() {
    check(expect![[r#"
        given firing a every=10s overlap=queue
        wait 10s
        wait 10s
            schedule a skipped
        crash
            a/1 queued #1 (lost)
            a/1 started #2
        finish a/1 ok
            a/1 succeeded #2 (done)
            schedule a ok
            schedule a fired
            a/2 started #1
        finish a/2 ok
            a/2 succeeded #1 (done)
            schedule a ok
        firings
            a +30s skipped overlap: a slot waits for the run to end already
            a +10s ok after 2 attempts
            a +20s ok
    "#]]);
}

#[test]
fn overlap_cancel_running_replaces_a_firing_when_its_attempt_has_ended() {
    check(expect![[r#"
        given firing a every=10s overlap=cancel_running
        wait 10s
            a/1 canceled #1 (replaced)
            schedule a canceled
            stop a/1
        showschedule a
            a is on, next +30s, last canceled, 1 firings
        finish a/1 ok
            stale
            a/1 released #1
            schedule a fired
            a/2 started #1
        wait 10s
            a/2 canceled #1 (replaced)
            schedule a canceled
            stop a/2
        wait 10s
            a/2 released #1
            schedule a skipped
            schedule a fired
            a/3 started #1
        firings
            a +10s canceled it was canceled: the next run takes its place
            a +20s canceled it was canceled: the next run takes its place
            a +30s skipped overlap: a later slot takes its place
    "#]]);
}

#[test]
fn catch_up_latest_fires_the_newest_missed_slot() {
    check(expect![[r#"
        given schedule a every=10s catch=latest
        sleep 35s
        crash
            schedule a skipped
            schedule a fired
            a/1 started #1
        showschedule a
            a is on, next +40s, last running, 1 firings
        firings
            a +10s skipped missed: nobody was there
    "#]]);
}

#[test]
fn catch_up_all_fires_each_missed_slot_oldest_first() {
    check(expect![[r#"
        given schedule a every=10s catch=all:3 overlap=allow
        sleep 25s
        crash
            schedule a fired
            schedule a fired
            a/1 started #1
            a/2 started #1
        sleep 55s
        crash
            a/1 queued #1 (lost)
            a/2 queued #1 (lost)
            a/1 started #2
            a/2 started #2
            schedule a skipped
            schedule a fired
            schedule a fired
            schedule a fired
            a/3 started #1
            a/4 started #1
            a/5 started #1
        showschedule a
            a is on, next +90s, last running, 5 firings
        firings
            a +30s skipped missed: nobody was there
    "#]]);
}

#[test]
fn a_clock_set_ahead_makes_no_flood_and_one_set_back_repeats_nothing() {
    check(expect![[r#"
        given firing a every=10s
        finish a/1 ok
            a/1 succeeded #1 (done)
            schedule a ok
        jump 3600
            schedule a skipped
            schedule a fired
            clock.jumped the wall clock is 3600 s ahead of the time that was seen to pass; until it has been so for an hour, nothing is deleted for its age
            a/2 started #1
        showschedule a
            a is on, next +3620s, last running, 2 firings
        jump -3600
        wait 10s
        showschedule a
            a is on, next +3620s, last running, 2 firings
        toggle a off | toggle a on
            schedule a disabled
            schedule a enabled
        showschedule a
            a is on, next +3620s, last running, 2 firings
    "#]]);
}

#[test]
fn a_slot_that_cannot_be_admitted_is_logged_with_the_reason() {
    check(expect![[r#"
        given lane main queued=1 running=1
        submit x | submit y
            x started #1
        schedule a every=10s
            schedule a created
        wait 10s
            schedule a skipped
        showschedule a
            a is on, next +20s, last skipped, 0 firings
        firings
            a +10s skipped queue_full: the queue is full (lane: queued_max): 1 of 1 jobs wait; submit again later
    "#]]);
}

#[test]
fn jitter_delays_the_job_and_not_the_slot() {
    check(expect![[r#"
        given schedule a every=100s jitter=50s
        wait 100s
            schedule a fired
        explain a/1
            a/1 is scheduled, 0 ahead: not before 109 s from the start
        showschedule a
            a is on, next +200s, last queued, 1 firings
        wait 50s
            a/1 queued #0 (due)
            a/1 started #1
    "#]]);
}

#[test]
fn firings_that_outlive_a_crash_count_and_those_that_died_are_interrupted() {
    check(expect![[r#"
        given executor w1 leased kinds=far slots=9 | schedule far every=10s kind=far
        given schedule near every=10s retries=0
        wait 10s
            schedule far fired
            schedule near fired
            far/1 assigned #1
            near/1 started #1
        start far/1
            far/1 started #1
        crash
            near/1 queued #1 (lost)
            near/1 started #2
        crash
            near/1 failed #2 (lost)
            schedule near interrupted
        wait 10s
            schedule far skipped
            schedule near fired
            near/2 started #1
        finish far/1 ok
            far/1 succeeded #1 (done)
            schedule far ok
        firings
            near +10s interrupted after 2 attempts the runner of the last attempt was lost
            far +20s skipped overlap: the run before has not ended
            far +10s ok
    "#]]);
}

#[test]
fn a_firing_that_takes_too_long_is_a_timeout_counted_from_its_start() {
    check(expect![[r#"
        given lane main running=1
        submit x
            x started #1
        schedule a every=100s timeout=5s retries=0
            schedule a created
        wait 100s
            schedule a fired
        wait 30s
        finish x ok
            x succeeded #1 (done)
            a/1 started #1
        wait 5s
            stop a/1
        finish a/1 ok
            stale
            a/1 failed #1 (timed_out)
            schedule a timeout
        firings
            a +100s timeout the attempt ran longer than its timeout
    "#]]);
}

#[test]
fn a_waiting_slot_fires_after_its_schedule_changed() {
    check(expect![[r#"
        given firing a every=10s overlap=queue
        wait 10s
        update a name=b
            schedule b updated
        update b every=60s
            schedule b updated
        showschedule b
            b is on, next +80s, last running, 1 firings
        finish a/1 ok
            a/1 succeeded #1 (done)
            schedule a ok
            schedule b fired
            b/2 started #1
        finish b/2 ok
            b/2 succeeded #1 (done)
            schedule b ok
        toggle b off
            schedule b disabled
        firings
            a +10s ok
            b +20s ok
    "#]]);
}

#[test]
fn a_waiting_slot_goes_with_its_schedule() {
    check(expect![[r#"
        given firing a every=10s overlap=queue
        wait 10s
        toggle a off
            schedule a skipped
            schedule a disabled
        finish a/1 ok
            a/1 succeeded #1 (done)
            schedule a ok
        showschedule a
            a is off, next never, last ok, 1 firings
        firings
            a +20s skipped the schedule was switched off
            a +10s ok
    "#]]);
}

#[test]
fn one_tick_fires_a_bounded_number_of_slots_and_the_next_one_the_rest() {
    let mut scenario = Scenario::new();
    for n in 0..300 {
        scenario.play(&format!("schedule s{n} every=10s"));
    }
    let fired = |said: Vec<String>| said.iter().filter(|said| said.ends_with(" fired")).count();
    assert_eq!(fired(scenario.play("wait 10s")), 256);
    assert!(scenario.engine.next_wakeup().wall <= Some(scenario.now.wall), "the rest is due at once");
    assert_eq!(fired(scenario.play("tick")), 44);
    assert_eq!(fired(scenario.play("tick")), 0);
}

#[test]
fn a_slot_joins_no_debounce_batch_and_runs_under_its_own_name() {
    check(expect![[r#"
        submit s1 session=chat debounce=60s
        schedule a at=10s session=chat
            schedule a created
        schedule b every=10s session=chat debounce=60s
            schedule b created
        wait 10s
            s1 queued #0 (due)
            schedule a fired
            schedule b fired
            s1 started #1
        finish s1 ok
            s1 succeeded #1 (done)
            a/1 started #1
        finish a/1 ok
            a/1 succeeded #1 (done)
            schedule a ok
            schedule a deleted
        firings
            a +10s ok
        wait 60s
            b/1 queued #0 (due)
            schedule b skipped
            schedule b skipped
            b/1 started #1
        finish b/1 ok
            b/1 succeeded #1 (done)
            schedule b ok
        firings
            a +10s ok
            b +20s skipped missed: nobody was there
            b +70s skipped overlap: the run before is queued and has not started
            b +10s ok
    "#]]);
}

#[test]
fn a_firing_that_is_interrupted_by_the_next_one_may_end_its_schedule() {
    check(expect![[r#"
        given firing a every=10s once overlap=allow session=chat mode=interrupt
        wait 10s
            a/1 canceled #1 (interrupted)
            schedule a canceled
            schedule a fired
            schedule a deleted
            stop a/1
        finish a/1 canceled
            stale
            a/1 released #1
            a/2 started #1
        finish a/2 ok
            a/2 succeeded #1 (done)
            schedule a ok
        firings
            a +10s canceled interrupted
            a +20s ok
    "#]]);
}
