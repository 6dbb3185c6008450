//! Schedules: slots, policies, runs by hand, one-shots, restarts, clocks that are set.

use super::check;
use expect_test::expect;

#[test]
fn gc_c7_c12_a_due_schedule_runs_and_is_logged() {
    check(
        "schedule s every=10s\nshow s\nwait 10s\nshow s\nwait 2s\nfinish s/1 ok\nshow s\nruns\nwait 8s",
        expect![[""]],
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
        expect![[""]],
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
        expect![[""]],
    );
}

#[test]
fn gc_c14_a_one_shot_that_was_missed_is_switched_off_and_kept() {
    check("schedule a at=60s\nsleep 61s\ncrash\nshow a\nruns\ntoggle a on\nshow a", expect![[""]]);
}

#[test]
fn gc_c15_a_run_by_hand_leaves_the_grid_alone() {
    check("schedule a every=10s\nwait 4s\nrun a\nshow a\nfinish a/1 ok\nshow a\nwait 6s", expect![[""]]);
}

#[test]
fn x21_x22_a_run_by_hand_says_why_it_did_not_happen() {
    check(
        "schedule a every=10s overlap=allow\nrun a due\nwait 10s\nrun a\nrun a due\nfinish a/1 ok\nrun a",
        expect![[""]],
    );
}

#[test]
fn gc_c9_x29_no_retries_is_one_attempt_and_an_error() {
    check("schedule a every=10s retries=0\nwait 10s\nfinish a/1 fail\nshow a\nruns", expect![[""]]);
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
        expect![[""]],
    );
}

#[test]
fn x24_gc_c6_a_one_shot_is_deleted_after_its_run_and_its_log_stays() {
    check(
        "schedule a at=5s | schedule b at=5s keep\nwait 5s\nfinish a/1 permanent | finish b/1 ok\nshow a | show b\nruns",
        expect![[""]],
    );
}

#[test]
fn a_one_shot_that_becomes_an_interval_stays() {
    check("schedule a at=50s\nupdate a every=10s\nwait 10s\nfinish a/1 ok\nshow a", expect![[""]]);
}

#[test]
fn overlap_skip_passes_over_slots_while_a_run_goes_on() {
    check("schedule a every=10s\nwait 10s\nwait 10s\nfinish a/1 ok\nwait 10s\nruns", expect![[""]]);
}

#[test]
fn overlap_allow_runs_side_by_side() {
    check(
        "schedule a every=10s overlap=allow\nwait 10s\nwait 10s\nfinish a/1 ok\nfinish a/2 ok",
        expect![[""]],
    );
}

#[test]
fn overlap_queue_lets_one_slot_wait() {
    check(
        "schedule a every=10s overlap=queue\nwait 10s\nwait 10s\nwait 10s\ncrash\nfinish a/1 ok\nfinish a/2 ok\nruns",
        expect![[""]],
    );
}

#[test]
fn overlap_cancel_running_replaces_a_run_when_it_has_really_ended() {
    check(
        "schedule a every=10s overlap=cancel_running\nwait 10s\nwait 10s\nshow a\nfinish a/1 ok\nwait 10s\nwait 10s\nruns",
        expect![[""]],
    );
}

#[test]
fn catch_up_latest_runs_the_newest_missed_slot() {
    check("schedule a every=10s catch=latest\nsleep 35s\ncrash\nshow a\nruns", expect![[""]]);
}

#[test]
fn catch_up_all_runs_each_missed_slot_oldest_first() {
    check(
        "schedule a every=10s catch=all:3 overlap=allow\nsleep 25s\ncrash\nsleep 55s\ncrash\nshow a\nruns",
        expect![[""]],
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
        expect![[""]],
    );
}

#[test]
fn a_slot_that_cannot_be_admitted_is_logged_with_the_reason() {
    check(
        "lane main queued=1 running=1\nsubmit x | submit y\nschedule a every=10s\nwait 10s\nshow a\nruns",
        expect![[""]],
    );
}

#[test]
fn jitter_delays_the_job_and_not_the_slot() {
    check("schedule a every=100s jitter=50s\nwait 100s\nexplain a/1\nshow a\nwait 50s", expect![[""]]);
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
        expect![[""]],
    );
}

#[test]
fn gc_s4_switching_off_during_a_run_leaves_no_next_slot() {
    check("schedule a every=10s\nwait 10s\ntoggle a off\nfinish a/1 ok\nshow a\nwait 10s", expect![[""]]);
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
        expect![[""]],
    );
}

#[test]
fn gc_s5_a_payload_is_carried_whatever_it_is() {
    check("schedule a every=10s bytes=65536\ntoggle a off\ntoggle a on\nwait 10s", expect![[""]]);
}

#[test]
fn a_schedule_deleted_during_its_run_is_logged_all_the_same() {
    check("schedule a every=10s\nwait 10s\ndelete a\ncrash\nfinish a/1 ok\nruns", expect![[""]]);
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
        expect![[""]],
    );
}

#[test]
fn a_run_that_is_too_long_is_a_timeout_counted_from_its_start() {
    check(
        "lane main running=1\nsubmit x\nschedule a every=100s timeout=5s retries=0\nwait 100s\nwait 30s\nfinish x ok\nwait 5s\nfinish a/1 ok\nruns",
        expect![[""]],
    );
}

#[test]
fn x28_a_stop_during_a_backoff_keeps_the_run_and_nothing_fires() {
    check(
        "schedule a every=10s\nwait 10s\nfinish a/1 fail\ndrain\nwait 20s\nshow a\ncrash\nshow a",
        expect![[""]],
    );
}

#[test]
fn gc_c8_a_kind_that_nobody_offers_waits() {
    check("schedule a every=10s kind=nobody\nwait 10s\nexplain a/1\nwait 10s\nruns", expect![[""]]);
}
