//! Schedules: slots, policies, runs by hand, one-shots, restarts, clocks that are set.

use super::check;
use expect_test::expect;

#[test]
fn gc_c7_c12_a_due_schedule_runs_and_is_logged() {
    check(
        "schedule s every=10s\nshow s\nwait 10s\nshow s\nwait 2s\nfinish s/1 ok\nshow s\nruns\nwait 8s",
        expect![[r#"
            schedule s every=10s
                schedule s created
            show s
                s is on, next +10s, last none, 0 runs
            wait 10s
                schedule s fired
                s/1 started #1
            show s
                s is on, next +20s, last running, 1 runs
            wait 2s
            finish s/1 ok
                s/1 succeeded #1 (done)
                schedule s ok
            show s
                s is on, next +20s, last ok, 1 runs
            runs
                s +10s ok
            wait 8s
                schedule s fired
                s/2 started #1
        "#]],
    );
}

#[test]
fn gc_c1_x20_what_could_never_run_is_refused_and_not_stored() {
    check(
        "
        schedule a at=-1s
        schedule a every=0s
        schedule a cron=bad_cron
        schedule a cron=61_*_*_*_*
        schedule a cron=0_0_30_2_*
        schedule a cron=0_9_*_*_* zone=Invalid/Zone
        schedule a at=5s bytes=65537
        schedule a at=5s catch=all:0
        schedule a every=5s | schedule a every=6s
        update a cron=0_0_31_4_*
        show a
        ",
        expect![[r#"
            schedule a at=-1s
                refused: no_future_run: timing.at: is in the past, so there is no future run; give a time in the future
            schedule a every=0s
                refused: invalid: timing.every: 0 ms is not an interval; give 100 ms to ten years
            schedule a cron=bad_cron
                refused: invalid: timing.expr: has 2 fields; give five (minute, hour, day of month, month, day of week), or six with the second first
            schedule a cron=61_*_*_*_*
                refused: invalid: timing.expr: minute: "61" is not in 0-59
            schedule a cron=0_0_30_2_*
                refused: no_future_run: timing.expr: names no date within eight years, so there is no future run; give a date that exists
            schedule a cron=0_9_*_*_* zone=Invalid/Zone
                refused: invalid: timing.zone: "Invalid/Zone" is no time zone; give an IANA name such as "Europe/Berlin" or "UTC"
            schedule a at=5s bytes=65537
                refused: invalid: payload: has 65537 bytes; at most 65536 are allowed
            schedule a at=5s catch=all:0
                refused: invalid: catch_up.max: 0 is not in 1-10000
            schedule a every=5s | schedule a every=6s
                schedule a created
                refused: name_taken: name: there is a schedule "a" already; choose another name
            update a cron=0_0_31_4_*
                refused: no_future_run: timing.expr: names no date within eight years, so there is no future run; give a date that exists
            show a
                a is on, next +5s, last none, 0 runs
        "#]],
    );
}

#[test]
fn gc_c13_x25_overdue_schedules_do_not_run_at_a_start() {
    check(
        "
        schedule a every=600s | schedule b every=1200s | schedule c cron=*/30_*_*_*_*
        crash
        wait 599s
        sleep 3000s
        crash
        show a | show b | show c
        runs
        ",
        expect![[r#"
            schedule a every=600s | schedule b every=1200s | schedule c cron=*/30_*_*_*_*
                schedule a created
                schedule b created
                schedule c created
            crash
            wait 599s
            sleep 3000s
            crash
                schedule a skipped
                schedule b skipped
                schedule c skipped
            show a | show b | show c
                a is on, next +3600s, last skipped, 0 runs
                b is on, next +3600s, last skipped, 0 runs
                c is on, next +3600s, last skipped, 0 runs
            runs
                a +600s skipped missed: nobody was there
                b +1200s skipped missed: nobody was there
                c +1800s skipped missed: nobody was there
        "#]],
    );
}

#[test]
fn gc_c14_a_one_shot_that_was_missed_is_switched_off_and_kept() {
    check(
        "schedule a at=60s\nsleep 61s\ncrash\nshow a\nruns\ntoggle a on\nshow a",
        expect![[r#"
        schedule a at=60s
            schedule a created
        sleep 61s
        crash
            schedule a skipped
        show a
            a is off, next never, last skipped, 0 runs
        runs
            a +60s skipped missed: nobody was there
        toggle a on
            refused: no_future_run: timing.at: is in the past, so there is no future run; give a time in the future
        show a
            a is off, next never, last skipped, 0 runs
    "#]],
    );
}

#[test]
fn gc_c15_a_run_by_hand_leaves_the_grid_alone() {
    check(
        "schedule a every=10s\nwait 4s\nrun a\nshow a\nfinish a/1 ok\nshow a\nwait 6s",
        expect![[r#"
        schedule a every=10s
            schedule a created
        wait 4s
        run a
            schedule a fired
            a/1 started #1
        show a
            a is on, next +10s, last running, 1 runs
        finish a/1 ok
            a/1 succeeded #1 (done)
            schedule a ok
        show a
            a is on, next +10s, last ok, 1 runs
        wait 6s
            schedule a fired
            a/2 started #1
    "#]],
    );
}

#[test]
fn x21_x22_a_run_by_hand_says_why_it_did_not_happen() {
    check(
        "schedule a every=10s overlap=allow\nrun a due\nwait 10s\nrun a\nrun a due\nfinish a/1 ok\nrun a",
        expect![[r#"
            schedule a every=10s overlap=allow
                schedule a created
            run a due
                did not run: not_due
            wait 10s
                schedule a fired
                a/1 started #1
            run a
                did not run: already_running
            run a due
                did not run: already_running
            finish a/1 ok
                a/1 succeeded #1 (done)
                schedule a ok
            run a
                schedule a fired
                a/2 started #1
        "#]],
    );
}

#[test]
fn gc_c9_x29_no_retries_is_one_attempt_and_an_error() {
    check(
        "schedule a every=10s retries=0\nwait 10s\nfinish a/1 fail\nshow a\nruns",
        expect![[r#"
        schedule a every=10s retries=0
            schedule a created
        wait 10s
            schedule a fired
            a/1 started #1
        finish a/1 fail
            a/1 failed #1 (exhausted)
            schedule a error
        show a
            a is on, next +20s, last error, 1 runs
        runs
            a +10s error it failed
    "#]],
    );
}

#[test]
fn gc_r1_r2_r3_one_entry_for_a_run_with_all_its_attempts() {
    check(
        "
        schedule a every=1000s retries=2
        wait 1000s
        finish a/1 fail
        wait 1s
        finish a/1 fail
        wait 2s
        finish a/1 ok
        wait 997s
        finish a/2 fail
        wait 1s
        finish a/2 fail
        wait 2s
        finish a/2 fail
        wait 997s
        finish a/3 permanent
        runs
        ",
        expect![[r#"
            schedule a every=1000s retries=2
                schedule a created
            wait 1000s
                schedule a fired
                a/1 started #1
            finish a/1 fail
                a/1 retrying #1 (retry)
            wait 1s
                a/1 queued #1 (due)
                a/1 started #2
            finish a/1 fail
                a/1 retrying #2 (retry)
            wait 2s
                a/1 queued #2 (due)
                a/1 started #3
            finish a/1 ok
                a/1 succeeded #3 (done)
                schedule a ok
            wait 997s
                schedule a fired
                a/2 started #1
            finish a/2 fail
                a/2 retrying #1 (retry)
            wait 1s
                a/2 queued #1 (due)
                a/2 started #2
            finish a/2 fail
                a/2 retrying #2 (retry)
            wait 2s
                a/2 queued #2 (due)
                a/2 started #3
            finish a/2 fail
                a/2 failed #3 (exhausted)
                schedule a error
            wait 997s
                schedule a fired
                a/3 started #1
            finish a/3 permanent
                a/3 failed #1 (permanent)
                schedule a error
            runs
                a +1000s ok after 3 attempts
                a +2000s error after 3 attempts it failed
                a +3000s error it cannot work
        "#]],
    );
}

#[test]
fn x24_gc_c6_a_one_shot_is_deleted_after_its_run_and_its_log_stays() {
    check(
        "schedule a at=5s | schedule b at=5s keep\nwait 5s\nfinish a/1 permanent | finish b/1 ok\nshow a | show b\nruns",
        expect![[r#"
            schedule a at=5s | schedule b at=5s keep
                schedule a created
                schedule b created
            wait 5s
                schedule a fired
                schedule b fired
                a/1 started #1
                b/1 started #1
            finish a/1 permanent | finish b/1 ok
                a/1 failed #1 (permanent)
                schedule a error
                schedule a deleted
                b/1 succeeded #1 (done)
                schedule b ok
            show a | show b
                a is not there
                b is off, next never, last ok, 1 runs
            runs
                a +5s error it cannot work
                b +5s ok
        "#]],
    );
}

#[test]
fn a_one_shot_that_becomes_an_interval_stays() {
    check(
        "schedule a at=50s\nupdate a every=10s\nwait 10s\nfinish a/1 ok\nshow a",
        expect![[r#"
        schedule a at=50s
            schedule a created
        update a every=10s
            schedule a updated
        wait 10s
            schedule a fired
            a/1 started #1
        finish a/1 ok
            a/1 succeeded #1 (done)
            schedule a ok
        show a
            a is on, next +20s, last ok, 1 runs
    "#]],
    );
}

#[test]
fn overlap_skip_passes_over_slots_while_a_run_goes_on() {
    check(
        "schedule a every=10s\nwait 10s\nwait 10s\nfinish a/1 ok\nwait 10s\nruns",
        expect![[r#"
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
        runs
            a +20s skipped overlap: the run before has not ended
            a +10s ok
    "#]],
    );
}

#[test]
fn overlap_allow_runs_side_by_side() {
    check(
        "schedule a every=10s overlap=allow\nwait 10s\nwait 10s\nfinish a/1 ok\nfinish a/2 ok",
        expect![[r#"
            schedule a every=10s overlap=allow
                schedule a created
            wait 10s
                schedule a fired
                a/1 started #1
            wait 10s
                schedule a fired
                a/2 started #1
            finish a/1 ok
                a/1 succeeded #1 (done)
                schedule a ok
            finish a/2 ok
                a/2 succeeded #1 (done)
                schedule a ok
        "#]],
    );
}

#[test]
fn overlap_queue_lets_one_slot_wait() {
    check(
        "schedule a every=10s overlap=queue\nwait 10s\nwait 10s\nwait 10s\ncrash\nfinish a/1 ok\nfinish a/2 ok\nruns",
        expect![[r#"
            schedule a every=10s overlap=queue
                schedule a created
            wait 10s
                schedule a fired
                a/1 started #1
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
            runs
                a +30s skipped overlap: a slot waits for the run to end already
                a +10s ok after 2 attempts
                a +20s ok
        "#]],
    );
}

#[test]
fn overlap_cancel_running_replaces_a_run_when_it_has_really_ended() {
    check(
        "schedule a every=10s overlap=cancel_running\nwait 10s\nwait 10s\nshow a\nfinish a/1 ok\nwait 10s\nwait 10s\nruns",
        expect![[r#"
            schedule a every=10s overlap=cancel_running
                schedule a created
            wait 10s
                schedule a fired
                a/1 started #1
            wait 10s
                a/1 canceled #1 (replaced)
                schedule a canceled
                stop a/1
            show a
                a is on, next +30s, last canceled, 1 runs
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
            runs
                a +10s canceled it was canceled: the next run takes its place
                a +20s canceled it was canceled: the next run takes its place
                a +30s skipped overlap: a later slot takes its place
        "#]],
    );
}

#[test]
fn catch_up_latest_runs_the_newest_missed_slot() {
    check(
        "schedule a every=10s catch=latest\nsleep 35s\ncrash\nshow a\nruns",
        expect![[r#"
        schedule a every=10s catch=latest
            schedule a created
        sleep 35s
        crash
            schedule a skipped
            schedule a fired
            a/1 started #1
        show a
            a is on, next +40s, last running, 1 runs
        runs
            a +10s skipped missed: nobody was there
    "#]],
    );
}

#[test]
fn catch_up_all_runs_each_missed_slot_oldest_first() {
    check(
        "schedule a every=10s catch=all:3 overlap=allow\nsleep 25s\ncrash\nsleep 55s\ncrash\nshow a\nruns",
        expect![[r#"
            schedule a every=10s catch=all:3 overlap=allow
                schedule a created
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
            show a
                a is on, next +90s, last running, 5 runs
            runs
                a +30s skipped missed: nobody was there
        "#]],
    );
}

#[test]
fn a_clock_set_ahead_makes_no_flood_and_one_set_back_repeats_nothing() {
    check(
        "
        schedule a every=10s
        wait 10s
        finish a/1 ok
        jump 3600
        show a
        jump -3600
        wait 10s
        show a
        toggle a off | toggle a on
        show a
        ",
        expect![[r#"
            schedule a every=10s
                schedule a created
            wait 10s
                schedule a fired
                a/1 started #1
            finish a/1 ok
                a/1 succeeded #1 (done)
                schedule a ok
            jump 3600
                schedule a skipped
                schedule a fired
                a/2 started #1
            show a
                a is on, next +3620s, last running, 2 runs
            jump -3600
            wait 10s
            show a
                a is on, next +3620s, last running, 2 runs
            toggle a off | toggle a on
                schedule a disabled
                schedule a enabled
            show a
                a is on, next +3620s, last running, 2 runs
        "#]],
    );
}

#[test]
fn a_slot_that_cannot_be_admitted_is_logged_with_the_reason() {
    check(
        "lane main queued=1 running=1\nsubmit x | submit y\nschedule a every=10s\nwait 10s\nshow a\nruns",
        expect![[r#"
            lane main queued=1 running=1
                config.changed
            submit x | submit y
                x started #1
            schedule a every=10s
                schedule a created
            wait 10s
                schedule a skipped
            show a
                a is on, next +20s, last skipped, 0 runs
            runs
                a +10s skipped queue_full: the queue is full (lane: queued_max): 1 of 1 jobs wait; submit again later
        "#]],
    );
}

#[test]
fn jitter_delays_the_job_and_not_the_slot() {
    check(
        "schedule a every=100s jitter=50s\nwait 100s\nexplain a/1\nshow a\nwait 50s",
        expect![[r#"
        schedule a every=100s jitter=50s
            schedule a created
        wait 100s
            schedule a fired
        explain a/1
            a/1 is scheduled, 0 ahead: not before 103 s from the start
        show a
            a is on, next +200s, last running, 1 runs
        wait 50s
            a/1 queued #0 (due)
            a/1 started #1
    "#]],
    );
}

#[test]
fn gc_s1_s2_switching_off_and_on() {
    check(
        "
        schedule a every=10s
        toggle a on
        show a
        toggle a off
        show a
        wait 25s
        toggle a on
        show a
        toggle a on
        show a
        schedule b at=5s off
        wait 5s
        toggle b on
        show b
        ",
        expect![[r#"
            schedule a every=10s
                schedule a created
            toggle a on
            show a
                a is on, next +10s, last none, 0 runs
            toggle a off
                schedule a disabled
            show a
                a is off, next never, last none, 0 runs
            wait 25s
            toggle a on
                schedule a enabled
            show a
                a is on, next +30s, last none, 0 runs
            toggle a on
            show a
                a is on, next +30s, last none, 0 runs
            schedule b at=5s off
                schedule b created
            wait 5s
                schedule a fired
                a/1 started #1
            toggle b on
                refused: no_future_run: timing.at: is in the past, so there is no future run; give a time in the future
            show b
                b is off, next never, last none, 0 runs
        "#]],
    );
}

#[test]
fn gc_s4_switching_off_during_a_run_leaves_no_next_slot() {
    check(
        "schedule a every=10s\nwait 10s\ntoggle a off\nfinish a/1 ok\nshow a\nwait 10s",
        expect![[r#"
        schedule a every=10s
            schedule a created
        wait 10s
            schedule a fired
            a/1 started #1
        toggle a off
            schedule a disabled
        finish a/1 ok
            a/1 succeeded #1 (done)
            schedule a ok
        show a
            a is off, next never, last ok, 1 runs
        wait 10s
    "#]],
    );
}

#[test]
fn gc_s7_changes_and_walls_between_tenants() {
    check(
        "
        schedule a every=10s tenant=one
        toggle a off as=two
        run a as=two
        delete a as=two
        update a name=b as=one
        update b every=20s as=one
        show b
        delete b as=one
        delete b as=one
        ",
        expect![[r#"
            schedule a every=10s tenant=one
                schedule a created
            toggle a off as=two
                not found
            run a as=two
                not found
            delete a as=two
                not found
            update a name=b as=one
                schedule b updated
            update b every=20s as=one
                schedule b updated
            show b
                b is on, next +20s, last none, 0 runs
            delete b as=one
                schedule b deleted
            delete b as=one
                not found
        "#]],
    );
}

#[test]
fn gc_s5_a_payload_is_carried_whatever_it_is() {
    check(
        "schedule a every=10s bytes=65536\ntoggle a off\ntoggle a on\nwait 10s",
        expect![[r#"
        schedule a every=10s bytes=65536
            schedule a created
        toggle a off
            schedule a disabled
        toggle a on
            schedule a enabled
        wait 10s
            schedule a fired
            a/1 started #1
    "#]],
    );
}

#[test]
fn a_schedule_deleted_during_its_run_is_logged_all_the_same() {
    check(
        "schedule a every=10s\nwait 10s\ndelete a\ncrash\nfinish a/1 ok\nruns",
        expect![[r#"
        schedule a every=10s
            schedule a created
        wait 10s
            schedule a fired
            a/1 started #1
        delete a
            schedule a deleted
        crash
            a/1 queued #1 (lost)
            a/1 started #2
        finish a/1 ok
            a/1 succeeded #2 (done)
            schedule a ok
        runs
            a +10s ok after 2 attempts
    "#]],
    );
}

#[test]
fn runs_that_outlive_a_crash_count_and_those_that_died_are_interrupted() {
    check(
        "
        place w1 leased kinds=far slots=9
        schedule far every=10s kind=far | schedule near every=10s retries=0
        wait 10s
        start far/1
        crash
        crash
        wait 10s
        finish far/1 ok
        runs
        ",
        expect![[r#"
            place w1 leased kinds=far slots=9
            schedule far every=10s kind=far | schedule near every=10s retries=0
                schedule far created
                schedule near created
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
            runs
                near +10s interrupted after 2 attempts the runner of the last attempt was lost
                far +20s skipped overlap: the run before has not ended
                far +10s ok
        "#]],
    );
}

#[test]
fn a_run_that_is_too_long_is_a_timeout_counted_from_its_start() {
    check(
        "lane main running=1\nsubmit x\nschedule a every=100s timeout=5s retries=0\nwait 100s\nwait 30s\nfinish x ok\nwait 5s\nfinish a/1 ok\nruns",
        expect![[r#"
            lane main running=1
                config.changed
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
            runs
                a +100s timeout the attempt ran longer than its timeout
        "#]],
    );
}

#[test]
fn x28_a_stop_during_a_backoff_keeps_the_run_and_nothing_fires() {
    check(
        "schedule a every=10s\nwait 10s\nfinish a/1 fail\ndrain\nwait 20s\nshow a\ncrash\nshow a",
        expect![[r#"
            schedule a every=10s
                schedule a created
            wait 10s
                schedule a fired
                a/1 started #1
            finish a/1 fail
                a/1 retrying #1 (retry)
            drain
                server.draining
            wait 20s
                a/1 queued #1 (due)
            show a
                a is on, next +20s, last running, 1 runs
            crash
                a/1 started #2
                schedule a skipped
            show a
                a is on, next +40s, last running, 1 runs
        "#]],
    );
}

#[test]
fn gc_c8_a_kind_that_nobody_offers_waits() {
    check(
        "schedule a every=10s kind=nobody\nwait 10s\nexplain a/1\nwait 10s\nruns",
        expect![[r#"
        schedule a every=10s kind=nobody
            schedule a created
        wait 10s
            schedule a fired
        explain a/1
            a/1 is queued, 0 ahead: no place for nobody
        wait 10s
            schedule a skipped
        runs
            a +20s skipped overlap: the run before has not ended
    "#]],
    );
}

#[test]
fn a_run_by_hand_that_outlives_a_missed_one_shot_leaves_it_switched_off() {
    check(
        "schedule a at=60s\nrun a\nsleep 200s\nwait 1s\nshow a\nfinish a/1 ok\nshow a",
        expect![[r#"
        schedule a at=60s
            schedule a created
        run a
            schedule a fired
            a/1 started #1
        sleep 200s
        wait 1s
            schedule a skipped
        show a
            a is on, next never, last running, 1 runs
        finish a/1 ok
            a/1 succeeded #1 (done)
            schedule a ok
        show a
            a is off, next never, last ok, 1 runs
    "#]],
    );
}
