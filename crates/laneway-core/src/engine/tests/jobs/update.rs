//! Waiting jobs that a call changes: their priority, and when they start.

use crate::engine::tests::scenario::check;
use expect_test::expect;

#[test]
fn a_queued_job_with_a_better_priority_goes_ahead_of_others_of_its_agent() {
    check(expect![[r#"
        given lane main running=1
        submit a1 | submit a2 | submit a3 | submit a4
            a1 started #1
        change a4 priority=-1
            is queued
            a4 priority_changed #0
        change a2 priority=5
            is queued
            a2 priority_changed #0
        change a3 priority=0
            is queued
        explain a4 | explain a2
            a4 is queued, 0 ahead: lane main 1/1
            a2 is queued, 2 ahead: lane main 1/1
        finish a1 ok | finish a4 ok | finish a3 ok | finish a2 ok
            a1 succeeded #1 (done)
            a4 started #1
            a4 succeeded #1 (done)
            a3 started #1
            a3 succeeded #1 (done)
            a2 started #1
            a2 succeeded #1 (done)
    "#]]);
}

#[test]
fn a_priority_changes_the_order_within_an_agent_and_not_between_agents() {
    check(expect![[r#"
        given lane main running=1
        submit a1 | submit a2 | submit a3 | submit b1 agent=B | submit b2 agent=B
            a1 started #1
        change a3 priority=-9
            is queued
            a3 priority_changed #0
        finish a1 ok | finish b1 ok | finish a3 ok | finish b2 ok | finish a2 ok
            a1 succeeded #1 (done)
            b1 started #1
            b1 succeeded #1 (done)
            a3 started #1
            a3 succeeded #1 (done)
            b2 started #1
            b2 succeeded #1 (done)
            a2 started #1
            a2 succeeded #1 (done)
    "#]]);
}

#[test]
fn a_priority_orders_all_jobs_of_a_lane_that_goes_by_priority_also_after_a_restart() {
    check(expect![[r#"
        given lane main running=1 order=priority
        submit a1 | submit a2 | submit b1 agent=B | submit c1 agent=C
            a1 started #1
        change c1 priority=-1
            is queued
            c1 priority_changed #0
        crash
            a1 queued #1 (lost)
            c1 started #1
        finish c1 ok | finish a1 ok | finish a2 ok
            c1 succeeded #1 (done)
            a1 started #2
            a1 succeeded #2 (done)
            a2 started #1
            a2 succeeded #1 (done)
            b1 started #1
    "#]]);
}

#[test]
fn jobs_of_a_session_keep_their_order_whatever_their_priorities() {
    check(expect![[r#"
        submit s1 session=chat | submit s2 session=chat | submit s3 session=chat
            s1 started #1
        change s3 priority=-9
            is queued
            s3 priority_changed #0
        finish s1 ok | finish s2 ok | finish s3 ok
            s1 succeeded #1 (done)
            s2 started #1
            s2 succeeded #1 (done)
            s3 started #1
            s3 succeeded #1 (done)
    "#]]);
}

#[test]
fn a_job_behind_a_closed_key_gets_another_priority() {
    check(expect![[r#"
        given key profile limit=1
        submit a1 keys=profile:p | submit a2 keys=profile:p | submit a3 keys=profile:p
            a1 started #1
        change a3 priority=-1
            is queued
            a3 priority_changed #0
        finish a1 ok | finish a3 ok | finish a2 ok
            a1 succeeded #1 (done)
            a3 started #1
            a3 succeeded #1 (done)
            a2 started #1
            a2 succeeded #1 (done)
    "#]]);
}

#[test]
fn a_queued_job_waits_for_its_new_time_and_comes_back() {
    check(expect![[r#"
        given lane main running=1
        submit a1 | submit a2 | submit a3
            a1 started #1
        change a2 after=60s
            is scheduled
            a2 rescheduled #0
        explain a2
            a2 is scheduled, 0 ahead: not before 60 s from the start, lane main 1/1
        finish a1 ok | finish a3 ok
            a1 succeeded #1 (done)
            a3 started #1
            a3 succeeded #1 (done)
        wait 59s
        wait 1s
            a2 queued #0 (due)
            a2 started #1
        finish a2 ok
            a2 succeeded #1 (done)
    "#]]);
}

#[test]
fn a_scheduled_job_starts_sooner_or_at_once() {
    check(expect![[r#"
        submit a1 after=60s | submit a2 after=60s | submit a3 after=60s
        change a1 after=5s
            is scheduled
            a1 rescheduled #0
        change a2 after=0s
            is queued
            a2 rescheduled #0
            a2 queued #0 (due)
            a2 started #1
        change a3 at=0s
            is queued
            a3 rescheduled #0
            a3 queued #0 (due)
            a3 started #1
        wait 5s
            a1 queued #0 (due)
            a1 started #1
        change a1 after=5s
            rejected: not_waiting: job: is running; only a job that waits can be rescheduled or get another priority
    "#]]);
}

#[test]
fn a_job_that_is_rescheduled_to_now_goes_behind_those_that_waited_before() {
    check(expect![[r#"
        given lane main running=1
        submit a1 | submit a2 after=60s | submit a3
            a1 started #1
        wait 1s
        change a2 after=0s
            is queued
            a2 rescheduled #0
            a2 queued #0 (due)
        submit a4
        finish a1 ok | finish a3 ok | finish a2 ok
            a1 succeeded #1 (done)
            a3 started #1
            a3 succeeded #1 (done)
            a2 started #1
            a2 succeeded #1 (done)
            a4 started #1
    "#]]);
}

#[test]
fn a_new_time_and_a_new_priority_survive_a_restart() {
    check(expect![[r#"
        given lane main running=1
        submit a1 | submit a2 | submit a3 after=60s | submit a4
            a1 started #1
        change a2 after=30s priority=-2 | change a3 after=0s priority=-1
            is scheduled
            a2 priority_changed #0
            a2 rescheduled #0
            is queued
            a3 priority_changed #0
            a3 rescheduled #0
            a3 queued #0 (due)
        crash
            a1 queued #1 (lost)
            a3 started #1
        finish a3 ok | finish a1 ok | finish a4 ok
            a3 succeeded #1 (done)
            a1 started #2
            a1 succeeded #2 (done)
            a4 started #1
            a4 succeeded #1 (done)
        wait 29s
        wait 1s
            a2 queued #0 (due)
            a2 started #1
    "#]]);
}

#[test]
fn a_job_that_waits_for_its_retry_gets_a_time_that_is_longer_than_any_backoff() {
    check(expect![[r#"
        submit a1
            a1 started #1
        finish a1 fail
            a1 retrying #1 (retry)
        change a1 after=7200s
            is scheduled
            a1 rescheduled #1
        crash
        wait 7199s
        wait 1s
            a1 queued #1 (due)
            a1 started #2
        finish a1 fail
            a1 retrying #2 (retry)
        change a1 after=0s
            is queued
            a1 rescheduled #2
            a1 queued #2 (due)
            a1 started #3
    "#]]);
}

#[test]
fn a_running_job_and_an_ended_one_are_not_changed() {
    check(expect![[r#"
        submit a1
            a1 started #1
        change a1 after=5s
            rejected: not_waiting: job: is running; only a job that waits can be rescheduled or get another priority
        change a1 priority=3
            rejected: not_waiting: job: is running; only a job that waits can be rescheduled or get another priority
        finish a1 ok
            a1 succeeded #1 (done)
        change a1 priority=3
            not found
    "#]]);
}

#[test]
fn a_tenant_cannot_change_anothers_job() {
    check(expect![[r#"
        given lane main running=1
        submit a1 | submit a2 tenant=t1
            a1 started #1
        change a2 priority=1 tenant=t2
            not found
        change a2 priority=1 tenant=t1
            is queued
            a2 priority_changed #0
    "#]]);
}

#[test]
fn a_patch_with_one_bad_part_changes_nothing() {
    check(expect![[r#"
        given lane main running=1
        submit a1 | submit a2 | submit a3 deadline=30s
            a1 started #1
        change a3 priority=-1 after=30s
            rejected: deadline_past: run_at: comes after the deadline of the job; give an earlier time
        finish a1 ok | finish a2 ok
            a1 succeeded #1 (done)
            a2 started #1
            a2 succeeded #1 (done)
            a3 started #1
    "#]]);
}

#[test]
fn a_job_of_a_session_that_gets_a_later_time_lets_others_go_first() {
    check(expect![[r#"
        submit s1 session=chat | submit s2 session=chat | submit s3 session=chat
            s1 started #1
        change s2 after=10s
            is scheduled
            s2 rescheduled #0
        finish s1 ok | finish s3 ok
            s1 succeeded #1 (done)
            s3 started #1
            s3 succeeded #1 (done)
        wait 10s
            s2 queued #0 (due)
            s2 started #1
        finish s2 ok
            s2 succeeded #1 (done)
    "#]]);
}

#[test]
fn a_job_of_a_session_that_waits_for_its_retry_gives_the_session_free_when_it_is_rescheduled() {
    check(expect![[r#"
        submit s1 session=chat | submit s2 session=chat
            s1 started #1
        finish s1 fail
            s1 retrying #1 (retry)
        change s1 after=60s
            is scheduled
            s1 rescheduled #1
            s2 started #1
        crash
            s2 queued #1 (lost)
            s2 started #2
        finish s2 ok
            s2 succeeded #2 (done)
        wait 60s
            s1 queued #1 (due)
            s1 started #2
    "#]]);
}

#[test]
fn the_first_job_of_a_debounce_batch_collects_no_more_when_it_is_rescheduled() {
    check(expect![[r#"
        submit s1 session=chat debounce=5s | submit s2 session=chat debounce=5s
            s2 canceled #0 (merged)
        change s1 after=60s
            is scheduled
            s1 rescheduled #0
        submit s3 session=chat debounce=5s
        wait 5s
            s3 queued #0 (due)
            s3 started #1
        wait 60s
            s1 queued #0 (due)
    "#]]);
}

#[test]
fn a_node_waits_for_its_dependencies_and_then_for_its_time() {
    check(expect![[r#"
        submitrun r a b<a
            r submitted
            r started
            r/a started #1
        change r/b after=60s
            is scheduled
            r/b rescheduled #0
        finish r/a ok
            r/a succeeded #1 (done)
        crash
        wait 59s
        wait 1s
            r/b queued #0 (due)
            r/b started #1
        finish r/b ok
            r/b succeeded #1 (done)
            r succeeded
    "#]]);
}

#[test]
fn a_node_whose_time_passes_before_its_dependencies_end_starts_with_them() {
    check(expect![[r#"
        submitrun r a b<a
            r submitted
            r started
            r/a started #1
        change r/b after=10s priority=-1
            is scheduled
            r/b priority_changed #0
            r/b rescheduled #0
        wait 20s
        finish r/a ok
            r/a succeeded #1 (done)
            r/b queued #0 (released)
            r/b started #1
    "#]]);
}

#[test]
fn nodes_that_are_called_and_groups_have_no_time_of_their_own() {
    check(expect![[r#"
        submitrun r h m1 chain=h:m1
            r submitted
            r started
            r/m1 started #1
        change r/h after=5s
            rejected: invalid: run_at: this node of a middleware chain starts when it is called; leave run_at and delay out
        submitrun g a b group=b:a
            g submitted
            g started
            g/a started #1
        change g/b after=5s
            rejected: invalid: run_at: this node stands for a group of nodes and starts nothing; reschedule the nodes in it
    "#]]);
}

#[test]
fn a_new_time_goes_by_the_hours_of_the_job() {
    check(expect![[r#"
        submit a1 hours=09:00-10:00
        change a1 after=60s
            is scheduled
        explain a1
            a1 is scheduled, 0 ahead: not before 3600 s from the start
        change a1 after=5400s
            is scheduled
            a1 rescheduled #0
        explain a1
            a1 is scheduled, 0 ahead: not before 5400 s from the start
        crash
        wait 5400s
            a1 queued #0 (due)
            a1 started #1
    "#]]);
}

#[test]
fn the_queue_timeout_begins_with_the_new_time() {
    check(expect![[r#"
        given lane main running=1
        submit a1 | submit a2 queue=10s
            a1 started #1
        change a2 after=60s
            is scheduled
            a2 rescheduled #0
        wait 60s
            a2 queued #0 (due)
        wait 9s
        wait 1s
            a2 failed #0 (queue_timeout)
    "#]]);
}
