//! The cost of jobs, quiet rules, and the order when units are short.

use super::scenario::check;
use expect_test::expect;

#[test]
fn b17_b24_units_are_held_from_the_start_to_the_end_and_never_more_than_usable() {
    check(expect![[r#"
        load busy=0
        submit a1 cost=50 | submit a2 cost=30 | submit a3 cost=20
            a1 started #1
            a2 started #1
            a3 denied #0 (capacity)
        capacity
            busy 0 (quiet), 90 usable, 80 used, 0 reserved, 10 free, 0 leases
        explain a3
            a3 is queued, 0 ahead: cost 20 of 10 free units, 90 usable
        finish a1 ok
            a1 succeeded #1 (done)
            a3 started #1
        capacity
            busy 0 (quiet), 90 usable, 50 used, 0 reserved, 40 free, 0 leases
    "#]]);
}

#[test]
fn b15_w7_no_reading_or_an_old_one_counts_as_a_busy_machine() {
    check(expect![[r#"
        capacity
            busy 8 (busy), 9 usable, 0 used, 0 reserved, 9 free, 0 leases
        submit a1 cost=10 | submit a2 cost=9
            a1 denied #0 (capacity)
            a2 started #1
        load busy=0
            a1 started #1
        capacity
            busy 0 (quiet), 90 usable, 19 used, 0 reserved, 71 free, 0 leases
        wait 29s
        submit a3 cost=10
            a3 started #1
        wait 1s
        capacity
            busy 8 (busy), 9 usable, 29 used, 0 reserved, 0 free, 0 leases
        submit a4 cost=10
            a4 denied #0 (capacity)
        explain a4
            a4 is queued, 0 ahead: cost 10 of 0 free units, 9 usable
    "#]]);
}

#[test]
fn w6_a_job_that_never_fits_is_rejected_and_hides_no_other() {
    check(expect![[r#"
        load busy=0
        submit big cost=91 | submit huge cost=101 | submit most cost=90
            rejected: never_fits: cost: is 91, and an idle machine gives 90 at most; ask for less
            rejected: invalid: cost: is 101; at most 100 is allowed
            most started #1
    "#]]);
}

#[test]
fn a_lower_capacity_stops_nothing_that_runs() {
    check(expect![[r#"
        load busy=0
        submit a1 cost=60
            a1 started #1
        load busy=6
        capacity
            busy 6 (quiet), 28 usable, 60 used, 0 reserved, 0 free, 0 leases
        submit a2 cost=10
            a2 denied #0 (capacity)
        finish a1 ok
            a1 succeeded #1 (done)
            a2 started #1
    "#]]);
}

#[test]
fn w1_a_job_that_does_not_fit_hides_no_other() {
    check(expect![[r#"
        load busy=0
        submit a1 cost=50
            a1 started #1
        submit big cost=60 priority=-20 | submit small cost=10 | submit free
            big denied #0 (capacity)
            small started #1
            free started #1
    "#]]);
}

#[test]
fn w6_a_job_that_waits_keeps_its_position() {
    check(expect![[r#"
        load busy=0
        submit a1 cost=90
            a1 started #1
        submit b1 cost=60 | submit b2 cost=60 | submit b3 cost=60
            b1 denied #0 (capacity)
        finish a1 ok
            a1 succeeded #1 (done)
            b1 started #1
            b2 denied #0 (capacity)
        finish b1 ok
            b1 succeeded #1 (done)
            b2 started #1
            b3 denied #0 (capacity)
        finish b2 ok
            b2 succeeded #1 (done)
            b3 started #1
    "#]]);
}

#[test]
fn a_big_job_is_bypassed_a_bounded_number_of_times() {
    check(expect![[r#"
        given machine bypasses=2
        load busy=0
        submit s1 cost=30 agent=S | submit s2 cost=30 agent=S
            s1 started #1
            s2 started #1
        submit big cost=80 agent=B
            big denied #0 (capacity)
        submit s3 cost=30 agent=S
            s3 started #1
        finish s1 ok
            s1 succeeded #1 (done)
        submit s4 cost=30 agent=S
            s4 started #1
        finish s2 ok
            s2 succeeded #1 (done)
        submit s5 cost=10 agent=S
            s5 denied #0 (capacity)
        explain s5
            s5 is queued, 0 ahead: units are reserved for another job
        finish s3 ok
            s3 succeeded #1 (done)
        finish s4 ok
            s4 succeeded #1 (done)
            big started #1
            s5 started #1
        finish big ok
            big succeeded #1 (done)
    "#]]);
}

#[test]
fn a_job_that_is_next_in_line_and_blocked_by_a_busy_machine_blocks_no_other() {
    check(expect![[r#"
        given machine bypasses=1
        load busy=0
        submit s1 cost=30 agent=S | submit big cost=80 agent=B | submit s2 cost=30 agent=S
            s1 started #1
            big denied #0 (capacity)
            s2 started #1
        submit s3 cost=10 agent=S
            s3 denied #0 (capacity)
        load busy=3
            s3 started #1
    "#]]);
}

#[test]
fn b23_w8_panic_denies_all_and_busy_all_but_high() {
    check(expect![[r#"
        load busy=1 quiet=panic
        submit low cost=1 quiet=quiet | submit time cost=1 quiet=normal | submit high cost=1 quiet=busy
            low denied #0 (capacity)
            time denied #0 (capacity)
            high denied #0 (capacity)
        explain high
            high is queued, 0 ahead: panic and not busy
        load busy=1 quiet=busy
            high started #1
        load busy=1 quiet=normal
            time started #1
        explain low
            low is queued, 0 ahead: normal and not quiet
        load busy=1 quiet=quiet
            low started #1
    "#]]);
}

#[test]
fn w12_a_near_deadline_relaxes_the_rule_and_goes_ahead() {
    check(expect![[r#"
        given lane main order=priority running=1
        load busy=0 quiet=normal
        submit old priority=-5 | submit other
            old started #1
        submit late priority=5 quiet=quiet deadline=100s expects=20s
        wait 19s
        load busy=0 quiet=normal
        wait 1s
            late boosted #0 (near_deadline)
        finish old ok
            old succeeded #1 (done)
            late started #1
    "#]]);
}

#[test]
fn a_job_starts_within_its_hours_only() {
    // The scenario begins at 08:00 UTC.
    check(expect![[r#"
        load busy=0
        submit night hours=22:00-06:00 | submit day hours=08:00-08:30 cost=90
            day started #1
        submit later hours=07:00-08:30 cost=10
            later denied #0 (capacity)
        wait 1800s
            later deferred #0 (hours)
            stop day
        explain later
            later is scheduled, 0 ahead: not before 82800 s from the start, cost 10 of 0 free units, 9 usable
        explain night
            night is scheduled, 0 ahead: not before 50400 s from the start
    "#]]);
}

#[test]
fn w5_hours_of_the_past_block_no_other_job() {
    check(expect![[r#"
        load busy=0
        submit odd after=4000000000s deadline=4100000000s hours=22:00-06:00 expects=4200000000s cost=1 quiet=quiet
        submit fine cost=1
            fine started #1
        explain odd
            odd is scheduled, 0 ahead: not before 4000024800 s from the start
        jump 4000000
            clock.jumped the wall clock is 4000000 s ahead of the time that was seen to pass; until it has been so for an hour, nothing is deleted for its age
        jump -8000000
        submit more cost=1
            more started #1
    "#]]);
}

#[test]
fn an_agents_hours_hold_for_its_jobs() {
    check(expect![[r#"
        given agent A hours=22:00-06:00
        submit a1 agent=A | submit b1 agent=B
            b1 started #1
        explain a1
            a1 is scheduled, 0 ahead: not before 50400 s from the start
    "#]]);
}

#[test]
fn units_and_nearness_survive_a_crash() {
    check(expect![[r#"
        given executor w1 leased kinds=far slots=9
        load busy=0
        submit a1 kind=far cost=60 | start a1 | submit a2 kind=far cost=60 | submit a3 kind=far cost=60 deadline=90s expects=40s
            a1 assigned #1
            a1 started #1
            a2 denied #0 (capacity)
            a3 denied #0 (capacity)
        capacity
            busy 0 (quiet), 90 usable, 60 used, 0 reserved, 30 free, 0 leases
        crash
            a3 denied #0 (capacity)
        capacity
            busy 8 (busy), 9 usable, 60 used, 0 reserved, 0 free, 0 leases
        load busy=0
        finish a1 ok
            a1 succeeded #1 (done)
            a3 assigned #1
            a2 denied #0 (capacity)
    "#]]);
}

#[test]
fn a_denial_is_recorded_once_for_each_step_and_reason() {
    check(expect![[r#"
        load busy=0
        submit a1 cost=90 | submit a2 cost=50
            a1 started #1
            a2 denied #0 (capacity)
        tick
        wait 4s
        wait 1s
            a2 denied #0 (capacity)
        load busy=0
        wait 9s
        wait 1s
            a2 denied #0 (capacity)
    "#]]);
}
