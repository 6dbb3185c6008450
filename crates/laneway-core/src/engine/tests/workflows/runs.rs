//! Runs: jobs that depend on one another. Ids in names are those of the acceptance lists.

use crate::engine::tests::scenario::check;
use expect_test::expect;

#[test]
fn a_diamond_goes_in_the_order_of_its_dependencies() {
    check(expect![[r#"
        submitrun r a b<a c<a d<b,c
            r submitted
            r started
            r/a started #1
        explain r/d
            r/d is scheduled, 0 ahead: waits for 2: b c
        showrun r
            r is running, 1 attempts
        finish r/a ok
            r/a succeeded #1 (done)
            r/b queued #0 (released)
            r/c queued #0 (released)
            r/b started #1
            r/c started #1
        finish r/c ok
            r/c succeeded #1 (done)
        explain r/d
            r/d is scheduled, 0 ahead: waits for 1: b
        finish r/b ok
            r/b succeeded #1 (done)
            r/d queued #0 (released)
            r/d started #1
        finish r/d ok
            r/d succeeded #1 (done)
            r succeeded
        showrun r
            r is succeeded, 4 attempts
    "#]]);
}

#[test]
fn x1_a_result_that_comes_twice_releases_no_join() {
    check(expect![[r#"
        submitrun r a b c<a,b
            r submitted
            r started
            r/a started #1
            r/b started #1
        finish r/a ok
            r/a succeeded #1 (done)
        finish r/a ok
            stale
        finish r/a#1 ok
            stale
        explain r/c
            r/c is scheduled, 0 ahead: waits for 1: b
        finish r/b ok
            r/b succeeded #1 (done)
            r/c queued #0 (released)
            r/c started #1
        finish r/c ok
            r/c succeeded #1 (done)
            r succeeded
    "#]]);
}

#[test]
fn x7_a_report_about_no_attempt_of_the_run_changes_nothing() {
    check(expect![[r#"
        given submitrun r a b<a
        finish r/a! ok
            stale
        showrun r
            r is running, 1 attempts
        finish r/a ok
            r/a succeeded #1 (done)
            r/b queued #0 (released)
            r/b started #1
        finish r/b ok
            r/b succeeded #1 (done)
            r succeeded
    "#]]);
}

#[test]
fn a_failed_node_stops_its_run_at_once() {
    check(expect![[r#"
        given submitrun r a b c<a d<b
        finish r/a permanent
            r/a failed #1 (permanent)
            r/b canceled #1 (run_failed)
            r/c canceled #0 (run_failed)
            r/d canceled #0 (run_failed)
            r failed
            stop r/b
        showrun r
            r is failed, 2 attempts
        finish r/b ok
            stale
            r/b released #1
        cancelrun r
            not found
    "#]]);
}

#[test]
fn with_continue_only_dependents_of_the_failed_node_are_canceled() {
    check(expect![[r#"
        given submitrun r a b c<a d<b e<c,d failure=continue
        finish r/a permanent
            r/a failed #1 (permanent)
            r/c canceled #0 (upstream_failed)
            r/e canceled #0 (upstream_failed)
        showrun r
            r is running, 2 attempts
        finish r/b ok
            r/b succeeded #1 (done)
            r/d queued #0 (released)
            r/d started #1
        finish r/d ok
            r/d succeeded #1 (done)
            r failed
        showrun r
            r is failed, 3 attempts
    "#]]);
}

#[test]
fn a_failed_attempt_that_is_tried_again_is_no_failure_of_the_run() {
    check(expect![[r#"
        given submitrun r a b<a
        finish r/a fail
            r/a retrying #1 (retry)
        showrun r
            r is running, 1 attempts
        wait 1s
            r/a queued #1 (due)
            r/a started #2
        finish r/a ok
            r/a succeeded #2 (done)
            r/b queued #0 (released)
            r/b started #1
        finish r/b ok
            r/b succeeded #1 (done)
            r succeeded
        showrun r
            r is succeeded, 3 attempts
    "#]]);
}

#[test]
fn a_skipped_node_releases_its_dependents() {
    check(expect![[r#"
        given submitrun r a b<a
        finish r/a skip
            r/a succeeded #1 (skipped)
            r/b queued #0 (released)
            r/b started #1
        finish r/b skip
            r/b succeeded #1 (skipped)
            r succeeded
        showrun r
            r is succeeded, 2 attempts
    "#]]);
}

#[test]
fn x6_a_canceled_node_does_not_leave_its_run_open() {
    check(expect![[r#"
        given submitrun r a b<a c
        cancel r/a
            was running
            r/a canceled #1 (requested)
            r/b canceled #0 (upstream_failed)
            stop r/a
        finish r/a ok
            stale
            r/a released #1
        finish r/c ok
            r/c succeeded #1 (done)
            r succeeded
        showrun r
            r is succeeded, 2 attempts
        submitrun s a b<a
            s submitted
            s started
            s/a started #1
        cancel s/a
            was running
            s/a canceled #1 (requested)
            s/b canceled #0 (upstream_failed)
            s canceled
            stop s/a
        showrun s
            s is canceled, 1 attempts
    "#]]);
}

#[test]
fn a_run_is_canceled_as_one() {
    check(expect![[r#"
        given submitrun r a b c<a d<b,c
        finish r/a ok
            r/a succeeded #1 (done)
            r/c queued #0 (released)
            r/c started #1
        cancelrun r tenant=other
            not found
        cancelrun r
            canceled 3 jobs, canceled
            r/b canceled #1 (requested)
            r/c canceled #1 (requested)
            r/d canceled #0 (requested)
            r canceled
            stop r/b
            stop r/c
        showrun r
            r is canceled, 3 attempts
        cancelrun r
            not found
        finish r/b ok
            stale
            r/b released #1
        finish r/c ok
            stale
            r/c released #1
    "#]]);
}

#[test]
fn a_queued_run_is_canceled_before_anything_starts() {
    check(expect![[r#"
        given lane main running=1
        submit x | submitrun r a b<a
            x started #1
            r submitted
        cancelrun r
            canceled 2 jobs, canceled
            r/a canceled #0 (requested)
            r/b canceled #0 (requested)
            r canceled
        finish x ok
            x succeeded #1 (done)
    "#]]);
}

#[test]
fn an_invalid_run_is_rejected_and_leaves_nothing() {
    check(expect![[r#"
        submitrun r a<b b<c c<a d
            rejected: invalid: node "a": depends_on leads back to itself (a -> b -> c -> a); take one of these dependencies away
        submitrun r a<a
            rejected: invalid: node "a": depends_on names the node itself; take it away
        submitrun r a<x
            rejected: invalid: node "a": depends_on names "x", which the run does not have; add that node or take the name away
        submitrun r a a
            rejected: invalid: node "a": the run has two of that name; rename one
        submitrun r
            rejected: invalid: nodes: a run has at least one; add a node
        submitrun r a session=chat
            rejected: invalid: node "a": session: nodes of a run have none; order them with depends_on or keys
        submitrun r a b<a deadline=0s
            rejected: deadline_past: node "a": deadline: has passed; give a time in the future
        submitrun r a b<a tenant=t key=k | submitrun r a tenant=t key=k digest=2
            r submitted
            r started
            r/a started #1
            rejected: idempotency_mismatch: idempotency_key: "k" was used for another request; choose a new key
        server nodes=2 | submitrun r a b c
            config.changed
            rejected: invalid: nodes: the run has 3, at most 2 are allowed (runs.nodes_max); split it
        server nodes=9 depth=2 | submitrun r a b<a c<b
            config.changed
            rejected: invalid: node "c": waits for 2 nodes in a row, at most 1 are allowed (runs.depth_max); join some
        server depth=9 dependencies=1 | submitrun r a b<a c<b
            config.changed
            rejected: invalid: nodes: they have 2 dependencies, at most 1 are allowed (runs.dependencies_max); leave out those that follow from others
        server dependencies=9 open_nodes=3 | submitrun r a b | submitrun s a b
            config.changed
            rejected: queue_full: nodes: 2 of 3 nodes of open runs are taken (runs.open_nodes_max); submit again when runs have ended
            rejected: queue_full: nodes: 2 of 3 nodes of open runs are taken (runs.open_nodes_max); submit again when runs have ended
        explain r/b
            r/b is scheduled, 0 ahead: waits for 1: a
    "#]]);
}

#[test]
fn a_run_that_does_not_fit_the_queue_is_rejected_whole() {
    check(expect![[r#"
        given lane main running=1 queued=3
        submit x
            x started #1
        submitrun r a b<a c<a d<a
            rejected: queue_full: node "d": the queue is full (lane: queued_max): 3 of 3 jobs wait; submit again later
        submitrun r a b<a c<a
            r submitted
        counts main
            main: 3 wait, 1 open; submitted 4 rejected 0 succeeded 0 failed 0 canceled 0 expired 0; dispatched 1 after 0 ms, 0 attempts of 0 ms
            A: 3 wait, 1 open; submitted 4 rejected 0 succeeded 0 failed 0 canceled 0 expired 0; dispatched 1 after 0 ms, 0 attempts of 0 ms
    "#]]);
}

#[test]
fn the_same_key_gives_the_same_run() {
    check(expect![[r#"
        given submitrun r a b<a key=k1
        submitrun r a b<a key=k1
            r exists already, running
        submitrun s a key=k1 digest=2
            rejected: idempotency_mismatch: idempotency_key: "k1" was used for another request; choose a new key
        submitrun s a key=k2 tenant=other
            s submitted
            s started
            s/a started #1
        finish r/a ok
            r/a succeeded #1 (done)
            r/b queued #0 (released)
            r/b started #1
        finish r/b ok
            r/b succeeded #1 (done)
            r succeeded
        submitrun r a b<a key=k1
            r exists already, succeeded
    "#]]);
}

#[test]
fn a_node_waits_for_its_time_after_its_dependencies() {
    check(expect![[r#"
        submitrun r a b<a after=10s
            r submitted
        wait 10s
            r/a queued #0 (due)
            r started
            r/a started #1
        finish r/a ok
            r/a succeeded #1 (done)
            r/b queued #0 (released)
            r/b started #1
        finish r/b ok
            r/b succeeded #1 (done)
            r succeeded
        submitrun s a b<a c<b after=10s
            s submitted
        cancel s/a
            was scheduled
            s/a canceled #0 (requested)
            s/b canceled #0 (upstream_failed)
            s/c canceled #0 (upstream_failed)
            s canceled
    "#]]);
}

#[test]
fn a_released_node_whose_time_has_not_come_waits_for_it() {
    check(expect![[r#"
        submitrun r a b+5s<a c<b
            r submitted
            r started
            r/a started #1
        finish r/a ok
            r/a succeeded #1 (done)
        explain r/b
            r/b is scheduled, 0 ahead: not before 5 s from the start
        crash
        wait 5s
            r/b queued #0 (due)
            r/b started #1
        finish r/b ok
            r/b succeeded #1 (done)
            r/c queued #0 (released)
            r/c started #1
        finish r/c ok
            r/c succeeded #1 (done)
            r succeeded
        showrun r
            r is succeeded, 3 attempts
    "#]]);
}

#[test]
fn the_queue_timeout_of_a_node_begins_when_it_may_start() {
    check(expect![[r#"
        given submitrun r a b<a queue=5s timeout=60s
        wait 20s
        explain r/b
            r/b is scheduled, 0 ahead: waits for 1: a
        lane main paused=yes
            config.changed
        finish r/a ok
            r/a succeeded #1 (done)
            r/b queued #0 (released)
        wait 4s
        wait 1s
            r/b failed #0 (queue_timeout)
            r failed
        showrun r
            r is failed, 1 attempts
    "#]]);
}

#[test]
fn the_deadline_of_a_waiting_node_holds() {
    check(expect![[r#"
        given submitrun r a b<a deadline=5s failure=continue
        wait 5s
            r/b failed #0 (expired)
            stop r/a
        wait 10s
            r/a failed #1 (expired)
            r failed
        showrun r
            r is failed, 1 attempts
    "#]]);
}

#[test]
fn a_run_that_was_open_at_a_crash_goes_on() {
    check(expect![[r#"
        given leased executor
        submitrun r a b@w c@w<a d<b,c
            r submitted
            r started
            r/a started #1
            r/b assigned #1
        finish r/a ok
            r/a succeeded #1 (done)
            r/c queued #0 (released)
            r/c assigned #1
        start r/b
            r/b started #1
        crash
        explain r/d
            r/d is scheduled, 0 ahead: waits for 2: b c
        start r/c
            r/c started #1
        finish r/b ok
            r/b succeeded #1 (done)
        crash
        finish r/c ok
            r/c succeeded #1 (done)
            r/d queued #0 (released)
            r/d started #1
        finish r/d ok
            r/d succeeded #1 (done)
            r succeeded
        showrun r
            r is succeeded, 4 attempts
    "#]]);
}

#[test]
fn a_join_whose_last_dependency_is_lost_in_a_crash_is_settled_by_the_restart() {
    check(expect![[r#"
        given submitrun r a b<a retries=0 failure=stop
        crash
            r/a queued #1 (lost)
            r/a started #2
        crash
            r/a failed #2 (lost)
            r/b canceled #0 (run_failed)
            r failed
        showrun r
            r is failed, 2 attempts
        explain r/b
            r/b is not live
    "#]]);
}

#[test]
fn a_released_node_stays_released_over_a_restart_and_keeps_its_time() {
    check(expect![[r#"
        given submitrun r a b<a queue=10s
        wait 60s
        lane main paused=yes
            config.changed
        finish r/a ok
            r/a succeeded #1 (done)
            r/b queued #0 (released)
        wait 4s
        crash
        explain r/b
            r/b is queued, 0 ahead: lane main paused
        wait 5s
        wait 1s
            r/b failed #0 (queue_timeout)
            r failed
        showrun r
            r is failed, 1 attempts
    "#]]);
}

#[test]
fn t10_a_node_that_a_worker_gives_back_is_ready_again() {
    check(expect![[r#"
        given submitrun r a b<a
        finish r/a back
            r/a queued #1 (handed_back)
            r/a started #2
        finish r/a ok
            r/a succeeded #2 (done)
            r/b queued #0 (released)
            r/b started #1
        finish r/b ok
            r/b succeeded #1 (done)
            r succeeded
        showrun r
            r is succeeded, 3 attempts
    "#]]);
}

#[test]
fn t16_only_a_change_of_its_state_is_an_event_of_a_run() {
    check(expect![[r#"
        submitrun r a b c<a,b
            r submitted
            r started
            r/a started #1
            r/b started #1
        finish r/a fail
            r/a retrying #1 (retry)
        wait 1s
            r/a queued #1 (due)
            r/a started #2
        finish r/a ok
            r/a succeeded #2 (done)
        finish r/b ok
            r/b succeeded #1 (done)
            r/c queued #0 (released)
            r/c started #1
        finish r/c ok
            r/c succeeded #1 (done)
            r succeeded
    "#]]);
}

#[test]
fn attempts_of_a_run_are_numbered_over_all_its_nodes_and_restarts() {
    check(expect![[r#"
        given leased executor
        submitrun r a@w b@w<a
            r submitted
            r started
            r/a assigned #1
        start r/a
            r/a started #1
        finish r/a fail
            r/a retrying #1 (retry)
        crash
        wait 1s
            r/a queued #1 (due)
            r/a assigned #2
        start r/a
            r/a started #2
        crash
        finish r/a ok
            r/a succeeded #2 (done)
            r/b queued #0 (released)
            r/b assigned #1
        crash
        start r/b
            r/b started #1
        finish r/b ok
            r/b succeeded #1 (done)
            r succeeded
        showrun r
            r is succeeded, 3 attempts
    "#]]);
}

#[test]
fn a_lane_that_cancels_on_shutdown_ends_the_run() {
    check(expect![[r#"
        given lane main stop=cancel running=1
        submitrun r a b<a c
            r submitted
            r started
            r/a started #1
        drain
            server.draining
            r/b canceled #0 (shutdown)
            r/c canceled #0 (shutdown)
        finish r/a back
            r/a canceled #1 (shutdown)
            r canceled
        showrun r
            r is canceled, 1 attempts
    "#]]);
}

/// Half of the nodes of open runs is reserved for tenants in equal parts.
#[test]
fn defect_11_runs_of_one_tenant_leave_nodes_for_others() {
    check(expect![[r#"
        given tenant t1 queued=99 | tenant t2 queued=99 | lane main running=0 | server open_nodes=8
        submitrun r a b c d e f tenant=t1
            r submitted
        submitrun s a b tenant=t1
            rejected: queue_full: nodes: 6 of 8 nodes of open runs are taken (runs.open_nodes_max), and some are reserved for other tenants; submit again when runs have ended
        submitrun s a tenant=t1
            s submitted
        submitrun q a tenant=t2
            q submitted
        submitrun p a tenant=t2
            rejected: queue_full: nodes: 8 of 8 nodes of open runs are taken (runs.open_nodes_max); submit again when runs have ended
    "#]]);
}
