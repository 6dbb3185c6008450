//! Schedules: slots, policies, runs by hand, one-shots, restarts, clocks that are set.

use super::check;
use super::story::{Story, text};
use crate::schedule::RECENT_FIRINGS_MAX;
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
fn gc_c1_x20_what_could_never_run_is_rejected_and_not_stored() {
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
                rejected: no_future_run: timing.at: is in the past, so there is no future run; give a time in the future
            schedule a every=0s
                rejected: invalid: timing.every: 0 ms is not an interval; give 100 ms to ten years
            schedule a cron=bad_cron
                rejected: invalid: timing.expr: has 2 fields; give five (minute, hour, day of month, month, day of week), or six with the second first
            schedule a cron=61_*_*_*_*
                rejected: invalid: timing.expr: minute: "61" is not in 0-59
            schedule a cron=0_0_30_2_*
                rejected: no_future_run: timing.expr: names no date within eight years, so there is no future run; give a date that exists
            schedule a cron=0_9_*_*_* zone=Invalid/Zone
                rejected: invalid: timing.zone: "Invalid/Zone" is no time zone; give an IANA name such as "Europe/Berlin" or "UTC"
            schedule a at=5s bytes=65537
                rejected: invalid: payload: has 65537 bytes; at most 65536 are allowed
            schedule a at=5s catch=all:0
                rejected: invalid: catch_up.max: 0 is not in 1-10000
            schedule a every=5s | schedule a every=6s
                schedule a created
                rejected: name_taken: name: there is a schedule "a" already; choose another name
            update a cron=0_0_31_4_*
                rejected: no_future_run: timing.expr: names no date within eight years, so there is no future run; give a date that exists
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
                a +600s skipped missed: the server was away
                b +1200s skipped missed: the server was away
                c +1800s skipped missed: the server was away
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
            a +60s skipped missed: the server was away
        toggle a on
            rejected: no_future_run: timing.at: is in the past, so there is no future run; give a time in the future
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
                rejected: no_future_run: timing.at: is in the past, so there is no future run; give a time in the future
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
                warn: schedule a: no executor offers the kind nobody
            explain a/1
                a/1 is queued, 0 ahead: no place for nobody
            wait 10s
                schedule a skipped
            runs
                a +20s skipped overlap: the firing before is queued: no handler, target or worker offers the kind "nobody"
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

#[test]
fn gc_s3_a_due_schedule_that_is_switched_off_first_does_not_run() {
    check(
        "schedule a every=10s\nsleep 10s\ntoggle a off\ntick\nshow a",
        expect![[r#"
        schedule a every=10s
            schedule a created
        sleep 10s
        toggle a off
            schedule a disabled
        tick
        show a
            a is off, next never, last none, 0 runs
    "#]],
    );
}

#[test]
fn a_run_that_is_asked_for_if_due_takes_the_slot() {
    check(
        "schedule a every=10s\nsleep 10s\nrun a due\ntick\nshow a",
        expect![[r#"
        schedule a every=10s
            schedule a created
        sleep 10s
        run a due
            schedule a fired
            a/1 started #1
        tick
        show a
            a is on, next +20s, last running, 1 runs
    "#]],
    );
}

#[test]
fn gc_c4_c5_lists_hide_what_is_switched_off_unless_asked() {
    let mut story = Story::new();
    for line in ["schedule a every=10s", "schedule b every=10s off", "schedule c every=10s tenant=acme"] {
        assert_eq!(story.play(line).len(), 1);
    }
    assert_eq!(listed(&story, None, false), ["a", "c"]);
    assert_eq!(listed(&story, Some("default"), true), ["a", "b"]);
    assert_eq!(listed(&story, Some("nobody"), true), [""; 0]);
    let first = story.engine.schedules(None, None, 1, true)[0].id;
    assert_eq!(story.engine.schedules(None, Some(first), 10, true).len(), 2);
    assert!(story.engine.schedule_named(&text("acme"), &text("c")).is_some());
    assert!(story.engine.schedule_named(&text("acme"), &text("a")).is_none());
    assert_eq!(story.play("delete a"), ["schedule a deleted"]);
    assert_eq!(story.play("delete a"), ["not found"]);
    assert_eq!(story.play("toggle a on"), ["not found"]);
}

#[test]
fn gc_s1_expressions_without_a_zone_take_the_default_and_keep_it() {
    let mut story = Story::new();
    story.settings.schedules.zone = text("America/Toronto");
    story.play("server");
    story.play("schedule a cron=0_9_*_*_*");
    let next = story.engine.schedules(None, None, 1, true)[0].state.next_at;
    story.settings.schedules.zone = text("Asia/Saigon");
    story.play("server");
    story.play("toggle a off");
    story.play("toggle a on");
    let again = story.engine.schedules(None, None, 1, true)[0];
    assert_eq!(again.state.next_at, next);
    assert_eq!(next.map(|at| at.0 % 86_400_000), Some(14 * 3_600_000), "nine in Toronto's winter");
}

#[test]
fn caps_on_schedules_hold_exactly() {
    let mut story = Story::new();
    story.settings.schedules.schedules_max = 3;
    story.settings.schedules.schedules_per_tenant_max = 2;
    story.settings.schedules.bytes_max = 100;
    story.play("server");
    let mut rejected =
        |line: &str| story.play(line).iter().any(|said| said.starts_with("rejected: too_many"));
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
fn the_latest_two_hundred_runs_are_at_hand() {
    let mut story = Story::new();
    story.play("schedule a every=1s kind=nobody");
    for _ in 0..RECENT_FIRINGS_MAX + 2 {
        story.play("wait 1s");
    }
    let recent: Vec<u64> = story.engine.recent_firings(None).map(|run| run.number).collect();
    assert_eq!(recent.len(), RECENT_FIRINGS_MAX);
    assert!(recent.windows(2).all(|pair| pair[0] > pair[1]), "newest first");
    assert_eq!(story.engine.recent_firings(Some(&text("acme"))).count(), 0);
}

#[test]
fn a_one_shot_that_gets_another_time_during_its_run_comes_again() {
    check(
        "schedule a at=5s\nwait 5s\nupdate a at=60s\nfinish a/1 ok\nshow a\nwait 60s\nfinish a/2 ok\nshow a",
        expect![[r#"
            schedule a at=5s
                schedule a created
            wait 5s
                schedule a fired
                a/1 started #1
            update a at=60s
                schedule a updated
            finish a/1 ok
                a/1 succeeded #1 (done)
                schedule a ok
            show a
                a is on, next +65s, last ok, 1 runs
            wait 60s
                schedule a fired
                a/2 started #1
            finish a/2 ok
                a/2 succeeded #1 (done)
                schedule a ok
                schedule a deleted
            show a
                a is not there
        "#]],
    );
}

#[test]
fn a_schedule_that_deletes_itself_outlives_a_run_that_was_replaced() {
    check(
        "schedule a every=10s once overlap=cancel_running\nwait 10s\nwait 10s\nfinish a/1 ok\nfinish a/2 ok\nshow a\nruns",
        expect![[r#"
            schedule a every=10s once overlap=cancel_running
                schedule a created
            wait 10s
                schedule a fired
                a/1 started #1
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
            show a
                a is not there
            runs
                a +10s canceled it was canceled: the next firing takes its place
                a +20s ok
        "#]],
    );
}

fn listed(story: &Story, tenant: Option<&str>, include_disabled: bool) -> Vec<String> {
    let tenant = tenant.map(text);
    let schedules = story.engine.schedules(tenant.as_ref(), None, 10, include_disabled);
    schedules.into_iter().map(|schedule| schedule.spec.name.to_string()).collect()
}

#[test]
fn a_schedule_that_could_not_be_made_any_more_can_be_switched_off() {
    check(
        "
        executor w attached kinds=far slots=1
        schedule a every=60s kind=far
        withdraw w
        server strict=yes
        toggle a off
        show a
        toggle a on
        ",
        expect![[r#"
            executor w attached kinds=far slots=1
            schedule a every=60s kind=far
                schedule a created
            withdraw w
            server strict=yes
                config.changed
            toggle a off
                schedule a disabled
            show a
                a is off, next never, last none, 0 runs
            toggle a on
                rejected: unknown_kind: kind: no executor offers "far"; register a handler or a target for it
        "#]],
    );
}

#[test]
fn defect_17_a_firing_that_no_executor_can_take_is_queued_and_says_so_once() {
    check(
        "
        schedule s every=10s kind=turn
        wait 10s
        show s
        wait 10s
        wait 10s
        runs
        run s
        crash
        show s
        executor p attached kinds=turn slots=1
        show s
        finish s/1 ok
        wait 10s
        finish s/2 ok
        runs
        ",
        expect![[r#"
            schedule s every=10s kind=turn
                schedule s created
            wait 10s
                schedule s fired
                warn: schedule s: no executor offers the kind turn
            show s
                s is on, next +20s, last queued, 1 runs
            wait 10s
                schedule s skipped
            wait 10s
                schedule s skipped
            runs
                s +20s skipped overlap: the firing before is queued: no handler, target or worker offers the kind "turn"
                s +30s skipped overlap: the firing before is queued: no handler, target or worker offers the kind "turn"
            run s
                did not run: already_queued
            crash
            show s
                s is on, next +40s, last queued, 1 runs
            executor p attached kinds=turn slots=1
                s/1 started #1
            show s
                s is on, next +40s, last running, 1 runs
            finish s/1 ok
                s/1 succeeded #1 (done)
                schedule s ok
            wait 10s
                schedule s fired
                s/2 started #1
            finish s/2 ok
                s/2 succeeded #1 (done)
                schedule s ok
            runs
                s +20s skipped overlap: the firing before is queued: no handler, target or worker offers the kind "turn"
                s +30s skipped overlap: the firing before is queued: no handler, target or worker offers the kind "turn"
                s +10s ok
                s +40s ok
        "#]],
    );
}

#[test]
fn defect_17_a_firing_that_waits_for_room_is_queued_and_keeps_its_position() {
    check(
        "
        lane main running=1
        submit a
        schedule s every=10s
        wait 10s
        show s
        wait 10s
        runs
        finish a ok
        show s
        ",
        expect![[r#"
            lane main running=1
                config.changed
            submit a
                a started #1
            schedule s every=10s
                schedule s created
            wait 10s
                schedule s fired
            show s
                s is on, next +20s, last queued, 1 runs
            wait 10s
                schedule s skipped
            runs
                s +20s skipped overlap: the firing before is queued and has not started
            finish a ok
                a succeeded #1 (done)
                s/1 started #1
            show s
                s is on, next +30s, last running, 1 runs
        "#]],
    );
}

#[test]
fn defect_17_a_drained_server_admits_nothing_and_finishes_what_waits() {
    check(
        "
        lane main running=1
        schedule s every=10s
        submit a | submit b
        admit off
        submit c
        wait 10s
        runs
        finish a ok
        finish b ok
        admit off
        admit on
        submit d
        ",
        expect![[r#"
            lane main running=1
                config.changed
            schedule s every=10s
                schedule s created
            submit a | submit b
                a started #1
            admit off
                call.done
            submit c
                rejected: draining: the server is drained and admits no new jobs; end the drain (DELETE /v1/drain), or submit elsewhere
            wait 10s
                schedule s skipped
            runs
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
        "#]],
    );
}
