//! Schedules: slots, policies, manual fires, one-shots, restarts, clock jumps.

use crate::Name;
use crate::engine::tests::scenario::{Scenario, check};
use crate::schedule::RECENT_FIRINGS_MAX;
use expect_test::expect;

#[test]
fn gc_c7_c12_a_due_schedule_fires_and_is_logged() {
    check(expect![[r#"
        schedule s every=10s
            schedule s created
        showschedule s
            s is on, next +10s, last none, 0 firings
        wait 10s
            schedule s fired
            s/1 started #1
        showschedule s
            s is on, next +20s, last running, 1 firings
        wait 2s
        finish s/1 ok
            s/1 succeeded #1 (done)
            schedule s ok
        showschedule s
            s is on, next +20s, last ok, 1 firings
        firings
            s +10s ok
        wait 8s
            schedule s fired
            s/2 started #1
    "#]]);
}

#[test]
fn gc_c1_x20_a_schedule_that_could_never_fire_is_rejected_and_not_stored() {
    check(expect![[r#"
        schedule a at=-1s
            rejected: no_future_run: timing.at: is in the past, so it would never fire; give a time in the future
        schedule a every=0s
            rejected: invalid: timing.every: 0 ms is not an interval; give 100 ms to ten years
        schedule a cron=bad_cron
            rejected: invalid: timing.expr: has 2 fields; give five (minute, hour, day of month, month, day of week), or six with the second first
        schedule a cron=61_*_*_*_*
            rejected: invalid: timing.expr: minute: "61" is not in 0-59
        schedule a cron=0_0_30_2_*
            rejected: no_future_run: timing.expr: names no date within eight years, so it would never fire; give a date that exists
        schedule a cron=0_9_*_*_* zone=Invalid/Zone
            rejected: invalid: timing.zone: "Invalid/Zone" is not a time zone; give an IANA name such as "Europe/Berlin" or "UTC"
        schedule a at=5s bytes=65537
            rejected: invalid: payload: has 65537 bytes; at most 65536 are allowed
        schedule a at=5s catch=all:0
            rejected: invalid: catch_up.max: 0 is not in 1-10000
        schedule a every=5s | schedule a every=6s
            schedule a created
            rejected: name_taken: name: there is a schedule "a" already; choose another name
        update a cron=0_0_31_4_*
            rejected: no_future_run: timing.expr: names no date within eight years, so it would never fire; give a date that exists
        showschedule a
            a is on, next +5s, last none, 0 firings
    "#]]);
}

#[test]
fn gc_c13_x25_overdue_schedules_do_not_fire_at_a_start() {
    check(expect![[r#"
        given schedule a every=600s | schedule b every=1200s | schedule c cron=*/30_*_*_*_*
        crash
        wait 599s
        sleep 3000s
        crash
            schedule a skipped
            schedule b skipped
            schedule c skipped
        showschedule a | showschedule b | showschedule c
            a is on, next +3600s, last skipped, 0 firings
            b is on, next +3600s, last skipped, 0 firings
            c is on, next +3600s, last skipped, 0 firings
        firings
            a +600s skipped missed: the server was away
            b +1200s skipped missed: the server was away
            c +1800s skipped missed: the server was away
    "#]]);
}

#[test]
fn gc_c14_a_one_shot_that_was_missed_is_switched_off_and_kept() {
    check(expect![[r#"
        given schedule a at=60s
        sleep 61s
        crash
            schedule a skipped
        showschedule a
            a is off, next never, last skipped, 0 firings
        firings
            a +60s skipped missed: the server was away
        toggle a on
            rejected: no_future_run: timing.at: is in the past, so it would never fire; give a time in the future
        showschedule a
            a is off, next never, last skipped, 0 firings
    "#]]);
}

#[test]
fn gc_c15_a_manual_fire_leaves_the_grid_alone() {
    check(expect![[r#"
        given schedule a every=10s
        wait 4s
        fire a
            schedule a fired
            a/1 started #1
        showschedule a
            a is on, next +10s, last running, 1 firings
        finish a/1 ok
            a/1 succeeded #1 (done)
            schedule a ok
        showschedule a
            a is on, next +10s, last ok, 1 firings
        wait 6s
            schedule a fired
            a/2 started #1
    "#]]);
}

#[test]
fn x21_x22_a_manual_fire_reports_why_it_did_not_fire() {
    check(expect![[r#"
        given schedule a every=10s overlap=allow
        fire a due
            did not fire: not_due
        wait 10s
            schedule a fired
            a/1 started #1
        fire a
            did not fire: already_running
        fire a due
            did not fire: already_running
        finish a/1 ok
            a/1 succeeded #1 (done)
            schedule a ok
        fire a
            schedule a fired
            a/2 started #1
    "#]]);
}

#[test]
fn gc_c9_x29_no_retries_is_one_attempt_and_an_error() {
    check(expect![[r#"
        given firing a every=10s retries=0
        finish a/1 fail
            a/1 failed #1 (exhausted)
            schedule a error
        showschedule a
            a is on, next +20s, last error, 1 firings
        firings
            a +10s error it failed
    "#]]);
}

#[test]
fn gc_r1_r2_r3_one_entry_for_a_firing_with_all_its_attempts() {
    check(expect![[r#"
        given firing a every=1000s retries=2
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
        firings
            a +1000s ok after 3 attempts
            a +2000s error after 3 attempts it failed
            a +3000s error it cannot work
    "#]]);
}

#[test]
fn x24_gc_c6_a_one_shot_is_deleted_after_its_firing_and_its_log_stays() {
    check(expect![[r#"
        given schedule a at=5s | schedule b at=5s keep
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
        showschedule a | showschedule b
            a is not there
            b is off, next never, last ok, 1 firings
        firings
            a +5s error it cannot work
            b +5s ok
    "#]]);
}

#[test]
fn a_one_shot_that_becomes_an_interval_stays() {
    check(expect![[r#"
        given schedule a at=50s
        update a every=10s
            schedule a updated
        wait 10s
            schedule a fired
            a/1 started #1
        finish a/1 ok
            a/1 succeeded #1 (done)
            schedule a ok
        showschedule a
            a is on, next +20s, last ok, 1 firings
    "#]]);
}

#[test]
fn gc_s1_s2_switching_off_and_on() {
    check(expect![[r#"
        schedule a every=10s
            schedule a created
        toggle a on
        showschedule a
            a is on, next +10s, last none, 0 firings
        toggle a off
            schedule a disabled
        showschedule a
            a is off, next never, last none, 0 firings
        wait 25s
        toggle a on
            schedule a enabled
        showschedule a
            a is on, next +30s, last none, 0 firings
        toggle a on
        showschedule a
            a is on, next +30s, last none, 0 firings
        schedule b at=5s off
            schedule b created
        wait 5s
            schedule a fired
            a/1 started #1
        toggle b on
            rejected: no_future_run: timing.at: is in the past, so it would never fire; give a time in the future
        showschedule b
            b is off, next never, last none, 0 firings
    "#]]);
}

#[test]
fn gc_s4_switching_off_during_a_firing_leaves_no_next_slot() {
    check(expect![[r#"
        given firing a every=10s
        toggle a off
            schedule a disabled
        finish a/1 ok
            a/1 succeeded #1 (done)
            schedule a ok
        showschedule a
            a is off, next never, last ok, 1 firings
        wait 10s
    "#]]);
}

#[test]
fn gc_s7_changes_and_isolation_between_tenants() {
    check(expect![[r#"
        given schedule a every=10s tenant=one
        toggle a off as=two
            not found
        fire a as=two
            not found
        delete a as=two
            not found
        update a name=b as=one
            schedule b updated
        update b every=20s as=one
            schedule b updated
        showschedule b
            b is on, next +20s, last none, 0 firings
        delete b as=one
            schedule b deleted
        delete b as=one
            not found
    "#]]);
}

#[test]
fn gc_s5_any_payload_is_carried() {
    check(expect![[r#"
        given schedule a every=10s bytes=65536
        toggle a off
            schedule a disabled
        toggle a on
            schedule a enabled
        wait 10s
            schedule a fired
            a/1 started #1
    "#]]);
}

#[test]
fn a_schedule_deleted_during_its_firing_is_still_logged() {
    check(expect![[r#"
        given firing a every=10s
        delete a
            schedule a deleted
        crash
            a/1 queued #1 (lost)
            a/1 started #2
        finish a/1 ok
            a/1 succeeded #2 (done)
            schedule a ok
        firings
            a +10s ok after 2 attempts
    "#]]);
}

#[test]
fn x28_a_stop_during_a_backoff_keeps_the_firing_and_nothing_fires() {
    check(expect![[r#"
        given firing a every=10s
        finish a/1 fail
            a/1 retrying #1 (retry)
        drain
            server.draining
        wait 20s
            a/1 queued #1 (due)
        showschedule a
            a is on, next +20s, last running, 1 firings
        crash
            a/1 started #2
            schedule a skipped
        showschedule a
            a is on, next +40s, last running, 1 firings
    "#]]);
}

#[test]
fn gc_c8_a_kind_without_an_executor_waits() {
    check(expect![[r#"
        given schedule a every=10s kind=unserved
        wait 10s
            schedule a fired
            warn: schedule a: no executor offers the kind unserved
        explain a/1
            a/1 is queued, 0 ahead: no executor for unserved
        wait 10s
            schedule a skipped
        firings
            a +20s skipped overlap: the firing before is queued: no handler, target or worker offers the kind "unserved"
    "#]]);
}

#[test]
fn a_manual_fire_that_outlives_a_missed_one_shot_leaves_it_switched_off() {
    check(expect![[r#"
        given schedule a at=60s
        fire a
            schedule a fired
            a/1 started #1
        sleep 200s
        wait 1s
            schedule a skipped
        showschedule a
            a is on, next never, last running, 1 firings
        finish a/1 ok
            a/1 succeeded #1 (done)
            schedule a ok
        showschedule a
            a is off, next never, last ok, 1 firings
    "#]]);
}

#[test]
fn gc_s3_a_due_schedule_that_is_switched_off_first_does_not_fire() {
    check(expect![[r#"
        given schedule a every=10s
        sleep 10s
        toggle a off
            schedule a disabled
        tick
        showschedule a
            a is off, next never, last none, 0 firings
    "#]]);
}

#[test]
fn a_manual_fire_if_due_takes_the_slot() {
    check(expect![[r#"
        given schedule a every=10s
        sleep 10s
        fire a due
            schedule a fired
            a/1 started #1
        tick
        showschedule a
            a is on, next +20s, last running, 1 firings
    "#]]);
}

#[test]
fn gc_c4_c5_lists_hide_disabled_schedules_by_default() {
    let mut scenario = Scenario::new();
    for line in ["schedule a every=10s", "schedule b every=10s off", "schedule c every=10s tenant=acme"] {
        assert_eq!(scenario.play(line).len(), 1);
    }
    assert_eq!(listed(&scenario, None, false), ["a", "c"]);
    assert_eq!(listed(&scenario, Some("default"), true), ["a", "b"]);
    assert_eq!(listed(&scenario, Some("unknown"), true), [""; 0]);
    let first = scenario.engine.schedules(None, None, 1, true)[0].id;
    assert_eq!(scenario.engine.schedules(None, Some(first), 10, true).len(), 2);
    assert!(scenario.engine.schedule_named(&Name::fixed("acme"), &Name::fixed("c")).is_some());
    assert!(scenario.engine.schedule_named(&Name::fixed("acme"), &Name::fixed("a")).is_none());
    assert_eq!(scenario.play("delete a"), ["schedule a deleted"]);
    assert_eq!(scenario.play("delete a"), ["not found"]);
    assert_eq!(scenario.play("toggle a on"), ["not found"]);
}

#[test]
fn gc_s1_expressions_without_a_zone_take_the_default_and_keep_it() {
    let mut scenario = Scenario::new();
    scenario.settings.schedules.zone = Name::fixed("America/Toronto");
    scenario.play("server");
    scenario.play("schedule a cron=0_9_*_*_*");
    let next = scenario.engine.schedules(None, None, 1, true)[0].state.next_at;
    scenario.settings.schedules.zone = Name::fixed("Asia/Saigon");
    scenario.play("server");
    scenario.play("toggle a off");
    scenario.play("toggle a on");
    let again = scenario.engine.schedules(None, None, 1, true)[0];
    assert_eq!(again.state.next_at, next);
    assert_eq!(next.map(|at| at.0 % 86_400_000), Some(14 * 3_600_000), "nine in Toronto's winter");
}

#[test]
fn caps_on_schedules_hold_exactly() {
    let mut scenario = Scenario::new();
    scenario.settings.schedules.schedules_max = 3;
    scenario.settings.schedules.schedules_per_tenant_max = 2;
    scenario.settings.schedules.bytes_max = 100;
    scenario.play("server");
    let mut rejected =
        |line: &str| scenario.play(line).iter().any(|said| said.starts_with("rejected: too_many"));
    assert!(!rejected("schedule a every=10s bytes=60"));
    assert!(rejected("schedule b every=10s bytes=41"), "bytes");
    assert!(!rejected("schedule b every=10s bytes=40"));
    assert!(rejected("schedule c every=10s"), "of a tenant");
    assert!(!rejected("schedule c every=10s tenant=acme"));
    assert!(rejected("schedule d every=10s tenant=other"), "of the server");
    assert!(!rejected("delete a"));
    assert!(!rejected("schedule d every=10s tenant=other"));
}

#[test]
fn the_latest_two_hundred_firings_are_in_memory() {
    let mut scenario = Scenario::new();
    scenario.play("schedule a every=1s kind=unserved");
    for _ in 0..RECENT_FIRINGS_MAX + 2 {
        scenario.play("wait 1s");
    }
    let recent: Vec<u64> = scenario.engine.recent_firings(None).map(|run| run.number).collect();
    assert_eq!(recent.len(), RECENT_FIRINGS_MAX);
    assert!(recent.windows(2).all(|pair| pair[0] > pair[1]), "newest first");
    assert_eq!(scenario.engine.recent_firings(Some(&Name::fixed("acme"))).count(), 0);
}

#[test]
fn a_one_shot_that_gets_another_time_during_its_firing_fires_again() {
    check(expect![[r#"
        given schedule a at=5s
        wait 5s
            schedule a fired
            a/1 started #1
        update a at=60s
            schedule a updated
        finish a/1 ok
            a/1 succeeded #1 (done)
            schedule a ok
        showschedule a
            a is on, next +65s, last ok, 1 firings
        wait 60s
            schedule a fired
            a/2 started #1
        finish a/2 ok
            a/2 succeeded #1 (done)
            schedule a ok
            schedule a deleted
        showschedule a
            a is not there
    "#]]);
}

#[test]
fn a_schedule_that_deletes_itself_outlives_a_firing_that_was_replaced() {
    check(expect![[r#"
        given firing a every=10s once overlap=cancel_running
        wait 10s
            a/1 canceled #1 (replaced)
            schedule a canceled
            stop a/1
        finish a/1 ok
            stale
            a/1 released #1
            schedule a fired
            a/2 started #1
        finish a/2 ok
            a/2 succeeded #1 (done)
            schedule a ok
            schedule a deleted
        showschedule a
            a is not there
        firings
            a +10s canceled it was canceled: the next firing takes its place
            a +20s ok
    "#]]);
}

fn listed(scenario: &Scenario, tenant: Option<&'static str>, include_disabled: bool) -> Vec<String> {
    let tenant = tenant.map(Name::fixed);
    let schedules = scenario.engine.schedules(tenant.as_ref(), None, 10, include_disabled);
    schedules.into_iter().map(|schedule| schedule.spec.name.to_string()).collect()
}

#[test]
fn a_schedule_that_could_not_be_made_any_more_can_be_switched_off() {
    check(expect![[r#"
        given executor w attached kinds=far slots=1 | schedule a every=60s kind=far
        withdraw w
        server strict=yes
            config.changed
        toggle a off
            schedule a disabled
        showschedule a
            a is off, next never, last none, 0 firings
        toggle a on
            rejected: unknown_kind: kind: no executor offers "far"; register a handler or a target for it
    "#]]);
}

#[test]
fn defect_17_a_firing_that_no_executor_can_take_is_queued_and_says_so_once() {
    check(expect![[r#"
        given schedule s every=10s kind=turn
        wait 10s
            schedule s fired
            warn: schedule s: no executor offers the kind turn
        showschedule s
            s is on, next +20s, last queued, 1 firings
        wait 10s
            schedule s skipped
        wait 10s
            schedule s skipped
        firings
            s +20s skipped overlap: the firing before is queued: no handler, target or worker offers the kind "turn"
            s +30s skipped overlap: the firing before is queued: no handler, target or worker offers the kind "turn"
        fire s
            did not fire: already_queued
        crash
        showschedule s
            s is on, next +40s, last queued, 1 firings
        executor p attached kinds=turn slots=1
            s/1 started #1
        showschedule s
            s is on, next +40s, last running, 1 firings
        finish s/1 ok
            s/1 succeeded #1 (done)
            schedule s ok
        wait 10s
            schedule s fired
            s/2 started #1
        finish s/2 ok
            s/2 succeeded #1 (done)
            schedule s ok
        firings
            s +20s skipped overlap: the firing before is queued: no handler, target or worker offers the kind "turn"
            s +30s skipped overlap: the firing before is queued: no handler, target or worker offers the kind "turn"
            s +10s ok
            s +40s ok
    "#]]);
}

#[test]
fn defect_17_a_firing_that_waits_for_a_slot_is_queued_and_keeps_its_position() {
    check(expect![[r#"
        given lane main running=1
        submit a
            a started #1
        schedule s every=10s
            schedule s created
        wait 10s
            schedule s fired
        showschedule s
            s is on, next +20s, last queued, 1 firings
        wait 10s
            schedule s skipped
        firings
            s +20s skipped overlap: the firing before is queued and has not started
        finish a ok
            a succeeded #1 (done)
            s/1 started #1
        showschedule s
            s is on, next +30s, last running, 1 firings
    "#]]);
}

#[test]
fn defect_17_a_drained_server_admits_nothing_and_finishes_waiting_jobs() {
    check(expect![[r#"
        given lane main running=1 | schedule s every=10s
        submit a | submit b
            a started #1
        admit off
            call.done
        submit c
            rejected: draining: the server is drained and admits no new jobs; end the drain (DELETE /v1/drain), or submit elsewhere
        wait 10s
            schedule s skipped
        firings
            s +10s skipped draining: the server is drained and admits no new jobs; end the drain (DELETE /v1/drain), or submit elsewhere
        finish a ok
            a succeeded #1 (done)
            b started #1
        finish b ok
            b succeeded #1 (done)
        admit off
        admit on
            call.done
        submit d
            d started #1
    "#]]);
}
