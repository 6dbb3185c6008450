//! Push workers: they register, take tasks, fall silent, come back and leave.

use crate::engine::tests::scenario::check;
use expect_test::expect;

#[test]
fn d2_d12_a_registered_worker_gets_as_much_as_it_takes() {
    check(expect![[r#"
        submit a1 kind=w | submit a2 kind=w | submit a3 kind=w
        worker w1 c1 slots=2 kinds=w
            lease 30 s
            worker.connected w1: registered over c1, 0 attempts rebound
            a1 assigned #1
            a2 assigned #1
            offer a1#1 to c1
            offer a2#1 to c1
        accept c1 a1
            a1 started #1
        result c1 a1 ok
            a1 succeeded #1 (done)
            a3 assigned #1
            offer a3#1 to c1
        accept c1 a2
            a2 started #1
        workers
            w1 c1 ready 2/2
        result c1 a2 fail
            a2 retrying #1 (retry)
    "#]]);
}

#[test]
fn d9_d22_results_count_once_and_only_from_the_worker_of_the_task() {
    check(expect![[r#"
        given push worker w1 | tasks a1 on c1 | worker w2 c2 slots=1 kinds=w
        result c2 a1 ok
            not yours
        result c1 a1#2 ok
            gap
        result c9 a1 ok
            stale
        result c1 a1 fail
            a1 retrying #1 (retry)
        result c1 a1 fail
            duplicate
        wait 1s
            a1 queued #1 (due)
            a1 assigned #2
            offer a1#2 to c1
        result c1 a1#1 ok
            duplicate
        accept c2 a1#2
            not yours
        result c2 a1#2 ok
            not yours
        result c2 a1#2 ok
            not yours
        result c1 a1#2 ok
            a1 started #2
            a1 succeeded #2 (done)
    "#]]);
}

#[test]
fn d6_x3_an_unanswered_dispatch_is_tried_six_times_in_all() {
    check(expect![[r#"
        given push worker w1
        submit a1 kind=w
            a1 assigned #1
            offer a1#1 to c1
        wait 5s
            a1 queued #1 (handed_back)
            a1 deferred #1 (handed_back)
            stop a1 at c1
        pulse c1
        wait 1s
            a1 queued #1 (due)
            a1 assigned #2
            offer a1#2 to c1
        pulse c1
        wait 5s
            a1 queued #2 (handed_back)
            a1 deferred #2 (handed_back)
            stop a1 at c1
        reject c1 a1 E.CMD.CONCURRENCY_VIOLATION
            stale
        wait 2s
            a1 queued #2 (due)
            a1 assigned #3
            offer a1#3 to c1
        pulse c1
        reject c1 a1 E.CMD.CONCURRENCY_VIOLATION
            a1 queued #3 (handed_back)
            a1 deferred #3 (handed_back)
        wait 4s
            a1 queued #3 (due)
            a1 assigned #4
            offer a1#4 to c1
        pulse c1
        reject c1 a1 E.CMD.CONCURRENCY_VIOLATION
            a1 queued #4 (handed_back)
            a1 deferred #4 (handed_back)
        wait 8s
            a1 queued #4 (due)
            a1 assigned #5
            offer a1#5 to c1
        pulse c1
        reject c1 a1 E.CMD.CONCURRENCY_VIOLATION
            a1 queued #5 (handed_back)
            a1 deferred #5 (handed_back)
        wait 15s
        pulse c1
        wait 1s
            a1 queued #5 (due)
            a1 assigned #6
            offer a1#6 to c1
        reject c1 a1 E.CMD.CONCURRENCY_VIOLATION
            a1 failed #6 (unavailable)
    "#]]);
}

#[test]
fn d14_silence_is_noticed_and_attempts_are_lost_at_the_end_of_their_leases() {
    check(expect![[r#"
        given push worker w1 slots=2 | tasks a1 on c1
        wait 5s
        workers
            w1 c1 late 1/2
        wait 5s
            worker.degraded w1: two heartbeats are missing
        wait 5s
            worker.lost w1: three heartbeats are missing
        submit a2 kind=w
        workers
            w1 c1 lost 1/2
        wait 10s
        wait 5s
            a1 queued #1 (lost)
        result c1 a1#1 ok
            stale
        pulse c1
            a1 assigned #2
            a2 assigned #1
            offer a1#2 to c1
            offer a2#1 to c1
        workers
            w1 c1 ready 2/2
    "#]]);
}

#[test]
fn d16_a_worker_that_comes_back_in_time_keeps_its_tasks_under_a_new_epoch() {
    check(expect![[r#"
        given push worker w1 slots=2
        submit a1 kind=w | submit a2 kind=w
            a1 assigned #1
            offer a1#1 to c1
            a2 assigned #1
            offer a2#1 to c1
        accept c1 a1
            a1 started #1
        gone c1
            worker.disconnected w1: c1 is gone, 2 attempts are held
        workers
            w1 - away 2/2
        wait 4s
        worker w1 c2 slots=2 kinds=w
            lease 30 s
            worker.connected w1: registered over c2, 2 attempts rebound
            offer a1#1 to c2 again, 596000 ms left
            offer a2#1 to c2 again
        result c1 a1 ok
            stale
        accept c2 a1
        accept c2 a2
            a2 started #1
        result c2 a1 ok
            a1 succeeded #1 (done)
        result c2 a1 ok
            duplicate
        workers
            w1 c2 ready 1/2
    "#]]);
}

#[test]
fn d16_a_worker_that_comes_back_too_late_finds_its_task_gone() {
    check(expect![[r#"
        given push worker w1 | tasks a1 on c1
        gone c1
            worker.disconnected w1: c1 is gone, 1 attempts are held
        wait 5s | wait 5s | wait 5s | wait 5s | wait 5s | wait 4s
        workers
            w1 - away 1/1
        sleep 1s
        worker w1 c2 slots=1 kinds=w
            lease 30 s
            a1 queued #1 (lost)
            worker.connected w1: registered over c2, 0 attempts rebound
            a1 assigned #2
            offer a1#2 to c2
        result c2 a1#1 ok
            stale
        result c2 a1#2 ok
            a1 started #2
            a1 succeeded #2 (done)
        workers
            w1 c2 ready 0/1
    "#]]);
}

#[test]
fn x8_a_second_connection_supersedes_the_first_and_its_end_changes_nothing() {
    check(expect![[r#"
        worker w1 c1 slots=1 kinds=w
            lease 30 s
            worker.connected w1: registered over c1, 0 attempts rebound
        submit a1 kind=w
            a1 assigned #1
            offer a1#1 to c1
        accept c1 a1
            a1 started #1
        worker w1 c2 slots=1 kinds=w
            lease 30 s
            worker.superseded w1: c2 takes the place of c1
            worker.connected w1: registered over c2, 1 attempts rebound
            c1 is superseded
            offer a1#1 to c2 again
        result c1 a1 ok
            stale
        gone c1
            stale
        workers
            w1 c2 ready 1/1
        accept c2 a1
        result c2 a1 ok
            a1 succeeded #1 (done)
        gone c2
            worker.disconnected w1: c2 is gone, 0 attempts are held
        workers
    "#]]);
}

#[test]
fn an_attempt_that_is_offered_again_and_not_answered_is_lost_when_its_lease_ends() {
    check(expect![[r#"
        given push worker w1 | tasks a1 on c1
        worker w1 c2 slots=1 kinds=w
            lease 30 s
            worker.superseded w1: c2 takes the place of c1
            worker.connected w1: registered over c2, 1 attempts rebound
            c1 is superseded
            offer a1#1 to c2 again
        wait 5s | pulse c2 | wait 5s | pulse c2 | wait 5s | pulse c2 | wait 5s | pulse c2 | wait 5s | pulse c2
        wait 5s
            a1 queued #1 (lost)
            a1 assigned #2
            offer a1#2 to c2
    "#]]);
}

#[test]
fn d13_a_drained_worker_gets_no_new_task_and_ends_its_attempts() {
    check(expect![[r#"
        given push worker w1 slots=2
        submit a1 kind=w
            a1 assigned #1
            offer a1#1 to c1
        drainworker w1
            worker.drained w1: somebody said so
            drain c1
        drainworker w9
            not found
        drainworker w1 tenant=other
            not found
        submit a2 kind=w
        accept c1 a1
            a1 started #1
        result c1 a1 ok
            a1 succeeded #1 (done)
        workers
            w1 c1 draining 0/2
        undrain w1
            call.done
            a2 assigned #1
            offer a2#1 to c1
        pulse c1 draining
            worker.drained w1: it says so
        submit a3 kind=w
        workers
            w1 c1 draining 1/2
        gone c1
            worker.disconnected w1: c1 is gone, 1 attempts are held
        workers
            w1 - away 1/2
    "#]]);
}

#[test]
fn d15_a_worker_without_memory_or_disk_gets_no_task_until_it_recovers() {
    check(expect![[r#"
        given push worker w1 slots=4
        pulse c1 mem=89 disk=94
        submit a1 kind=w
            a1 assigned #1
            offer a1#1 to c1
        pulse c1 mem=90
            worker.drained w1: its memory or its disk is too full
        submit a2 kind=w
        pulse c1 mem=86
        pulse c1 mem=84
            a2 assigned #1
            offer a2#1 to c1
        pulse c1 disk=95
            worker.drained w1: its memory or its disk is too full
        submit a3 kind=w
        pulse c1 unhealthy
        pulse c1
            a3 assigned #1
            offer a3#1 to c1
    "#]]);
}

#[test]
fn a_canceled_task_is_stopped_over_its_connection_at_once() {
    check(expect![[r#"
        given push worker w1
        submit a1 kind=w | submit a2 kind=w
            a1 assigned #1
            offer a1#1 to c1
        accept c1 a1
            a1 started #1
        cancel a1
            was running
            a1 canceled #1 (requested)
            stop a1 at c1
        result c1 a1 canceled
            stale
            a1 released #1
            a2 assigned #1
            offer a2#1 to c1
        gone c1
            worker.disconnected w1: c1 is gone, 1 attempts are held
        cancel a2
            was assigned
            a2 canceled #1 (requested)
            stop a2
        worker w1 c2 slots=1 kinds=w
            lease 30 s
            worker.connected w1: registered over c2, 1 attempts rebound
            stop a2 at c2
    "#]]);
}

#[test]
fn after_a_restart_workers_keep_their_attempts() {
    check(expect![[r#"
        given push worker w1 slots=2
        submit a1 kind=w | submit a2 kind=w | submit a3 kind=w
            a1 assigned #1
            offer a1#1 to c1
            a2 assigned #1
            offer a2#1 to c1
        accept c1 a1
            a1 started #1
        crash
        workers
        wait 20s
        worker w1 c7 slots=2 kinds=w
            lease 30 s
            worker.connected w1: registered over c7, 2 attempts rebound
            offer a1#1 to c7 again, 580000 ms left
            offer a2#1 to c7 again
        accept c7 a1
        accept c7 a2
            a2 started #1
        result c7 a1 ok
            a1 succeeded #1 (done)
            a3 assigned #1
            offer a3#1 to c7
        rebuild
            lease 30 s
            worker.connected w1: registered over c7, 2 attempts rebound
            offer a2#1 to c7 again
            offer a3#1 to c7 again
        accept c7 a2
        accept c7 a3
            a3 started #1
        crash
        wait 30s
            a2 queued #1 (lost)
            a3 queued #1 (lost)
        worker w2 c8 slots=2 kinds=w
            lease 30 s
            worker.connected w2: registered over c8, 0 attempts rebound
            a2 assigned #2
            a3 assigned #2
            offer a2#2 to c8
            offer a3#2 to c8
    "#]]);
}

#[test]
fn a_worker_that_stays_at_its_limit_is_reported_once() {
    check(expect![[r#"
        given push worker w1 every=35s
        submit a1 kind=w timeout=900s
            a1 assigned #1
            offer a1#1 to c1
        accept c1 a1
            a1 started #1
        wait 30s
        pulse c1
        wait 30s
        pulse c1
        wait 30s
        pulse c1
            worker.saturated w1: no slot is free
        wait 30s
        pulse c1
    "#]]);
}

#[test]
fn d18_the_outcome_of_every_dispatch_is_in_the_event_log() {
    check(expect![[r#"
        given push worker w1
        submit a1 kind=w
            a1 assigned #1
            offer a1#1 to c1
        reject c1 a1 E.CMD.CONCURRENCY_VIOLATION
            a1 queued #1 (handed_back)
            a1 deferred #1 (handed_back)
        wait 1s
            a1 queued #1 (due)
            a1 assigned #2
            offer a1#2 to c1
        accept c1 a1
            a1 started #2
        result c1 a1 fail
            a1 retrying #2 (retry)
        wait 1s
            a1 queued #2 (due)
            a1 assigned #3
            offer a1#3 to c1
        wait 5s
        pulse c1
        wait 2s
            a1 queued #3 (handed_back)
            a1 deferred #3 (handed_back)
            stop a1 at c1
        pulse c1
        wait 2s
            a1 queued #3 (due)
            a1 assigned #4
            offer a1#4 to c1
        accept c1 a1
            a1 started #4
        result c1 a1 ok
            a1 succeeded #4 (done)
        dispatches
            cmd.dispatch 1 dispatched worker w1
            cmd.dispatch 1 E.CMD.CONCURRENCY_VIOLATION worker w1
            cmd.dispatch 2 dispatched worker w1
            cmd.dispatch 2 accepted worker w1
            cmd.dispatch 2 test worker w1
            cmd.dispatch 3 dispatched worker w1
            cmd.dispatch 3 unanswered worker w1
            cmd.dispatch 4 dispatched worker w1
            cmd.dispatch 4 accepted worker w1
            cmd.dispatch 4 succeeded worker w1
        submit a2 kind=w
            a2 assigned #1
            offer a2#1 to c1
        accept c1 a2
            a2 started #1
        cancel a2
            was running
            a2 canceled #1 (requested)
            stop a2 at c1
        result c1 a2 canceled
            stale
            a2 released #1
        dispatches
            cmd.dispatch 1 dispatched worker w1
            cmd.dispatch 1 accepted worker w1
            cmd.dispatch 1 canceled worker w1
        submit a3 kind=k
            a3 started #1
        finish a3 ok
            a3 succeeded #1 (done)
        dispatches
    "#]]);
}

#[test]
fn bad_registrations_are_rejected_and_change_nothing() {
    check(expect![[r#"
        worker w1 c1 slots=0 kinds=w
            rejected: invalid: max_parallel: is 0; give 1 to 10000
        worker w1 c1 slots=1 kinds=w every=1ms
            rejected: invalid: heartbeat: is 1 ms; give 100 to 600000 ms
        worker w1 c1 slots=1 kinds=w
            lease 30 s
            worker.connected w1: registered over c1, 0 attempts rebound
        worker w2 c1 slots=1 kinds=w
            rejected: invalid: connection: c1 has registered already; change the offer instead
        offers w2 c1 slots=1 kinds=w
            rejected: invalid: worker: tenant and name are those of the registration; register anew to change them
        offers w1 c1 slots=99999 kinds=w
            rejected: invalid: max_parallel: is 99999; give 1 to 10000
        workers
            w1 c1 ready 0/1
    "#]]);
}

#[test]
fn a_worker_without_a_connection_cannot_stop_and_keeps_its_slot_until_its_lease_ends() {
    check(expect![[r#"
        given push worker w1 | tasks a1 on c1
        gone c1
            worker.disconnected w1: c1 is gone, 1 attempts are held
        cancel a1
            was running
            a1 canceled #1 (requested)
            stop a1
        wait 5s | wait 5s | wait 5s | wait 5s | wait 5s | wait 4s
        workers
            w1 - away 1/1
        wait 1s
            a1 released #1
        workers
    "#]]);
}

#[test]
fn a_worker_that_resumes_a_task_gets_the_time_that_is_left() {
    check(expect![[r#"
        given push worker w1 every=60s
        submit a1 kind=w timeout=20s
            a1 assigned #1
            offer a1#1 to c1
        worker w1 c2 slots=1 kinds=w every=60s
            lease 180 s
            worker.superseded w1: c2 takes the place of c1
            worker.connected w1: registered over c2, 1 attempts rebound
            c1 is superseded
            offer a1#1 to c2 again
        wait 3s
        accept c2 a1
            a1 started #1
        wait 12s
        worker w1 c3 slots=1 kinds=w every=60s
            lease 180 s
            worker.superseded w1: c3 takes the place of c2
            worker.connected w1: registered over c3, 1 attempts rebound
            c2 is superseded
            offer a1#1 to c3 again, 8000 ms left
        accept c3 a1
        wait 5s
    "#]]);
}
